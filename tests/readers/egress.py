"""Reads a view's Arrow stream and folds it to rows: egress.py URL STEP.

Ends at the stream's end, or behind the batch that leads to STEP. Prints what the batches' metadata says, the columns' names
and the rows by key.
"""

import json
import sys
import urllib.request

import pyarrow.ipc


def main():
    url, until = sys.argv[1], int(sys.argv[2])
    heads, rows = [], {}
    with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=60) as response:
        reader = pyarrow.ipc.open_stream(response)
        while True:
            try:
                batch, metadata = reader.read_next_batch_with_custom_metadata()
            except StopIteration:
                break
            head = json.loads(metadata[b"cutover"])
            heads.append(head)
            if head.get("mark") == "begin":
                rows = {}
            for row in batch.to_pylist():
                assert row["__generation"] == head["generation"], (row, head)
                assert row["__step"] <= head["to"], (row, head)
                if row["__op"] == "d":
                    rows.pop(row["id"], None)
                else:
                    rows[row["id"]] = [row["id"], row["name"], row["amount"]]
            if not head.get("partial") and head["to"] >= until:
                break
        schema = reader.schema.names
    print(json.dumps({"heads": heads, "schema": schema, "rows": [rows[key] for key in sorted(rows)]}))


main()
