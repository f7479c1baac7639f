"""Readers of the tables that Cutover writes, by the contract of PROTOCOL.md and without the program.

`verify` judges a table, `cutover` says where it stands, `current` gives the view's rows, `changes` those since a bookmark,
and `subscribe` follows a view over HTTP. Each of the first four takes `storage_options` as deltalake does.
"""

from .bookmark import Bookmark
from .changes import Changes, changes
from .current import current, to_pandas, to_polars
from .errors import BookmarkError, ContinuityLost, CutoverError, Gone, StreamFailed, UnknownContract
from .report import Finding, Report
from .subscribe import Chunk, Place, subscribe
from .verify import cutover, verify

__all__ = [
    "Bookmark", "BookmarkError", "Changes", "Chunk", "ContinuityLost", "CutoverError", "Finding", "Gone", "Place",
    "Report", "StreamFailed", "UnknownContract", "changes", "current", "cutover", "subscribe", "to_pandas", "to_polars",
    "verify",
]
