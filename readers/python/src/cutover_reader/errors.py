"""What a caller does next differs by the class of an error."""


class CutoverError(Exception):
    """The root of this package's errors; an object store's own come as they are."""


class UnknownContract(CutoverError):
    """The table is not Cutover's, or of another contract than number 1: this package cannot read it."""


class ContinuityLost(CutoverError):
    """A gap, steps twice, drift or rows that do not add up. After a reset of the table, `changes` gives a reload."""


class BookmarkError(CutoverError):
    """The bookmark is damaged, of another table, or ahead of it: take the right one, or begin without."""


class Gone(CutoverError):
    """HTTP 410: what follows the client's place is gone or of another history. Begin anew without a place.

    `code` is the answer's `error_code`, `details` what it says beside.
    """

    def __init__(self, message: str, code: str, details: dict) -> None:
        super().__init__(message)
        self.code, self.details = code, details


class StreamFailed(CutoverError):
    """A stream ended with an error, was cut off, or lost a chunk. Go on from the last place, unless `code` forbids it."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code
