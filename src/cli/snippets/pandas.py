#: any
# pip install pandas pyarrow deltalake
import json

import deltalake
import pandas
import pyarrow

TABLE = @TABLE@

# Types of Arrow keep numbers and nulls as they are.
query = deltalake.QueryBuilder().register("source", deltalake.DeltaTable(TABLE))
read = pyarrow.table(query.execute("SELECT * FROM source"))
plain = [c.cast(pyarrow.large_string()) if pyarrow.types.is_string_view(c.type) else c for c in read.columns]
rows = pyarrow.table(plain, names=read.column_names).to_pandas(types_mapper=pandas.ArrowDtype)
#: placeholder

# The table of layout `changelog`, whose key is `id`. In layout `current` the table is the state: take
# state = rows
#: keyed

# The current state: the latest step of each key in the current generation, without what is deleted.
changelog = rows[rows["__generation"] == rows["__generation"].max()]
latest = changelog.sort_values("__step").drop_duplicates(@KEY@, keep="last")
state = latest[latest["__op"] != "d"].drop(columns=["__generation", "__step", "__op"])
#: keyless

# The current state: each row as often as it was inserted and not deleted, which `copies` counts.
changelog = rows[rows["__generation"] == rows["__generation"].max()]
copies = (changelog["__op"] == "i").astype("int64") * 2 - 1
counted = changelog.drop(columns=["__generation", "__step", "__op"]).assign(copies=copies)
columns = [name for name in counted.columns if name != "copies"]
state = counted.groupby(columns, dropna=False, as_index=False)["copies"].sum()
state = state[state["copies"] > 0]
#: current

# The current state: the table is the view.
state = rows
#: any
print(state)
#: history
