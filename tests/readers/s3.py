"""A local S3 server for the tests (moto): prints its port, and ends when its stdin does, or whoever started it.

    s3.py BUCKET [ADDRESS]

It does one request at a time: by itself moto looks whether an object is there and writes it in two steps, between which
another thread may do the same.
"""

import io
import logging
import sys
import threading

import boto3
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server


def one_at_a_time(application):
    lock = threading.Lock()

    def answer(environ, start_response):
        # Outside the lock, so that a client that stops in the middle holds up nobody.
        length = int(environ.get("CONTENT_LENGTH") or 0)
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
        with lock:
            return list(application(environ, start_response))

    return answer


def main():
    logging.getLogger("werkzeug").disabled = True
    # Connections are kept, as real servers do.
    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    application = one_at_a_time(DomainDispatcherApplication(create_backend_app))
    server = make_server(sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1", 0, application, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{server.port}",
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    client.create_bucket(Bucket=sys.argv[1])
    print(server.port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
