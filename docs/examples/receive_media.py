"""Saves the file of a WhatsApp message from Recado: waits for it, resumes a broken download, checks its hash. Python 3.

BASE=https://api.recado.example KEY=rcd_... python3 docs/examples/receive_media.py <media id> <file>
"""

import hashlib
import os
import sys
import time
import urllib.error
import urllib.request


def receive(media_id: str, path: str, attempts: int = 20) -> str:
    """Returns the hash. Begin with `message.media_ready`, which names the id; a pending file is waited for."""
    part, etag = f"{path}.part", None
    for attempt in range(attempts):
        have = os.path.getsize(part) if os.path.exists(part) else 0
        headers = {"Authorization": f"Bearer {os.environ['KEY']}"}
        if have and etag:
            headers |= {"Range": f"bytes={have}-", "If-Range": etag}
        request = urllib.request.Request(f"{os.environ['BASE']}/api/media/{media_id}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                etag = response.headers["ETag"]
                with open(part, "ab" if response.status == 206 else "wb") as out:
                    while chunk := response.read(65536):
                        out.write(chunk)
        except urllib.error.HTTPError as error:
            # 409: not fetched from WhatsApp yet. 404: it never will be, or it is not yours.
            if error.code not in (409, 429, 502, 503):
                raise SystemExit(f"refused: {error.read().decode()}") from error
            time.sleep(float(error.headers.get("Retry-After", 5)))
            continue
        except OSError:  # the connection broke: the next request continues
            time.sleep(min(2**attempt, 30))
            continue
        with open(part, "rb") as stored:
            sha256 = hashlib.file_digest(stored, "sha256").hexdigest()
        # The ETag of a file is its hash.
        if etag == f'"{sha256}"':
            os.replace(part, path)
            return sha256
        os.remove(part)
    raise SystemExit("the file is not available; run it again later")


if __name__ == "__main__":
    print(receive(*sys.argv[1:3]))
