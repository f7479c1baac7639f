"""Tables that are healthy, broken or not to be judged, each made by the real program: tables.py DIRECTORY [NAME …].

CUTOVER names the program. Each table stands in a directory of its own, with the feed and the configuration that made it.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable

from deltalake import DeltaTable

PROGRAM = os.environ.get("CUTOVER", "cutover")
UNSYNCED = "--set=pipelines.p.views.rows.connectors.lake.durability=none"
MAKERS: dict[str, Callable[["Site"], None]] = {}


def table(maker: Callable[["Site"], None]) -> Callable[["Site"], None]:
    MAKERS[maker.__name__] = maker
    return maker


class Site:
    """A feed, a configuration and the table that they make."""

    def __init__(self, home: pathlib.Path, layout: str = "changelog", key: bool = True, more: str = "") -> None:
        self.home, self.uri, self.log = home, home / "table", home / "table" / "_delta_log"
        self.feed = home / "feed" / "rows"
        self.feed.mkdir(parents=True)
        keyed = 'key = ["id"]\n' if key else ""
        (home / "cutover.toml").write_text(
            'config_version = 1\n[pipelines.p.source.files]\npath = "feed"\n'
            f"[pipelines.p.views.rows]\n{keyed}[pipelines.p.views.rows.columns]\n"
            'id = "bigint"\nname = "string"\namount = "double"\nday = "int"\n'
            "[pipelines.p.views.rows.connectors.lake.delta]\n"
            f'uri = "table"\nlayout = "{layout}"\n{more}'
        )

    def call(self, *args: str, codes: tuple[int, ...] = (0,)) -> str:
        ran = subprocess.run([PROGRAM, *args], cwd=self.home, capture_output=True, text=True)
        assert ran.returncode in codes, f"{args} ended with {ran.returncode}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    def run(self) -> None:
        self.call("run", "--once", UNSYNCED)

    def reset(self) -> None:
        self.call("reset", "lake", "--yes", "--reason", "the tests' reset", UNSYNCED)

    def snapshot(self, step: int, rows: int) -> None:
        lines = (json.dumps(row(number, step)) for number in range(rows))
        (self.feed / f"snapshot-{step}.ndjson").write_text("".join(line + "\n" for line in lines))

    def changes(self, before: int, *changes: dict) -> None:
        last = max(change["step"] for change in changes)
        hidden = self.feed / ".changes"
        hidden.write_text("".join(json.dumps(change) + "\n" for change in changes))
        hidden.rename(self.feed / f"changes-{before}-{last}.ndjson")

    def deliver(self, keyed: bool = True) -> None:
        """A snapshot of ten rows at step 10 and three appends behind it, each in a run of its own."""
        self.snapshot(10, 10)
        self.run()
        update = (lambda step, number: [{"step": step, "update": row(number, step)}]) if keyed else (
            lambda step, number: [{"step": step, "delete": row(number, 10)}, {"step": step, "insert": row(number, step)}]
        )
        delete = {"id": 9} if keyed else row(9, 10)
        self.changes(10, {"step": 11, "insert": row(10, 11)}, *update(12, 3))
        self.run()
        self.changes(12, {"step": 14, "delete": delete}, *update(14, 4))
        self.run()
        self.changes(14, {"step": 15, "insert": row(11, 15)}, *update(17, 0))
        self.run()

    def entry(self, version: int) -> pathlib.Path:
        return self.log / f"{version:020}.json"

    def stamps(self) -> dict[int, dict]:
        """The stamp of each of the program's commits, by version."""
        found = {}
        for path in sorted(self.log.glob("*.json")):
            info = json.loads(path.read_text().partition("\n")[0]).get("commitInfo", {})
            if info.get("userMetadata", "").startswith('{"cutover":'):
                found[int(path.stem)] = json.loads(info["userMetadata"])
        return found

    def appends(self) -> list[int]:
        return [version for version, stamp in self.stamps().items() if stamp["kind"] == "append"]

    def edit(self, version: int, change: Callable[[list[dict]], list[dict] | None]) -> None:
        """Rewrites an entry's actions."""
        path = self.entry(version)
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        actions = change(actions) or actions
        path.write_text("".join(json.dumps(a, separators=(",", ":")) + "\n" for a in actions))

    def restamp(self, version: int, change: Callable[[dict], None]) -> None:
        """Rewrites an entry's stamp, in its compact form."""
        def rewrite(actions: list[dict]) -> None:
            info = actions[0]["commitInfo"]
            stamp = json.loads(info["userMetadata"])
            change(stamp)
            info["userMetadata"] = json.dumps(stamp, separators=(",", ":"))
        self.edit(version, rewrite)

    def newest_data_file(self) -> pathlib.Path:
        adds = [json.loads(line)["add"] for line in self.entry(self.appends()[-1]).read_text().splitlines()
                if line.startswith('{"add"')]
        return self.uri / adds[0]["path"]


