"""Parts of a snapshot, staged by the program for `cutover reload --staged`: from any worker, and from those of Spark.

A worker needs the program, the configuration and what reaches the table's storage. Whatever happens to it, nobody sees a
row before the reload, which counts each part once: a part may be staged again at any time.
"""

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from .errors import CutoverError

# What a worker of Spark tells of its part, one row each.
REPORT = pa.schema([
    pa.field("part", pa.int32()), pa.field("rows", pa.int64()), pa.field("digest", pa.string()),
    pa.field("files", pa.int32()), pa.field("bytes", pa.int64()), pa.field("manifest", pa.string()),
])
SPARK_REPORT = "part int, rows bigint, digest string, files int, bytes bigint, manifest string"


class StageFailed(CutoverError):
    """The program staged nothing: its message says why. Codes as everywhere: 5 is refused, 75 may help another time.

    `code` is the exit code of the program.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def stage(
    batches: Iterable[pa.RecordBatch], *, config: str, connector: str, snapshot: str, step: int, part: int, parts: int,
    manifest: str, schema: pa.Schema | None = None, program: str | Sequence[str] = "cutover",
) -> dict:
    """Stages part `part`, from 1, of the `parts` parts of a snapshot whose rows are those at `step`.

    The rows go to the program as they come; `schema` is theirs, and needed where there may be none. The manifest appears
    at `manifest`, a path or a place in an object store, once the part is whole. Gives what the program says of it: `rows`,
    `digest`, `files`, `bytes`, `generation` and more.

    Raises StageFailed; an error of `batches` goes through, and nothing is staged.
    """
    batches = iter(batches)
    first = None
    if schema is None:
        first = next(batches, None)
        if first is None:
            raise ValueError("there are no batches: give their schema")
        schema = first.schema
    words = [program] if isinstance(program, str) else list(program)
    words += ["stage", connector, "--config", config, "--snapshot", snapshot, "--step", str(step)]
    words += ["--part", f"{part}/{parts}", "--manifest", manifest, "--output", "json"]
    # What it says goes to a file, so that it never waits for us to read while we wait for it.
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said)
        try:
            feed(process.stdin, schema, first, batches)
            told = process.stdout.read()
            code = process.wait()
        except BaseException:
            # Without its end mark the program takes the stream for torn; this only makes it sooner.
            process.kill()
            raise
        finally:
            process.stdout.close()
            process.wait()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        if code != 0:
            said.seek(0)
            raise StageFailed(said.read().decode(errors="replace").strip(), code)
    return json.loads(told)


def feed(pipe, schema: pa.Schema, first: pa.RecordBatch | None, batches: Iterator[pa.RecordBatch]) -> None:
    try:
        # Never as a context, whose exit would write the end mark behind an error too.
        writer = pa.ipc.new_stream(pipe, schema)
        if first is not None:
            writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch if batch.schema == schema else batch.cast(schema))
        writer.close()
        pipe.close()
    except BrokenPipeError:
        # The program ended early; it has said why.
        pass


def spark_stage(
    *, config: str, connector: str, snapshot: str, step: int, parts: int, manifests: str, schema: pa.Schema,
    program: str | Sequence[str] = "cutover",
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `DataFrame.mapInArrow(…, SPARK_REPORT)`, by which each partition becomes a part.

    `parts` is the number of partitions, `schema` that of the frame's rows (`arrow_schema(frame)`), `manifests` the folder
    for the manifests, which all workers reach: `part-3-0.json` is that of the third part as its first attempt staged it.
    Collect the rows that come back, and give `cutover reload` the manifests that they name; what attempts that failed
    left is garbage of the usual kind.
    """

    def stage_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        part = context.partitionId() + 1
        manifest = f"{manifests}/part-{part}-{context.attemptNumber()}.json"
        told = stage(
            batches, config=config, connector=connector, snapshot=snapshot, step=step, part=part, parts=parts,
            manifest=manifest, schema=schema, program=program,
        )
        yield pa.RecordBatch.from_pylist([{name: told[name] for name in REPORT.names}], schema=REPORT)

    return stage_partition


def arrow_schema(frame) -> pa.Schema:
    """The Arrow schema in which a frame of Spark hands its rows to `mapInArrow`."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(frame.schema)


def reload(
    manifests: Iterable[str], *, config: str, connector: str, rows: int | None = None, reason: str = "",
    program: str | Sequence[str] = "cutover",
) -> dict:
    """Commits the parts with these manifests in one version; gives what the program says: `version`, `outcome` and more.

    `rows`, where given, is how many rows all parts must have. Raises StageFailed.
    """
    words = [program] if isinstance(program, str) else list(program)
    words += ["reload", connector, "--config", config, "--yes", "--output", "json", "--reason", reason]
    words += ["--rows", str(rows)] if rows is not None else []
    ran = subprocess.run([*words, "--staged", *manifests], capture_output=True, check=False)
    if ran.returncode != 0:
        raise StageFailed(ran.stderr.decode(errors="replace").strip(), ran.returncode)
    return json.loads(ran.stdout)
