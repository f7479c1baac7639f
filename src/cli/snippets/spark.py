#: any
# Spark with Delta Lake, or Spark Connect: SPARK_REMOTE says where.
import json

from pyspark.sql import SparkSession, functions
from pyspark.sql.window import Window

TABLE = @TABLE@

spark = SparkSession.builder.getOrCreate()
rows = spark.read.format("delta").load(TABLE)
#: placeholder

# The table of layout `changelog`, whose key is `id`. In layout `current` the table is the state: take
# state = rows
#: keyed

# The current state: the latest step of each key in the current generation, without what is deleted.
generation = rows.agg(functions.max("__generation")).first()[0]
by_key = Window.partitionBy(*@KEY@)
changelog = rows.where(functions.col("__generation") == generation)
latest = changelog.withColumn("__last", functions.max("__step").over(by_key)).where("__step = __last")
state = latest.where("__op <> 'd'").drop("__generation", "__step", "__op", "__last")
#: keyless

# The current state: each row as often as it was inserted and not deleted, which `copies` counts.
generation = rows.agg(functions.max("__generation")).first()[0]
changelog = rows.where(functions.col("__generation") == generation)
sign = functions.when(functions.col("__op") == "i", 1).otherwise(-1).cast("bigint")
columns = [name for name in rows.columns if name not in ("__generation", "__step", "__op")]
counted = changelog.withColumn("copies", sign).groupBy(*columns)
state = counted.agg(functions.sum("copies").alias("copies")).where("copies > 0")
#: current

# The current state: the table is the view.
state = rows
#: any
state.show()

# What our commits say of themselves, oldest first; what lies below a rebuilt log does not count.
entries = spark.read.text(TABLE + "/_delta_log/*.json")
said = entries.select(functions.get_json_object("value", "$.commitInfo.userMetadata").alias("said"))
said = said.where(functions.col("said").startswith('{"cutover":1,')).collect()
stamps = [json.loads(row["said"]) for row in said]
stamps.sort(key=lambda stamp: (stamp["generation"], stamp["to"], stamp.get("from", -1)))
#: check