def row(number: int, step: int) -> dict:
    return {"id": number, "name": f"row {number} at {step}", "amount": number / 4, "day": number % 3}


@table
def healthy_changelog(site: Site) -> None:
    site.deliver()


@table
def healthy_current(site: Site) -> None:
    site.deliver()


@table
def healthy_keyless(site: Site) -> None:
    site.deliver(keyed=False)


@table
def healthy_partitioned(site: Site) -> None:
    site.deliver()


@table
def healthy_reset(site: Site) -> None:
    site.deliver()
    site.reset()
    site.changes(17, {"step": 18, "insert": row(12, 18)})
    site.run()


@table
def healthy_reset_current(site: Site) -> None:
    healthy_reset(site)


@table
def healthy_maintained(site: Site) -> None:
    """Others joined its files and removed the ones that nobody needs."""
    site.deliver()
    maintained = DeltaTable(site.uri)
    maintained.optimize.compact()
    maintained.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    site.changes(17, {"step": 18, "insert": row(12, 18)})
    site.run()


@table
def healthy_cleaned(site: Site) -> None:
    """Its log begins above a checkpoint, which has the state below it."""
    site.deliver()
    DeltaTable(site.uri).create_checkpoint()
    site.changes(17, {"step": 18, "insert": row(12, 18)})
    site.run()
    checkpoint = max(int(path.name[:20]) for path in site.log.glob("*.checkpoint.parquet"))
    for version in range(checkpoint + 1):
        site.entry(version).unlink()


@table
def healthy_cleaned_current(site: Site) -> None:
    healthy_cleaned(site)


@table
def broken_gap(site: Site) -> None:
    """An append's commit says that it begins a step later than the one before it ended."""
    site.deliver()
    site.restamp(site.appends()[1], lambda stamp: stamp.update({"from": stamp["from"] + 1}))


@table
def broken_gap_current(site: Site) -> None:
    broken_gap(site)


@table
def broken_steps_twice(site: Site) -> None:
    site.deliver()
    site.restamp(site.appends()[1], lambda stamp: stamp.update({"from": stamp["from"] - 1}))


@table
def broken_missing_version(site: Site) -> None:
    site.deliver()
    site.entry(site.appends()[1]).unlink()


@table
def broken_append_unstamped(site: Site) -> None:
    """An append lost its stamp, and is a stranger's rows."""
    site.deliver()
    site.edit(site.appends()[1], lambda actions: actions[1:])


@table
def broken_foreign_rows(site: Site) -> None:
    site.deliver()
    import pyarrow as pa
    from deltalake import write_deltalake
    rows = {"__generation": [1], "__step": [17], "__op": ["i"], "id": [99], "name": ["foreign"], "amount": [0.5], "day": [0]}
    types = [pa.int64(), pa.int64(), pa.string(), pa.int64(), pa.string(), pa.float64(), pa.int32()]
    schema = pa.schema([pa.field(name, kind, not name.startswith("__")) for name, kind in zip(rows, types)])
    write_deltalake(site.uri, pa.table(rows, schema=schema), mode="append")


