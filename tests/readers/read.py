"""Reads a Delta table with engines that share no code with the product, and prints JSON.

    read.py ENGINE TABLE [--version N] [--columns a,b] [--where SQL]     rows and digest of what the engine reads
    read.py state ENGINE TABLE --key id [--version N]                    the same of the view's current state
    read.py poll ENGINE TABLE --allow N[,N...] --until-file PATH         reads on until PATH exists
    read.py many ENGINE[,ENGINE...]                                      reads each table that a line of stdin names
    read.py log TABLE                                                    the rules of PROTOCOL.md in the log

ENGINE is duckdb, chdb, polars, deltalake (its SQL) or sail, which is asked as Spark is. `many` takes lines of a path, or of
a path, a tab and a version, and answers each with a line an engine: {table, engine, rows, digest, columns, plain} or
{table, engine, error}, where `plain` is the digest of the columns that are not nested; as ENGINE it also knows `parquet`,
plain files in a folder, and `about`, what deltalake says of a table beside its rows. `poll` says "reading" on stderr after
its first read, and exits with 1 when it ever sees another number of rows or more than one generation; `log` does when a
rule is broken. Polars has no map type and reads a map as a list of structs, whose digest is another. TABLE may be an s3://
URI for duckdb and deltalake; how to reach it is said by AWS_ENDPOINT_URL and the usual variables.
"""

import argparse
import atexit
import collections
import contextlib
import functools
import json
import os
import pathlib
import sys

import pyarrow as pa
import pyarrow.compute as pc

import digest
import log_rules

CONTINUITY = ["__generation", "__step", "__op"]


def quoted(columns):
    return "*" if columns is None else ", ".join('"' + c.replace('"', '""') + '"' for c in columns)


@functools.cache
def duckdb_connection():
    import duckdb
    import duckdb_extension_delta

    connection = duckdb.connect()
    folder = pathlib.Path(duckdb_extension_delta.__file__).parent / "extensions" / f"v{duckdb.__version__}"
    # By path, since `INSTALL delta` would ask the network.
    connection.execute(f"LOAD '{folder / 'delta.duckdb_extension'}'")
    connection.execute("SET TimeZone = 'UTC'")
    if endpoint := os.environ.get("AWS_ENDPOINT_URL"):
        import duckdb_extension_httpfs

        folder = pathlib.Path(duckdb_extension_httpfs.__file__).parent / "extensions" / f"v{duckdb.__version__}"
        connection.execute(f"LOAD '{folder / 'httpfs.duckdb_extension'}'")
        keys = {"KEY_ID": "AWS_ACCESS_KEY_ID", "SECRET": "AWS_SECRET_ACCESS_KEY", "REGION": "AWS_REGION"}
        keys = ", ".join(f"{key} '{os.environ[variable]}'" for key, variable in keys.items())
        host = endpoint.removeprefix("http://")
        connection.execute(
            f"CREATE SECRET (TYPE s3, {keys}, ENDPOINT '{host}', USE_SSL false, URL_STYLE 'path')"
        )
    return connection


def read_duckdb(table, version, columns, where):
    at = "" if version is None else f", version => {version}"
    path = table.replace("'", "''")
    query = f"SELECT {quoted(columns)} FROM delta_scan('{path}'{at}) WHERE {where}"
    return duckdb_connection().execute(query).to_arrow_table()


def read_polars(table, version, columns, where):
    import polars
    import polars_deltalake

    frame = polars_deltalake.scan_delta(table, version=version)
    if where != "true":
        frame = frame.filter(polars.sql_expr(where))
    return (frame if columns is None else frame.select(columns)).collect().to_arrow()


def read_deltalake(table, version, columns, where):
    import deltalake

    # SQL rather than to_pyarrow_table, which gives nulls under column mapping.
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(table, version=version))
    rows = pa.table(query.execute(f"SELECT {quoted(columns)} FROM t WHERE {where}"))
    # pyarrow computes little with string views.
    plain = [c.cast(pa.large_string()) if pa.types.is_string_view(c.type) else c for c in rows.columns]
    return pa.table(plain, names=rows.column_names)


def read_chdb(table, version, columns, where, strings_are="text"):
    import chdb

    path = str(pathlib.Path(table).resolve()).replace("\\", "\\\\").replace("'", "\\'")
    at = "" if version is None else f", delta_lake_snapshot_version = {version}"
    # Without the kernel it takes no note of versions and vectors.
    settings = f"allow_delta_kernel_rs = 1, output_format_arrow_string_as_string = {int(strings_are == 'text')}{at}"
    query = f"SELECT {quoted(columns)} FROM deltaLakeLocal('{path}') WHERE {where} SETTINGS {settings}"
    # It reads files below the working directory only.
    with contextlib.chdir("/"):
        return pa.ipc.open_file(chdb.query(query, "Arrow").bytes()).read_all()


@functools.cache
def spark():
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    atexit.register(server.stop)
    _, port = server.listening_address
    session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


