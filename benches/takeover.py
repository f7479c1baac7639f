"""Takeovers between hosts that share a table in an object store and a feed, and nothing else.

    python benches/takeover.py --program PATH [--rounds N] [--seed N] [--layout changelog|current]

PATH is a build of cutover; the interpreter is the readers' (tests/readers/requirements.txt). It needs root and iproute2: three
network namespaces hang on a bridge, `store` with an S3 server and this script, and the hosts `a` and `b`. Files land all the time.

In each round the host that delivers is cut off at a random moment: its `link` is down, or its `cable` is pulled, or its requests
arrive and no `answers` come back; in a third of the rounds it has just taken up a reset. The other is started, half the time with
an empty data directory. When it is level, the first gets its network back, and must end with exit code 6; nothing but the other's
commits may follow the other's claim. One thing may, and is counted: a reset that was asked for and not carried out yet claims the
table back and reloads it, and the other host ends with 6.

Every commit is read from the store: steps without a gap, none twice, one epoch for each claim. `cutover verify` looks at each
round, and every ten rounds at the whole table, of which deltalake and DuckDB must then read the rows and the changes that the
files come to. A violation keeps the folder of feed, hosts and log, and ends with exit code 1.
"""

import argparse
import collections
import ctypes
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import boto3

READERS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "readers"
sys.path.append(str(READERS))
import read  # noqa: E402

BUCKET, URI, FENCED = "lake", "s3://lake/prices", 6
ADDRESSES = {"store": "10.213.0.1", "a": "10.213.0.2", "b": "10.213.0.3"}
CONFIG = """config_version = 1
pipelines.shop.source.files = {{ path = "{home}/feed", poll_interval = "20ms" }}
[pipelines.shop.views.rows]
key = ["id"]
columns = {{ id = "bigint", price = "double" }}
[pipelines.shop.views.rows.connectors.lake]
commit = {{ max_interval = "250ms" }}
reset = {{ breaker = {{ max_resets = 1000 }}, backoff = {{ initial = "10ms", max = "10ms" }} }}
delta = {{ uri = "{uri}", layout = "{layout}" }}
"""


def until(what, look, patience=120.0):
    begun = time.monotonic()
    while not look():
        if time.monotonic() - begun > patience:
            raise TimeoutError(f"{what}: not within {patience:.0f} s")
        time.sleep(0.01)


class Network:
    def __init__(self):
        self.names = {who: f"cutover-{os.getpid()}-{who}" for who in ADDRESSES}
        for who, name in self.names.items():
            subprocess.run(["ip", "netns", "add", name], check=True)
            self.ip(who, "link set lo up")
        for words in "link add bridge type bridge", f"addr add {ADDRESSES['store']}/24 dev bridge", "link set bridge up":
            self.ip("store", words)
        for who in ("a", "b"):
            self.ip("store", f"link add to-{who} type veth peer name eth0 netns {self.names[who]}")
            self.ip("store", f"link set to-{who} master bridge up")
            self.ip(who, f"addr add {ADDRESSES[who]}/24 dev eth0")
            self.ip(who, "link set eth0 up")
        with open(f"/run/netns/{self.names['store']}", "rb") as store:
            assert ctypes.CDLL(None).setns(store.fileno(), 0) == 0, "this process cannot enter the store's namespace"

    def ip(self, who, *words):
        subprocess.run(["ip", "-n", self.names[who], *" ".join(words).split()], check=True)

    def turn(self, who, how, on):
        """Cuts a host off, or brings it back."""
        if how == "answers":
            return self.ip("store", f"route {'del' if on else 'add'} blackhole {ADDRESSES[who]}")
        return self.ip(*((who, "link set eth0") if how == "link" else ("store", f"link set to-{who}")), "up" if on else "down")


class Feed(threading.Thread):
    """Lands a file every 50 ms, unless somebody holds it."""

    def __init__(self, home, seed):
        super().__init__(daemon=True)
        self.folder, self.chance = home / "feed/rows", random.Random(seed)
        self.held, self.stopped, self.step, self.rows = threading.Lock(), threading.Event(), 100, {n: n / 4 for n in range(20_000)}
        self.folder.mkdir(parents=True)
        self.snapshot()

    def land(self, name, lines):
        (self.folder / ".landing").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (self.folder / ".landing").rename(self.folder / name)

    def snapshot(self):
        self.land(f"snapshot-{self.step}.ndjson", ({"id": n, "price": price} for n, price in self.rows.items()))

    def run(self):
        while not self.stopped.wait(0.05):
            with self.held:
                before, self.step = self.step, self.step + self.chance.randint(1, 3)
                self.land(f"changes-{before}-{self.step}.ndjson", map(self.change, self.chance.sample(range(30_000), 20)))

    def change(self, n):
        if n in self.rows and self.chance.random() < 0.3:
            del self.rows[n]
            return {"step": self.step, "delete": {"id": n}}
        word, self.rows[n] = "update" if n in self.rows else "insert", self.chance.randint(0, 999) / 4
        return {"step": self.step, word: {"id": n, "price": self.rows[n]}}

    def told(self, cutover):
        """What the files come to, from the first snapshot on: the rows, and the changes beyond a step."""
        first = map(json.loads, (self.folder / "snapshot-100.ndjson").read_text().splitlines())
        rows, changes = {row["id"]: row["price"] for row in first}, []
        for file in sorted(self.folder.glob("changes-*"), key=lambda file: int(file.name.split("-")[1])):
            for change in map(json.loads, file.read_text().splitlines()):
                step, (word, row) = change.pop("step"), change.popitem()
                rows[row["id"]] = row.get("price")
                changes.append((step, row["id"], word[0], row.get("price")))
        return {n: price for n, price in rows.items() if price is not None}, sorted(c for c in changes if c[0] > cutover)


