"""Runs the code of readers/README.md that follows a view, through connections that break: follow.py DAEMON PATH.

DAEMON is a file with the daemon's address, which may change; PATH is that of the call. The first connections are cut off after so
many bytes. Prints each step that was applied; in the end writes the target's rows to rows.ndjson in the working directory.
"""

import itertools
import pathlib
import socket
import sqlite3
import sys
import threading
import urllib.parse

import judge

import cutover_reader

CUTS = (3_000, 20_000, 50_000)


def connect(daemon: pathlib.Path) -> socket.socket:
    """To wherever the daemon is, once it is there."""
    while True:
        address = urllib.parse.urlsplit(daemon.read_text())
        try:
            return socket.create_connection((address.hostname, address.port))
        except OSError:
            threading.Event().wait(0.05)


def relay(client: socket.socket, daemon: pathlib.Path, most: float) -> None:
    with client, connect(daemon) as there:
        there.sendall(client.recv(65536))
        given = 0
        while given < most:
            try:
                data = there.recv(4096)
                client.sendall(data)
            except OSError:
                return
            if not data:
                return
            given += len(data)


def serve(listener: socket.socket, daemon: pathlib.Path) -> None:
    for most in itertools.chain(CUTS, itertools.repeat(float("inf"))):
        client, _ = listener.accept()
        threading.Thread(target=relay, args=(client, daemon, most), daemon=True).start()


def told(*args, **kwargs):
    """The client, which says what was applied when the next chunk is asked for."""
    for chunk in SUBSCRIBE(*args, **kwargs):
        yield chunk
        if chunk.place is not None:
            print(chunk.place.after_step, file=sys.__stdout__, flush=True)


SUBSCRIBE, cutover_reader.subscribe = cutover_reader.subscribe, told


def main() -> None:
    daemon, path = pathlib.Path(sys.argv[1]), sys.argv[2]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener, daemon), daemon=True).start()
        judge.follow(f"http://127.0.0.1:{listener.getsockname()[1]}{path}")
    rows = sqlite3.connect("prices.db").execute("SELECT row FROM prices ORDER BY id")
    pathlib.Path("rows.ndjson").write_text("".join(f"{row}\n" for (row,) in rows))


main()
