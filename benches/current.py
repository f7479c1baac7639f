"""A table that is the view under upserts: how fast, what it writes, how it reads, against peers that write the same rows.

    python benches/current.py --program PATH [--keys N] [--steps N] [--share F] [--paced N] [--peer-steps N]
    python benches/current.py --program PATH --small-steps N [--keys N] [--small-rows N]
    python benches/current.py --program PATH --memory [--keys N] [--steps N]

PATH is a release build of cutover; the interpreter is the readers' (tests/readers/requirements.txt). Nothing is synced.

The first loads `--keys` rows, and then each step updates `--share` of them, drawn by Zipf's law (0.99) and scattered over
the table. Steps are committed one by one. Of the first and the last `--paced` ones each lands when the one before is
committed: latency is the time from landing a file, which is looked for every 10 ms, to the version that holds its step.
All others land a block at a time and give rows a second, with joining beside them. `--peer-steps` of the first are merged
by deltalake too, and written by DuckDB as a file without the old rows and with the news, in turn. Write amplification is
what grew in the table's folder over the bytes of the landed files (zstd), log, vectors and joined files included.

A scan includes reading the log, of which up to 100 entries stand behind a checkpoint.

The second delivers steps of `--small-rows` rows to a table of each layout. The third tells memory and times of a load of
`--keys` rows, of its steps, and of the first step after the index of keys is lost. In the end the rows that DuckDB reads
are held against those that were drawn.
"""

import argparse
import gc
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import pyarrow as pa

sys.path.append(str(pathlib.Path(__file__).parent.parent / "tests" / "readers"))
import read  # noqa: E402
from upserts import PART, Load, Site, as_changes, folder_bytes  # noqa: E402

COLUMNS = "id, customer, status, amount, changed, note"
CURRENT, CHANGELOG = "lake", "log"


def tell(text):
    print(text, flush=True)


def times(seconds):
    cuts = statistics.quantiles(seconds, n=100, method="inclusive") if len(seconds) > 1 else seconds * 99
    return f"p50 {1000 * cuts[49]:.1f} ms, p99 {1000 * cuts[98]:.1f} ms of {len(seconds)}"


def own_cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def ask(query):
    return read.duckdb_connection().execute(query).fetchone()


def scan(source):
    begun = time.perf_counter()
    found = ask(f"SELECT count(*), sum(hash({COLUMNS})::HUGEINT) FROM {source}")
    return time.perf_counter() - begun, found


def scanned(sources, rounds=5):
    """The median time of a scan of each in turn, when all hold the same rows."""
    took = {name: [] for name in sources}
    for number in range(rounds + 1):
        found = {}
        for name, source in sources.items():
            seconds, found[name] = scan(source)
            if number:
                took[name].append(seconds)
        assert len(set(found.values())) == 1, f"the rows differ: {found}"
    return {name: statistics.median(seconds) for name, seconds in took.items()}


def delta(path):
    return f"delta_scan('{path}')"


def folded(path):
    """The current state out of a changelog."""
    log = f"SELECT * FROM delta_scan('{path}') QUALIFY __generation = max(__generation) OVER ()"
    latest = f"SELECT * FROM ({log}) QUALIFY __step = max(__step) OVER (PARTITION BY id)"
    return f"(SELECT * FROM ({latest}) WHERE __op <> 'd')"


def check(load, source):
    """Every row that a table gives is the one that was drawn last for its key, and no key is missing."""
    reader = read.duckdb_connection().execute(f"SELECT {COLUMNS} FROM {source}").to_arrow_reader(PART)
    seen, count = np.zeros(load.keys, bool), 0
    for batch in reader:
        found = pa.Table.from_batches([batch])
        ids = found["id"].to_numpy()
        expected = load.rows(ids, load.last[ids])
        assert found.cast(expected.schema).equals(expected), "a row is not the one that was drawn last"
        seen[ids], count = True, count + len(ids)
    assert seen.all(), f"{np.count_nonzero(~seen)} keys are missing"
    assert count == load.keys, f"{count - load.keys} rows too many"


