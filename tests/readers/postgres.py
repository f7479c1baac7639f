"""Compares PostgreSQL's own text of each value with what DuckDB reads from a table, and prints how many there were.

    postgres.py TABLE KEY ROWS.csv [COLUMN=KIND ...]

KEY is the columns of the view's key, with commas between them. ROWS.csv is what
`COPY (SELECT ...) TO STDOUT (FORMAT csv, HEADER, NULL '<null>')` prints, with the column `id` first. DuckDB prints
every value itself, and here the few ways in which its texts differ are undone: no value is read as anything else first.
Exits with 1 when a value differs, a row is missing or too many, or a column is not of the KIND that DuckDB should see.
"""

import csv
import decimal
import re
import struct
import sys

import read

NULL = "<null>"


def elements(text, delimiter=","):
    """The elements of PostgreSQL's text of an array of one dimension."""
    found, at = [], 1
    while text[at] != "}":
        if text[at] == '"':
            match = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL).match(text, at)
            found.append(re.sub(r"\\(.)", r"\1", match[1], flags=re.DOTALL))
        else:
            match = re.compile(rf"[^{delimiter}}}]*").match(text, at)
            found.append(None if match[0] == "NULL" else match[0])
        at = match.end() + (text[match.end()] == delimiter)
    return found


def same(kind, ours, theirs):
    """Whether DuckDB's text of a value is what PostgreSQL's text of it means."""
    if ours is None or theirs is None:
        return ours is theirs
    if kind.endswith("[]"):
        delimiter = ";" if re.match(r"\{\([^;]*\);", ours) else ","
        ours = elements(ours, delimiter)
        return len(ours) == len(theirs) and all(same(kind[:-2], a, b) for a, b in zip(ours, theirs))
    if kind == "BOOLEAN":
        return {"t": "true", "f": "false"}[ours] == theirs
    if kind in ("FLOAT", "DOUBLE"):
        # Both print the fewest digits that mean the same number, with exponents of their own form.
        form = "<f" if kind == "FLOAT" else "<d"
        bits = [struct.pack(form, float(text)) for text in (ours, theirs)]
        return bits[0] == bits[1] or float(ours) != float(ours) and float(theirs) != float(theirs)
    if kind.startswith("DECIMAL"):
        # DuckDB leaves out a zero before the point.
        return decimal.Decimal(ours).compare_total(decimal.Decimal(theirs)) == 0
    if kind == "BLOB":
        return ours.removeprefix("\\x").upper() == theirs
    if kind in ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE") and ours.endswith(" BC"):
        date, *time = ours.removesuffix(" BC").split(" ")
        return " ".join([date, "(BC)", *time]) == theirs
    return ours == theirs


def shown(column, kind):
    name = '"' + column.replace('"', '""') + '"'
    # Times with a zone are printed by way of milliseconds in a float, which have no room for the last years.
    how = {"BLOB": "hex({})", "TIMESTAMP WITH TIME ZONE": "CAST(make_timestamp(epoch_us({})) AS VARCHAR) || '+00'"}
    if not kind.endswith("[]"):
        return how.get(kind, "CAST({} AS VARCHAR)").format(name)
    element = how.get(kind[:-2], "CAST({} AS VARCHAR)").format("e")
    return f"list_transform({name}, lambda e: {element})"


def main(table, key, rows, *wanted):
    csv.field_size_limit(1 << 30)
    with open(rows, newline="", encoding="utf-8") as file:
        header, *lines = csv.reader(file)
    ours = {line[0]: [None if cell == NULL else cell for cell in line] for line in lines}
    connection = read.duckdb_connection()
    path = table.replace("'", "''")
    # The current state, by the key.
    state = f"""(SELECT * FROM delta_scan('{path}')
        WHERE __generation = (SELECT max(__generation) FROM delta_scan('{path}'))
        QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY __step DESC) = 1 AND __op <> 'd')"""
    kinds = {name: kind for name, kind, *_ in connection.execute(f"DESCRIBE SELECT * FROM {state}").fetchall()}
    faults = [f"column {name} is missing" for name in header if name not in kinds]
    for name, kind in (pair.split("=", 1) for pair in wanted):
        if kinds.get(name) != kind:
            faults.append(f"column {name} should be {kind}, and is {kinds.get(name)}")
    header = [name for name in header if name in kinds]
    columns = ", ".join(shown(name, kinds[name]) for name in header)
    found = connection.execute(f"SELECT {columns} FROM {state}").fetchall()
    theirs = {row[0]: row for row in found}
    faults += ["an id is there twice"] * (len(found) != len(theirs) or len(lines) != len(ours))
    faults += [f"row {key} is only on one side" for key in ours.keys() ^ theirs.keys()]
    count = 0
    for key in ours.keys() & theirs.keys():
        for name, a, b in zip(header, ours[key], theirs[key]):
            count += 1
            if not same(kinds[name], a, b):
                faults.append(f"row {key}, column {name} ({kinds[name]}): PostgreSQL {a!r}, DuckDB {b!r}")
    print("\n".join(faults[:50]) if faults else f"{count} values of {len(header)} columns are the same")
    return 1 if faults or not count else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