@table
def broken_foreign_delete_current(site: Site) -> None:
    site.deliver()
    DeltaTable(site.uri).delete("id = 5")


@table
def broken_doubled_file(site: Site) -> None:
    """An append adds a file that the one before it added."""
    site.deliver()
    first, second = site.appends()[:2]
    add = next(line for line in site.entry(first).read_text().splitlines() if line.startswith('{"add"'))
    site.edit(second, lambda actions: [*actions, json.loads(add)])


@table
def broken_digest_total(site: Site) -> None:
    site.deliver()
    site.restamp(site.appends()[1], lambda stamp: stamp.update(digest_total=f"{int(stamp['digest_total'], 16) ^ 1:032x}"))


@table
def broken_rows_total_current(site: Site) -> None:
    site.deliver()
    site.restamp(site.appends()[1], lambda stamp: stamp["rows_total"].update(i=stamp["rows_total"]["i"] + 1))


@table
def broken_epoch(site: Site) -> None:
    """One epoch has two writers."""
    site.deliver()
    last = site.appends()[-1]
    site.restamp(last, lambda stamp: stamp.update(writer="00000000-0000-4000-8000-000000000000"))


@table
def broken_generation(site: Site) -> None:
    """A generation begins without a reload."""
    site.deliver()
    for version in site.appends()[1:]:
        site.restamp(version, lambda stamp: stamp.update(generation=2))


@table
def broken_txn(site: Site) -> None:
    """A commit's `txn` is not the step that its stamp says."""
    site.deliver()
    def rewrite(actions: list[dict]) -> None:
        for action in actions:
            if action.get("txn", {}).get("appId") == "cutover/step":
                action["txn"]["version"] += 5
    site.edit(site.appends()[-1], rewrite)


@table
def broken_statistics(site: Site) -> None:
    """A file's statistics count more rows than its commit."""
    site.deliver()
    def rewrite(actions: list[dict]) -> None:
        for action in actions:
            if "add" in action:
                action["add"]["stats"] = re.sub(r'"numRecords":\d+', '"numRecords":77', action["add"]["stats"])
    site.edit(site.appends()[-1], rewrite)


@table
def broken_property(site: Site) -> None:
    """Somebody set a property of the contract."""
    site.deliver()
    DeltaTable(site.uri).alter.set_table_properties({"cutover.step": "11"}, raise_if_not_exists=False)


@table
def broken_reload_leaves_rows(site: Site) -> None:
    """A reload leaves a file of the generation before it."""
    healthy_reset(site)
    reload = next(v for v, stamp in site.stamps().items() if stamp["generation"] == 2)
    def rewrite(actions: list[dict]) -> list[dict]:
        removed = next(a for a in actions if "remove" in a)
        return [a for a in actions if a is not removed]
    site.edit(reload, rewrite)


@table
def broken_file_gone(site: Site) -> None:
    site.deliver()
    site.newest_data_file().unlink()


@table
def broken_file_gone_current(site: Site) -> None:
    broken_file_gone(site)


@table
def inconclusive_not_ours(site: Site) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake
    write_deltalake(site.uri, pa.table({"id": [1, 2]}))


@table
def inconclusive_contract(site: Site) -> None:
    """Every trace speaks of another contract."""
    site.deliver()
    for version in sorted(site.stamps()):
        site.restamp(version, lambda stamp: stamp.update(cutover=2))
        path = site.entry(version)
        path.write_text(path.read_text().replace('"cutover.contract":"1"', '"cutover.contract":"2"'))


def make(name: str, directory: pathlib.Path) -> pathlib.Path:
    """Makes a table in `directory`; where it stands."""
    home = directory / name
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    layout = "current" if "current" in name else "changelog"
    more = 'partition_by = ["day"]\n' if "partitioned" in name else ""
    MAKERS[name](site := Site(home, layout, "keyless" not in name, more))
    return site.uri


if __name__ == "__main__":
    for name in sys.argv[2:] or MAKERS:
        print(make(name, pathlib.Path(sys.argv[1])))
