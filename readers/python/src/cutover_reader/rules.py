"""The rules R1 to R6 of PROTOCOL.md, over one commit and what came before it."""

import json
from collections.abc import Callable

from . import form
from .log import Actions
from .stamp import MODULUS
from .state import Key, State, changes_rows, contract_properties, deleted, file_key, is_inside, records

RETENTION = "delta.setTransactionRetentionDuration"
Say = Callable[..., None]  # (rule, message, file=None)


class Rules:
    """What a check remembers from commit to commit."""

    def __init__(self) -> None:
        self.before: dict | None = None  # our last commit's stamp
        self.writers: dict[int, str] = {}
        self.added: dict[Key, int] = {}
        self.uncounted = False  # whether others replaced files whose rows cannot be told

    def ours(self, version: int, stamp: dict, actions: Actions, state: State, say: Say) -> None:
        """A commit of Cutover, over the state before it."""
        self.continuity(stamp, say)
        self.fencing(stamp, say)
        of = lambda kind: [body for name, body in actions if name == kind]
        adds, removes, kind = of("add"), of("remove"), stamp["kind"]
        self.files(version, adds, say)
        if kind == "reload":
            live, gone = set(state.live or {}), {file_key(remove) for remove in removes}
            if live - gone:
                say("R1", f"the reload leaves {len(live - gone)} older files live", min(path for path, _ in live - gone))
            if state.live is not None and gone - live and not stamp["commit"].startswith("rebuild:"):
                say("R1", "the reload removes a file that was not live", min(path for path, _ in gone - live))
            self.properties(stamp, of("metaData"), say)
        elif of("metaData") and state.metadata is not None:
            self.metadata(stamp, state.metadata, of("metaData")[0], say)
        if kind in ("mark", "maintenance") and any(map(changes_rows, adds + removes)):
            say("R5", f"a {kind} changes rows")
        if kind == "maintenance":
            self.joined(adds, removes, state, say)
        is_view = state.properties.get("cutover.layout") == "current"
        if kind == "append" and is_view:
            self.replaced(stamp["rows"], adds, removes, state, say)
        elif kind != "maintenance":
            counts = [records(add) for add in adds]
            if None in counts or sum(counts) != sum(stamp["rows"].values()):
                say("R6", f"the files added hold {counts} rows, the commit info counts {stamp['rows']}")
        if kind == "append" and removes and not is_view:
            say("R5", "an append of layout changelog removes files", removes[0]["path"])
        elif kind in ("reload", "append") and not all(map(changes_rows, adds + removes)):
            say("R4", f"a file of the {kind} comes or goes as if no rows changed")
        form.check(stamp, actions, state, say)
        self.before = stamp

    def continuity(self, stamp: dict, say: Say) -> None:
        before, kind, start, to = self.before, stamp["kind"], stamp.get("from"), stamp["to"]
        if kind == "reload":
            if before and stamp["generation"] <= before["generation"]:
                say("R3", f"a reload starts the generation {stamp['generation']} after {before['generation']}")
            if start is not None:
                say("R1", "a reload has a first step")
            total, counted = 0, dict.fromkeys("iud", 0)
        else:
            if before and stamp["generation"] > before["generation"]:
                say("R1", f"the generation {stamp['generation']} begins without a reload")
            elif before and start != before["to"]:
                what = "a gap" if start > before["to"] else "steps twice"
                say("R2", f"{what}: the {kind} starts at step {start}, the commit before it ended at {before['to']}")
            if start >= to if kind == "append" else start != to:
                say("R2", f"the {kind} covers ({start}, {to}]")
            total = before and before.get("digest_total") and int(before["digest_total"], 16)
            counted = before and before.get("rows_total")
        told = stamp.get("digest_total")
        if total is not None:
            expected = (total + int(stamp["digest"], 16)) % MODULUS
            if told is None or int(told, 16) != expected:
                say("R2", f"the digest of the generation is {told}, its commits add up to {expected:032x}")
        if counted and stamp.get("rows_total"):
            summed = {op: counted[op] + stamp["rows"][op] for op in "iud"}
            if stamp["rows_total"] != summed:
                say("R2", f"the rows of the generation are {stamp['rows_total']}, its commits add up to {summed}")
        if kind in ("mark", "maintenance") and (int(stamp["digest"], 16) or any(stamp["rows"].values())):
            say("R2", f"a {kind} counts rows")

    def fencing(self, stamp: dict, say: Say) -> None:
        before = self.before
        if before:
            for what in ("generation", "epoch"):
                if stamp[what] < before[what]:
                    say("R3", f"the {what} {stamp[what]} commits after the {what} {before[what]}")
            if stamp["epoch"] > before["epoch"] and stamp["kind"] not in ("reload", "mark"):
                say("R3", f"the epoch {stamp['epoch']} begins without a claim")
            adopted = stamp.get("adopt", {}).get("from") == before["connector"] and stamp["kind"] == "mark"
            if stamp["connector"] != before["connector"] and not adopted:
                say("R3", f"the connector {stamp['connector']} commits after {before['connector']}")
        writer = self.writers.setdefault(stamp["epoch"], stamp["writer"])
        if writer != stamp["writer"]:
            say("R3", f"the epoch {stamp['epoch']} has two writers, {writer} and {stamp['writer']}")

    def files(self, version: int, adds: list[dict], say: Say) -> None:
        """R4: a file is added with rows by one commit only."""
        here: set[Key] = set()
        for add in adds:
            key = file_key(add)
            if changes_rows(add) and (self.added.setdefault(key, version) != version or key in here):
                say("R4", f"the file is added a second time; the first was version {self.added[key]}", add["path"])
            here.add(key)

    def properties(self, stamp: dict, metadata: list[dict], say: Say) -> None:
        if len(metadata) != 1:
            say("R1", f"the reload has {len(metadata)} metaData actions")
            return
        told = metadata[0].get("configuration", {})
        expected = {"connector": stamp["connector"], "generation": str(stamp["generation"]), "step": str(stamp["to"]),
                    "commit": stamp["commit"]}
        for name, value in expected.items():
            if told.get(f"cutover.{name}") != value:
                say("R1", f"the property cutover.{name} is {told.get(f'cutover.{name}')!r}, the commit says {value!r}")

    def metadata(self, stamp: dict, before: dict, after: dict, say: Say) -> None:
        """R5: between reloads an append adds nullable columns, and an adoption changes the connector's name."""
        old, grown = (json.loads(each["schemaString"])["fields"] for each in (before, after))
        free = "cutover.connector" if "adopt" in stamp else "delta.columnMapping.maxColumnId"
        without = lambda body: {k: v for k, v in (body.get("configuration") or {}).items() if k != free}
        same = all((before.get(k) or None) == (after.get(k) or None) for k in ("id", "name", "description", "partitionColumns"))
        columns = grown == old or (
            stamp["kind"] == "append" and grown[: len(old)] == old and all(f["nullable"] for f in grown[len(old):])
        )
        if not (same and columns and without(before) == without(after)):
            say("R5", f"a {stamp['kind']} changes the table's metadata")

    def replaced(self, rows: dict, adds: list[dict], removes: list[dict], state: State, say: Say) -> None:
        """R4 and R6 in layout `current`: files come without a vector, and others again with more rows deleted."""
        before = {remove["path"]: deleted(remove) for remove in removes}
        fresh = [add for add in adds if add["path"] not in before]
        again = {add["path"]: deleted(add) for add in adds if add["path"] in before}
        for add in fresh:
            if deleted(add):
                say("R4", "a file comes with deleted rows", add["path"])
        for path, number in again.items():
            if number <= before[path]:
                say("R4", "a file comes again with no more rows deleted", path)
        counts = [records(add) for add in fresh]
        if None in counts or sum(counts) != rows["i"] + rows["u"]:
            say("R6", f"the files added hold {counts} rows, the commit info counts {rows}")
        if state.live is not None:
            had = {key[0]: records(add) for key, add in state.live.items() if key[0] in before}
            if all(had.get(path) is not None for path in before):
                gone = sum((again.get(path, had[path]) or 0) - number for path, number in before.items())
                if gone != rows["u"] + rows["d"]:
                    say("R6", f"{gone} rows of older files are deleted, the commit info counts {rows}")

    def joined(self, adds: list[dict], removes: list[dict], state: State, say: Say) -> None:
        """R5 and R6: files that others take the place of had as many rows."""
        if state.live is None:
            return
        gone = [state.live.get(file_key(remove)) for remove in removes]
        for remove, add in zip(removes, gone):
            if add is None:
                say("R5", "the removal of a file that was not live", remove["path"])
        if None in gone:
            return
        counts = [[(n := records(add)) is not None and n - deleted(add) for add in side] for side in (gone, adds)]
        if any(number is False for side in counts for number in side):
            self.uncounted = True
        elif sum(counts[0]) != sum(counts[1]):
            say("R5", f"files of {sum(counts[0])} rows are replaced by others of {sum(counts[1])}")

    def foreign(self, actions: Actions, state: State, say: Say) -> None:
        """R5: a commit of others is maintenance, or drift."""
        of = lambda kind: [body for name, body in actions if name == kind]
        adds, removes = of("add"), of("remove")
        for name in sorted({name for name, _ in actions} & {"txn", "protocol", "metaData"}):
            # Of its own a stranger may set `txn` for several applications.
            if name != "txn" and len(of(name)) > 1:
                self.uncounted = True
        for add in adds:
            if not is_inside(add["path"]):
                say("R5", "a foreign commit adds a file that lies outside the table", add["path"])
        if any(map(changes_rows, adds + removes)):
            say("R5", f"the commit changes rows: it adds {len(adds)} files and removes {len(removes)}")
        else:
            self.joined(adds, removes, state, say)
        for action in of("txn"):
            if action["appId"].startswith("cutover/"):
                say("R5", f"a commit without our commit info sets txn {action['appId']} to {action['version']}")
        for metadata in of("metaData"):
            before = state.metadata or metadata
            if contract_properties(metadata) != state.properties:
                say("R5", "a foreign commit changes properties of ours")
            if RETENTION in (metadata.get("configuration") or {}):
                say("R5", f"the property {RETENTION} makes other engines forget our last step")
            for what in ("id", "partitionColumns"):
                if (before.get(what) or None) != (metadata.get(what) or None):
                    say("R5", f"a foreign commit changes the table's {what}")
            if shape(before) != shape(metadata):
                say("R5", "a foreign commit changes the schema")


def shape(metadata: dict) -> object:
    """A schema without what maintenance may write to it: comments and the mapping of columns."""
    def bare(value: object) -> object:
        if isinstance(value, list):
            return [bare(each) for each in value]
        if isinstance(value, dict):
            free = ("comment", "delta.columnMapping.id", "delta.columnMapping.physicalName")
            return {k: bare(v) for k, v in value.items() if k not in free}
        return value
    return bare(json.loads(metadata["schemaString"]))
