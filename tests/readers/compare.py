"""Compares what engines read of tables with the rows that were sent, by digest and by value, and prints JSON.

    compare.py rows CASES.json [--engines a,b]                      every row, as sent
    compare.py predicates CASES.json --seed N --count N [...]       counts with file skipping against counts without

CASES.json is a list of {"table": folder, "sent": Arrow file, "key": [columns]}: the file holds the changelog's rows in
the source's own types; where there is a key, the other columns of a row with `__op` 'd' count as null. Exits with 1 when
anything differs. WEAK lists what an engine cannot hold whoever wrote the table; `python compare.py weak` proves each entry
with a table that deltalake wrote.
"""

import argparse
import collections
import fractions
import json
import pathlib
import random
import shutil
import sys
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

import digest
import read

# What an engine reads otherwise than it was written, by any writer.
WEAK = {
    ("chdb", "null collections"): "its arrays, maps and tuples are never null: a null one is empty, or all of its fields",
    ("chdb", "strings"): "its strings are bytes, so that string and binary are one type",
    ("chdb", "timestamp_ntz"): "its times without zone are read as UTC",
    ("chdb", "wide literals"): "it skips files wrongly when an integer is compared with one that its type cannot hold",
    ("polars", "maps"): "it has no maps and reads lists of key and value",
}


def read_table(engine, table, columns=None, where="true"):
    if engine == "chdb":
        # All of its strings are bytes, of which some are no text.
        return read.read_chdb(table, None, columns, where, strings_are="bytes")
    return read.read(engine, table, columns=columns, where=where)


def kind_of(kind):
    """The type without its encoding, and the name of its family."""
    t = pa.types
    if t.is_dictionary(kind) or t.is_run_end_encoded(kind):
        return kind_of(kind.value_type)
    for family, names in {
        "list": ["list", "large_list", "fixed_size_list", "list_view", "large_list_view"],
        "map": ["map"],
        "struct": ["struct"],
        "string": ["string", "large_string", "string_view"],
        "binary": ["binary", "large_binary", "fixed_size_binary", "binary_view"],
        "date": ["date32", "date64"],
        "timestamp": ["timestamp"],
    }.items():
        if any(getattr(t, f"is_{name}")(kind) for name in names):
            return kind, family
    return kind, "plain"


