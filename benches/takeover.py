"""Takeovers between two hosts that see each other's table in an object store, and nothing else of each other.

    python benches/takeover.py --program PATH [--rounds N] [--seed N]

PATH is a build of cutover; the interpreter is the readers' (tests/readers/requirements.txt). It needs root, for network
namespaces: `store` has an S3 server, hosts `a` and `b` a link to it each. A feed of landed files, as on a share, grows all the
time. In each round one host delivers, and is cut off at a random moment: by its link, or by its answers alone, in a third of
the rounds while a reset is under way. The other host is started, with a data directory that knows nothing of the first. Then the
link comes back. The first host must end with exit code 6, and after the other's claim no commit may be its own. Where a reset was
asked of it, it may carry that out instead, under an epoch of its own: then the other host is the one that must end so.

Every commit is read from the store, by this script: steps go on without a gap and none is there twice, epochs rise by claims
alone. In the end, and every 25 rounds, the rows that deltalake reads are held against those that the feed comes to.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import boto3
import botocore.exceptions

READERS = pathlib.Path(__file__).parent.parent / "tests" / "readers"
BUCKET, TABLE, FENCED, PATIENCE = "lake", "prices", 6, 60.0
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}
CONFIG = """config_version = 1
[pipelines.shop.source.files]
path = "{feed}"
poll_interval = "10ms"
[pipelines.shop.views.rows]
key = ["id"]
columns = {{ id = "bigint", price = "double" }}
[pipelines.shop.views.rows.connectors.lake]
commit = {{ max_interval = "250ms" }}
reset = {{ breaker = {{ max_resets = 1000 }}, backoff = {{ initial = "10ms", max = "10ms" }} }}
[pipelines.shop.views.rows.connectors.lake.delta]
uri = "s3://{bucket}/{table}"
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


def until(what, look):
    begun = time.monotonic()
    while not (found := look()):
        if time.monotonic() - begun > PATIENCE:
            sys.exit(f"{what}: not within {PATIENCE:.0f} s")
        time.sleep(0.002)
    return found


class Network:
    """Namespaces with a link each to the store's; `address` is where each reaches the store, `host` its own. This process has a link, too."""

    def __init__(self):
        self.names = {who: f"cutover-{os.getpid()}-{who}" for who in ("store", "a", "b")}
        self.address, self.host, store = {}, {}, self.names["store"]
        for name in self.names.values():
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        for number, who in enumerate(("a", "b", "here"), start=1):
            link, there = f"to{who}", f"s{os.getpid()}{who}"[:15]
            ip("link", "add", there, "type", "veth", "peer", "name", link, "netns", store)
            at = [] if who == "here" else ["-n", self.names[who]]
            if at:
                ip("link", "set", there, "netns", self.names[who])
                ip(*at, "link", "set", there, "name", "store")
            own = "store" if at else there
            ip("-n", store, "addr", "add", f"10.213.{number}.1/30", "dev", link)
            ip(*at, "addr", "add", f"10.213.{number}.2/30", "dev", own)
            ip("-n", store, "link", "set", link, "up")
            ip(*at, "link", "set", own, "up")
            self.address[who], self.host[who] = f"10.213.{number}.1", f"10.213.{number}.2"

    def within(self, who, *command):
        return ["ip", "netns", "exec", self.names[who], *command]

    def cut(self, who, how):
        if how == "link":
            ip("-n", self.names[who], "link", "set", "store", "down")
        else:
            # Requests arrive; nobody hears what became of them.
            ip("-n", self.names["store"], "route", "add", "blackhole", self.host[who])

    def mend(self, who, how):
        if how == "link":
            ip("-n", self.names[who], "link", "set", "store", "up")
        else:
            ip("-n", self.names["store"], "route", "del", "blackhole", self.host[who])

    def close(self):
        for name in self.names.values():
            subprocess.run(["ip", "netns", "delete", name], check=False)


