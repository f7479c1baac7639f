"""The verdict on a table, from its log and the sizes of its files; no row is read."""

import dataclasses
import json

from . import vectors
from .errors import ContinuityLost, UnknownContract
from .log import Actions, Damaged, Log
from .report import Finding, Report
from .rules import Rules
from .stamp import CONTRACT, EPOCH, STEP, Untrusted, stamp_of
from .state import State, deleted, is_inside, records

# Without these no engine loads the log.
NEEDED = {
    "metaData": ("id", "schemaString"), "protocol": ("minReaderVersion", "minWriterVersion"), "add": ("path",), "remove": ("path",),
    "txn": ("appId",),
}


@dataclasses.dataclass(frozen=True)
class Standing:
    """Where a table stands at a version, from its properties and `txn`, which outlive log clean-up."""

    version: int
    table: str
    connector: str
    source: str
    generation: int
    cutover: int
    last_step: int
    epoch: int
    mode: str
    layout: str
    key: tuple[str, ...]
    commit: str


def standing(version: int, state: State) -> Standing:
    """Raises UnknownContract where the state is no table of contract 1."""
    told = state.properties
    if told.get("cutover.contract") != str(CONTRACT):
        raise UnknownContract(f"the table has the contract {told.get('cutover.contract')}, known is {CONTRACT}")
    name = lambda what: told[f"cutover.{what}"]
    try:
        return Standing(version, state.metadata["id"], name("connector"), name("source"), int(name("generation")),
                        int(name("step")), state.txn[STEP], state.txn[EPOCH], name("mode"), name("layout"),
                        tuple(json.loads(name("key"))), name("commit"))
    except (KeyError, ValueError) as e:
        raise UnknownContract(f"the table's properties are not whole: {e}") from e


def cutover(uri: str, storage_options: dict[str, str] | None = None) -> Standing:
    """Where the newest version of a table stands.

    Raises UnknownContract for a table that is not Cutover's, ContinuityLost where its log cannot be followed.
    """
    check = Check(uri, Log.open(uri, storage_options))
    check.run()
    return standing(check.require_head(), check.state)


def verify(uri: str, storage_options: dict[str, str] | None = None) -> Report:
    """Judges a table by the rules R1 to R7.

    `healthy` and `broken` are what `cutover verify` says without `--deep`; `inconclusive` is said of tables of another
    contract and of what this package does not read. Errors of the store come as they are.
    """
    log = Log.open(uri, storage_options)
    check = Check(uri, log)
    check.run()
    check.head()
    return check.conclude()


