"""Sends one WhatsApp message through Recado, once, whatever fails on the way. Python 3, no packages.

BASE=https://api.recado.example KEY=rcd_... python3 docs/examples/send_message.py +5511961234567 order_update order-1042
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request


def send(phone: str, template: str, variables: dict, reference: str, attempts: int = 5) -> dict:
    """Returns the message. The reference makes a repeated request harmless, so every failure may be retried."""
    body = {
        "to": {"phone": phone},
        "template": {"name": template, "language": "pt_BR", "variables": variables},
        "client_reference": reference,
    }
    headers = {"Authorization": f"Bearer {os.environ['KEY']}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{os.environ['BASE']}/api/messages", json.dumps(body).encode(), headers)
    for attempt in range(attempts):
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            # 429 and 503 say when to come back. Any other status is an answer: the same request would get it again.
            if error.code not in (429, 503):
                raise SystemExit(f"refused: {error.read().decode()}") from error
            time.sleep(float(error.headers.get("Retry-After", 1)))
        except OSError:  # no connection, or no response: the message may be stored
            time.sleep(2**attempt)
    raise SystemExit("no answer; run it again with the same reference")


if __name__ == "__main__":
    phone, template, reference = sys.argv[1:4]
    message = send(phone, template, {"1": "Ana", "2": "1042"}, reference)
    print(message["id"], message["status"])
