"""Runs the code of readers/README.md, as each of its readers does, and prints JSON.

    judge.py verdicts READER[,READER...] TABLE...   what each reader says of each table: {reader: {table: verdict}}
    judge.py page TABLE                             every other block, on a copy of a healthy table; the titles of what ran
    judge.py bookmarks DIRECTORY                    `changes` over appends, a reset and a gap, against the program's bookmarks
    judge.py follow URL                             the block that follows a view over HTTP, until it ends
    judge.py streaming DIRECTORY                    the block for Structured Streaming over a reset, and what options do there

READER is DuckDB, Python, Polars, pandas or Spark. Spark is asked through Sail, unless CUTOVER_SPARK names the jars of Delta Lake,
separated by commas: then it is the Spark of this interpreter's pyspark. `streaming` needs that; it and `bookmarks` need CUTOVER,
the program.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "readers" / "README.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
READERS = ("DuckDB", "Python", "Polars", "pandas", "Spark")
SERVERS: list[object] = []
sys.path.insert(0, str(ROOT / "readers" / "python" / "src"))


def section(name: str) -> list[tuple[str, str]]:
    """The blocks under a heading: language and text. The first one leaves a `verdict`."""
    text = PAGE.read_text()
    begin = text.index(f"\n## {name}\n")
    end = text.find("\n## ", begin + 1)
    return BLOCK.findall(text[begin : None if end < 0 else end])


def run(code: str, **replaced: str) -> dict:
    """The names that a block leaves; what it prints goes to stderr."""
    for was, becomes in replaced.items():
        line = f"{was} = "
        assert line in code, f"{line!r} is not in {code}"
        code = re.sub(rf'^{was} = ".*"$', lambda _: f"{was} = {becomes!r}", code, flags=re.MULTILINE)
    names: dict = {"__name__": "page"}
    with contextlib.redirect_stdout(sys.stderr):
        exec(compile(code, str(PAGE), "exec"), names)
    return names


def spark() -> None:
    """Makes a session, which SparkSession.builder.getOrCreate() finds."""
    from pyspark.sql import SparkSession

    if jars := os.environ.get("CUTOVER_SPARK"):
        extension = "io.delta.sql.DeltaSparkSessionExtension"
        catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
        builder = builder.config("spark.sql.extensions", extension).config("spark.sql.catalog.spark_catalog", catalog)
        builder.config("spark.sql.shuffle.partitions", "2").getOrCreate().sparkContext.setLogLevel("OFF")
    elif "SPARK_REMOTE" not in os.environ:
        from pysail.spark import SparkConnectServer

        server = SparkConnectServer("127.0.0.1", 0)
        server.start(background=True)
        # It ends with its last reference.
        SERVERS.append(server)
        os.environ["SPARK_REMOTE"] = f"sc://127.0.0.1:{server.listening_address[1]}"


def verdicts(readers: list[str], tables: list[str]) -> dict[str, dict[str, str]]:
    places = [os.path.abspath(table) for table in tables]
    # The page is to be read from there.
    os.chdir(ROOT)
    told: dict[str, dict[str, str]] = {}
    for reader in readers:
        if reader == "Spark":
            spark()
        code = section(reader)[0][1]
        for table, place in zip(tables, places):
            names = run(code, TABLE=place)
            told.setdefault(reader, {})[table] = names["verdict"]
            if reader == "DuckDB":
                asserted(names["db"], place, names["verdict"])
    return told


def asserted(db, table: str, verdict: str) -> None:
    """`cutover_assert` raises an error, with the verdict in its text, just where the table is not healthy."""
    import duckdb

    expired = ", expired := true" if verdict == "healthy" and not db.execute(
        f"SELECT min(version) = 0 FROM cutover_commits('{table}')").fetchone()[0] else ""
    try:
        row = db.execute(f"FROM cutover_assert('{table}'{expired})").fetchone()
    except duckdb.InvalidInputException as e:
        assert f"is {verdict}: version " in str(e) and verdict != "healthy", e
    else:
        assert row[0] == verdict == "healthy", row


def page(table: str) -> list[str]:
    """Runs what is no verdict, no stream and no subscription: those are run by the other calls."""
    ran = []
    with tempfile.TemporaryDirectory() as home:
        os.chdir(home)
        shutil.copytree(table, "lake/orders")
        pathlib.Path("readers").symlink_to(ROOT / "readers")
        for name in READERS:
            blocks = section(name)
            if name == "Spark":
                spark()
            shared = run(blocks[0][1])
            for number, (language, code) in enumerate(blocks[1:], 2):
                if "readStream" in code or "subscribe" in code:
                    continue
                if language == "python":
                    names = run(code)
                    if "Bookmark" in code:
                        check_target(run(code))
                    elif name == "Spark":
                        check_state(names)
                else:
                    asked = [shared["db"].execute(query).fetchall() for query in code.split(";\n") if query]
                    assert [len(rows) for rows in asked[:2]] == [1, 1] and asked[2] and not asked[3], asked
                ran.append(f"{name} {number}")
        os.chdir(ROOT)
    return ran


def check_target(names: dict) -> None:
    """A second run found nothing, and the target is the view."""
    import cutover_reader

    assert names["news"].outcome == "nothing", names["news"]
    kept = [json.loads(text) for (text,) in names["target"].execute("SELECT row FROM orders")]
    view = cutover_reader.current("lake/orders").to_pylist()
    without = [{name: row[name] for name in view[0]} for row in kept]
    assert sorted(without, key=str) == sorted(view, key=str), kept


def check_state(names: dict) -> None:
    import cutover_reader

    view = cutover_reader.current("lake/orders").to_pylist()
    assert sorted(map(str, view)) == sorted(str(row.asDict()) for row in names["state"].collect()), view


def bookmarks(directory: str) -> list[str]:
    """The outcomes in turn; each bookmark is the program's, which goes on from it."""
    import cutover_reader
    import tables

    site = tables.Site(pathlib.Path(directory).absolute())
    kept, outcomes = site.home / "bookmark.json", []

    def news() -> None:
        before = cutover_reader.Bookmark.load(kept)
        told = cutover_reader.changes(str(site.uri), before)
        lines = site.call("changes", "table", "--bookmark", str(kept)).splitlines()
        assert cutover_reader.Bookmark.load(kept) == told.bookmark, (told, kept.read_text())
        assert told.rows.to_pylist() == [json.loads(line) for line in lines], (told.rows, lines)
        outcomes.append(told.outcome)

    def refused(mark: cutover_reader.Bookmark) -> None:
        try:
            cutover_reader.changes(str(site.uri), mark)
        except cutover_reader.CutoverError as e:
            outcomes.append(type(e).__name__)

    site.deliver()
    news()
    news()
    site.changes(17, {"step": 18, "insert": tables.row(12, 18)}, {"step": 19, "delete": {"id": 1}})
    site.run()
    news()
    site.reset()
    news()
    mark = cutover_reader.Bookmark.load(kept)
    refused(dataclasses.replace(mark, table="another"))
    refused(dataclasses.replace(mark, step=mark.step + 1))
    site.changes(19, {"step": 20, "insert": tables.row(13, 20)})
    site.run()
    site.restamp(site.appends()[-1], lambda stamp: stamp.update({"from": stamp["from"] - 1}))
    refused(mark)
    return outcomes