def read_sail(table, version, columns, where):
    rows = spark().read.format("delta")
    rows = rows if version is None else rows.option("versionAsOf", version)
    rows = rows.load(str(pathlib.Path(table).resolve())).where(where)
    return (rows if columns is None else rows.select(columns)).toArrow()


ENGINES = {
    "duckdb": read_duckdb,
    "chdb": read_chdb,
    "polars": read_polars,
    "deltalake": read_deltalake,
    "sail": read_sail,
}


def read(engine, table, version=None, columns=None, where="true"):
    return ENGINES[engine](table, version, columns, where)


def summary(rows):
    return {"rows": len(rows), "digest": digest.of(rows), "columns": rows.column_names}


def state(rows, key):
    """The view's rows out of a changelog: the latest step of each key in the current generation, without deletes."""
    rows = rows.filter(pc.equal(rows["__generation"], pc.max(rows["__generation"])))
    rows = rows.append_column("row", pa.array(range(len(rows)), pa.int64())).sort_by("__step")
    if len(rows.group_by(["__step", *key]).aggregate([])) != len(rows):
        sys.exit("a key has two rows in one step")
    latest = rows.select([*key, "row"]).group_by(key, use_threads=False).aggregate([("row", "last")])["row_last"]
    rows = rows.filter(pc.is_in(rows["row"], value_set=latest.combine_chunks()))
    return rows.filter(pc.not_equal(rows["__op"], "d")).drop([*CONTINUITY, "row"])


def about(table, version):
    """What a table says of itself beside its rows."""
    import deltalake

    opened = deltalake.DeltaTable(table, version=version)
    said, protocol = opened.metadata(), opened.protocol()
    return {
        "version": opened.version(),
        "id": said.id,
        "name": said.name,
        "description": said.description,
        "created": said.created_time,
        "partitioned_by": said.partition_columns,
        "properties": said.configuration,
        "protocol": [protocol.min_reader_version, protocol.min_writer_version],
        "features": [sorted(protocol.reader_features or []), sorted(protocol.writer_features or [])],
    }


def one_of_many(engine, table, version):
    # Whatever an engine does about a table, the others' answers are wanted; some panics are no Exception.
    try:
        if engine == "about":
            return about(table, version)
        if engine == "parquet":
            import pyarrow.parquet

            return summary(pyarrow.parquet.read_table(table))
        rows = read(engine, table, version)
        plain = [field.name for field in rows.schema if not pa.types.is_nested(field.type)]
        return summary(rows) | {"plain": digest.of(rows.select(plain))}
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        return {"error": f"{type(error).__name__}: {error}"}


def many(engines):
    for line in sys.stdin:
        table, _, version = line.rstrip("\n").partition("\t")
        for engine in engines:
            answer = one_of_many(engine, table, int(version) if version else None)
            print(json.dumps({"table": table, "engine": engine, **answer}), flush=True)


def poll(engine, table, allowed, until):
    seen, reads, last = collections.Counter(), 0, False
    while not last:
        last = until.exists()  # asked before the read, so that one read follows the end
        if not any((pathlib.Path(table) / "_delta_log").glob("*.json")):
            continue
        counts = read(engine, table, columns=["__generation"])["__generation"].value_counts().to_pylist()
        counts = {c["values"]: c["counts"] for c in counts}
        reads += 1
        if reads == 1:
            print("reading", file=sys.stderr, flush=True)
        rows = counts[max(counts)] if counts else 0
        seen[rows] += 1
        if len(counts) > 1 or rows not in allowed:
            return {"ok": False, "reads": reads, "generations": counts, "allowed": sorted(allowed)}
    return {"ok": True, "reads": reads, "seen": dict(seen)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    split = lambda text: text.split(",")
    for engine in ENGINES:
        plain = modes.add_parser(engine)
        plain.add_argument("table")
        plain.add_argument("--version", type=int)
        plain.add_argument("--columns", type=split)
        plain.add_argument("--where", default="true")
    for mode in ("state", "poll"):
        parsed = modes.add_parser(mode)
        parsed.add_argument("engine", choices=ENGINES)
        parsed.add_argument("table")
        if mode == "state":
            parsed.add_argument("--key", type=split, required=True)
            parsed.add_argument("--version", type=int)
        else:
            parsed.add_argument("--allow", type=lambda t: {int(n) for n in t.split(",")}, required=True)
            parsed.add_argument("--until-file", type=pathlib.Path, required=True)
    modes.add_parser("log").add_argument("table", type=pathlib.Path)
    modes.add_parser("many").add_argument("engines", type=split)
    args = parser.parse_args()

    if args.mode == "many":
        return many(args.engines)
    if args.mode == "log":
        answer = log_rules.check(args.table)
    elif args.mode == "poll":
        answer = poll(args.engine, args.table, args.allow, args.until_file)
    elif args.mode == "state":
        answer = summary(state(read(args.engine, args.table, args.version), args.key))
    else:
        answer = summary(read(args.mode, args.table, args.version, args.columns, args.where))
    print(json.dumps(answer), flush=True)
    sys.exit(0 if answer.get("ok", True) else 1)


if __name__ == "__main__":
    main()