def values(array, like, weak=False):
    """The values as comparable Python objects, read as the type `like` means them."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            return [v for chunk in array.chunks for v in values(chunk, like, weak)]
    array = digest.plain(array)
    like, family = kind_of(like)
    valid = array.is_valid().to_pylist()
    kind = array.type
    empty = None
    if pa.types.is_null(kind):
        found = [None] * len(array)
    elif family == "map":
        spans = digest.spans(array)
        if pa.types.is_map(kind):
            keys, items = array.keys, array.items
        else:
            keys, items = digest.elements(array).field(0), digest.elements(array).field(1)
        keys, items = values(keys, like.key_type, weak), values(items, like.item_type, weak)
        found = [tuple(sorted(zip(keys[a:b], items[a:b]), key=repr)) for a, b in spans]
        empty = () if weak else None
    elif family == "list":
        inner = values(digest.elements(array), like.value_type, weak)
        found = [tuple(inner[a:b]) for a, b in digest.spans(array)]
        empty = () if weak else None
    elif family == "struct":
        fields = [(f.name, values(array.field(f.name), f.type, weak)) for f in like]
        found = [tuple((name, column[i]) for name, column in fields) for i in range(len(array))]
        if weak:
            empty = tuple((f.name, values(pa.nulls(1, f.type), f.type, True)[0]) for f in like)
    elif family == "date":
        found = digest.days(array).tolist()
    elif family == "timestamp":
        found = digest.micros(array).tolist()
    elif family == "string":
        found = [v.decode() if isinstance(v, bytes) else v for v in array.to_pylist()]
    elif pa.types.is_decimal(kind) or pa.types.is_integer(kind):
        numbers = (None if v is None else fractions.Fraction(v) for v in array.to_pylist())
        found = [v if v is None else int(v) if v.denominator == 1 else v for v in numbers]
    elif pa.types.is_floating(kind):
        found = [None if v is None else "NaN" if v != v else repr(float(v)) for v in array.to_pylist()]
    else:
        found = array.to_pylist()
    return [v if ok else empty for v, ok in zip(found, valid)]


def holds(kind, wanted):
    kind, family = kind_of(kind)
    if family == wanted:
        return True
    if family == "list":
        return holds(kind.value_type, wanted)
    if family == "map":
        return holds(kind.key_type, wanted) or holds(kind.item_type, wanted)
    if family == "struct":
        return any(holds(f.type, wanted) for f in kind)
    return False


class Case:
    def __init__(self, case):
        self.table, self.key = case["table"], case["key"]
        with pa.OSFile(case["sent"]) as file:
            self.sent = pa.ipc.open_file(file).read_all()
        deleted = np.array([op == "d" for op in self.sent["__op"].to_pylist()]) & bool(self.key)
        continuity = {*read.CONTINUITY, *self.key}
        self.hidden = {name: deleted for name in self.sent.column_names if name not in continuity}

    def expected(self, name, weak=False):
        kind = self.sent.schema.field(name).type
        null = values(pa.nulls(1, kind_of(kind)[0]), kind, weak)[0] if weak else None
        hidden = self.hidden.get(name)
        found = values(self.sent[name], kind, weak)
        return found if hidden is None else [null if h else v for v, h in zip(found, hidden)]


def rows_of(columns):
    return collections.Counter(map(repr, zip(*columns)))


def compare(case, engine):
    """What differs between what `engine` reads and what was sent; nothing when all is well."""
    got = read_table(engine, case.table)
    names = case.sent.column_names
    if got.column_names != names:
        return f"columns {got.column_names[:20]} instead of {names[:20]}"
    types = {name: case.sent.schema.field(name).type for name in names}
    weak = engine == "chdb"
    expected = {name: case.expected(name, weak) for name in names}
    found = {name: values(got[name], types[name], weak) for name in names}
    if rows_of(found.values()) != rows_of([expected[n] for n in names]):
        worse = [n for n in names if rows_of([found[n], found["id"]]) != rows_of([expected[n], expected["id"]])]
        lines = [f"{n} ({types[n]}): read {sorted(zip(found['id'], found[n]), key=lambda p: p[0])[:50]}, "
                 f"sent {sorted(zip(expected['id'], expected[n]), key=lambda p: p[0])[:50]}" for n in worse[:2]]
        return "; ".join(lines) or "rows differ"
    families = {"chdb": ["list", "map", "struct", "string", "timestamp"], "polars": ["map"]}.get(engine, [])
    names = [n for n in names if not any(holds(types[n], f) for f in families)]
    read_digest, sent_digest = digest.of(got.select(names)), digest.of(case.sent.select(names), case.hidden)
    return None if read_digest == sent_digest else f"digest {read_digest} instead of {sent_digest}"


def check_rows(cases, engines):
    faults, compared = [], 0
    for case in map(Case, cases):
        for engine in engines:
            try:
                fault = compare(case, engine)
            except Exception as e:  # an engine that cannot read a table is a fault of it like any other
                fault = f"{type(e).__name__}: {str(e)[:600]}"
            compared += 1
            if fault:
                faults.append({"engine": engine, "table": case.table, "fault": fault,
                               "types": {f.name: str(f.type) for f in case.sent.schema}})
    return {"cases": len(cases), "compared": compared, "faults": faults}


def without_stats(table):
    """A copy of the table whose log has no statistics, its data files linked."""
    copy = pathlib.Path(str(table).rstrip("/") + "-without")
    shutil.copytree(table, copy, copy_function=lambda a, b: pathlib.Path(b).hardlink_to(a))
    for entry in (copy / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in entry.read_text(encoding="utf-8").splitlines()]
        for action in actions:
            action.get("add", {}).pop("stats", None)
        entry.unlink()
        entry.write_text("".join(json.dumps(a) + "\n" for a in actions), encoding="utf-8")
    return str(copy)


def paths(name, kind, at=()):
    """The leaves that may have bounds, with the names that lead to them."""
    kind, family = kind_of(kind)
    if family == "struct":
        return [p for f in kind for p in paths(f.name, f.type, (*at, name))]
    return [((*at, name), kind, family)] if family not in ("list", "map", "binary") else []


def literal(value, kind, family, chance):
    """The value, or one beside it, as SQL; None where there is no good spelling."""
    if family == "string":
        value = chance.choice([value, value[:32], value[:31], value + "\U0010ffff", value + "a", value[:-1], ""])
        return None if "\0" in value or "\\" in value else "'" + value.replace("'", "''") + "'"
    if family == "date":
        day = np.datetime64(value + chance.choice([-1, 0, 0, 1]), "D")
        return f"CAST('{day}' AS DATE)" if 1900 <= int(str(day)[:4] or 0) <= 2200 else None
    if family == "timestamp":
        time = str(np.datetime64(value + chance.choice([-1, 0, 0, 1, 1000, -1000]), "us")).replace("T", " ")
        return f"CAST('{time}' AS TIMESTAMP)" if time[4] == "-" and 1900 <= int(time[:4]) <= 2200 else None
    if pa.types.is_boolean(kind):
        return str(bool(value)).lower()
    if pa.types.is_floating(kind):
        number = float(value)
        if number != number or number in (float("inf"), float("-inf")):
            return f"CAST('{number}' AS DOUBLE)"
        return repr(chance.choice([number, number, -number, number * 2]))
    if pa.types.is_decimal(kind):
        scale = max(kind.scale, 0)
        unscaled = int(value * 10**scale) + chance.choice([-1, 0, 0, 1])
        digits = str(abs(unscaled)).rjust(scale + 1, "0")
        if len(digits) > 38:
            return None
        text = digits[: len(digits) - scale] + ("." + digits[len(digits) - scale :] if scale else "")
        return f"CAST('{'-' if unscaled < 0 else ''}{text}' AS DECIMAL(38, {scale}))"
    number = value + chance.choice([-1, 0, 0, 1])
    return str(number) if -(2**63) < number < 2**63 else None


def is_beyond(kind, tail):
    """Whether a predicate compares an integer with one beyond the type that the table has for it."""
    if not pa.types.is_integer(kind) or kind.bit_width > 32 or tail.startswith("IS"):
        return False
    bits = kind.bit_width if pa.types.is_signed_integer(kind) else kind.bit_width * 2
    number = int(tail.split()[-1])
    return not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1)


def spelled(path, engine):
    head, *rest = (f'"{name}"' if i == 0 else name for i, name in enumerate(path))
    if engine == "deltalake":
        return head + "".join(f"['{name}']" for name in rest)
    return ".".join([head, *(f'"{name}"' for name in rest)])


def check_predicates(cases, engines, seed, count):
    chance = random.Random(seed)
    faults, compared, skipped, answers = [], 0, collections.Counter(), 0
    for case in map(Case, cases):
        bare = without_stats(case.table)
        leaves = [p for f in case.sent.schema for p in paths(f.name, f.type) if f.name not in read.CONTINUITY]
        columns = {name: case.expected(name) for name in case.sent.column_names}
        for _ in range(count):
            path, kind, family = chance.choice(leaves)
            value = chance.choice(columns[path[0]])
            for name in path[1:]:
                value = None if value is None else dict(value)[name]
            operator = chance.choice(["=", "<>", "<", "<=", ">", ">=", "IS NULL", "IS NOT NULL", "BETWEEN"])
            if operator.startswith("IS"):
                tail = operator
            else:
                text = None if value is None else literal(value, kind, family, chance)
                if text is None:
                    continue
                tail = f"BETWEEN {text} AND {text}" if operator == "BETWEEN" else f"{operator} {text}"
            for engine in engines:
                if engine == "chdb" and family == "plain" and is_beyond(kind, tail):
                    continue
                if len(path) > 1 and engine == "polars":  # its SQL has no way into a struct that it pushes down
                    continue
                where = f"{spelled(path, engine)} {tail}"
                try:
                    without = len(read_table(engine, bare, columns=["id"], where=where))
                except Exception:  # a predicate that the engine does not know proves nothing
                    skipped[engine] += 1
                    continue
                try:
                    found = len(read_table(engine, case.table, columns=["id"], where=where))
                except Exception as e:
                    found = f"{type(e).__name__}: {str(e)[:300]}"
                compared += 1
                answers += without > 0
                if found != without:
                    faults.append({"engine": engine, "where": where, "with": found, "without": without})
    return {"compared": compared, "with rows": answers, "not understood": dict(skipped), "faults": faults}


def check_weak():
    """Each weakness, shown on a table of another writer."""
    import deltalake

    with tempfile.TemporaryDirectory() as folder:
        table = pa.table({
            "list": pa.array([None], pa.list_(pa.int32())), "map": pa.array([None], pa.map_(pa.string(), pa.int32())),
            "struct": pa.array([None], pa.struct([("a", pa.int32())])),
            "text": pa.array(["a"]), "bytes": pa.array([b"a"]), "ntz": pa.array([0], pa.timestamp("us")),
            "number": pa.array([1], pa.int32()),
        })
        deltalake.write_deltalake(f"{folder}/t", table)
        got, frame = read_table("chdb", f"{folder}/t"), read_table("polars", f"{folder}/t")
        shown = {
            ("chdb", "null collections"): got.select(["list", "map", "struct"]).to_pylist()
            == [{"list": [], "map": [], "struct": {"a": None}}],
            ("chdb", "strings"): got["text"].type == got["bytes"].type,
            ("chdb", "timestamp_ntz"): got["ntz"].type.tz is not None,
            ("chdb", "wide literals"): len(read_table("chdb", f"{folder}/t", where="number < 2147483648")) == 0,
            ("polars", "maps"): not pa.types.is_map(frame["map"].type),
        }
        healed = [" ".join(entry) for entry in WEAK if not shown[entry]]
        return {"weaknesses": len(WEAK), "faults": [f"no longer so: {entry}" for entry in healed]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["rows", "predicates", "weak"])
    parser.add_argument("cases", type=pathlib.Path, nargs="?")
    parser.add_argument("--engines", type=lambda text: text.split(","), default=list(read.ENGINES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    args = parser.parse_args()
    cases = json.loads(args.cases.read_text(encoding="utf-8")) if args.cases else []
    if args.mode == "weak":
        answer = check_weak()
    elif args.mode == "rows":
        answer = check_rows(cases, args.engines)
    else:
        answer = check_predicates(cases, args.engines, args.seed, args.count)
    faults = answer.pop("faults")
    for fault in faults[:20]:
        print(json.dumps(fault, ensure_ascii=False)[:3000])
    print(json.dumps({**answer, "faults": len(faults)}), flush=True)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
