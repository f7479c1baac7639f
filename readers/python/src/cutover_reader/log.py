"""A table's log as it lies in its store: entries, checkpoints and the names of both.

Nothing here asks deltalake to load the table, which it would refuse for some of the damage that a reader has to name.
"""

import json
import re
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow.fs as fs
import pyarrow.parquet as pq
from deltalake.fs import DeltaStorageHandler

ENTRY = re.compile(r"(\d{20})\.json")
CLASSIC = re.compile(r"(\d{20})\.checkpoint\.parquet")
PARTS = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")
OTHER_FORM = re.compile(r"(\d{20})\.checkpoint\.[0-9a-f-]{36}\.(json|parquet)")
Actions = list[tuple[str, dict]]


class Damaged(Exception):
    """An entry or a checkpoint does not read."""


@dataclass
class Log:
    """What a table's log holds."""

    store: fs.FileSystem
    versions: list[int] = field(default_factory=list)
    checkpoints: dict[int, list[str]] = field(default_factory=dict)
    unread: set[int] = field(default_factory=set)  # checkpoints of forms that are not read here

    @classmethod
    def open(cls, uri: str, storage_options: dict[str, str] | None = None) -> "Log":
        """Lists the log. Errors of the store come as they are; without a log there are no versions."""
        log = cls(fs.PyFileSystem(DeltaStorageHandler(uri, storage_options)))
        parts: dict[tuple[int, int], list[str]] = {}
        for info in log.store.get_file_info(fs.FileSelector("_delta_log", allow_not_found=True)):
            name = info.path.rpartition("/")[2]
            if found := ENTRY.fullmatch(name):
                log.versions.append(int(found[1]))
            elif found := CLASSIC.fullmatch(name):
                log.checkpoints[int(found[1])] = [info.path]
            elif found := PARTS.fullmatch(name):
                parts.setdefault((int(found[1]), int(found[3])), []).append(info.path)
            elif found := OTHER_FORM.fullmatch(name):
                log.unread.add(int(found[1]))
        for (version, count), paths in parts.items():
            if len(paths) == count:
                log.checkpoints.setdefault(version, sorted(paths))
        log.versions.sort()
        return log

    def entry(self, version: int) -> Actions:
        """The actions of a version in their order. Raises Damaged where it does not read."""
        try:
            with self.store.open_input_stream(f"_delta_log/{version:020}.json") as stream:
                text = stream.read().decode()
            lines = [json.loads(line) for line in text.split("\n") if line.strip()]
            if not all(isinstance(line, dict) for line in lines):
                raise ValueError("a line is no object")
        except (ValueError, OSError) as e:
            raise Damaged(f"the log entry of version {version} does not read: {e}") from e
        actions = [action for line in lines for action in line.items()]
        if not actions:
            raise Damaged(f"the log entry of version {version} is empty")
        return actions

    def checkpoint(self, version: int) -> Iterator[tuple[str, dict]]:
        """The actions of a checkpoint in the classic form. Raises Damaged where it does not read."""
        try:
            for path in self.checkpoints[version]:
                with self.store.open_input_file(path) as file:
                    for row in pq.read_table(file).to_pylist():
                        yield from ((kind, body) for kind, body in row.items() if body is not None)
        except (OSError, ValueError) as e:
            raise Damaged(f"the checkpoint of version {version} does not read: {e}") from e

    def hint(self) -> str | None:
        """What is wrong with `_last_checkpoint`, if there is one."""
        try:
            with self.store.open_input_stream("_delta_log/_last_checkpoint") as stream:
                version = json.loads(stream.read())["version"]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as e:
            return f"_last_checkpoint does not read: {e!r}"
        if version in self.checkpoints or version in self.unread:
            return None
        return f"_last_checkpoint names the checkpoint of version {version}, which is not there"

    def read(self, path: str, start: int, length: int) -> bytes | None:
        """A part of a file of the table; None where it does not exist."""
        try:
            with self.store.open_input_file(path) as file:
                file.seek(start)
                return file.read(length)
        except FileNotFoundError:
            return None

    def sizes(self, paths: list[str]) -> list[int | None]:
        """The size of each file as a path of the log names it; None where it does not exist."""
        infos = self.store.get_file_info([urllib.parse.unquote(path) for path in paths])
        return [info.size if info.type == fs.FileType.File else None for info in infos]