class Check:
    """A replay of the log with the rules beside it."""

    def __init__(self, uri: str, log: Log) -> None:
        self.log, self.state, self.rules, self.report = log, State(), Rules(), Report(uri)
        self.stamps: list[tuple[int, dict]] = []
        self.passing: list[Finding] = []  # what a later reload heals
        self.undecided = False
        self.healed_before = 0  # a reload of this version healed what is below

    def require_head(self) -> int:
        """The newest version. Raises UnknownContract without a log, ContinuityLost where it cannot be followed."""
        if self.report.version is None:
            raise UnknownContract(f"{self.report.uri} has no log")
        lost = [finding for finding in self.report.findings if finding.message.startswith("the log")]
        if lost or self.state.live is None:
            raise ContinuityLost(lost[0].message if lost else "the log does not tell which files are live")
        told = self.state.properties.get("cutover.generation")
        if self.stamps and told not in (None, str(self.stamps[-1][1]["generation"])):
            raise ContinuityLost(f"the properties say generation {told}, the last commit {self.stamps[-1][1]['generation']}")
        return self.report.version

    def say(self, version: int, rule: str, message: str, file: str | None = None, *, lasts: bool = False) -> None:
        """A finding; `lasts` where no later reload heals it."""
        finding = Finding(version, rule, message, file)
        (self.report.findings if lasts else self.passing).append(finding)

    def undecide(self, note: str) -> None:
        self.undecided = True
        self.report.notes.append(note)

    def beginning(self) -> list[int]:
        """The versions to be checked; the state below them is loaded."""
        versions = self.rebuilt(self.log.versions)
        if not versions:
            return []
        holes = [i for i in range(1, len(versions)) if versions[i] != versions[i - 1] + 1]
        newest = max(self.log.checkpoints, default=-1)
        below = [i for i in holes if versions[i] <= newest + 1]
        if below:
            self.report.notes.append(f"the log lacks entries below version {versions[below[-1]]}")
            versions = versions[below[-1]:]
        lost = [i for i in range(1, len(versions)) if versions[i] != versions[i - 1] + 1]
        for i in lost:
            for missing in range(versions[i - 1] + 1, versions[i]):
                self.say(missing, "R6", f"the log entry of version {missing} is missing", lasts=True)
        if lost:
            # What the first commit above a hole follows is not known.
            return versions[lost[-1]:]
        first = versions[0]
        if first == 0 or self.is_rebuild(first):
            self.state = State({})
        elif first - 1 in self.log.checkpoints:
            self.state = State.of_checkpoint(self.log.checkpoint(first - 1))
        elif not any(checkpoint >= first for checkpoint in self.log.checkpoints):
            if any(checkpoint >= first - 1 for checkpoint in self.log.unread):
                self.undecide("the log begins above a checkpoint of a form that is not read here")
            else:
                self.say(first - 1, "R6", f"the log entry of version {first - 1} is missing, and no checkpoint is above it", lasts=True)
        return versions

    def is_rebuild(self, version: int) -> bool:
        try:
            stamp = stamp_of(dict(self.log.entry(version)[:1]).get("commitInfo", {}))
        except (Damaged, Untrusted):
            return False
        return stamp is not None and stamp["commit"].startswith("rebuild:")

    def rebuilt(self, versions: list[int]) -> list[int]:
        """The versions from the newest rebuild on; what lies below one does not count."""
        for place in range(len(versions) - 1, 0, -1):
            if self.is_rebuild(versions[place]):
                return versions[place:]
        return versions

    def run(self) -> None:
        try:
            versions = self.beginning()
        except Damaged as e:
            self.say(self.log.versions[0], "R6", f"the log: {e}", lasts=True)
            return
        if not versions:
            self.undecide("no log")
            return
        self.report.since_version, self.report.version = versions[0], versions[-1]
        seeded = versions[0] > 0 and self.state.live is not None
        for version in versions:
            try:
                self.commit(version, self.log.entry(version), seeded)
                if version in self.log.checkpoints:
                    self.compare(version)
            except Damaged as e:
                self.say(version, "R6", f"the log: {e}", lasts=True)
                self.state.live = None
            except (KeyError, TypeError, ValueError) as e:
                self.say(version, "R6", f"the log entry of version {version} lacks or mistakes a field: {e!r}")

    def commit(self, version: int, actions: Actions, seeded: bool) -> None:
        say = lambda rule, message, file=None: self.say(version, rule, message, file)
        stamp = None
        try:
            info = next((body for kind, body in actions if kind == "commitInfo"), {})
            stamp = stamp_of(info)
        except Untrusted as e:
            say("R2", f"the commit info cannot be trusted: {e}")
        else:
            if stamp is not None:
                if not self.stamps and seeded:
                    self.seam(version, stamp)
                if stamp["kind"] == "reload":
                    self.healed_before = version
                self.rules.ours(version, stamp, actions, self.state, say)
                self.stamps.append((version, stamp))
            elif self.stamps or self.state.properties:
                self.rules.foreign(actions, self.state, say)
        for kind, body in actions:
            lacking = [name for name in NEEDED.get(kind, ()) if not body.get(name)]
            if lacking:
                say("R6", f"an action {kind} of the log entry lacks {', '.join(lacking)}")
        # A commit that removes a path and adds it again means both, in this order.
        for kind, body in sorted(actions, key=lambda action: action[0] != "remove"):
            self.state.apply(kind, body)

    def seam(self, version: int, stamp: dict) -> None:
        """The first entry above a clean-up goes on from the `txn` and the properties of the state below it."""
        if stamp["kind"] == "reload":
            return
        told, generation = self.state.txn.get(STEP), self.state.properties.get("cutover.generation")
        if told != stamp["from"]:
            self.say(version, "R2", f"the {stamp['kind']} starts at step {stamp['from']}, the state below it is at {told}")
        if generation != str(stamp["generation"]):
            self.say(version, "R1", f"the commit is of generation {stamp['generation']}, the state below it of {generation}")

    def compare(self, version: int) -> None:
        held = State.of_checkpoint(self.log.checkpoint(version))
        differing = self.state.differences(held)
        if differing and version == max(self.log.checkpoints):
            self.say(version, "R6", f"the checkpoint differs from the log in its {'; '.join(differing)}")
        if self.state.live is None:
            self.state = held

    def head(self) -> None:
        """R1, R2 and R6 at the newest version: properties, `txn`, rows and files."""
        version, state = self.report.version, self.state
        if version is None:
            return
        if (fault := self.log.hint()) is not None:
            self.say(version, "R6", fault, lasts=True)
        if not self.stamps or (state.metadata is None and state.live is None):
            return
        last = self.stamps[-1][1]
        if state.properties.get("cutover.generation") != str(last["generation"]):
            self.say(version, "R1", f"the properties say generation {state.properties.get('cutover.generation')}, "
                                    f"the last commit {last['generation']}")
        if state.txn.get(STEP) != last["to"]:
            self.say(version, "R2", f"the table's txn says step {state.txn.get(STEP)}, the last commit {last['to']}")
        if state.live is None:
            return
        total, counts = last.get("rows_total"), [records(add) for add in state.live.values()]
        if total and None not in counts and not self.report.findings + self.passing:
            lives = sum(counts) - sum(map(deleted, state.live.values()))
            is_view = state.properties.get("cutover.layout") == "current"
            expected = total["i"] - total["d"] if is_view else sum(total.values())
            if lives != expected:
                self.say(version, "R6", f"the live files have {lives} rows, the commits come to {expected}")
        adds = [add for add in state.live.values() if self.inside(add)]
        for add in adds:
            if vector := add.get("deletionVector"):
                if vector.get("storageType") and (fault := vectors.fault(vector, self.log.read)):
                    self.say(version, "R6", fault, add["path"])
        for add, size in zip(adds, self.log.sizes([add["path"] for add in adds])):
            if size is None:
                self.say(version, "R6", f"the file is gone, the log says {add['size']} bytes", add["path"])
            elif size != add["size"]:
                self.say(version, "R6", f"the file has {size} bytes, the log says {add['size']}", add["path"])

    def inside(self, add: dict) -> bool:
        if is_inside(add["path"]):
            return True
        self.say(self.report.version, "R6", "the file lies outside the table", add["path"])
        return False

    def conclude(self) -> Report:
        report, state = self.report, self.state
        told = state.properties
        if self.stamps and (state.metadata is None or told.get("cutover.contract") == str(CONTRACT)):
            last = self.stamps[-1][1]
            report.connector, report.generation, report.epoch = last["connector"], last["generation"], last["epoch"]
            report.cutover, report.last_step = told.get("cutover.step") and int(told["cutover.step"]), last["to"]
        contract = told.get("cutover.contract")
        is_ours = contract == str(CONTRACT) or (contract is None and (self.stamps or STEP in state.txn or EPOCH in state.txn))
        unknown = state.metadata is not None and not is_ours
        if unknown:
            self.undecide("R7: " + (f"the table has the contract {contract}, known is {CONTRACT}" if contract else
                                    "the table has neither properties nor commits of Cutover"))
        elif not self.stamps and report.version is not None:
            self.undecide("the log no longer holds a commit of Cutover, so only files and properties were checked")
        if self.rules.uncounted:
            self.undecide("files were replaced by others whose rows cannot be told")
        report.older_findings = [finding for finding in self.passing if finding.version < self.healed_before]
        report.findings += [finding for finding in self.passing if finding.version >= self.healed_before]
        report.findings.sort(key=lambda finding: finding.version)
        if report.findings and not unknown:
            report.verdict = "broken"
        else:
            report.verdict = "inconclusive" if self.undecided else "healthy"
        return report
