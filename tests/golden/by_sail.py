"""Tables that Sail makes, through Spark Connect."""

import atexit
import functools

import pysail
from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession

TABLES = {}


def table(make):
    TABLES["sail-" + make.__name__.replace("_", "-")] = make
    return make


def version():
    return f"pysail {pysail.__version__}"


@functools.cache
def spark():
    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    atexit.register(server.stop)
    _, port = server.listening_address
    session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


def read(path):
    return spark().read.format("delta").load(path).toArrow()


def create(path, columns, *statements, partitioned="", **properties):
    """A table `t` at `path`, and what is done to it."""
    spark().sql("DROP TABLE IF EXISTS t")
    settings = ", ".join(f"'delta.{key}' = '{value}'" for key, value in properties.items())
    properties = f"TBLPROPERTIES ({settings})" if settings else ""
    by = f"PARTITIONED BY ({partitioned})" if partitioned else ""
    spark().sql(f"CREATE TABLE t ({columns}) USING delta {by} LOCATION '{path}' {properties}")
    for statement in statements:
        spark().sql(statement).collect()


FIVE = "INSERT INTO t VALUES (1, 'a'), (2, 'ü'), (3, NULL), (4, ''), (5, 'e')"
MORE = "INSERT INTO t VALUES (6, 'f'), (7, 'g')"


@table
def plain(path):
    """A key that is not null, two inserts."""
    create(path, "id BIGINT NOT NULL, name STRING COMMENT 'what people call it'", FIVE, MORE)


@table
def described(path):
    """A description and properties set later."""
    properties = "'owner' = 'ada', 'delta.dataSkippingNumIndexedCols' = '8'"
    create(path, "id BIGINT, name STRING", FIVE, f"ALTER TABLE t SET TBLPROPERTIES ({properties})")