class Deltalake:
    """Merges the news into a table of deltalake's."""

    def __init__(self, folder, parts):
        import deltalake

        self.deltalake, self.path, self.took, self.cpu = deltalake, folder / "deltalake", [], 0.0
        for rows in parts:
            deltalake.write_deltalake(self.path, rows, mode="append")
        self.began_with, self.source = folder_bytes(self.path), delta(self.path)

    def apply(self, news):
        cpu, begun = own_cpu(), time.perf_counter()
        merge = self.deltalake.DeltaTable(self.path).merge(news, "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        self.took.append(time.perf_counter() - begun)
        self.cpu += own_cpu() - cpu

    def written(self):
        return folder_bytes(self.path) - self.began_with


class Duckdb:
    """Writes all rows to another file, the news in place of the old ones."""

    def __init__(self, folder, feed):
        self.file, self.number, self.took, self.cpu, self.bytes = folder / "duckdb-0.parquet", 0, [], 0.0, 0
        self.copy(f"FROM '{feed}/*.parquet'", self.file)

    def copy(self, query, file):
        read.duckdb_connection().execute(f"COPY ({query}) TO '{file}' (FORMAT parquet, CODEC zstd, COMPRESSION_LEVEL 1)")

    @property
    def source(self):
        return f"'{self.file}'"

    def apply(self, news):
        cpu, begun = own_cpu(), time.perf_counter()
        read.duckdb_connection().register("news", news)
        old, self.number = self.file, self.number + 1
        self.file = old.with_name(f"duckdb-{self.number}.parquet")
        self.copy(f"FROM '{old}' ANTI JOIN news USING (id) UNION ALL BY NAME FROM news", self.file)
        self.took.append(time.perf_counter() - begun)
        self.cpu += own_cpu() - cpu
        self.bytes += self.file.stat().st_size
        old.unlink()

    def written(self):
        return self.bytes


def against_peers(site, folder, count, steps):
    """The first steps, in turn with peers; gives the seconds that each took ours."""
    table = site.tables[CURRENT]
    peers = {"deltalake merge": Deltalake(folder, site.load.parts()),
             "DuckDB rewrite": Duckdb(folder, site.views / "snapshot-0.parquet")}
    took, began_with, landed, cpu = [], folder_bytes(table.path), site.landed_bytes, site.cpu()
    for _ in range(steps):
        news, changes = site.changes(count)
        hidden = site.stage(changes)
        site.land(hidden)
        took.append(site.await_step(site.step))
        site.rest()
        for peer in peers.values():
            peer.apply(news)
    cpu, landed = site.cpu() - cpu, site.landed_bytes - landed
    sources = {"cutover": delta(table.path)} | {name: peer.source for name, peer in peers.items()}
    scans = scanned(sources)
    tell(f"{steps} steps of {count} rows in turn with peers, equal rows in the end; medians, and processor seconds a step")
    told = {"cutover": (took, cpu, folder_bytes(table.path) - began_with)}
    told |= {name: (peer.took, peer.cpu, peer.written()) for name, peer in peers.items()}
    for name, (seconds, used, written) in told.items():
        middle = statistics.median(seconds)
        tell(
            f"  {name:<16} {middle:.3f} s, {count / middle:.0f} rows/s, {middle / statistics.median(took):.1f} times ours; "
            f"processor {used / steps:.2f} s; writes {written / landed:.1f} times the rows; scan {scans[name]:.3f} s"
        )
    shutil.rmtree(peers["deltalake merge"].path)
    peers["DuckDB rewrite"].file.unlink()
    return took


def paced(site, count, steps):
    took = []
    for _ in range(steps):
        hidden = site.stage(site.changes(count)[1])
        site.land(hidden)
        took.append(site.await_step(site.step))
    return took


def blocks(site, count, steps, block):
    """Steps that land a block at a time; tells how they went at every tenth of them."""
    table, done = site.tables[CURRENT], 0
    for tenth in range(1, 11):
        rows, seconds = 0, 0.0
        while done < steps * tenth // 10:
            many = min(block, steps * tenth // 10 - done)
            hidden = [site.stage(site.changes(count)[1]) for _ in range(many)]
            for file in hidden:
                site.land(file)
            seconds += site.await_step(site.step)
            rows, done = rows + many * count, done + many
        if rows:
            took = statistics.median(scan(delta(table.path))[0] for _ in range(3))
            tell(f"  step {site.step:>6}: {rows / seconds:.0f} rows/s, {table.said()}, scan {took:.3f} s")


def fresh(site, folder):
    """A table that the same program writes of the rows of another."""
    other = Site(site.program, folder / "fresh", site.load, (CURRENT, "current"))
    other.land_snapshot(site.load.parts())
    subprocess.run([other.program, "run", "--once"], cwd=other.folder, capture_output=True, check=True)
    return other.tables[CURRENT].follow()


def updates(program, folder, args):
    load = Load(args.keys or 10_000_000, args.seed)
    count, site = max(1, int(load.keys * args.share)), Site(program, folder / "site", load, (CURRENT, "current"))
    site.land_snapshot(load.parts())
    site.start()
    try:
        table = site.tables[CURRENT]
        tell(f"{load.keys} rows loaded in {site.await_step(0):.1f} s; a step updates {count}; seed {args.seed}")
        began_with, begun = folder_bytes(table.path), site.landed_bytes
        took = against_peers(site, folder, count, args.peer_steps) if args.peer_steps else []
        took += paced(site, count, max(args.paced - len(took), 0))
        tell(f"commit latency at the start: {times(took)}")
        rest = args.steps - len(took) - args.paced
        if rest > 0:
            tell(f"{rest} steps in blocks of {args.block}")
            blocks(site, count, rest, args.block)
        took = paced(site, count, args.paced)
        tell(f"commit latency at the end, step {site.step}: {times(took)}")
        site.rest()
        grown, landed = folder_bytes(table.follow().path) - began_with, site.landed_bytes - begun
        tell(f"write amplification {grown / landed:.2f}: {grown / 1e6:.1f} MB for {landed / 1e6:.1f} MB of changed rows")
        tell(f"daemon: processor {site.cpu():.1f} s, peak {site.memory('VmHWM') / 1e6:.0f} MB resident")
        tell(table.said())
        check(load, delta(table.path))
        same = fresh(site, folder)
        scans = scanned({"updated": delta(table.path), "fresh": delta(same.path)})
        ratio = scans["updated"] / scans["fresh"]
        tell(f"a fresh table of the same rows: {same.said()}")
        tell(f"scan by DuckDB {scans['updated']:.3f} s, of the fresh table {scans['fresh']:.3f} s: {ratio:.2f} times")
    finally:
        site.end()


def small(program, folder, args):
    load = Load(args.keys or 1_000_000, args.seed)
    site = Site(program, folder / "site", load, (CURRENT, "current"), (CHANGELOG, "changelog"))
    site.land_snapshot(load.parts())
    site.start()
    try:
        site.await_step(0)
        tell(f"{args.small_steps} steps of {args.small_rows} rows, on {load.keys} in each layout; seed {args.seed}")
        sources = {CURRENT: delta(site.folder / CURRENT), CHANGELOG: folded(site.folder / CHANGELOG)}
        for tenth in range(1, 11):
            steps = args.small_steps * tenth // 10 - site.step
            if not steps:
                continue
            numbers = range(site.step + 1, site.step + 1 + steps)
            changes = [as_changes(load.update(number, args.small_rows), number) for number in numbers]
            site.land(site.stage(pa.concat_tables(changes), steps))
            took = site.await_step(site.step)
            scans = scanned(sources, 3)
            tell(f"  step {site.step:>6}: {steps / took:.0f} steps/s to both")
            for name, table in site.tables.items():
                tell(f"    {name:<5} {table.said()}, scan of the rows {scans[name]:.3f} s")
        check(load, sources[CURRENT])
    finally:
        site.end()


def memory(program, folder, args):
    load = Load(args.keys or 100_000_000, args.seed)
    count, site = max(1, int(load.keys * args.share)), Site(program, folder / "site", load, (CURRENT, "current"))
    site.land_snapshot(load.parts())
    gc.collect()

    def told(what, seconds):
        resident = f"{site.memory('VmHWM') / 1e6:.0f} MB resident, {site.most_anonymous / 1e6:.0f} MB of it anonymous"
        tell(f"  {what}: {seconds:.1f} s; peak of the process {resident}")

    site.start()
    try:
        tell(f"{load.keys} rows, steps of {count}; seed {args.seed}")
        told("load", site.await_step(0))
        took = paced(site, count, args.steps)
        told(f"{args.steps} steps", sum(took))
        tell(f"  a step: {times(took)}")
        site.end()
        index = site.folder / "data/connectors/p/orders" / CURRENT / "keys"
        size = folder_bytes(index)
        tell(f"  index: {size / 1e6:.1f} MB, {size / load.keys:.1f} bytes a key")
        shutil.rmtree(index)
        site.most_anonymous = 0
        hidden = site.stage(site.changes(count)[1])
        site.land(hidden)
        site.start()
        told("a step with the index made again", site.await_step(site.step))
        check(load, delta(site.folder / CURRENT))
    finally:
        site.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--keys", type=int, help="10 million, 1 million with --small-steps, 100 million with --memory")
    parser.add_argument("--steps", type=int, help="2000, 20 with --memory")
    parser.add_argument("--share", type=float, default=0.01, help="of the keys, that a step updates")
    parser.add_argument("--paced", type=int, default=100, help="steps at the start, and at the end, that land one by one")
    parser.add_argument("--block", type=int, default=20, help="steps between them that land at once")
    parser.add_argument("--peer-steps", type=int, default=20)
    parser.add_argument("--small-steps", type=int)
    parser.add_argument("--small-rows", type=int, default=10)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=pathlib.Path, help="where to write; a temporary one by default")
    args = parser.parse_args()
    args.steps = args.steps or (20 if args.memory else 2000)
    folder = pathlib.Path(tempfile.mkdtemp(dir=args.folder))
    try:
        mode = memory if args.memory else small if args.small_steps else updates
        mode(args.program.resolve(), folder, args)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
