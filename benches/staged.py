"""A snapshot that several workers stage and one process commits: how fast, with a worker that is killed and starts again.

    python benches/staged.py --program PATH [--rows N] [--workers N] [--by processes|spark] [--home FOLDER]

PATH is a build of cutover; the interpreter is the readers' (tests/readers/requirements.txt). For `--by spark` it is one of an
environment of its own, which has pyspark in place of pyspark-client, and wants a JDK of version 17 or later. Spark runs as a
local cluster: a master, and `--workers` executors with one core
and 1 GiB each, in processes of their own. Nothing is synced.

Part 2 is killed (its process; of Spark the whole executor) when it has handed over half of its rows, and done again. Part 3
is done twice by processes. Then the table is held to the rows, to the cell, as DuckDB reads them; the reload must be its
only version; it is asked for a second time, and must change nothing; and changes of three steps must follow it.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import pyarrow as pa

HERE = pathlib.Path(__file__).resolve().parent.parent
SOURCE = HERE / "readers" / "python" / "src"
sys.path += [str(HERE / "tests" / "readers"), str(SOURCE)]
from cutover_reader import stage as staging  # noqa: E402

BATCH, NOTES, STEP = 65_536, 1 << 18, 100
SCHEMA = pa.schema([("id", pa.int64()), ("customer", pa.int64()), ("amount", pa.int64()), ("note", pa.string())])
# What a row holds follows from its id, in SQL and here, and is not to be packed easily.
CUSTOMER, AMOUNT = "id * id % 1000003 * id % 1000003", "id * id % 999983 * id % 999983"
CONFIG = """config_version = 1
[pipelines.p.source.files]
path = "{home}/feed"
[pipelines.p.views.rows]
key = ["id"]
columns = {{ id = "bigint", customer = "bigint", amount = "bigint", note = "string" }}
[pipelines.p.views.rows.connectors.lake]
durability = "none"
[pipelines.p.views.rows.connectors.lake.delta]
uri = "{home}/table"
"""


def tell(text):
    print(text, flush=True)


def span(rows, part, parts):
    return (part - 1) * rows // parts, part * rows // parts


def batches(first, end):
    notes = pa.array([f"note {n}" for n in range(NOTES)])
    for begin in range(first, end, BATCH):
        ids = np.arange(begin, min(end, begin + BATCH))
        customer, amount = (ids * ids % prime * ids % prime for prime in (1000003, 999983))
        yield pa.record_batch([ids, customer, amount, notes.take(pa.array(customer % NOTES))], schema=SCHEMA)


def dying(batches, rows, kill):
    """The batches, until so many rows are handed over: then `kill` ends this process, or one that it needs."""
    for batch in batches:
        yield batch
        rows -= batch.num_rows
        if rows < 0:
            kill()


def kill_this():
    os.kill(os.getpid(), signal.SIGKILL)


def kill_executor():
    """Kills the JVM above the daemon of Python workers, and then this process."""
    daemon = os.getppid()
    stat = pathlib.Path(f"/proc/{daemon}/stat").read_text()
    os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
    kill_this()


def part_options(args):
    return {"config": f"{args.home}/cutover.toml", "connector": "lake", "snapshot": args.by, "step": STEP, "program": args.program}


def work(args):
    """One worker: a process of its own."""
    first, end = span(args.rows, args.part, args.workers)
    rows = batches(first, end)
    if args.dies:
        rows = dying(rows, (end - first) // 2, kill_this)
    manifest = f"{args.home}/manifests/part-{args.part}-{args.attempt}.json"
    told = staging.stage(rows, part=args.part, parts=args.workers, manifest=manifest, schema=SCHEMA, **part_options(args))
    print(json.dumps(told))


def by_processes(args):
    def start(part, attempt, *more):
        words = [sys.executable, __file__, "--program", args.program, "--home", args.home, "--rows", str(args.rows)]
        words += ["--workers", str(args.workers), "--part", str(part), "--attempt", str(attempt), *more]
        return subprocess.Popen(words, stdout=subprocess.PIPE)

    begun = time.monotonic()
    running = {part: start(part, 0, *(["--dies"] if part == 2 else [])) for part in range(1, args.workers + 1)}
    assert running[2].wait() == -signal.SIGKILL
    tell("part 2: its process was killed in the middle; it begins again")
    running[2] = start(2, 1)
    running["3 again"] = start(min(3, args.workers), 1)
    manifests = [json.loads(worker.communicate()[0])["manifest"] for worker in running.values()]
    return manifests, time.monotonic() - begun


def by_spark(args):
    from pyspark import TaskContext
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = (
        SparkSession.builder.master(f"local-cluster[{args.workers},1,1024]").appName("staged")
        .config("spark.ui.enabled", "false").config("spark.executor.memory", "1g")
        .config("spark.executorEnv.PYTHONPATH", str(SOURCE)).config("spark.sql.execution.arrow.maxRecordsPerBatch", BATCH)
        .config("spark.local.dir", f"{args.home}/spark").getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    frame = session.range(0, args.rows, 1, args.workers).selectExpr(
        "id", f"{CUSTOMER} AS customer", f"{AMOUNT} AS amount", f"concat('note ', {CUSTOMER} % {NOTES}) AS note"
    )
    stage_partition = staging.spark_stage(
        parts=args.workers, manifests=f"{args.home}/manifests", schema=staging.arrow_schema(frame), **part_options(args)
    )
    half = args.rows // args.workers // 2

    def killed_once(rows):
        context = TaskContext.get()
        if context.partitionId() == 1 and context.attemptNumber() == 0:
            rows = dying(rows, half, kill_executor)
        yield from stage_partition(rows)

    executors = session.sparkContext._jsc.sc().statusTracker().getExecutorInfos
    begun = time.monotonic()
    while len(executors()) <= args.workers and time.monotonic() - begun < 60:
        time.sleep(0.2)
    tell(f"Spark {session.version} with {len(executors()) - 1} executors")
    begun = time.monotonic()
    done = frame.mapInArrow(killed_once, staging.SPARK_REPORT).collect()
    took = time.monotonic() - begun
    session.stop()
    again = [row.manifest for row in done if not row.manifest.endswith("-0.json")]
    assert again, "no part was done again"
    tell(f"an executor was killed in the middle; done again: {len(again)} part(s)")
    return [row.manifest for row in done], took


def ask(args, query):
    import read

    connection = read.duckdb_connection()
    connection.execute(f"SET memory_limit = '6GB'; SET temp_directory = '{args.home}/spill'; SET threads = 2")
    return connection.execute(query).fetchone()


def run(args, *words):
    ran = subprocess.run([args.program, *words], cwd=args.home, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{words}: {ran.returncode} {ran.stdout} {ran.stderr}"
    return ran.stdout


def main(args):
    home = pathlib.Path(args.home)
    shutil.rmtree(home, ignore_errors=True)
    for name in ("feed/rows", "manifests", "spill", "spark"):
        (home / name).mkdir(parents=True)
    (home / "cutover.toml").write_text(CONFIG.format(home=home))
    changes = [{"step": STEP + n, "update": {"id": n, "customer": 0, "amount": 0, "note": "later"}} for n in (1, 2, 3)]
    (home / f"feed/rows/changes-{STEP}-{STEP + 3}.ndjson").write_text("".join(f"{json.dumps(c)}\n" for c in changes))
    tell(f"{args.rows:,} rows, {args.workers} workers, by {args.by}")
    manifests, took = by_spark(args) if args.by == "spark" else by_processes(args)
    tell(f"staged in {took:.1f} s, {args.rows / took:,.0f} rows/s")
    options = {"config": f"{home}/cutover.toml", "connector": "lake", "program": args.program}
    begun = time.monotonic()
    done = staging.reload(manifests, rows=args.rows, reason="a bench", **options)
    took = time.monotonic() - begun
    size = sum(file.stat().st_size for file in (home / "table").glob("*.parquet"))
    tell(f"committed in {took:.2f} s: version {done['version']}, {done['parts']} parts, {done['spare']} spare manifests")
    versions = sorted((home / "table/_delta_log").glob("*.json"))
    assert [file.name for file in versions] == [f"{0:020}.json"], versions
    begun = time.monotonic()
    counted = ask(args, f"""
        SELECT count(*), count(*) FILTER (
            customer IS DISTINCT FROM {CUSTOMER} OR amount IS DISTINCT FROM {AMOUNT}
            OR note IS DISTINCT FROM 'note ' || ({CUSTOMER} % {NOTES}) OR __op <> 'i' OR __step <> {STEP} OR __generation <> 1),
            min(id), max(id) FROM delta_scan('{home}/table')""")
    keys = ask(args, f"SELECT count(*) FROM (SELECT id FROM delta_scan('{home}/table') GROUP BY id)")
    assert (counted, keys) == ((args.rows, 0, 0, args.rows - 1), (args.rows,)), (counted, keys)
    tell(f"DuckDB: {counted[0]:,} rows, {keys[0]:,} keys, none other than it should be ({time.monotonic() - begun:.1f} s)")
    again = staging.reload(manifests, **options)
    assert again["outcome"] == "already_committed" and len(list((home / "table/_delta_log").glob("*.json"))) == 1, again
    run(args, "run", "--once")
    run(args, "verify", f"{home}/table")
    (later,) = ask(args, f"SELECT count(*) FROM delta_scan('{home}/table') WHERE __step > {STEP}")
    assert later == 3, later
    tell(f"a second reload changed nothing; three steps followed; verify is content; the folder has {size >> 20} MiB of data")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--rows", type=int, default=60_000_000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--by", choices=["processes", "spark"], default="processes")
    parser.add_argument("--home")
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--attempt", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--dies", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.program = str(pathlib.Path(given.program).resolve())
    if given.part:
        work(given)
    elif given.home:
        given.home = str(pathlib.Path(given.home).resolve())
        main(given)
    else:
        with tempfile.TemporaryDirectory() as folder:
            given.home = folder
            main(given)