@table
def changed(path):
    """A delete, an update and a merge."""
    merge = (
        "MERGE INTO t USING (SELECT 5L AS id, 'merged' AS name UNION ALL SELECT 9L, 'new') s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    changes = ["DELETE FROM t WHERE id = 2", "UPDATE t SET name = 'u' WHERE id = 1", merge]
    create(path, "id BIGINT, name STRING", FIVE, *changes)


@table
def partitioned(path):
    """Partitioned by a string and a date, with separators, blanks, the empty string and null."""
    rows = (
        "INSERT INTO t VALUES (1, 'a', DATE'2020-02-29'), (2, NULL, NULL), (3, 'x/y=z %25 ü', DATE'1969-12-31'), "
        "(4, '', DATE'2020-01-01'), (5, 'a', DATE'9999-12-31')"
    )
    create(path, "id BIGINT, word STRING, day DATE", rows, partitioned="word, day")


@table
def partitioned_by_times(path):
    """Partitioned by a timestamp, one without zone, and a decimal."""
    rows = (
        "INSERT INTO t VALUES (2, NULL, NULL, NULL), "
        "(1, TIMESTAMP'2020-01-01 12:34:56.123456', TIMESTAMP_NTZ'1969-12-31 23:59:59.999999', 1.50)"
    )
    columns = "id BIGINT, at TIMESTAMP, local TIMESTAMP_NTZ, price DECIMAL(10, 2)"
    create(path, columns, rows, partitioned="at, local, price")


@table
def checkpoint(path):
    """Checkpoints at every second version."""
    create(path, "id BIGINT, name STRING", FIVE, MORE, MORE, checkpointInterval=2)


@table
def v2_checkpoint(path):
    """A v2 checkpoint in JSON with a sidecar, and a version above it."""
    create(path, "id BIGINT, name STRING", FIVE, MORE, MORE, checkpointInterval=2, checkpointPolicy="v2")


@table
def deletion_vectors(path):
    """Rows deleted and updated by deletion vectors."""
    changes = ["DELETE FROM t WHERE id = 2", "UPDATE t SET name = 'u' WHERE id = 3", MORE]
    create(path, "id BIGINT, name STRING", FIVE, *changes, enableDeletionVectors="true")


@table
def deletion_vectors_checkpoint(path):
    """Deletion vectors in a v2 checkpoint."""
    changes = [MORE, "DELETE FROM t WHERE id IN (2, 6)", MORE]
    properties = {"enableDeletionVectors": "true", "checkpointInterval": 2, "checkpointPolicy": "v2"}
    create(path, "id BIGINT, name STRING", FIVE, *changes, **properties)


@table
def deletion_vectors_partitioned(path):
    """Deletion vectors in a partitioned table."""
    delete = "DELETE FROM t WHERE id = 2"
    create(path, "id BIGINT, name STRING", FIVE, delete, partitioned="name", enableDeletionVectors="true")


@table
def column_mapping_name(path):
    """Columns mapped by name, one with a blank."""
    properties = {"columnMapping.mode": "name"}
    create(path, "id BIGINT, `full name` STRING", FIVE, "DELETE FROM t WHERE id = 2", **properties)


@table
def column_mapping_id(path):
    """Columns mapped by id, nested ones too."""
    rows = "INSERT INTO t VALUES (1, named_struct('x', 1, 'y, z', 'b')), (2, NULL)"
    create(path, "id BIGINT, `the point` STRUCT<x: INT, `y, z`: STRING>", rows, **{"columnMapping.mode": "id"})


@table
def column_mapping_partitioned(path):
    """Columns mapped by name in a partitioned table."""
    rows = "INSERT INTO t VALUES (1, 'Ada L.', 'ada'), (2, NULL, NULL)"
    properties = {"columnMapping.mode": "name"}
    create(path, "id BIGINT, `full name` STRING, name STRING", rows, partitioned="name", **properties)


@table
def column_mapping_deletion_vectors(path):
    """Columns mapped by name, and deletion vectors."""
    properties = {"columnMapping.mode": "name", "enableDeletionVectors": "true"}
    create(path, "id BIGINT, name STRING", FIVE, "DELETE FROM t WHERE id = 2", **properties)


@table
def constraint(path):
    """A check constraint."""
    create(path, "id BIGINT, name STRING", FIVE, "ALTER TABLE t ADD CONSTRAINT positive CHECK (id > 0)", MORE)


@table
def generated_column(path):
    """A generated column."""
    create(path, "id BIGINT, twice BIGINT GENERATED ALWAYS AS (id * 2)", "INSERT INTO t (id) VALUES (1), (2)")


@table
def identity_column(path):
    """An identity column."""
    rows = "INSERT INTO t (name) VALUES ('a'), ('b')"
    create(path, "number BIGINT GENERATED ALWAYS AS IDENTITY, name STRING", rows)


@table
def column_default(path):
    """A column with a default."""
    create(path, "id BIGINT, five BIGINT DEFAULT 5", "INSERT INTO t (id) VALUES (1), (2)")


@table
def in_commit_timestamps(path):
    """Timestamps in the commits."""
    create(path, "id BIGINT, name STRING", FIVE, MORE, enableInCommitTimestamps="true")


@table
def timestamp_ntz(path):
    """Timestamps with and without zone."""
    rows = "INSERT INTO t VALUES (1, TIMESTAMP_NTZ'2020-01-01 00:00:00', TIMESTAMP'2020-01-01 00:00:00')"
    create(path, "id BIGINT, local TIMESTAMP_NTZ, at TIMESTAMP", rows)


@table
def type_widening(path):
    """A column widened from int to bigint."""
    changes = ["ALTER TABLE t ALTER COLUMN id TYPE BIGINT", "INSERT INTO t VALUES (5000000000, 'big')"]
    create(path, "id INT, name STRING", FIVE, *changes, enableTypeWidening="true")


@table
def variant(path):
    """A variant column."""
    create(path, "id BIGINT, v VARIANT", "INSERT INTO t SELECT 1L, parse_json('{\"a\": [1, null]}')")


@table
def append_only(path):
    """The property that forbids removing rows."""
    create(path, "id BIGINT, name STRING", FIVE, appendOnly="true")
