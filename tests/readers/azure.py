"""Makes a container in a local Azurite, and races its conditional put: one of several writers may win.

    azure.py PORT CONTAINER
"""

import base64
import collections
import concurrent.futures
import datetime
import hashlib
import hmac
import http.client
import sys
import threading
import time

ACCOUNT = "devstoreaccount1"
# The key of every Azurite.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
WRITERS = 8


def put(port, path, query="", body=b"", headers=None):
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = {"x-ms-date": date, "x-ms-version": "2021-12-02"} | (headers or {})
    own = "".join(f"{key}:{value}\n" for key, value in sorted(headers.items()) if key.startswith("x-ms-"))
    resource = f"/{ACCOUNT}/{ACCOUNT}{path}" + "".join(f"\n{part.replace('=', ':')}" for part in query.split("&") if part)
    condition = headers.get("If-None-Match", "")
    signed = f"PUT\n\n\n{len(body) or ''}\n\n\n\n\n\n{condition}\n\n\n{own}{resource}"
    signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), signed.encode(), hashlib.sha256)).decode()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{signature}"
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        connection.request("PUT", f"/{ACCOUNT}{path}" + (f"?{query}" if query else ""), body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def made(port, container):
    until = time.monotonic() + 60
    while True:
        try:
            return put(port, f"/{container}", "restype=container")
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def main():
    port, container = int(sys.argv[1]), sys.argv[2]
    status = made(port, container)
    if status != 201:
        sys.exit(f"the container was not made: {status}")
    start = threading.Barrier(WRITERS)

    def write(path, writer):
        start.wait()
        return put(port, path, "", writer, {"x-ms-blob-type": "BlockBlob", "If-None-Match": "*"})

    with concurrent.futures.ThreadPoolExecutor(WRITERS) as pool:
        for number in range(10):
            path = f"/{container}/race-{number}"
            writers = [pool.submit(write, path, b"%d" % writer) for writer in range(WRITERS)]
            statuses = collections.Counter(writer.result() for writer in writers)
            if statuses[201] != 1:
                sys.exit(f"not one winner: {statuses}")
    print("one winner", flush=True)


if __name__ == "__main__":
    main()