class Feed(threading.Thread):
    """Lands a step every 30 ms, until it is stopped; `held` while nothing is to change."""

    def __init__(self, folder, seed):
        super().__init__(daemon=True)
        self.folder, self.chance, self.step = folder / "rows", random.Random(seed), 100
        self.held, self.stopped = threading.Lock(), threading.Event()
        self.folder.mkdir(parents=True)
        rows = "".join(json.dumps({"id": n, "price": n / 4}) + "\n" for n in range(20_000))
        (self.folder / "snapshot-100.ndjson").write_text(rows)

    def run(self):
        while not self.stopped.wait(0.03):
            with self.held:
                before, step = self.step, self.step + self.chance.randint(1, 3)
                ids = self.chance.sample(range(30_000), 20)
                changes = [{"step": step, "update": {"id": n, "price": self.chance.randint(0, 999) / 4}} for n in ids]
                hidden = self.folder / ".landing"
                hidden.write_text("".join(json.dumps(change) + "\n" for change in changes))
                hidden.rename(self.folder / f"changes-{before}-{step}.ndjson")
                self.step = step


class Log:
    """The stamps of the table's versions, each read once and held against the one before."""

    def __init__(self, endpoint):
        self.store = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="test",
                                  aws_secret_access_key="test")
        self.stamps, self.violations = [], []

    def read(self):
        while True:
            key = f"{TABLE}/_delta_log/{len(self.stamps):020}.json"
            try:
                entry = self.store.get_object(Bucket=BUCKET, Key=key)["Body"].read()
            except botocore.exceptions.ClientError as e:
                if e.response["Error"]["Code"] in ("NoSuchKey", "404"):
                    return self.stamps
                raise
            info = json.loads(entry.partition(b"\n")[0])["commitInfo"]
            self.hold(json.loads(info["userMetadata"]))

    def hold(self, stamp):
        version, before = len(self.stamps), self.stamps[-1] if self.stamps else None
        self.stamps.append(stamp)
        if before is None:
            return
        if stamp["kind"] != "reload" and (stamp["from"] != before["to"] or stamp["generation"] != before["generation"]):
            self.violations.append(f"version {version} begins at {stamp['from']}, after {before['to']}")
        if stamp["epoch"] < before["epoch"] or (stamp["epoch"] == before["epoch"]) != (stamp["writer"] == before["writer"]):
            self.violations.append(f"version {version}: epoch {stamp['epoch']} after {before['epoch']}, and the writers differ")
        if stamp["kind"] == "reload" and stamp["generation"] != before["generation"] + 1:
            self.violations.append(f"version {version}: generation {stamp['generation']} after {before['generation']}")


