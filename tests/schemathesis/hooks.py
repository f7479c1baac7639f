"""What schemathesis cannot make of the description alone: the forms of changes."""

import io
import json

import pyarrow
import schemathesis
from hypothesis import strategies as st

IDS = st.integers(-(2**63), 2**64)
NAMES = st.none() | st.text(max_size=20)


ROWS = st.fixed_dictionaries({"id": IDS}, optional={"name": NAMES, "amount": IDS, "other": st.just(1)})
CHANGES = st.one_of(
    ROWS.map(lambda row: {"insert": row}),
    ROWS.map(lambda row: {"delete": row}),
    ROWS.map(lambda row: {"update": row}),
    ROWS,
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
)
LINES = st.lists(CHANGES, max_size=5).map(lambda changes: "".join(json.dumps(c) + "\n" for c in changes).encode())
TEXT = st.one_of(LINES, st.binary(max_size=200))


@st.composite
def streams(draw):
    ids = draw(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5))
    batch = pyarrow.record_batch({"id": pyarrow.array(ids, pyarrow.int64())})
    sink = io.BytesIO()
    with pyarrow.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    stream = bytearray(sink.getvalue())
    for at in draw(st.lists(st.integers(0, len(stream) - 1), max_size=2)):
        stream[at] ^= 1 << draw(st.integers(0, 7))
    return bytes(stream)


schemathesis.openapi.media_type("application/x-ndjson", TEXT)
schemathesis.openapi.media_type("application/vnd.apache.arrow.stream", streams() | st.binary(max_size=200))


@schemathesis.hook
def map_case(context, case):
    """Mostly, a push says what it is: of itself that would be so once in nine times."""
    formats = {"application/x-ndjson": "ndjson", "application/json": "json", "application/vnd.apache.arrow.stream": "arrow"}
    if case.operation.label.startswith("POST /v1/pipelines/{p}/ingress/") and case.query.get("format") in formats.values():
        case.query["format"] = formats.get(case.media_type, case.query["format"])
        if case.query["format"] == "arrow":
            case.query.pop("update_format", None)
    return case
