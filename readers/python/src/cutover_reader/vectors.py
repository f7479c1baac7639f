"""Deletion vectors: whether they are there, whole, and delete as many rows as the log says."""

import struct
import uuid
import zlib
from collections.abc import Callable

ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
DIGITS = {letter: value for value, letter in enumerate(ALPHABET)}
VERSION, MAGIC, ID_LETTERS = 1, 1_681_511_377, 20
WITHOUT_RUNS, WITH_RUNS = 12346, 12347
Read = Callable[[str, int, int], bytes | None]  # (path, start, length)


def fault(vector: dict, read: Read) -> str | None:
    """What is wrong with the vector of a file; None where nothing is. Raises the store's errors."""
    try:
        framed = bytes_of(vector, read)
        rows = cardinality(framed)
    except (ValueError, KeyError, struct.error) as e:
        return f"its deletion vector is damaged: {e}"
    return None if rows == vector["cardinality"] else f"its deletion vector has {rows} rows, the log says {vector['cardinality']}"


def bytes_of(vector: dict, read: Read) -> bytes:
    """A vector from its magic number on. Raises ValueError where it is not what the log says."""
    kind, place, size = vector["storageType"], vector["pathOrInlineDv"], vector["sizeInBytes"]
    if kind == "i":
        return z85(place)[:size]
    if kind != "u":
        raise ValueError("it lies outside of the table's folder")
    folder, name = place[:-ID_LETTERS], uuid.UUID(bytes=z85(place[-ID_LETTERS:]))
    path = f"{folder}/deletion_vector_{name}.bin" if folder else f"deletion_vector_{name}.bin"
    version, held = read(path, 0, 1), read(path, vector.get("offset") or 1, size + 8)
    if version is None or held is None:
        raise ValueError(f"the file {path} is gone")
    if version != bytes([VERSION]) or len(held) != size + 8:
        raise ValueError(f"the file {path} ends early, or has another format")
    length, checksum = struct.unpack(">I", held[:4])[0], struct.unpack(">I", held[-4:])[0]
    if length != size or checksum != zlib.crc32(held[4:-4]):
        raise ValueError(f"length or checksum in the file {path} do not hold")
    return held[4:-4]


def z85(text: str) -> bytes:
    found = bytearray()
    for at in range(0, len(text), 5):
        number = 0
        for letter in text[at : at + 5]:
            number = number * 85 + DIGITS[letter]
        found += struct.pack(">I", number)
    return bytes(found)


def cardinality(framed: bytes) -> int:
    """The rows of a vector, from the heads of its containers."""
    magic, bitmaps = struct.unpack_from("<IQ", framed)
    if magic != MAGIC or bitmaps > 1:
        raise ValueError("it has another format")
    if bitmaps == 0:
        return 0
    cookie, at = struct.unpack_from("<I", framed, 16)[0], 20
    if cookie & 0xFFFF == WITH_RUNS:
        count = (cookie >> 16) + 1
        at += (count + 7) // 8
    elif cookie == WITHOUT_RUNS:
        count, at = struct.unpack_from("<I", framed, at)[0], at + 4
    else:
        raise ValueError("it has another format")
    return sum(struct.unpack_from("<HH", framed, at + 4 * i)[1] + 1 for i in range(count))
