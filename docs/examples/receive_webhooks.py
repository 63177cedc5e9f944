"""A receiver of Recado's webhooks: verifies the signature, skips known ids, responds at once. Python 3, no packages.

SIGNING_SECRET=whsec_... python3 docs/examples/receive_webhooks.py 9000
"""

import base64
import hashlib
import hmac
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

TOLERANCE = 300  # seconds
SEEN = set()  # in production: a table with a unique column, written in the transaction of the event's effect


def verify(secret: str, headers, body: bytes) -> None:
    """Raises ValueError unless Recado signed the body within TOLERANCE."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    message_id, timestamp = headers["webhook-id"], headers["webhook-timestamp"]
    if not message_id or not timestamp or abs(time.time() - int(timestamp)) > TOLERANCE:
        raise ValueError("no id, or too old")
    signed = b".".join([message_id.encode(), timestamp.encode(), body])
    expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    # After a rotation there are two signatures, separated by a space: one must match.
    given = (headers["webhook-signature"] or "").split(" ")
    if not any(hmac.compare_digest(expected, one) for one in given):
        raise ValueError("wrong signature")


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"] or 0))
        try:
            verify(os.environ["SIGNING_SECRET"], self.headers, body)
        except ValueError as error:
            return self.answer(401, str(error))
        event = json.loads(body)
        if event["id"] not in SEEN:
            SEEN.add(event["id"])
            print(event["type"], json.dumps(event["data"]), flush=True)
        self.answer(204)

    def answer(self, status: int, why: str = ""):
        self.send_response(status, why or None)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
