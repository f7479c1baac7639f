"""Tables that deltalake (delta-rs) makes."""

import datetime
import decimal
import pathlib

import deltalake
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Schema, TableFeatures, Transaction, write_deltalake

TABLES = {}

UTC = datetime.timezone.utc


def table(make):
    TABLES["deltalake-" + make.__name__.replace("_", "-")] = make
    return make


def version():
    return f"deltalake {deltalake.__version__}"


def read(path):
    # SQL, since to_pyarrow_table knows fewer features.
    rows = deltalake.QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t")
    return pa.table(rows)


def people(start, end):
    """Rows with some nulls."""
    ids = range(start, end)
    names = [None if n % 5 == 4 else f"näme {n}" for n in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "name": pa.array(names, pa.string())})


def append(path, rows, **options):
    write_deltalake(path, rows, mode="append", **options)


@table
def plain(path):
    """One version, two columns."""
    append(path, people(0, 5))


@table
def empty(path):
    """A table without rows and files."""
    DeltaTable.create(path, Schema.from_arrow(people(0, 0).schema))


@table
def named(path):
    """Name, description, and properties of Delta and of others."""
    properties = {
        "delta.logRetentionDuration": "interval 90 days",
        "delta.dataSkippingNumIndexedCols": "1",
        "owner": "ada",
        "team.über": "a=b, \"c\"",
    }
    schema = Schema.from_arrow(people(0, 0).schema)
    name, description = "the people", "Line one,\nline \"two\" — ü"
    DeltaTable.create(
        path, schema, name=name, description=description, configuration=properties, raise_if_key_not_exists=False
    )
    append(path, people(0, 5))


@table
def renamed(path):
    """Name, description and a property set by versions of their own."""
    append(path, people(0, 3))
    alter = DeltaTable(path).alter
    alter.set_table_name("renamed")
    alter.set_table_description("described later")
    alter.set_table_properties({"later": "1"}, raise_if_not_exists=False)


@table
def partitioned_by_odd_strings(path):
    """Partitioned by a string with separators, percent signs, quotes, blanks, other alphabets and null."""
    values = ["plain", "with space", "a/b", "a=b", "100%", "%20", "quo'te", 'dou"ble', "dot.", ".."]
    values += ["ünïcödé", "日本", None]
    append(path, pa.table({"id": range(len(values)), "odd": values}), partition_by=["odd"])


@table
def partitioned_by_types(path):
    """Partitioned by date, decimal, timestamp, long and boolean at once, null in each."""
    times = [datetime.datetime(1969, 12, 31, 23, 59, 59, 123456, UTC), datetime.datetime(2024, 2, 29, tzinfo=UTC), None]
    rows = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int64()),
            "day": pa.array([datetime.date(1969, 12, 31), datetime.date(9999, 12, 31), None]),
            "price": pa.array([decimal.Decimal("0.05"), decimal.Decimal("12345678.90"), None], pa.decimal128(10, 2)),
            "at": pa.array(times, pa.timestamp("us", "UTC")),
            "long": pa.array([-(2**63), 2**63 - 1, None], pa.int64()),
            "flag": pa.array([True, False, None]),
        }
    )
    append(path, rows, partition_by=["day", "price", "at", "long", "flag"])


@table
def checkpoint(path):
    """A checkpoint at the newest version."""
    for n in range(3):
        append(path, people(n * 2, n * 2 + 2))
    DeltaTable(path).create_checkpoint()


@table
def checkpoint_below(path):
    """A checkpoint, and two versions above it."""
    for n in range(5):
        append(path, people(n * 2, n * 2 + 2))
        if n == 2:
            DeltaTable(path).create_checkpoint()


@table
def cleaned_log(path):
    """A checkpoint below which the log was cleaned up, and a version above it."""
    properties = {"delta.logRetentionDuration": "interval 0 days", "delta.enableExpiredLogCleanup": "false"}
    append(path, people(0, 2), name="cleaned", description="its start is gone", configuration=properties)
    for n in range(1, 5):
        append(path, people(n * 2, n * 2 + 2))
    DeltaTable(path).create_checkpoint()
    append(path, people(10, 12))
    DeltaTable(path).cleanup_metadata()
    if pathlib.Path(path, "_delta_log", f"{0:020}.json").exists():
        raise RuntimeError("the log was not cleaned up")


