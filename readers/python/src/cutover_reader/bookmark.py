"""How far a reader of a table has come: the file that `cutover changes` keeps, member by member."""

import json
import os
import pathlib
from dataclasses import asdict, dataclass

from .errors import BookmarkError

SCHEMA = "cutover.bookmark/1"


@dataclass(frozen=True)
class Bookmark:
    """Every row of `generation` up to `step` was given, and `digest` is theirs."""

    table: str
    connector: str
    source: str
    generation: int
    reload: str
    step: int
    version: int
    digest: str

    def to_json(self) -> str:
        return json.dumps({"schema": SCHEMA} | asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "Bookmark":
        """Raises BookmarkError for what is no bookmark of this form."""
        try:
            members = json.loads(text)
            if members.pop("schema") != SCHEMA:
                raise ValueError("another schema")
            mark = cls(**members)
            int(mark.digest, 16)
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise BookmarkError(f"the bookmark is damaged: {e}") from e
        if not all(isinstance(n, int) for n in (mark.generation, mark.step, mark.version)) or len(mark.digest) != 32:
            raise BookmarkError("the bookmark is damaged: a number or the digest has another form")
        return mark

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Bookmark | None":
        """The bookmark in a file; None where there is no file. Raises BookmarkError for a damaged one."""
        try:
            return cls.from_json(pathlib.Path(path).read_text())
        except FileNotFoundError:
            return None

    def save(self, path: str | os.PathLike) -> None:
        """Puts it in the file's place, whole or not at all."""
        beside = pathlib.Path(f"{os.fspath(path)}.tmp")
        with open(beside, "w") as file:
            file.write(self.to_json() + "\n")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