class Host:
    def __init__(self, who, program, home, network, port):
        self.who, self.program, self.network, self.starts = who, program, network, 0
        self.home = home / who
        self.home.mkdir()
        (self.home / "cutover.toml").write_text(CONFIG.format(feed=home / "feed", bucket=BUCKET, table=TABLE))
        self.environment = os.environ | KEYS | {"AWS_ENDPOINT_URL": f"http://{network.address[who]}:{port}"}

    def start(self):
        self.starts += 1
        environment = self.environment | {"CUTOVER__SERVER__DATA_DIR": str(self.home / f"data-{self.starts}")}
        with open(self.home / "said", "a", encoding="utf-8") as said:
            command = self.network.within(self.who, self.program, "run")
            self.process = subprocess.Popen(command, cwd=self.home, env=environment, stdout=said, stderr=said)

    def ask_reset(self):
        """Whether or not it is taken: the host may be cut off."""
        command = self.network.within(self.who, self.program, "reset", "lake", "--yes", "--reason", "a round's",
                                      "--url", "http://127.0.0.1:8090")
        return subprocess.Popen(command, cwd=self.home, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ended(self):
        """The exit code once it has ended, as text so that 0 is something."""
        code = self.process.poll()
        return None if code is None else str(code)


def same_rows(home, feed, log, endpoint):
    """Whether deltalake reads the rows that the feed comes to, once all of them are delivered."""
    with feed.held:
        until("the table is level with the feed", lambda: log.read()[-1]["to"] >= feed.step)
        environment = os.environ | KEYS | {"AWS_ENDPOINT_URL": endpoint}

        def answer(*command):
            ran = subprocess.run([sys.executable, *command], env=environment, check=True, capture_output=True, text=True)
            told = json.loads(ran.stdout)
            return told["rows"], told["digest"]

        expected = answer(READERS / "expect.py", home / "feed", "rows", "--key=id")
        return answer(READERS / "read.py", "state", "deltalake", f"s3://{BUCKET}/{TABLE}", "--key=id") == expected


def play(rounds, chance, hosts, network, feed, log, check):
    first, other = hosts
    first.start()
    until("the table is loaded", log.read)
    claims, levels, codes, resets, won = [], [], [], 0, 0
    for number in range(1, rounds + 1):
        reached = log.read()[-1]["to"]
        until("the host delivers", lambda: log.read()[-1]["to"] > reached)
        asked = first.ask_reset() if chance.random() < 1 / 3 else None
        resets += asked is not None
        how = chance.choice(["link", "answers"])
        time.sleep(chance.random() * (0.4 if asked else 0.2))
        network.cut(first.who, how)
        time.sleep(chance.random() * 0.3)
        epoch, wanted, begun = log.read()[-1]["epoch"], feed.step, time.monotonic()
        other.start()
        until("the other host claims", lambda: log.read()[-1]["epoch"] > epoch)
        claims.append(time.monotonic() - begun)
        until("the other host is level", lambda: log.read()[-1]["to"] >= wanted)
        levels.append(time.monotonic() - begun)
        network.mend(first.who, how)
        until("a host is fenced", lambda: first.ended() or asked and other.ended())
        fenced, goes_on = (first, other) if first.ended() else (other, first)
        codes.append(fenced.ended())
        won += fenced is other
        if asked:
            asked.kill()
            asked.wait()
        if codes[-1] != str(FENCED) or goes_on.ended():
            log.violations.append(f"round {number}: {fenced.who} ended with {codes[-1]}, {goes_on.who} with {goes_on.ended()}")
        if number % 25 == 0 or number == rounds:
            check(number)
        if log.violations:
            break
        first, other = goes_on, fenced
    return claims, levels, codes, (resets, won)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    network = Network()
    home = pathlib.Path(tempfile.mkdtemp(prefix="cutover-takeover-"))
    command = network.within("store", sys.executable, READERS / "s3.py", BUCKET, "0.0.0.0")
    store = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    hosts = []
    try:
        port = int(store.stdout.readline())
        endpoint = f"http://{network.address['here']}:{port}"
        log, feed = Log(endpoint), Feed(home / "feed", args.seed)
        feed.start()
        hosts = [Host(who, args.program.resolve(), home, network, port) for who in ("a", "b")]

        def check(number):
            if not same_rows(home, feed, log, endpoint):
                log.violations.append(f"round {number}: other rows than the feed's")

        claims, levels, codes, (resets, won) = play(args.rounds, random.Random(args.seed), hosts, network, feed, log, check)
        feed.stopped.set()
    finally:
        for host in hosts:
            if getattr(host, "process", None):
                host.process.kill()
        store.kill()
        network.close()
    for what, seconds in (("to the first commit", claims), ("to level with the feed", levels)):
        cuts = statistics.quantiles(seconds, n=100, method="inclusive") if len(seconds) > 1 else seconds * 99
        print(f"from the other host's start {what}: p50 {cuts[49]:.2f} s, p99 {cuts[98]:.2f} s, most {max(seconds):.2f} s")
    ends = {code: codes.count(code) for code in sorted(set(codes))}
    print(f"{len(claims)} takeovers, {resets} of them beside a reset, which took the table back in {won}; fenced hosts ended with {ends}")
    print(f"{len(log.stamps)} versions, steps up to {log.stamps[-1]['to']}, generation {log.stamps[-1]['generation']}; "
          f"{len(log.violations)} violations; seed {args.seed}")
    for violation in log.violations:
        print(violation)
    sys.exit(1 if log.violations else 0)


if __name__ == "__main__":
    main()