@table
def compacted_log(path):
    """A compacted log file beside the versions that it covers."""
    for n in range(5):
        append(path, people(n * 2, n * 2 + 2))
    DeltaTable(path).compact_logs(1, 3)


@table
def vacuumed(path):
    """A delete, and a vacuum that took the removed files away."""
    append(path, people(0, 6))
    DeltaTable(path).delete("id < 3")
    DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)


@table
def optimized(path):
    """Five files compacted into one, then one more."""
    for n in range(5):
        append(path, people(n * 2, n * 2 + 2))
    DeltaTable(path).optimize.compact()
    append(path, people(10, 12))


@table
def z_ordered(path):
    """Files rewritten in the order of two columns."""
    for n in range(3):
        append(path, people(n * 2, n * 2 + 2))
    DeltaTable(path).optimize.z_order(["id", "name"])


@table
def merged(path):
    """An update, a delete and a merge that does all three."""
    append(path, people(0, 10))
    DeltaTable(path).update(updates={"name": "'updated'"}, predicate="id = 1")
    DeltaTable(path).delete("id = 2")
    merge = DeltaTable(path).merge(people(8, 12), "t.id = s.id", source_alias="s", target_alias="t")
    merge = merge.when_matched_update({"name": "'merged'"}).when_not_matched_insert_all()
    merge.when_not_matched_by_source_delete("t.id = 3").execute()


@table
def overwritten(path):
    """Overwritten twice, once with another schema."""
    append(path, people(0, 5))
    write_deltalake(path, people(5, 8), mode="overwrite")
    write_deltalake(path, pa.table({"code": ["x", "y"]}), mode="overwrite", schema_mode="overwrite")


@table
def overwritten_where(path):
    """A part overwritten by a predicate."""
    append(path, people(0, 6))
    write_deltalake(path, people(0, 2), mode="overwrite", predicate="id < 3")


@table
def restored(path):
    """Restored to an earlier version."""
    append(path, people(0, 3))
    append(path, people(3, 6))
    DeltaTable(path).restore(0)


@table
def evolved(path):
    """Columns added by an append and by an alter."""
    append(path, people(0, 3))
    wider = people(3, 6).append_column("score", pa.array([1.5, None, float("nan")]))
    append(path, wider, schema_mode="merge")
    DeltaTable(path).alter.add_columns(Field("later", "timestamp"))


@table
def change_feed(path):
    """A change data feed with its files."""
    append(path, people(0, 6), configuration={"delta.enableChangeDataFeed": "true"})
    DeltaTable(path).update(updates={"name": "'updated'"}, predicate="id = 1")
    DeltaTable(path).delete("id = 2")


@table
def change_feed_off(path):
    """A change data feed that was switched off again."""
    append(path, people(0, 6), configuration={"delta.enableChangeDataFeed": "true"})
    DeltaTable(path).delete("id = 2")
    DeltaTable(path).alter.set_table_properties({"delta.enableChangeDataFeed": "false"})


@table
def constraint(path):
    """A check constraint."""
    append(path, people(0, 3))
    DeltaTable(path).alter.add_constraint({"positive": "id >= 0"})
    append(path, people(3, 6))


@table
def constraint_dropped(path):
    """A check constraint that was dropped; its feature is left."""
    append(path, people(0, 3))
    DeltaTable(path).alter.add_constraint({"positive": "id >= 0"})
    DeltaTable(path).alter.drop_constraint("positive")


@table
def invariant(path):
    """A column with an invariant in its metadata."""
    expression = {"delta.invariants": '{"expression": {"expression": "id > -1"}}'}
    fields = [Field("id", "long", nullable=False, metadata=expression), Field("name", "string")]
    DeltaTable.create(path, Schema(fields))


@table
def append_only(path):
    """The property that forbids removing rows."""
    append(path, people(0, 3), configuration={"delta.appendOnly": "true"})


@table
def txn_retention(path):
    """The property by which engines forget the txn of applications."""
    append(path, people(0, 3), configuration={"delta.setTransactionRetentionDuration": "interval 7 days"})


