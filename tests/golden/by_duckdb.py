"""Tables that DuckDB appends to; it cannot create one, so deltalake or Sail does."""

import functools
import pathlib

import duckdb
import duckdb_extension_delta

import by_deltalake
import by_sail

TABLES = {}


def table(make):
    TABLES["duckdb-" + make.__name__.replace("_", "-")] = make
    return make


def version():
    return f"duckdb {duckdb.__version__} with its extension delta"


@functools.cache
def connection():
    connected = duckdb.connect()
    folder = pathlib.Path(duckdb_extension_delta.__file__).parent / "extensions" / f"v{duckdb.__version__}"
    # By path, since `INSTALL delta` would ask the network.
    connected.execute(f"LOAD '{folder / 'delta.duckdb_extension'}'")
    connected.execute("SET TimeZone = 'UTC'")
    return connected


def read(path):
    return connection().execute(f"SELECT * FROM delta_scan('{path}')").to_arrow_table()


def run(path, *statements):
    """Statements about the table `t` at `path`."""
    connection().execute(f"ATTACH '{path}' AS t (TYPE delta)")
    try:
        for statement in statements:
            connection().execute(statement)
    finally:
        connection().execute("DETACH t")


@table
def inserted(path):
    """Three inserts into a table of deltalake."""
    by_deltalake.append(path, by_deltalake.people(0, 3))
    run(path, *(f"INSERT INTO t VALUES ({n}, 'duck {n}')" for n in range(3, 6)))


@table
def checkpoint(path):
    """Inserts, a checkpoint by DuckDB, and an insert above it."""
    by_deltalake.append(path, by_deltalake.people(0, 3))
    run(path, "INSERT INTO t VALUES (3, 'duck')", "CHECKPOINT t", "INSERT INTO t VALUES (4, NULL)")


@table
def partitioned(path):
    """Inserts into partitions, one of them null."""
    by_deltalake.partitioned_by_odd_strings(path)
    # One partition a statement, and none with a value that must be escaped, since it fails at those.
    run(path, *(f"INSERT INTO t VALUES ({value})" for value in ("100, 'plain'", "101, NULL", "102, 'other'")))


@table
def app_txn(path):
    """A transaction of another application that DuckDB set."""
    by_deltalake.append(path, by_deltalake.people(0, 3))
    txn = "CALL delta_set_transaction_version('t', 'duck/loader', 7::UBIGINT, NULL::UBIGINT)"
    run(path, "BEGIN", txn, "INSERT INTO t VALUES (3, 'duck')", "COMMIT")


@table
def three_writers(path):
    """Written by Sail, deltalake and DuckDB in turn, with a checkpoint of each."""
    by_sail.create(path, "id BIGINT, name STRING", by_sail.FIVE, by_sail.MORE, checkpointInterval=2)
    by_deltalake.append(path, by_deltalake.people(10, 13))
    by_deltalake.DeltaTable(path).create_checkpoint()
    run(path, "INSERT INTO t VALUES (20, 'duck')", "CHECKPOINT t", "INSERT INTO t VALUES (21, 'duck')")
