"""Loads and follows tables of PostgreSQL, against what PostgreSQL's own programs and DuckDB need for the same rows.

    python benches/postgres.py --program PATH [--scale N] [--rounds N] [--seconds N] [--folder PATH]

PATH is a release build of cutover. Needs PostgreSQL's programs (CUTOVER_POSTGRES, the PATH, or /usr/lib/postgresql) and
the readers' interpreter (tests/readers/requirements.txt); DuckDB takes part in the load where the package
`duckdb-extension-postgres-scanner` is installed. Nothing is synced. Loads are in turn, the first round warms up.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import pwd
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).parent.parent / "tests" / "readers"))
import read  # noqa: E402

TABLES = ["accounts", "branches", "tellers", "history"]
PUBLISHED = ", ".join(f"pgbench_{table}" for table in TABLES)


class Server:
    def __init__(self, folder):
        # A link may lead to one of the programs, and its neighbours are there.
        places = [os.environ.get("CUTOVER_POSTGRES"), os.path.dirname(os.path.realpath(shutil.which("initdb") or "/"))]
        places += sorted(map(str, pathlib.Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)
        self.programs = next(pathlib.Path(p) for p in places if p and os.path.exists(f"{p}/initdb"))
        # The server refuses to be root's.
        self.user = pwd.getpwnam("postgres").pw_uid if os.getuid() == 0 else None
        home = folder / "server"
        home.mkdir()
        if self.user is not None:
            os.chown(home, self.user, -1)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.call("initdb", "--no-sync", "--no-locale", "--encoding=UTF8", "--auth=trust", "-U", "postgres", "-D", home)
        settings = {
            "listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": "", "fsync": "off",
            "wal_level": "logical", "shared_buffers": "512MB", "max_wal_size": "8GB", "timezone": "UTC",
            "max_wal_senders": 20, "max_replication_slots": 20,
        }
        with open(home / "postgresql.conf", "a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        self.process = subprocess.Popen(
            [self.programs / "postgres", "-D", home], user=self.user, cwd="/", stderr=open(folder / "log", "w")
        )

    def await_start(self, folder):
        while subprocess.run([self.programs / "pg_isready", "-q", "-d", self.url]).returncode:
            assert self.process.poll() is None, (folder / "log").read_text()

    @property
    def url(self):
        return f"postgres://postgres@127.0.0.1:{self.port}/postgres"

    def call(self, program, *args):
        there = self.programs / program
        command = [there if there.exists() else program, *args]
        ran = subprocess.run(command, user=self.user, cwd="/", capture_output=True, text=True)
        assert ran.returncode == 0, f"{command}: {ran.stderr}"
        return ran.stdout.strip()

    def sql(self, text):
        return self.call("psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", self.url, "-c", text)

    def bench(self, seconds, *args):
        said = self.call("pgbench", "-n", "-c", "4", "-j", "2", "-T", str(seconds), *args, self.url)
        return float(next(line for line in said.splitlines() if line.startswith("tps = ")).split()[2])

    def end(self):
        self.process.terminate()
        self.process.wait()


def timed(call, *args):
    begun = time.perf_counter()
    call(*args)
    return time.perf_counter() - begun


class Site:
    """A configuration of cutover with a Delta table for each of pgbench's tables that are named."""

    def __init__(self, program, server, folder, tables, interval="1s"):
        self.program, self.folder = program, folder
        folder.mkdir()
        # Each has a slot of its own, and the publication is everybody's.
        name = folder.name
        text = f'config_version = 1\n[server]\nlisten = "127.0.0.1:0"\n[pipelines.{name}.source.postgres]\n'
        text += f'url = "{server.url}"\npublication = "bench"\n'
        for table in tables:
            text += (
                f'[pipelines.{name}.views.{table}]\ntable = "pgbench_{table}"\n'
                f"[pipelines.{name}.views.{table}.connectors.lake]\n"
                f'commit = {{ max_interval = "{interval}" }}\ndurability = "none"\n'
                f'[pipelines.{name}.views.{table}.connectors.lake.delta]\nuri = "{table}"\n'
            )
        (folder / "cutover.toml").write_text(text)

    def once(self):
        ran = subprocess.run([self.program, "run", "--once"], cwd=self.folder, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr

    def start(self):
        said = open(self.folder / "said", "w")
        return subprocess.Popen([self.program, "run"], cwd=self.folder, stdout=said, stderr=said)

    def versions(self, table):
        """(from, to, milliseconds) of each version that has changes."""
        for file in sorted((self.folder / table / "_delta_log").glob("[0-9]*.json")):
            info = json.loads(file.read_text().splitlines()[0])["commitInfo"]
            stamp = json.loads(info["userMetadata"])
            if stamp["kind"] == "append":
                yield stamp["from"], stamp["to"], info["timestamp"]

    def rows(self, table):
        return read.duckdb_connection().execute(f"SELECT count(*) FROM delta_scan('{self.folder / table}')").fetchone()[0]


def drop(server, slot):
    server.sql(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{slot}'")


def load(server, program, folder, rounds):
    rows = int(server.sql("SELECT count(*) FROM pgbench_accounts"))
    size = int(server.sql("SELECT pg_relation_size('pgbench_accounts')"))

    def ours(number):
        site = Site(program, server, folder / f"load{number}", ["accounts"])
        took = timed(site.once)
        assert site.rows("accounts") == rows
        drop(server, f"cutover_load{number}")
        shutil.rmtree(site.folder)
        return took

    def copied(how):
        file = folder / "server" / "copied"
        command = f"\\copy pgbench_accounts TO '{file}' (FORMAT {how})"
        return timed(server.sql, command)

    def duckdb():
        import duckdb

        import duckdb_extension_postgres_scanner as package

        place = pathlib.Path(package.__file__).parent / "extensions" / f"v{duckdb.__version__}"
        connection = duckdb.connect()
        connection.execute(f"LOAD '{place / 'postgres_scanner.duckdb_extension'}'")
        connection.execute(f"ATTACH '{server.url}' AS pg (TYPE postgres, READ_ONLY)")
        text = f"COPY pg.public.pgbench_accounts TO '{folder / 'duckdb.parquet'}' (FORMAT parquet, CODEC zstd)"
        return timed(connection.execute, text)

    engines = {"cutover": ours, "COPY text": lambda _: copied("text"), "COPY binary": lambda _: copied("binary")}
    if importlib.util.find_spec("duckdb_extension_postgres_scanner"):
        engines["DuckDB"] = lambda _: duckdb()
    took = {name: [] for name in engines}
    for number in range(rounds + 1):
        for name, engine in engines.items():
            seconds = engine(number)
            if number:
                took[name].append(seconds)
    print(f"load: {rows} rows, {size / 1e6:.0f} MB in the server, {rounds} rounds in turn, medians", flush=True)
    ours = statistics.median(took["cutover"])
    for name, seconds in took.items():
        middle = statistics.median(seconds)
        print(
            f"  {name:<12} {middle:.2f} s ({min(seconds):.2f} to {max(seconds):.2f}), {rows / middle:.0f} rows/s, "
            f"{size / 1e6 / middle:.0f} MB/s; cutover takes {ours / middle:.2f} times as long",
            flush=True,
        )


def follow(server, program, folder, seconds):
    site = Site(program, server, folder / "follow", TABLES)
    site.once()
    server.sql("SELECT pg_create_logical_replication_slot('peer', 'pgoutput')")
    begun = server.sql("SELECT pg_current_wal_lsn()")
    server.bench(seconds)
    end = server.sql("SELECT pg_current_wal_lsn()")
    wal = int(server.sql(f"SELECT pg_wal_lsn_diff('{end}', '{begun}')")) / 1e6
    count = int(server.sql("SELECT count(*) FROM pgbench_history"))
    server.sql("CHECKPOINT")
    # What both end by has to come after it.
    server.sql("UPDATE pgbench_branches SET bbalance = bbalance WHERE bid = 1")
    peer = timed(
        server.call, "pg_recvlogical", "-d", server.url, "-S", "peer", "--start", "-f", "/dev/null", "--no-loop",
        f"--endpos={end}", "-o", "proto_version=1", "-o", "publication_names=bench",
    )
    ours = timed(site.once)
    idle = timed(site.once)
    assert site.rows("history") == count, "rows of history"
    print(f"follow: {count} transactions of 4 changes, {wal:.0f} MB of WAL, read by one after the other", flush=True)
    print(f"  cutover with nothing to read {idle:.2f} s", flush=True)
    for name, took in {"pg_recvlogical": peer, "cutover": ours}.items():
        print(
            f"  {name:<14} {took:.2f} s, {count / took:.0f} transactions/s, {4 * count / took:.0f} changes/s, "
            f"{wal / took:.1f} MB/s; {took / peer:.2f} times pg_recvlogical's time",
            flush=True,
        )
    drop(server, "peer")
    drop(server, "cutover_follow")


def lag(server, program, folder, seconds, interval, *args):
    server.sql("TRUNCATE pgbench_history")
    name = f"lag{len(list(folder.iterdir()))}"
    site = Site(program, server, folder / name, TABLES, interval)
    site.once()
    daemon = site.start()
    rate = server.bench(seconds, *args)
    count = int(server.sql("SELECT count(*) FROM pgbench_history"))
    while site.rows("history") < count:
        assert daemon.poll() is None, (site.folder / "said").read_text()
        time.sleep(0.2)
    daemon.terminate()
    daemon.wait()
    found = read.duckdb_connection().execute(
        f"SELECT __step, epoch_ms(mtime) FROM delta_scan('{site.folder / 'history'}') ORDER BY __step"
    ).fetchall()
    lags, versions = [], sorted(site.versions("history"), key=lambda version: version[1])
    at = 0
    for step, began in found:
        while versions[at][1] < step:
            at += 1
        lags.append((versions[at][2] - began) / 1000)
    # The first tenth waits for the daemon to start.
    lags = lags[len(lags) // 10 :]
    cuts = statistics.quantiles(lags, n=100)
    print(
        f"lag at {rate:.0f} transactions/s, commits of {interval}: p50 {cuts[49]:.2f} s, p99 {cuts[98]:.2f} s, "
        f"most {max(lags):.2f} s, from a transaction's begin to its version, without the first tenth",
        flush=True,
    )
    drop(server, f"cutover_{name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--scale", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--folder", type=pathlib.Path, help="where to write; a temporary one by default")
    args = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(dir=args.folder))
    os.chmod(folder, 0o755)
    server = Server(folder)
    try:
        server.await_start(folder)
        server.call("pgbench", "-i", "-q", "-s", str(args.scale), server.url)
        server.sql("ALTER TABLE pgbench_history REPLICA IDENTITY FULL")
        server.sql(f"CREATE PUBLICATION bench FOR TABLE {PUBLISHED} WITH (publish_via_partition_root = true)")
        program = args.program.resolve()
        load(server, program, folder, args.rounds)
        follow(server, program, folder, args.seconds)
        for interval in ["100ms", "1s"]:
            lag(server, program, folder, args.seconds, interval)
            lag(server, program, folder, args.seconds, interval, "-R", "1000")
    finally:
        server.end()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
