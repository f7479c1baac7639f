#: any
# pip install polars polars-deltalake deltalake
import json

import deltalake
import polars
import polars_deltalake

TABLE = @TABLE@

rows = polars_deltalake.scan_delta(TABLE)
#: placeholder

# The table of layout `changelog`, whose key is `id`. In layout `current` the table is the state: take
# state = rows.collect()
#: keyed

# The current state: the latest step of each key in the current generation, without what is deleted.
changelog = rows.filter(polars.col("__generation") == polars.col("__generation").max())
latest = changelog.filter(polars.col("__step") == polars.col("__step").max().over(@KEY@))
state = latest.filter(polars.col("__op") != "d").drop("__generation", "__step", "__op").collect()
#: keyless

# The current state: each row as often as it was inserted and not deleted, which `copies` counts.
changelog = rows.filter(polars.col("__generation") == polars.col("__generation").max())
signs = polars.when(polars.col("__op") == "i").then(1).otherwise(-1).cast(polars.Int64)
counted = changelog.with_columns(copies=signs).drop("__generation", "__step", "__op")
columns = [name for name in counted.collect_schema().names() if name != "copies"]
state = counted.group_by(columns).agg(polars.col("copies").sum()).filter(polars.col("copies") > 0).collect()
#: current

# The current state: the table is the view.
state = rows.collect()
#: any
print(state)
#: history
