"""A local S3 server for the tests (moto): prints its port, and ends when its stdin does, or whoever started it.

    s3.py BUCKET
"""

import logging
import sys

import boto3
from moto.server import ThreadedMotoServer
from werkzeug.serving import WSGIRequestHandler


def main():
    logging.getLogger("werkzeug").disabled = True
    # Connections are kept, as real servers do.
    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    client = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    client.create_bucket(Bucket=sys.argv[1])
    print(port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
