"""The form of a commit of Cutover: what stands in it beside its place in the chain."""

import json
from collections import Counter
from collections.abc import Callable

from .log import Actions
from .stamp import EPOCH, STEP
from .state import State, contract_properties

Say = Callable[..., None]  # (rule, message, file=None)


def check(stamp: dict, actions: Actions, state: State, say: Say) -> None:
    """Holds a commit against the form; `state` is what stood before it."""
    of = lambda kind: [body for name, body in actions if name == kind]
    infos, metadata = of("commitInfo"), of("metaData")
    if actions[0][0] != "commitInfo" or len(infos) > 1:
        say("R2", f"the first action is {actions[0][0]}, and there are {len(infos)} commitInfo")
    holds = metadata[0] if metadata else state.metadata
    properties = contract_properties(holds)
    metrics(stamp, infos[0], of("add"), of("remove"), properties.get("cutover.layout") == "current", say)
    txns(stamp, of("txn"), say)
    if holds is not None:
        columns = len(holds.get("partitionColumns") or [])
        for add in of("add"):
            if len(add.get("partitionValues") or {}) != columns:
                say("R6", f"the file has other than {columns} partition values", add["path"])
    if stamp["kind"] == "reload" and metadata:
        schema(metadata[0], properties.get("cutover.layout") == "current", say)
    if properties.get("cutover.generation") == str(stamp["generation"]):
        if properties.get("cutover.mode") == "snapshot" and stamp["kind"] == "append" and any(stamp["rows"].values()):
            say("R1", "the table properties say mode snapshot, and rows are appended")
        if not json.loads(properties.get("cutover.key", "[]")) and stamp["rows"]["u"]:
            say("R1", f"the table properties say no key, the commit counts {stamp['rows']['u']} updates")


def metrics(stamp: dict, info: dict, adds: list[dict], removes: list[dict], is_view: bool, say: Say) -> None:
    """What other engines read of the commit is what the stamp and the actions say."""
    kind, rows = stamp["kind"], stamp["rows"]
    if kind == "maintenance":
        return
    if info.get("isBlindAppend") != (kind != "reload" and not removes):
        say("R2", f"the commit info says isBlindAppend {info.get('isBlindAppend')} of the {kind}")
    gone = {remove["path"] for remove in removes}
    new = [add for add in adds if add["path"] not in gone]
    counted = rows["i"] + rows["u"] if is_view and kind == "append" else sum(rows.values())
    expected = {"numOutputRows": counted, "numFiles": len(new), "numOutputBytes": sum(add["size"] for add in new)}
    if kind == "reload" or removes:
        expected["numRemovedFiles"] = len(removes) - (len(adds) - len(new))
    told = info.get("operationMetrics") or {}
    for name in ("numOutputRows", "numFiles", "numOutputBytes", "numRemovedFiles"):
        number = expected.get(name)
        if told.get(name) != (None if number is None else str(number)):
            say("R6", f"the operation metrics say {name} {told.get(name)}, the commit holds {number}")


def txns(stamp: dict, actions: list[dict], say: Say) -> None:
    claims = stamp["kind"] in ("reload", "mark")
    wanted = {STEP: stamp["to"], EPOCH: stamp["epoch"] if claims else None}
    times = Counter(action["appId"] for action in actions)
    told = {action["appId"]: action["version"] for action in actions}
    for app, number in wanted.items():
        rule = "R2" if app == STEP else "R3"
        if told.get(app) != number:
            say(rule, f"txn {app} is set to {told.get(app)}, the commit info says {number}")
        if times[app] > 1:
            say(rule, f"txn {app} is set {times[app]} times")
    if any(action["appId"] in wanted and action.get("lastUpdated") is not None for action in actions):
        say("R2", "a txn of ours has lastUpdated, by which other engines forget it")


def schema(metadata: dict, is_view: bool, say: Say) -> None:
    """The columns of continuity stand first in a changelog, and nowhere in a table that is the view."""
    fields = [(field["name"], field["type"]) for field in json.loads(metadata["schemaString"])["fields"]]
    ours = [("__generation", "long"), ("__step", "long"), ("__op", "string")]
    if is_view and any(name in dict(ours) for name, _ in fields):
        say("R1", "the table of layout current has a column of a changelog")
    if not is_view and fields[:3] != ours:
        say("R1", f"the first columns are {fields[:3]}")

