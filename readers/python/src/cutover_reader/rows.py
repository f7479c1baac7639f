"""A table's rows at one version, as pyarrow computes with them."""

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder


def read(uri: str, version: int, storage_options: dict[str, str] | None, where: str = "true") -> pa.Table:
    """The rows that fulfil a condition. Raises deltalake's errors for a table that it cannot read."""
    # By SQL, which heeds deletion vectors and mapped columns.
    table = DeltaTable(uri, version=version, storage_options=storage_options)
    found = pa.table(QueryBuilder().register("t", table).execute(f"SELECT * FROM t WHERE {where}"))
    return pa.table([without_views(column) for column in found.columns], names=found.column_names)


def without_views(column: pa.ChunkedArray) -> pa.ChunkedArray:
    # pyarrow computes little with views.
    if pa.types.is_string_view(column.type):
        return column.cast(pa.large_string())
    return column.cast(pa.large_binary()) if pa.types.is_binary_view(column.type) else column
