"""Holds states of pgbench's tables, as DuckDB reads them from changelogs, against what the server had.

    pgbench.py < LINES

A line has, with tabs between them, NAME (of a table, without `pgbench_`), TABLE, VERSION, GENERATION, STEP, ROWS and SUM
of the server, and a FILE of its rows as text, or nothing. The state at STEP is read out of VERSION: the newest row of
each key up to that step, or without a key each row as often as it was inserted and not deleted. A row's text is its
columns with `|` between them, `~` for null and microseconds for a time; SUM adds the first 60 bits of the md5 of each.
Prints how much was the same; exits with 1 when something is not, and names rows where a FILE has them.
"""

import sys

import read

TABLES = {
    "accounts": ("aid", "concat_ws('|', aid, bid, abalance, coalesce(filler, '~'))"),
    "branches": ("bid", "concat_ws('|', bid, bbalance, coalesce(filler, '~'))"),
    "tellers": ("tid", "concat_ws('|', tid, bid, tbalance, coalesce(filler, '~'))"),
    "history": (None, "concat_ws('|', tid, bid, aid, delta, epoch_us(mtime), coalesce(filler, '~'))"),
}


def state(name, table, version, generation, step):
    """The rows' texts and how many times each is there."""
    key, text = TABLES[name]
    rows = f"""delta_scan('{table.replace("'", "''")}', version => {int(version)})
        WHERE __generation = {int(generation)} AND __step <= {int(step)}"""
    if key is None:
        return f"""SELECT {text} AS text, sum(CASE __op WHEN 'd' THEN -1 ELSE 1 END)::BIGINT AS copies
            FROM {rows} GROUP BY text HAVING copies <> 0"""
    newest = f"QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY __step DESC) = 1"
    return f"SELECT {text} AS text, 1 AS copies FROM (SELECT * FROM {rows} {newest}) WHERE __op <> 'd'"


def different(connection, path):
    """Some rows that are only in the table, or only in the server's file."""
    connection.execute("DROP TABLE IF EXISTS there")
    connection.execute("CREATE TEMP TABLE there (text VARCHAR)")
    connection.execute(
        f"COPY there FROM '{path}' (FORMAT csv, HEADER false, DELIMITER '\x01', QUOTE '', ESCAPE '', NULLSTR '\x02')"
    )
    here, there = "SELECT unnest(repeat([text], copies)) FROM here", "SELECT text FROM there"
    for side, query in {"table": f"{here} EXCEPT ALL {there}", "server": f"{there} EXCEPT ALL {here}"}.items():
        for (text,) in connection.execute(f"{query} LIMIT 10").fetchall():
            yield f"only the {side} has {text!r}"


def main():
    connection = read.duckdb_connection()
    states, whole, count, faults = 0, 0, 0, []
    for line in sys.stdin:
        name, table, version, generation, step, rows, total, path = line.rstrip("\n").split("\t")
        connection.execute(f"CREATE OR REPLACE TEMP TABLE here AS {state(name, table, version, generation, step)}")
        found = connection.execute(
            "SELECT sum(copies), sum(copies * ('0x' || substr(md5(text), 1, 15))::BIGINT::HUGEINT) FROM here"
        ).fetchone()
        found, expected = tuple(int(n or 0) for n in found), (int(rows), int(total))
        if found != expected:
            faults.append(f"{name} at {step}: the table has (rows, sum) {found}, the server {expected}")
        if path:
            faults += [f"{name} at {step}: {what}" for what in different(connection, path)]
            whole += 1
        states, count = states + 1, count + expected[0]
    print("\n".join(faults[:50]) if faults else f"{states} states of {count} rows are the same, {whole} of them in full")
    return 1 if faults or not states else 0


if __name__ == "__main__":
    sys.exit(main())