def follow(url: str) -> None:
    """In the working directory, where the block keeps its target."""
    code = next(code for _, code in section("Python") if "subscribe" in code)
    run(code, URL=url)


def streaming(directory: str) -> dict[str, object]:
    """The copy over a reset and a version without rows; then what the source does without the pattern."""
    from pyspark.sql import SparkSession

    import tables

    spark()
    session = SparkSession.builder.getOrCreate()
    home = pathlib.Path(directory).absolute()
    site = tables.Site(home / "again")
    site.deliver()
    code = next(code for _, code in section("Spark") if "readStream" in code)
    copy, told = str(home / "copy"), {}

    def same() -> bool:
        run(code, TABLE=str(site.uri), COPY=copy)
        read = lambda uri: sorted(map(str, session.read.format("delta").load(uri).collect()))
        return read(str(site.uri)) == read(copy)

    told["followed"] = same()
    site.changes(17, {"step": 18, "insert": tables.row(12, 18)})
    site.run()
    told["went on"] = same()
    tables.DeltaTable(site.uri).optimize.compact()
    told["over maintenance"] = same()
    site.reset()
    site.changes(18, {"step": 19, "insert": tables.row(13, 19)})
    site.run()
    told["over a reset"] = same()
    for option in ("none", "ignoreDeletes", "skipChangeCommits", "ignoreChanges"):
        source = session.readStream.format("delta").option("startingVersion", 0)
        source = source if option == "none" else source.option(option, "true")
        query = source.load(str(site.uri)).writeStream.format("memory").queryName(option).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
            rows = session.table(option).groupBy("__generation").count().orderBy("__generation").collect()
            told[option] = [list(row) for row in rows]
        except Exception as e:
            told[option] = re.search(r"\[(DELTA_\w+)\]", str(e))[1]
    return told


def main() -> None:
    call, *args = sys.argv[1:]
    if call == "verdicts":
        print(json.dumps(verdicts(args[0].split(","), args[1:])))
    elif call == "page":
        print(json.dumps(page(args[0])))
    elif call == "bookmarks":
        print(json.dumps(bookmarks(args[0])))
    elif call == "follow":
        follow(args[0])
    else:
        print(json.dumps(streaming(args[0])))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