@table
def app_txn(path):
    """Transactions of two other applications."""
    for n in range(3):
        transactions = [Transaction("loader/ä", n * 10), Transaction("other", n, 1_700_000_000_000)]
        append(path, people(n, n + 1), commit_properties=CommitProperties(app_transactions=transactions))


@table
def commit_info(path):
    """Commit info with keys of somebody's own, userMetadata among them."""
    custom = {"userMetadata": '{"cutover":"no stamp"}', "job": "nightly"}
    append(path, people(0, 3), commit_properties=CommitProperties(custom_metadata=custom))


@table
def timestamp_ntz(path):
    """Timestamps without zone and the feature that they need."""
    times = [datetime.datetime(1, 1, 1), datetime.datetime(1969, 12, 31, 23, 59, 59, 999999), None]
    append(path, pa.table({"id": [1, 2, 3], "at": pa.array(times, pa.timestamp("us"))}))


@table
def primitives(path):
    """Every primitive type at its edges."""
    rows = pa.table(
        {
            "tiny": pa.array([-128, 127, None], pa.int8()),
            "small": pa.array([-32768, 32767, None], pa.int16()),
            "int": pa.array([-(2**31), 2**31 - 1, None], pa.int32()),
            "long": pa.array([-(2**63), 2**63 - 1, None], pa.int64()),
            "float": pa.array([float("-inf"), float("nan"), None], pa.float32()),
            "double": pa.array([5e-324, -0.0, None], pa.float64()),
            "flag": pa.array([True, False, None]),
            "text": pa.array(["", "\u0000\U0010ffff", None]),
            "bytes": pa.array([b"", b"\x00\xff", None]),
            "day": pa.array([datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None]),
            "at": pa.array([-62135596800000000, 253402300799999999, None], pa.timestamp("us", "UTC")),
            "narrow": pa.array([decimal.Decimal("-9.9"), decimal.Decimal("9.9"), None], pa.decimal128(2, 1)),
            "wide": pa.array([decimal.Decimal("-" + "9" * 38), decimal.Decimal("9" * 38), None], pa.decimal128(38, 0)),
        }
    )
    append(path, rows)


@table
def nested(path):
    """Structs, lists and maps within each other, null at each level."""
    point = pa.struct([("x", pa.int64()), ("tags", pa.list_(pa.string()))])
    rows = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int64()),
            "point": pa.array([{"x": 1, "tags": ["a", None]}, {"x": None, "tags": None}, None], point),
            "points": pa.array([[{"x": 1, "tags": []}, None], [], None], pa.list_(point)),
            "by_name": pa.array([[("k", 1), ("l", None)], [], None], pa.map_(pa.string(), pa.int32())),
        }
    )
    append(path, rows)


@table
def wide(path):
    """A hundred columns."""
    append(path, pa.table({f"c{n}": pa.array([n, None], pa.int32()) for n in range(100)}))


@table
def odd_column_names(path):
    """Columns with other alphabets, dots, quotes, and a name of ours."""
    names = ["ünïcödé", "a.b", "quo`te", "日本", "CamelCase", "__step", "_change", "select"]
    append(path, pa.table({name: pa.array([1, 2], pa.int64()) for name in names}))


@table
def many_versions(path):
    """Sixty versions with a checkpoint at the fiftieth."""
    append(path, people(0, 1), configuration={"delta.checkpointInterval": "50"})
    for n in range(1, 60):
        append(path, people(n, n + 1))


@table
def deletion_vectors_allowed(path):
    """Deletion vectors allowed; there are none."""
    append(path, people(0, 3))
    DeltaTable(path).alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)


@table
def row_tracking_supported(path):
    """The feature of row tracking without the property that switches it on."""
    append(path, people(0, 3))
    features = [TableFeatures.RowTracking, TableFeatures.DomainMetadata]
    DeltaTable(path).alter.add_feature(features, allow_protocol_versions_increase=True)


@table
def domain_metadata(path):
    """The feature of domain metadata; there is none."""
    append(path, people(0, 3))
    DeltaTable(path).alter.add_feature(TableFeatures.DomainMetadata, allow_protocol_versions_increase=True)


@table
def iceberg_compat(path):
    """The feature of Iceberg compatibility."""
    append(path, people(0, 3))
    DeltaTable(path).alter.add_feature(TableFeatures.IcebergCompatV1, allow_protocol_versions_increase=True)
