"""The view's rows, whichever layout the table has."""

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from .rows import read
from .verify import cutover

if TYPE_CHECKING:
    import pandas
    import polars

METADATA = ("__generation", "__step", "__op")


def current(uri: str, storage_options: dict[str, str] | None = None) -> pa.Table:
    """The view at the newest version's last step, as Arrow; without key each copy of a row is one.

    It checks no rule: `verify` does. Raises UnknownContract for a table of another contract, ContinuityLost for a log
    that cannot be followed, and deltalake's errors for a table that it cannot read.
    """
    head = cutover(uri, storage_options)
    if head.layout == "current":
        return read(uri, head.version, storage_options)
    return fold(read(uri, head.version, storage_options, f"__generation = {head.generation}"), head.key)


def fold(rows: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """The state that a changelog's rows come to."""
    columns = [name for name in rows.column_names if name not in METADATA]
    if key:
        latest = rows.select([*key, "__step"]).group_by(list(key)).aggregate([("__step", "max")])
        numbered = rows.append_column("__place", pa.array(range(len(rows)), pa.int64()))
        places = numbered.select([*key, "__step", "__op", "__place"]).join(
            latest.rename_columns([*key, "__step"]), [*key, "__step"], join_type="left semi"
        )
        places = places.filter(pc.not_equal(places["__op"], "d"))["__place"]
        return rows.take(places.take(pc.sort_indices(places))).select(columns)
    # Rows are counted by their values as Python sees them, since nested columns have no grouping in Arrow.
    copies: dict[str, list[int]] = {}
    for place, (values, op) in enumerate(zip(rows.select(columns).to_pylist(), rows["__op"].to_pylist())):
        places = copies.setdefault(repr(values), [place, 0])
        places[1] += 1 if op == "i" else -1
    return rows.select(columns).take(pa.array([p for p, n in copies.values() for _ in range(n)], pa.int64()))


def to_polars(uri: str, storage_options: dict[str, str] | None = None) -> "polars.DataFrame":
    """`current` as a polars DataFrame; needs the extra `polars`."""
    import polars

    return polars.from_arrow(current(uri, storage_options))


def to_pandas(uri: str, storage_options: dict[str, str] | None = None) -> "pandas.DataFrame":
    """`current` as a pandas DataFrame of Arrow's types, so that whole numbers with nulls stay whole; needs the extra `pandas`."""
    import pandas

    return current(uri, storage_options).to_pandas(types_mapper=pandas.ArrowDtype)
