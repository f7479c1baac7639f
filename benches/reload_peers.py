"""W1 against other programs: the same rows from memory, in turn, two threads each.

    cargo bench --bench reload --no-run       # prints the path of the executable
    python benches/reload_peers.py EXECUTABLE [--rows N] [--rounds N] [--codec snappy|zstd] [--folder PATH]

Needs deltalake, polars, pyarrow and duckdb with its extension `delta` (tests/readers/requirements.txt). Each engine has
the rows in memory before its time begins: deltalake overwrites a Delta table, polars writes plain Parquet with
`sink_parquet`, ours reloads a table. Nothing is synced. The first round warms up. Processor seconds are user and system
time of the process that writes. What everybody wrote is read back and compared.
"""

import argparse
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["POLARS_MAX_THREADS"] = "2"

import deltalake  # noqa: E402
import polars  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.dataset as ds  # noqa: E402


class Ours:
    def __init__(self, executable, folder, codec):
        self.table = folder / "ours"
        self.process = subprocess.Popen(
            [executable, "serve", folder, codec], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout.readline() == "ready\n"

    def run(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        wall, cpu, size = self.process.stdout.readline().split()
        return float(wall), float(cpu), int(size)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def used():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def timed(write, size):
    wall, cpu = time.perf_counter(), used()
    write()
    return time.perf_counter() - wall, used() - cpu, size()


def peers(rows, folder, codec):
    table, plain, frame = folder / "deltalake", folder / "polars.parquet", polars.from_arrow(rows)
    compression = "SNAPPY" if codec == "snappy" else "ZSTD(1)"
    properties = deltalake.WriterProperties(compression=compression.split("(")[0],
                                            compression_level=1 if codec == "zstd" else None)

    def overwrite():
        deltalake.write_deltalake(table, rows, mode="overwrite", writer_properties=properties)

    def overwritten():
        files = [pathlib.Path(uri) for uri in deltalake.DeltaTable(table).file_uris()]
        for old in set(table.glob("*.parquet")) - set(files):
            old.unlink()
        return sum(file.stat().st_size for file in files)

    def sink():
        frame.lazy().sink_parquet(plain, compression=codec, compression_level=1 if codec == "zstd" else None)

    return {
        "deltalake": lambda: timed(overwrite, overwritten),
        "polars": lambda: timed(sink, lambda: plain.stat().st_size),
    }


def summary(table, columns):
    """Sums that a lost, doubled or changed row alters."""
    import duckdb

    ours = table.select(columns)
    return duckdb.sql(f"SELECT count(*), sum(hash({', '.join(columns)})::HUGEINT) FROM ours").fetchone()


def check(folder, rows):
    columns = rows.schema.names
    live = deltalake.DeltaTable(folder / "ours")
    written = {
        "ours": ds.dataset([str(folder / "ours" / path) for path in pa.table(live.get_add_actions()).to_pydict()["path"]]),
        "deltalake": ds.dataset(deltalake.DeltaTable(folder / "deltalake").file_uris()),
        "polars": ds.dataset(folder / "polars.parquet"),
    }
    expected = summary(rows, columns)
    for name, data in written.items():
        found = summary(data.to_table(columns=columns).cast(rows.schema), columns)
        assert found == expected, f"{name} wrote {found}, not {expected}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("executable")
    parser.add_argument("--rows", type=int, default=6_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--codec", choices=["snappy", "zstd"], default="snappy")
    parser.add_argument("--folder", type=pathlib.Path, help="where to write; a temporary one by default")
    args = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(dir=args.folder))
    try:
        subprocess.run([args.executable, "export", str(args.rows), folder], check=True)
        rows = pa.ipc.open_file(folder / "lineitem.arrow").read_all()
        ours = Ours(args.executable, folder, args.codec)
        engines = {"ours": ours.run, **peers(rows, folder, args.codec)}
        runs = {name: [] for name in engines}
        for number in range(args.rounds + 1):
            for name, run in engines.items():
                result = run()
                if number > 0:
                    runs[name].append(result)
        ours.end()
        check(folder, rows)
        print(f"{args.rows} rows, {args.codec}, two threads, not synced, {args.rounds} rounds in turn; all wrote the same rows")
        for name, results in runs.items():
            walls, cpus, sizes = zip(*results)
            print(
                f"{name:<10} wall {statistics.median(walls):.2f} s ({min(walls):.2f} to {max(walls):.2f}), "
                f"processor {statistics.median(cpus):.2f} s ({min(cpus):.2f} to {max(cpus):.2f}), {sizes[-1]} bytes"
            )
        for name in ["deltalake", "polars"]:
            ratio = lambda i: statistics.median(o[i] / t[i] for o, t in zip(runs["ours"], runs[name]))  # noqa: E731
            print(f"ours / {name}: wall {ratio(0):.2f}, processor {ratio(1):.2f}, bytes {ratio(2):.2f}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
