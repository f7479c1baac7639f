"""What a table must hold, computed from the feed's files alone, in plain loops; no code of the product takes part.

    expect.py FEED_DIR VIEW --key id [--step N]                                  the view's state at step N
    expect.py FEED_DIR VIEW --key id [--step N] --changelog G --cutover STEP     the rows of the changelog at step N

Without --step, N is the last step that the change files reach. Prints JSON like `read.py`, with the step.
"""

import argparse
import datetime
import json
import pathlib
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import digest

OPS = {"insert": "i", "update": "u", "delete": "d"}


def steps_of(path):
    return [int(n) for n in path.name.split(".")[0].split("-")[1:]]


def snapshot_file(folder, until):
    found = {steps_of(p)[0]: p for p in folder.glob("snapshot-*.parquet")}
    steps = [s for s in found if until is None or s <= until]
    if not steps:
        sys.exit(f"{folder} has no snapshot up to step {until}")
    return max(steps), found[max(steps)]


def read_changes(path, schema):
    """The file's changes in order: __step, __op, then the view's columns."""
    schema = pa.schema([("__step", pa.int64()), ("__op", pa.string()), *(f.with_nullable(True) for f in schema)])
    if path.suffix == ".parquet":
        return pq.read_table(path).select(schema.names).cast(schema)
    times = [f.name for f in schema if pa.types.is_timestamp(f.type)]
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        change = json.loads(line)
        step = change.pop("step")
        ((word, row),) = change.items()
        for name in times:
            if row.get(name) is not None:
                row[name] = datetime.datetime.fromisoformat(row[name])
        rows.append({"__step": step, "__op": OPS[word], **row})
    return pa.Table.from_pylist(rows, schema)


def changes(folder, after, until, schema):
    """All changes of the steps (after, until], and the last step reached."""
    files = sorted((steps_of(p), p) for suffix in ("parquet", "ndjson") for p in folder.glob(f"changes-*.{suffix}"))
    reached, parts = after, []
    for (start, end), path in files:
        if end <= reached or (until is not None and start >= until):
            continue
        if start > reached:
            break
        part = read_changes(path, schema)
        last = end if until is None else min(end, until)
        parts.append(part.filter((pc.field("__step") > reached) & (pc.field("__step") <= last)))
        reached = last
    if until is not None and reached != until:
        sys.exit(f"{folder}: no changes after step {reached}, step {until} is out of reach")
    return (pa.concat_tables(parts).combine_chunks() if parts else None), reached


def keys_of(table, key):
    return list(zip(*(table[name].to_pylist() for name in key)))


def fold(state, offset, table, key):
    """Applies changes to the state {key: row number}; the changes' own rows are numbered from `offset`."""
    for i, (k, op) in enumerate(zip(keys_of(table, key), table["__op"].to_pylist())):
        if op == "d":
            state.pop(k, None)
        else:
            state[k] = offset + i


def state_at(folder, key, step):
    """The view's rows at a step, from the newest snapshot up to it."""
    at, path = snapshot_file(folder, step)
    base = pq.read_table(path)
    later, reached = changes(folder, at, step, base.schema)
    state, whole = {k: i for i, k in enumerate(keys_of(base, key))}, [base]
    if later is not None:
        fold(state, len(base), later, key)
        whole.append(later.select(base.column_names).cast(base.schema))
    return pa.concat_tables(whole).take(pa.array(sorted(state.values()), pa.int64())), reached


def net(table, key):
    """One row per step and key: the last change, with the operation that all of them come to."""
    nets = {}
    for i, (step, k, op) in enumerate(zip(table["__step"].to_pylist(), keys_of(table, key), table["__op"].to_pylist())):
        first = nets[step, k][0] if (step, k) in nets else op
        nets[step, k] = (first, op, i)
    ops = ["d" if last == "d" else "i" if first == "i" else "u" for first, last, _ in nets.values()]
    rows = table.take(pa.array([i for _, _, i in nets.values()], pa.int64()))
    deleted = pa.array([op == "d" for op in ops])
    for i, name in enumerate(rows.column_names):
        if name == "__op":
            rows = rows.set_column(i, name, pa.array(ops, pa.string()))
        elif name != "__step" and name not in key:
            column = rows[name].combine_chunks()
            rows = rows.set_column(i, name, pc.if_else(deleted, pa.scalar(None, column.type), column))
    return rows


def with_front(table, columns):
    names = list(columns)
    arrays = [v if isinstance(v, pa.ChunkedArray) else pa.repeat(v, len(table)) for v in columns.values()]
    return pa.table(arrays + table.columns, names=names + table.column_names)


def changelog(folder, key, generation, cutover, step):
    snapshot, _ = state_at(folder, key, cutover)
    number = lambda n: pa.scalar(n, pa.int64())
    rows = with_front(snapshot, {"__generation": number(generation), "__step": number(cutover), "__op": pa.scalar("i")})
    later, reached = changes(folder, cutover, step, snapshot.schema)
    if later is None:
        return rows, reached
    later = with_front(net(later, key), {"__generation": number(generation)})
    return pa.concat_tables([rows, later.cast(rows.schema)]), reached


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("feed", type=pathlib.Path)
    parser.add_argument("view")
    parser.add_argument("--key", type=lambda text: text.split(","), required=True)
    parser.add_argument("--step", type=int)
    parser.add_argument("--changelog", type=int, metavar="GENERATION")
    parser.add_argument("--cutover", type=int)
    args = parser.parse_args()
    if (args.changelog is None) != (args.cutover is None):
        parser.error("--changelog and --cutover go together")
    folder = args.feed / args.view
    if args.changelog is None:
        rows, step = state_at(folder, args.key, args.step)
    else:
        rows, step = changelog(folder, args.key, args.changelog, args.cutover, args.step)
    answer = {"rows": len(rows), "digest": digest.of(rows), "columns": rows.column_names, "step": step}
    if args.changelog is not None:
        answer["ops"] = {c["values"]: c["counts"] for c in rows["__op"].value_counts().to_pylist()}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
