"""TPC-H's orders and lineitem as a feed that refreshes them, and what tables of it must hold, without code of the product.

    tpch.py feed FEED_DIR --scale SF --steps N --seed N     lands a snapshot of each and a file of changes a step
    tpch.py judge FEED_DIR ENGINE[,ENGINE...]               holds tables against the feed

Beside the benchmark's refresh functions, which insert and delete whole orders, a step updates some, moves single lines, and
gives a key back that it has just deleted. `judge` takes lines of view, table, version and step with tabs between, and
answers each with a line an engine: {engine, view, version, step, rows, missing, extra} or {…, error}. `missing` counts the
rows that only the feed has, folded up to the step by a window over all of its files; `extra` those that only the engine
reads.
"""

import argparse
import json
import pathlib
import sys

import read

KEYS = {"orders": ["o_orderkey"], "lineitem": ["l_orderkey", "l_linenumber"]}
# How many of a thousand orders, or lines, a step touches; a fifth of the orders is absent at any time.
DELETED, INSERTED, UPDATED, MOVED = 4, 16, 12, 2


def connect():
    import duckdb
    import duckdb_extension_tpch

    connection = duckdb.connect()
    folder = pathlib.Path(duckdb_extension_tpch.__file__).parent / "extensions" / f"v{duckdb.__version__}"
    # By path, since `INSTALL tpch` would ask the network.
    connection.execute(f"LOAD '{folder / 'tpch.duckdb_extension'}'")
    return connection


class Refresh:
    """Both tables as they stand, in DuckDB; each step's changes are drawn by a hash of key, step and seed."""

    def __init__(self, feed, scale, seed):
        self.sql, self.feed, self.seed = connect(), feed, seed
        self.sql.execute(f"CALL dbgen(sf = {scale})")
        here = f"CREATE TABLE orders_here AS FROM orders WHERE {self.drawn('here', 'o_orderkey', 0)} < 800"
        self.sql.execute(here)
        self.sql.execute("CREATE TABLE lineitem_here AS FROM lineitem SEMI JOIN orders_here ON l_orderkey = o_orderkey")
        for view in KEYS:
            (feed / view).mkdir(parents=True)
            self.write(f"FROM {view}_here", feed / view / "snapshot-0.parquet")

    def drawn(self, what, key, step):
        """A number below a thousand for each key."""
        return f"hash({key}, {step}, '{what}', {self.seed}) % 1000"

    def write(self, query, file):
        self.sql.execute(f"COPY ({query}) TO '{file}' (FORMAT parquet)")

    def step(self, step):
        drawn = lambda what, key="o_orderkey": self.drawn(what, key, step)  # noqa: E731
        line = "l_orderkey * 8 + l_linenumber"
        make = lambda name, query: self.sql.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")  # noqa: E731
        make("gone", f"SELECT o_orderkey FROM orders_here WHERE {drawn('gone')} < {DELETED}")
        make(
            "come",
            f"SELECT * REPLACE (o_comment || ' {step}' AS o_comment) FROM orders WHERE"
            f" o_orderkey NOT IN (SELECT o_orderkey FROM orders_here) AND {drawn('come')} < {INSERTED}"
            f" OR o_orderkey IN (FROM gone) AND {drawn('back')} < 125",
        )
        make(
            "changed",
            "SELECT * REPLACE (substr('FOP', 1 + (ascii(o_orderstatus) % 3), 1) AS o_orderstatus,"
            f" (o_totalprice + {step}.25)::DECIMAL(15, 2) AS o_totalprice, 'step {step} ' || o_clerk AS o_comment)"
            f" FROM orders_here ANTI JOIN gone USING (o_orderkey) WHERE {drawn('changed')} < {UPDATED}",
        )
        # Lines go with their orders, or alone; one that went alone comes back when its order is updated.
        make(
            "lines_gone",
            "SELECT l_orderkey, l_linenumber FROM lineitem_here WHERE l_orderkey IN (FROM gone)"
            f" OR {drawn('moved', line)} < {MOVED}",
        )
        make(
            "lines_come",
            f"SELECT * REPLACE (l_comment || ' {step}' AS l_comment) FROM ("
            "FROM lineitem SEMI JOIN come ON l_orderkey = o_orderkey UNION ALL"
            " FROM (FROM lineitem SEMI JOIN changed ON l_orderkey = o_orderkey)"
            " ANTI JOIN lineitem_here USING (l_orderkey, l_linenumber))",
        )
        make(
            "lines_changed",
            "SELECT * REPLACE (if(l_linestatus = 'O', 'F', 'O') AS l_linestatus,"
            " (l_extendedprice * 1.01)::DECIMAL(15, 2) AS l_extendedprice, l_shipdate + 1 AS l_shipdate)"
            " FROM lineitem_here ANTI JOIN lines_gone USING (l_orderkey, l_linenumber)"
            f" WHERE l_orderkey IN (SELECT o_orderkey FROM changed) OR {drawn('line', line)} < {UPDATED}",
        )
        self.land("orders", step, "gone", "come", "changed")
        self.land("lineitem", step, "lines_gone", "lines_come", "lines_changed")

    def land(self, view, step, gone, come, changed):
        keys = ", ".join(KEYS[view])
        self.write(
            f"SELECT {step}::BIGINT AS __step, __op, COLUMNS('^[ol]_') FROM ("
            f"SELECT 1 AS turn, 'd' AS __op, * FROM {gone} UNION ALL BY NAME SELECT 2 AS turn, 'i' AS __op, * FROM {come}"
            f" UNION ALL BY NAME SELECT 3 AS turn, 'u' AS __op, * FROM {changed}) ORDER BY turn, {keys}",
            self.feed / view / f"changes-{step - 1}-{step}.parquet",
        )
        here = f"{view}_here"
        for other in (gone, changed):
            same = " AND ".join(f"{here}.{key} = {other}.{key}" for key in KEYS[view])
            self.sql.execute(f"DELETE FROM {here} USING {other} WHERE {same}")
        for other in (come, changed):
            self.sql.execute(f"INSERT INTO {here} BY NAME FROM {other}")


