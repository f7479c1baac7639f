"""Checks a table's log against the rules R1 to R6 of the contract, from the JSON of `_delta_log` alone.

The check begins at the oldest JSON commit that is left. Where that is not version 0, the live files come from the
oldest checkpoint. Later checkpoints (one file each, the classic form) are compared with the replay. Below a reload that
rebuilt the log nothing counts.
"""

import json
import pathlib
import urllib.parse

import pyarrow.parquet as pq

STEP, EPOCH = "cutover/step", "cutover/epoch"
MODULUS = 2**128


def check(table):
    return Check(pathlib.Path(table)).run()


def file_key(action):
    """What makes a file: its path and its deletion vector."""
    vector = action.get("deletionVector")
    # A row of a checkpoint has a struct of nulls where the JSON has no vector.
    if not vector or vector.get("storageType") is None:
        return action["path"], None
    return action["path"], (vector["storageType"], vector["pathOrInlineDv"], vector.get("offset"))


def records(add):
    stats = json.loads(add.get("stats") or "{}")
    return stats.get("numRecords")


def cardinality(action):
    return (action.get("deletionVector") or {}).get("cardinality") or 0


class Check:
    def __init__(self, table):
        self.table, self.log = table, table / "_delta_log"
        self.problems = []
        self.live = None  # file key -> size; None before the first version from which it is known
        self.added = {}  # file key -> version
        self.records = {}  # path -> rows, deleted ones included
        self.writers = {}  # epoch -> writer
        self.stamp = None  # our last commit's
        self.total = None  # the generation's digest so far, where it is known
        self.counted = None  # the rows of its commits so far, where they are known
        self.properties = {}
        self.metadata = None
        self.commits = 0

    def problem(self, version, text):
        self.problems.append(f"version {version}: {text}")

    def run(self):
        versions = sorted(int(p.stem) for p in self.log.glob("*.json") if p.stem.isdigit())
        versions = versions[self.rebuilt(versions) :]
        # A checkpoint may be in parts or have a UUID in its name; only the classic form is read here.
        checkpoints = sorted(int(p.name.split(".")[0]) for p in self.log.glob("*.checkpoint.parquet")
                             if p.name.count(".") == 2)
        if not versions:
            self.problems.append("no commit in the log")
        if versions and versions != list(range(versions[0], versions[-1] + 1)):
            missing = sorted(set(range(versions[0], versions[-1])) - set(versions))
            self.problems.append(f"the log lacks the versions {missing}")
        if versions and versions[0] == 0:
            self.live = {}
        elif versions and not any(c >= versions[0] - 1 for c in checkpoints):
            self.problems.append(f"the log begins at {versions[0]} without a checkpoint")
        for checkpoint in checkpoints:
            if versions and checkpoint == versions[0] - 1:
                self.checkpoint(checkpoint)
        for version in versions:
            lines = (self.log / f"{version:020}.json").read_text().splitlines()
            try:
                actions = [next(iter(json.loads(line).items())) for line in lines if line.strip()]
            except ValueError as e:
                self.problem(version, f"not JSON: {e}")
                continue
            if not actions:
                self.problem(version, "the commit is empty")
            try:
                self.commit(version, actions)
            except KeyError as e:
                self.problem(version, f"a field is missing: {e}")
            if version in checkpoints:
                self.checkpoint(version)
        self.head(versions[-1] if versions else None)
        return {
            "ok": not self.problems,
            "problems": self.problems,
            "commits": self.commits,
            "generation": self.stamp and self.stamp["generation"],
            "last_step": self.stamp and self.stamp["to"],
            "digest_total": self.stamp and self.stamp.get("digest_total"),
        }

    def rebuilt(self, versions):
        """The place of the newest rebuild among the versions; 0 where there is none."""
        for place in range(len(versions) - 1, -1, -1):
            text = (self.log / f"{versions[place]:020}.json").read_text(errors="replace")
            if '\\"commit\\":\\"rebuild:' in text.partition("\n")[0]:
                return place
        return 0

    def checkpoint(self, version):
        rows = pq.read_table(self.log / f"{version:020}.checkpoint.parquet").to_pylist()
        live = {file_key(r["add"]): r["add"]["size"] for r in rows if r.get("add")}
        if self.live is not None and live != self.live:
            differing = sorted(live.items() ^ self.live.items(), key=str)
            self.problem(version, f"the checkpoint's files differ from the log's: {differing}")
        self.live = live
        for metadata in (r["metaData"] for r in rows if r.get("metaData")):
            self.properties = dict(metadata["configuration"])
            self.metadata = metadata

    def commit(self, version, actions):
        of = lambda kind: [body for name, body in actions if name == kind]
        for vanished in of("remove"):
            if self.live is not None and self.live.pop(file_key(vanished), None) is None:
                self.problem(version, f"removes {vanished['path']}, which is not live")
        for add in of("add"):
            if add["dataChange"]:
                first = self.added.setdefault(file_key(add), version)
                if first != version or sum(file_key(a) == file_key(add) for a in of("add")) > 1:
                    self.problem(version, f"R4: {add['path']} was added already, by version {first}")
            if self.live is not None:
                self.live[file_key(add)] = add["size"]
            self.records.setdefault(add["path"], records(add))
        info = (of("commitInfo") or [{}])[0]
        text = info.get("userMetadata") or ""
        stamp = self.decode(text)
        if stamp is None:
            self.foreign(version, of)
            return
        self.commits += 1
        if actions[0][0] != "commitInfo":
            self.problem(version, f"the first action is {actions[0][0]}, not commitInfo")
        if not text.startswith('{"cutover":1,'):
            self.problem(version, "userMetadata does not begin with the contract's number in compact JSON")
        if not all(isinstance(v, str) for v in info.get("operationParameters", {}).values()):
            self.problem(version, "operationParameters has a value that is no string")
        self.ours(version, stamp, of)
        self.stamp = stamp

    @staticmethod
    def decode(text):
        try:
            stamp = json.loads(text)
        except ValueError:
            return None
        return stamp if isinstance(stamp, dict) and "cutover" in stamp else None

    def foreign(self, version, of):
        """R5, as far as the log shows it; what stood there before our first commit is not ours to judge."""
        for metadata in of("metaData"):
            before = self.metadata
            ours = {k: v for k, v in self.properties.items() if k.startswith("cutover.")}
            theirs = {k: v for k, v in metadata.get("configuration", {}).items() if k.startswith("cutover.")}
            changed = before and any(before[k] != metadata[k] for k in ("schemaString", "partitionColumns", "id"))
            if self.stamp and (changed or ours != theirs):
                self.problem(version, "R5: a foreign commit changes the schema, the partitioning or our properties")
            self.metadata, self.properties = metadata, metadata.get("configuration", {})
        if self.stamp and any(a["dataChange"] for a in of("add") + of("remove")):
            self.problem(version, "R5: a foreign commit changes rows")
        if any(t["appId"] in (STEP, EPOCH) for t in of("txn")):
            self.problem(version, "R5: a foreign commit sets our txn")

    def ours(self, version, stamp, of):
        kind, before, to = stamp["kind"], self.stamp, stamp["to"]
        adds, removes = of("add"), of("remove")
        if kind not in ("reload", "append", "mark", "maintenance"):
            self.problem(version, f"unknown kind {kind!r}")

        # R1: a generation begins with exactly one reload.
        if kind == "reload":
            if "from" in stamp:
                self.problem(version, "a reload has a from")
            if before and stamp["generation"] <= before["generation"]:
                self.problem(version, f"R1: a reload of generation {stamp['generation']} after {before['generation']}")
            if self.live is not None and set(self.live) != {file_key(a) for a in adds}:
                self.problem(version, "R1: files of before the reload are live after it")
            if stamp["rows"]["u"] or stamp["rows"]["d"]:
                self.problem(version, "R1: a reload has updates or deletes")
            self.reload_properties(version, stamp, of("metaData"))
        else:
            if before is None and version == 0:
                self.problem(version, f"R1: the first commit is a {kind}, not a reload")
            # A claim may precede the reload of a table that is ours by its properties only.
            if before and stamp["generation"] != before["generation"]:
                self.problem(version, f"R1: generation {stamp['generation']} begins without a reload")
            if (to != stamp["from"] and kind != "append") or (to <= stamp["from"] and kind == "append"):
                self.problem(version, f"a {kind} from {stamp['from']} to {to}")
            if kind == "append" and removes and not self.is_view():
                self.problem(version, "an append removes files")
            # R2: each commit starts where the one before ended.
            if before and stamp["from"] != before["to"]:
                self.problem(version, f"R2: from {stamp['from']} after to {before['to']}")
            for metadata in of("metaData"):
                kept = ("cutover.generation", "cutover.step", "cutover.commit")
                if any(metadata["configuration"].get(k) != self.properties.get(k) for k in kept):
                    self.problem(version, f"a {kind} changes {', '.join(kept)}")
                self.changed(version, stamp, metadata)
                self.metadata, self.properties = metadata, metadata["configuration"]

        # R2: the running digest.
        own = int(stamp["digest"], 16)
        expected = own if kind == "reload" else None if self.total is None else (self.total + own) % MODULUS
        total = stamp.get("digest_total")
        if expected is not None and (total is None or int(total, 16) != expected):
            self.problem(version, f"R2: digest_total is {total}, expected {expected:032x}")
        self.total = None if total is None else int(total, 16)
        counted = stamp["rows"] if kind == "reload" else self.counted and {
            op: self.counted[op] + stamp["rows"][op] for op in "iud"
        }
        if counted and stamp.get("rows_total") not in (None, counted):
            self.problem(version, f"R2: rows_total is {stamp['rows_total']}, expected {counted}")
        self.counted = stamp.get("rows_total")
        if kind in ("mark", "maintenance") and own:
            self.problem(version, f"R2: a {kind} has the digest {stamp['digest']}")

        # R3: generations and epochs never decrease; one epoch has one writer.
        if before and (stamp["generation"] < before["generation"] or stamp["epoch"] < before["epoch"]):
            self.problem(version, f"R3: generation {stamp['generation']}, epoch {stamp['epoch']} after "
                                  f"{before['generation']}, {before['epoch']}")
        writer = self.writers.setdefault(stamp["epoch"], stamp["writer"])
        if writer != stamp["writer"]:
            self.problem(version, f"R3: epoch {stamp['epoch']} has the writers {writer} and {stamp['writer']}")

        # R6: the counts are those of the files' statistics.
        counts = [records(a) for a in adds if a["dataChange"]]
        if kind == "append" and self.is_view():
            self.replaced(version, stamp["rows"], adds, removes)
        elif None in counts or sum(counts) != sum(stamp["rows"].values()):
            self.problem(version, f"R6: rows {stamp['rows']}, but numRecords {counts}")
        if kind in ("mark", "maintenance") and any(a["dataChange"] for a in adds + removes):
            self.problem(version, f"a {kind} changes rows")

        txns = {t["appId"]: t for t in of("txn")}
        wanted = {STEP: to} | ({EPOCH: stamp["epoch"]} if kind in ("reload", "mark") else {})
        for app, number in wanted.items():
            if txns.get(app, {}).get("version") != number:
                self.problem(version, f"txn {app} is {txns.get(app)}, expected version {number}")
        if any(t.get("lastUpdated") is not None for a, t in txns.items() if a in (STEP, EPOCH)):
            self.problem(version, "a txn of ours has lastUpdated")

    def is_view(self):
        """Whether the table is the view, so that appends mark rows as deleted."""
        return self.properties.get("cutover.layout") == "current"

    def replaced(self, version, rows, adds, removes):
        """R4 and R6 where rows have successors: new files have no vector, others come again with more rows deleted."""
        before = {remove["path"]: cardinality(remove) for remove in removes}
        new = [add for add in adds if add["path"] not in before]
        again = {add["path"]: add for add in adds if add["path"] in before}
        if any(cardinality(add) for add in new):
            self.problem(version, "R4: a new file has deleted rows")
        if any(cardinality(add) <= before[path] for path, add in again.items()):
            self.problem(version, "R4: a file comes again with no more rows deleted")
        if sum(records(add) for add in new) != rows["i"] + rows["u"]:
            self.problem(version, f"R6: rows {rows}, but numRecords of new files {[records(a) for a in new]}")
        # How many rows a file had that is gone for good is told by the version that added it.
        gone = sum((self.records.get(path) or 0) - deleted for path, deleted in before.items() if path not in again)
        deleted = gone + sum(cardinality(add) - before[path] for path, add in again.items())
        if all(self.records.get(path) for path in before) and deleted != rows["u"] + rows["d"]:
            self.problem(version, f"R6: rows {rows}, but {deleted} rows of older files are deleted")
        if any(not remove["dataChange"] for remove in removes):
            self.problem(version, "an append removes a file as if no rows changed")

    def changed(self, version, stamp, metadata):
        """R5: between reloads metadata change by the nullable columns that an append adds behind the others, and by the
        name that an adoption gives."""
        before, kind = self.metadata, stamp["kind"]
        if before is None:
            return
        old, new = (json.loads(m["schemaString"])["fields"] for m in (before, metadata))
        # Ids of mapped columns grow with the columns.
        free = "cutover.connector" if "adopt" in stamp else "delta.columnMapping.maxColumnId"
        without = lambda properties: {k: v for k, v in properties.items() if k != free}
        others = ("id", "name", "description", "format", "partitionColumns", "createdTime")
        if any(before.get(k) != metadata.get(k) for k in others) or (
            without(before["configuration"]) != without(metadata["configuration"])
        ):
            self.problem(version, f"R5: a {kind} changes more than {free} and columns")
        grows = kind == "append" and new[: len(old)] == old and all(f["nullable"] for f in new[len(old) :])
        if not (grows or ("adopt" in stamp and new == old)):
            self.problem(version, f"R5: a {kind} changes the columns from {old} to {new}")

    def reload_properties(self, version, stamp, metadata):
        if len(metadata) != 1:
            self.problem(version, f"a reload has {len(metadata)} metaData actions")
            return
        self.metadata, self.properties = metadata[0], metadata[0]["configuration"]
        expected = {
            "cutover.contract": str(stamp["cutover"]),
            "cutover.connector": stamp["connector"],
            "cutover.generation": str(stamp["generation"]),
            "cutover.step": str(stamp["to"]),
            "cutover.commit": stamp["commit"],
        }
        for key, value in expected.items():
            if self.properties.get(key) != value:
                self.problem(version, f"the property {key} is {self.properties.get(key)!r}, the stamp says {value!r}")

    def head(self, version):
        """R6: every live file exists with its size."""
        for (path, _), size in (self.live or {}).items():
            # urlparse keeps a plain relative path as it is; an absolute one is a file:// URL.
            file = self.table / urllib.parse.unquote(urllib.parse.urlparse(path).path)
            if not file.exists():
                self.problem(version, f"R6: the live file {path} does not exist")
            elif file.stat().st_size != size:
                self.problem(version, f"R6: {path} has {file.stat().st_size} bytes, the log says {size}")
        if self.stamp and self.properties.get("cutover.generation") != str(self.stamp["generation"]):
            self.problem(version, "the property cutover.generation is not the last commit's generation")
