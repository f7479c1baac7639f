"""Reads partitioned tables with every engine, whole and by predicates, and prints one JSON object.

    partitions.py < LINES           each line: a table's path, then predicates in SQL, separated by tabs
    partitions.py make TABLE        makes a foreign table (id bigint, p string, q date) that is partitioned by p

For each table and engine it gives rows and digest of the whole, and the predicates whose rows are not those that the
same predicate, evaluated by DuckDB in memory, leaves of the whole: what an engine skips by partition must not matter.
"""

import datetime
import json
import sys

import pyarrow as pa

import digest
import read


def by_predicate(rows, predicate):
    return read.duckdb_connection().execute(f"SELECT * FROM rows WHERE {predicate}").to_arrow_table()


def rows_of(engine, table, predicate="true"):
    rows = read.read(engine, table, where=predicate)
    if engine != "chdb":
        return rows
    # It has no timestamp without zone, and gives such a one as of UTC.
    plain = read.read("duckdb", table, where="false").schema
    types = [(f, plain.field(f.name).type) for f in rows.schema]
    return rows.cast(pa.schema([f.with_type(t) if pa.types.is_timestamp(t) else f for f, t in types]))


def check(engine, table, predicates):
    try:
        whole = rows_of(engine, table)
    except BaseException as error:  # some panics are no Exception
        return {"error": str(error)[:500]}
    differs = []
    for predicate in predicates:
        try:
            found = digest.of(rows_of(engine, table, predicate))
        except BaseException as error:
            found = str(error)[:500]
        if found != digest.of(by_predicate(whole, predicate)):
            differs.append(f"{predicate}: {found}")
    return {"rows": len(whole), "digest": digest.of(whole), "differs": differs}


def make(table):
    import deltalake

    days = [datetime.date(2024, 1, 1 + i) for i in range(4)]
    rows = pa.table({"id": pa.array(range(4), pa.int64()), "p": ["a", "a", "b c/d", None], "q": days})
    deltalake.write_deltalake(table, rows, partition_by=["p"])


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"]:
        make(sys.argv[2])
        sys.exit()
    answers = {}
    for line in sys.stdin:
        table, *predicates = line.rstrip("\n").split("\t")
        answers[table] = {engine: check(engine, table, predicates) for engine in read.ENGINES}
    print(json.dumps(answers))
