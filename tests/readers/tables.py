"""Reads tables with every engine in one process, and prints one JSON line a table and engine.

    tables.py TABLE[,TABLE...]      {"table": …, "engine": …, "rows": …, "digest": …, "plain": …}, or "error" instead

"plain" is the digest of the columns that are not nested.

The engines are those of read.py and chdb, whose reader shares its kernel with DuckDB's but not its Parquet reader.
"""

import json
import os
import sys

import pyarrow as pa

import digest
import read


def read_chdb(table, version, columns, where):
    from chdb import session

    path = table.replace("'", "''")
    settings = "output_format_arrow_string_as_string = 1, output_format_arrow_compression_method = 'none'"
    query = f"SELECT {read.quoted(columns)} FROM deltaLakeLocal('{path}') WHERE {where} SETTINGS {settings}"
    answer = session.Session().query(query, "Arrow")
    with pa.ipc.open_file(pa.py_buffer(answer.bytes())) as file:
        return file.read_all()


ENGINES = {"chdb": read_chdb} | read.ENGINES


def main():
    # chdb reads below its own folder only.
    os.chdir("/")
    for table in sys.argv[1].split(","):
        for engine, rows_of in ENGINES.items():
            answer = {"table": table, "engine": engine}
            try:
                rows = rows_of(table, None, None, "true")
                plain = [f.name for f in rows.schema if not pa.types.is_nested(f.type)]
                answer |= read.summary(rows) | {"plain": digest.of(rows.select(plain))}
            except Exception as error:  # whatever an engine throws is what it says of the table
                answer["error"] = str(error)
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