class Bench:
    def __init__(self, args, home, network, endpoint):
        keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
        os.environ.update(keys | {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true", "AWS_ENDPOINT_URL": endpoint})
        self.store, self.feed, self.chance = boto3.client("s3"), Feed(home, args.seed), random.Random(args.seed)
        self.home, self.network, self.program, self.layout = home, network, args.program.resolve(), args.layout
        (home / "cutover.toml").write_text(CONFIG.format(home=home, uri=URI, layout=args.layout))
        self.stamps, self.violations, self.running, self.machines = [], [], {}, collections.Counter()
        self.ends, self.seconds = collections.Counter(), collections.defaultdict(list)

    def log(self):
        """The stamps of all versions; one that is read for the first time is held against the one before."""
        while True:
            try:
                entry = self.store.get_object(Bucket=BUCKET, Key=f"prices/_delta_log/{len(self.stamps):020}.json")
            except self.store.exceptions.NoSuchKey:
                return self.stamps
            stamp = json.loads(json.loads(entry["Body"].readline())["commitInfo"]["userMetadata"])
            before = self.stamps[-1] if self.stamps else stamp | {"generation": stamp["generation"] - 1}
            is_reload, is_claim = stamp["kind"] == "reload", stamp["kind"] == "mark"
            follows = stamp["generation"] == before["generation"] + is_reload and stamp["epoch"] == before["epoch"] + is_claim
            follows &= stamp["to"] >= before["to"] if is_reload else stamp["from"] == before["to"]
            if not follows or (stamp["writer"] == before["writer"]) == is_claim:
                self.violations.append(f"version {len(self.stamps)} does not follow: {stamp} after {before}")
            self.stamps.append(stamp)

    def command(self, who, *words):
        data = f"CUTOVER__SERVER__DATA_DIR={self.home}/{who}{self.machines[who]}"
        return ["ip", "netns", "exec", self.network.names[who], "env", data, self.program, *words, "-c", self.home / "cutover.toml"]

    def start(self, who, anew):
        self.machines[who] += anew
        with open(self.home / f"said-{who}{self.machines[who]}", "a", encoding="utf-8") as said:
            self.running[who] = subprocess.Popen(self.command(who, "run", "-v"), stdout=said, stderr=said)

    def round(self, number, first, other, is_whole):
        begun_at = len(self.log())
        until("the host delivers", lambda: self.log()[begun_at:])
        how, asked = self.chance.choice(["link", "cable", "answers"]), self.chance.random() < 1 / 3
        if asked:
            subprocess.run(self.command(first, "reset", "lake", "--yes"), check=True, capture_output=True)
        time.sleep(self.chance.random() * (1.0 if asked else 0.5))
        self.network.turn(first, how, on=False)
        time.sleep(0.1 + self.chance.random() * 0.4)
        head, wanted, begun = len(self.log()), self.feed.step, time.monotonic()
        epoch, was_reset = self.stamps[-1]["epoch"], any("reset" in stamp for stamp in self.stamps[begun_at:])
        self.start(other, anew=self.chance.random() < 1 / 2)
        until("the other host claims", lambda: self.log()[-1]["epoch"] > epoch)
        self.seconds["start to first commit"].append(time.monotonic() - begun)
        until("the other host is level", lambda: self.log()[-1]["to"] >= wanted)
        self.seconds["start to level"].append(time.monotonic() - begun)
        self.network.turn(first, how, on=True)
        hosts, begun = (self.running[first], self.running[other]), time.monotonic()
        try:
            until("a host ends", lambda: any(host.poll() is not None for host in hosts), 45.0)
        except TimeoutError as e:
            self.violations.append(f"round {number}, {how}, asked for a reset: {asked}, version {len(self.stamps)}: {e}")
            with self.feed.held:  # Whoever cannot commit because of the other's commits can.
                until("a host ends where nothing changes", lambda: any(host.poll() is not None for host in hosts))
        self.seconds["network back to end"].append(time.monotonic() - begun)
        is_back = hosts[0].poll() is None
        fenced, left = (other, first) if is_back else (first, other)
        if is_back and asked and not was_reset:
            until("the reset is carried out", lambda: any("reset" in stamp for stamp in self.log()[head:]))
        code, claims = self.running[fenced].returncode, {stamp["epoch"] for stamp in self.log()[head:]} - {epoch, epoch + 1}
        told = {
            f"{fenced} ended with {code}": code != FENCED,
            f"{left} ended too": self.running[left].poll() is not None,
            f"{first} took the table back": is_back and (was_reset or not asked),
            f"{fenced} was fenced, and epochs beyond {epoch + 1} are {claims}": is_back != bool(claims),
        }
        faults = [fault for fault, is_so in told.items() if is_so] + list(self.faults(begun_at, is_whole))
        end = how + (f", reset {'done' if was_reset else 'takes back' if is_back else 'fenced'}" if asked else "")
        self.violations += [f"round {number}, {end}, versions {begun_at} to {len(self.stamps) - 1}: {fault}" for fault in faults]
        self.ends.update([f"cut off by {end}", f"fenced host ended with {code}"])
        print(f"{number}: {end}:", *(f"{seconds[-1]:.2f} s" for seconds in self.seconds.values()), *faults, flush=True)
        return left, fenced

    def faults(self, begun_at, is_whole):
        verify = [self.program, "verify", URI, f"--since-version={0 if is_whole else begun_at - 1}"]
        verified = subprocess.run(verify, capture_output=True, text=True, check=False)
        if verified.returncode:
            again = subprocess.run(verify, capture_output=True, check=False).returncode
            yield f"verify ended with {verified.returncode}, asked again with {again}: {verified.stdout}{verified.stderr}"
        if not is_whole:
            return
        with self.feed.held:
            until("the table is level", lambda: self.log()[-1]["to"] >= self.feed.step)
            self.feed.snapshot()
            expected, changes = self.feed.told(next(s["to"] for s in reversed(self.stamps) if s["kind"] == "reload"))
            for engine in ("deltalake", "duckdb"):
                found = read.read(engine, URI)
                if self.layout == "changelog":
                    told = zip(*(found[name].to_pylist() for name in ("__step", "id", "__op", "price")))
                    told = sorted(told, key=lambda row: row[:2])
                    if told[len(told) - len(changes) :] != changes:
                        yield f"{engine} reads other changes than the feed's"
                    found = read.state(found, ["id"])
                rows = dict(zip(found["id"].to_pylist(), found["price"].to_pylist()))
                if len(found) != len(expected) or rows != expected:
                    yield f"{engine} reads other rows than the feed's"

    def tell(self):
        last, count = self.stamps[-1], len(self.seconds["network back to end"])
        print(f"takeovers: {count}, violations: {len(self.violations)}")
        print(f"versions: {len(self.stamps)}, steps up to {last['to']}, epoch {last['epoch']}, generation {last['generation']}")
        for what, seconds in self.seconds.items():
            cuts = statistics.quantiles(seconds * 2, n=100, method="inclusive")
            print(f"  {what:<36} p50 {cuts[49]:6.2f} s   p99 {cuts[98]:6.2f} s   max {max(seconds):6.2f} s")
        print(*(f"  {end:<36} {count}" for end, count in sorted(self.ends.items())), *self.violations, sep="\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layout", choices=["changelog", "current"], default="changelog")
    args = parser.parse_args()
    network, home = Network(), pathlib.Path(tempfile.mkdtemp(prefix="cutover-takeover-"))
    store = subprocess.Popen([sys.executable, READERS / "s3.py", BUCKET, "0.0.0.0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    bench = Bench(args, home, network, f"http://{ADDRESSES['store']}:{int(store.stdout.readline())}")
    try:
        bench.feed.start()
        bench.start("a", anew=True)
        until("the table is loaded", bench.log)
        first, other = "a", "b"
        for number in range(1, args.rounds + 1):
            first, other = bench.round(number, first, other, is_whole=number % 10 == 0 or number == args.rounds)
    except TimeoutError as e:
        bench.violations.append(str(e))
    finally:
        bench.feed.stopped.set()
        for process in [*bench.running.values(), store]:
            process.kill()
        for name in network.names.values():
            subprocess.run(["ip", "netns", "delete", name], check=False)
    bench.tell()
    bench.feed.join()
    if bench.violations:
        (home / "log.ndjson").write_text("".join(json.dumps(stamp) + "\n" for stamp in bench.stamps))
        sys.exit(f"see {home}")
    shutil.rmtree(home)


if __name__ == "__main__":
    main()
