"""A client of the HTTP egress (REST.md, Pulling a view) that resumes exactly where it was."""

import decimal
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from .errors import CutoverError, Gone, StreamFailed

# A stream says something at least every three seconds.
SILENCE = 30.0


@dataclass(frozen=True)
class Place:
    """What a client has: all up to `after_step` of `generation`. Keep it with the rows, in one transaction."""

    generation: int
    after_step: int
    after_strand: str | None
    after_sequence: int


@dataclass(frozen=True)
class Chunk:
    """A part of the stream. `place` is there in a chunk that counts: who applied it has the view up to there.

    `changes` are pairs of an operation (`insert`, `update`, `delete`) and the row, or the key of a delete. With the mark
    `begin`, everything that was taken before is void.
    """

    generation: int
    step: int
    snapshot: bool
    mark: str | None
    changes: list[tuple[str, dict]] = field(default_factory=list)
    place: Place | None = None


def subscribe(
    url: str, place: Place | None = None, *, token: str | None = None, retries: int = 5, connector: str | None = None
) -> Iterator[Chunk]:
    """Follows a view: its rows at one step, then each later change, or what comes behind `place`.

    `url` is `http://HOST/v1/pipelines/P/egress/VIEW`. A stream that is cut off is taken up again behind the last chunk that
    counted, up to `retries` times in a row without such a chunk; what was given since then is given again. Ends when the
    server closes the stream as complete, stopped or paused. Numbers with a fraction come as decimal.Decimal.

    Raises Gone at 410 (begin anew without a place), StreamFailed where the stream fails or the retries are spent, and
    CutoverError for a call that the server refuses.
    """
    left = retries
    while True:
        try:
            for chunk in stream(url, place, token, connector):
                if chunk.place is not None:
                    place, left = chunk.place, retries
                yield chunk
            return
        except StreamFailed as e:
            if left == 0 or e.code not in ("cut_off", "slow_client", "unavailable"):
                raise
            left -= 1
            time.sleep(min(2.0 ** (retries - left - 1) / 4, 10.0))


def stream(url: str, place: Place | None, token: str | None, connector: str | None) -> Iterator[Chunk]:
    """One connection's chunks."""
    query = {"format": "ndjson"} | ({"connector": connector} if connector else {})
    if place is not None:
        query |= {name: value for name, value in asdict(place).items() if value is not None}
    request = urllib.request.Request(f"{url}?{urllib.parse.urlencode(query)}", method="POST")
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    expected = None if place is None else place.after_sequence + 1
    try:
        with urllib.request.urlopen(request, timeout=SILENCE) as answer:
            for line in answer:
                if not line.endswith(b"\n"):
                    break
                said = json.loads(line, parse_float=decimal.Decimal)
                if "error_code" in said:
                    raise StreamFailed(said["message"], said["error_code"])
                number = said["sequence_number"]
                if expected is not None and number != expected:
                    raise StreamFailed(f"chunk {expected} is missing, {number} came", "cut_off")
                expected = number + 1
                yield chunk_of(said)
                if said.get("mark") == "close":
                    return
    except urllib.error.HTTPError as e:
        raise refusal(e) from e
    except (OSError, ValueError, http.client.HTTPException) as e:
        raise StreamFailed(f"the stream was cut off: {e}", "cut_off") from e
    raise StreamFailed("the stream was cut off", "cut_off")


def chunk_of(said: dict) -> Chunk:
    changes = [next(iter(change.items())) for change in said.get("json_data", [])]
    counts = not said.get("partial") and said.get("mark") != "close"
    place = Place(said["generation"], said["to"], said.get("strand"), said["sequence_number"]) if counts else None
    return Chunk(said["generation"], said["to"], said.get("snapshot", False), said.get("mark"), changes, place)


def refusal(answer: urllib.error.HTTPError) -> CutoverError:
    try:
        said = json.loads(answer.read())
    except ValueError:
        said = {}
    code, message = said.get("error_code", "unknown"), said.get("message") or said.get("detail") or str(answer)
    if answer.code == 410:
        return Gone(message, code, said.get("details", {}))
    if answer.code in (429, 503):
        return StreamFailed(message, "unavailable")
    return CutoverError(f"{answer.code} {code}: {message}")