class Judge:
    def __init__(self, feed):
        self.sql, self.feed, self.folded = connect(), feed, None

    def fold(self, view, step):
        """The table `expected`: of each key the last row that the files up to the step tell, unless it was deleted."""
        if self.folded == (view, step):
            return
        folder = self.feed / view
        keys = ", ".join(KEYS[view])
        self.sql.execute(
            "CREATE OR REPLACE TEMP TABLE expected AS SELECT * EXCLUDE (__step, __op, turn) FROM ("
            f"SELECT 0 AS __step, 'i' AS __op, 0 AS turn, * FROM '{folder}/snapshot-0.parquet' UNION ALL BY NAME"
            f" SELECT * EXCLUDE (file_row_number), file_row_number + 1 AS turn"
            f" FROM read_parquet('{folder}/changes-*.parquet', file_row_number = true) WHERE __step <= {step})"
            f" QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY __step DESC, turn DESC) = 1 AND __op <> 'd'"
        )
        self.folded = (view, step)

    def compare(self, told):
        """How many rows the engine gives, lacks and has beyond the expected ones; types count."""
        self.sql.register("told", told)
        types = lambda name: dict(row[:2] for row in self.sql.execute(f"DESCRIBE {name}").fetchall())  # noqa: E731
        if types("told") != types("expected"):
            raise TypeError(f"the columns are {types('told')}, not {types('expected')}")
        columns = ", ".join(told.column_names)
        count = lambda query: self.sql.execute(f"SELECT count(*) FROM ({query})").fetchone()[0]  # noqa: E731
        return {
            "rows": len(told),
            "missing": count(f"SELECT {columns} FROM expected EXCEPT ALL SELECT {columns} FROM told"),
            "extra": count(f"SELECT {columns} FROM told EXCEPT ALL SELECT {columns} FROM expected"),
        }

    def answers(self, engines, line):
        view, table, version, step = line.rstrip("\n").split("\t")
        self.fold(view, int(step))
        for engine in engines:
            answer = {"engine": engine, "view": view, "version": int(version), "step": int(step)}
            # Whatever an engine does about a table, the others' answers are wanted; some panics are no Exception.
            try:
                yield answer | self.compare(read.read(engine, table, int(version)))
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                yield answer | {"error": f"{type(error).__name__}: {error}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    feed = modes.add_parser("feed")
    feed.add_argument("feed", type=pathlib.Path)
    feed.add_argument("--scale", type=float, required=True)
    feed.add_argument("--steps", type=int, required=True)
    feed.add_argument("--seed", type=int, required=True)
    judge = modes.add_parser("judge")
    judge.add_argument("feed", type=pathlib.Path)
    judge.add_argument("engines", type=lambda text: text.split(","))
    args = parser.parse_args()
    if args.mode == "feed":
        refresh = Refresh(args.feed, args.scale, args.seed)
        for step in range(1, args.steps + 1):
            refresh.step(step)
        return
    judge = Judge(args.feed)
    for line in sys.stdin:
        for answer in judge.answers(args.engines, line):
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
