"""A table's state, as its log's actions make it one after the other."""

import json
import urllib.parse
from collections.abc import Iterable
from dataclasses import dataclass, field

Key = tuple[str, tuple | None]


def file_key(action: dict) -> Key:
    """What makes a file: its path and its deletion vector."""
    vector = action.get("deletionVector")
    # A row of a checkpoint has a struct of nulls where an entry has no vector.
    if not vector or vector.get("storageType") is None:
        return action["path"], None
    return action["path"], (vector["storageType"], vector["pathOrInlineDv"], vector.get("offset"))


def records(add: dict) -> int | None:
    """The rows that were written to a file, deleted ones included, where its statistics say."""
    return json.loads(add.get("stats") or "{}").get("numRecords")


def is_inside(path: str) -> bool:
    """Whether a path of the log leads to a file of the table's folder."""
    plain = urllib.parse.unquote(path)
    return not (plain.startswith(("/", "file:")) or "://" in plain or ".." in plain.replace("\\", "/").split("/"))


def changes_rows(action: dict) -> bool:
    return action.get("dataChange", True)


def deleted(action: dict) -> int:
    return (action.get("deletionVector") or {}).get("cardinality") or 0


def contract_properties(metadata: dict | None) -> dict[str, str]:
    """The properties of the contract that a `metaData` has."""
    every = (metadata or {}).get("configuration") or {}
    return {name: value for name, value in every.items() if name.startswith("cutover.")}


@dataclass
class State:
    """What a reader sees at a version. `live` is None while the log does not tell it."""

    live: dict[Key, dict] | None = None
    metadata: dict | None = None
    txn: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of_checkpoint(cls, actions: Iterable[tuple[str, dict]]) -> "State":
        state = cls({})
        for kind, body in actions:
            # A map of a checkpoint comes as pairs.
            if kind == "metaData":
                body = body | {"configuration": dict(body.get("configuration") or [])}
            state.apply(kind, body)
        return state

    def apply(self, kind: str, body: dict) -> None:
        if kind == "add" and self.live is not None:
            self.live[file_key(body)] = body
        elif kind == "remove" and self.live is not None:
            self.live.pop(file_key(body), None)
        elif kind == "metaData":
            self.metadata = body
        elif kind == "txn":
            self.txn[body["appId"]] = body["version"]

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties that are the contract's."""
        return contract_properties(self.metadata)

    def differences(self, other: "State") -> list[str]:
        """Where two states of one version differ."""
        found = []
        if self.live is not None and set(self.live) != set(other.live or {}):
            paths = sorted({key[0] for key in set(self.live) ^ set(other.live or {})})
            found.append(f"live files: {', '.join(paths)}")
        if self.metadata is not None and self.properties != other.properties:
            found.append("properties")
        found += [f"txn {app}" for app, number in self.txn.items() if other.txn.get(app) != number]
        return found
