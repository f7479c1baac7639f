"""What changed in a table since a bookmark, proved before it is given. Layout `changelog`."""

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from . import digest
from .bookmark import Bookmark
from .errors import BookmarkError, ContinuityLost, CutoverError
from .log import Log
from .rows import read
from .stamp import MODULUS
from .verify import Check, Standing, standing

OPERATIONS = ("i", "u", "d")


@dataclass(frozen=True)
class Changes:
    """The rows that a target lacks, in the order of their steps, and the bookmark behind them.

    `reload`: empty the target first; `rows` are the whole generation. `changes`: apply them. `nothing`: there are none.
    Rows are `__generation`, `__step`, `__op` and the view's columns.
    """

    outcome: Literal["reload", "changes", "nothing"]
    rows: pa.Table
    bookmark: Bookmark
    after: int | None
    key: tuple[str, ...]


def changes(
    uri: str, bookmark: Bookmark | None = None, storage_options: dict[str, str] | None = None, *, reload: bool = False
) -> Changes:
    """The rows of the newest version that the bookmark does not have.

    Raises ContinuityLost where a commit is missing, doubled or broken, or where rows do not add up to `digest_total`;
    BookmarkError for a bookmark of another table or connector, or ahead of the table; UnknownContract for a table of
    another contract; CutoverError for layout `current`, which keeps no changes. In each case keep the bookmark as it was.
    """
    check = Check(uri, Log.open(uri, storage_options))
    check.run()
    check.head()
    report = check.conclude()
    head = standing(check.require_head(), check.state)
    if head.layout != "changelog":
        raise CutoverError("layout current keeps no changes: compare two versions by current()")
    if report.verdict == "broken":
        raise ContinuityLost("; ".join(f"{f.rule}, version {f.version}: {f.message}" for f in report.findings))
    begins = reload or bookmark is None
    if not begins:
        belongs(bookmark, head, check)
        begins = bookmark.generation < head.generation
    after = None if begins else bookmark.step
    rows = read(uri, head.version, storage_options, "true" if begins else f"__step > {after}").sort_by("__step")
    given = (int(digest.of(rows), 16) + (0 if begins else int(bookmark.digest, 16))) % MODULUS
    proved(check, head, rows, given)
    outcome = "reload" if begins else "changes" if head.last_step > bookmark.step else "nothing"
    mark = Bookmark(head.table, head.connector, head.source, head.generation, head.commit, head.last_step,
                    head.version, f"{given:032x}")
    return Changes(outcome, rows, mark, after, head.key)


def belongs(bookmark: Bookmark, head: Standing, check: Check) -> None:
    """Raises BookmarkError unless the bookmark is one of this table's past."""
    if bookmark.table != head.table:
        raise BookmarkError(f"the bookmark is of the table {bookmark.table}, this is {head.table}")
    adopted = {stamp["adopt"]["from"] for _, stamp in check.stamps if "adopt" in stamp}
    if bookmark.connector != head.connector and bookmark.connector not in adopted:
        raise BookmarkError(f"the bookmark is of the connector {bookmark.connector}, the table of {head.connector}")
    ahead = (bookmark.generation, bookmark.step) > (head.generation, head.last_step) or bookmark.version > head.version
    if ahead:
        raise BookmarkError(f"the table was taken back: it is at step {head.last_step} of generation {head.generation}, "
                            f"version {head.version}; the bookmark is at step {bookmark.step} of {bookmark.generation}")
    if bookmark.generation < head.generation:
        return
    if bookmark.reload != head.commit:
        raise BookmarkError(f"generation {head.generation} began with {head.commit}, the bookmark's with {bookmark.reload}")
    if bookmark.source != head.source or bookmark.step < head.cutover:
        raise BookmarkError(f"the bookmark is of the source {bookmark.source} at step {bookmark.step}, the generation of "
                            f"{head.source} from step {head.cutover} on")


def proved(check: Check, head: Standing, rows: pa.Table, given: int) -> None:
    """Raises ContinuityLost unless all rows up to the head add up to the newest commit's total."""
    total = check.stamps[-1][1].get("digest_total") if check.stamps else None
    if total is None:
        raise ContinuityLost("no commit is left whose digest_total proves the rows")
    if given != int(total, 16):
        raise ContinuityLost(f"the rows' digest is {given:032x}, the newest commit's digest_total {total}")
    strangers = pc.any(pc.not_equal(rows["__generation"], head.generation)).as_py()
    if strangers or not set(pc.unique(rows["__op"]).to_pylist()) <= set(OPERATIONS):
        raise ContinuityLost("rows of another generation or operation are live")
