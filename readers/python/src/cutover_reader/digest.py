"""The product's digest of rows, computed from the definition in PROTOCOL.md, without the product's code.

`of(table)` gives it for a pyarrow Table. A 128-bit number stands in two uint64 arrays, low and high; numpy's uint64
arithmetic is modulo 2^64, as needed. `python digest.py` checks the known value of `src/digest_tests.rs`.
"""

import decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest, xxh3_128_intdigest

U64 = np.uint64
LOW32, SHIFT32 = U64(0xFFFF_FFFF), U64(32)
NAN_BITS = U64(0x7FF8_0000_0000_0000)


def of(table, hidden=None):
    """The digest of a table; `hidden` gives rows of some columns that count as null, by name."""
    low, high = np.zeros(len(table), U64), np.zeros(len(table), U64)
    for name, column in zip(table.column_names, table.columns):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # no chunk at all
            continue
        shown = [np.where((hidden or {}).get(name, False), U64(0), half) for half in cells(column)]
        low, high = add(low, high, *times(*shown, key_of(name)))
    data = to_bytes(low, high)
    total = sum(xxh3_128_intdigest(data[i : i + 16]) for i in range(0, len(data), 16))
    return f"{total % 2**128:032x}"


def key_of(name):
    return xxh3_128_intdigest(name.encode()) | 1


def add(low, high, more_low, more_high):
    total = low + more_low
    return total, high + more_high + (total < low).astype(U64)


def times(low, high, key):
    """(low, high) times a Python number, modulo 2^128."""
    key_low, key_high = U64(key % 2**64), U64(key >> 64)
    a, b = low & LOW32, low >> SHIFT32
    c, d = key_low & LOW32, key_low >> SHIFT32
    middle = b * c + ((a * c) >> SHIFT32)
    carry = a * d + (middle & LOW32)
    upper = b * d + (middle >> SHIFT32) + (carry >> SHIFT32)
    return low * key_low, upper + low * key_high + high * key_low


def to_bytes(low, high):
    return np.stack([low, high], axis=1).astype("<u8").tobytes()


def cells(array):
    """Each value's cell as (low, high); zero where it is null."""
    array = plain(array)
    kind = array.type
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_null(kind):
        tag, word = 0, np.zeros(len(array), U64)
    elif pa.types.is_boolean(kind):
        tag, word = 1, whole(array.cast(pa.int8()))
    elif pa.types.is_uint64(kind):
        tag, word = decimals(array)
    elif pa.types.is_integer(kind):
        tag, word = 2, whole(array)
    elif pa.types.is_decimal(kind):
        tag, word = decimals(array)
    elif pa.types.is_floating(kind):
        values = pc.fill_null(array.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
        tag, word = 4, np.where(np.isnan(values), NAN_BITS, values.view(U64))
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        tag, word = 5, by_distinct(array.cast(pa.large_string()), lambda text: xxh3_64_intdigest(text.encode()))
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        tag, word = 6, by_distinct(array.cast(pa.large_binary()), xxh3_64_intdigest)
    elif pa.types.is_date(kind):
        tag, word = 7, days(array).view(U64)
    elif pa.types.is_timestamp(kind):
        tag = 8 if kind.tz else 9
        word = micros(array).view(U64)
    elif hasattr(kind, "value_field") and not pa.types.is_map(kind):
        tag, word = 10, lists(array)
    elif pa.types.is_struct(kind):
        tag, word = 11, structs(array)
    elif pa.types.is_map(kind):
        tag, word = 12, maps(array)
    else:
        raise TypeError(f"a column of type {kind} has no digest")
    return np.where(valid, word, U64(0)), np.where(valid, tag, 0).astype(U64)


def whole(array):
    return pc.fill_null(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False).view(U64)


def plain(array):
    """The array without the encodings and views that pyarrow computes little with."""
    if isinstance(array, pa.ExtensionArray):
        return plain(array.storage)
    if pa.types.is_dictionary(array.type):
        return plain(array.dictionary_decode())
    if pa.types.is_run_end_encoded(array.type):
        return plain(pc.run_end_decode(array))
    if pa.types.is_string_view(array.type):
        return array.cast(pa.large_string())
    if pa.types.is_binary_view(array.type):
        return array.cast(pa.large_binary())
    return array


def days(array):
    """Days since 1970 as int64, 0 for null."""
    if pa.types.is_date64(array.type):
        return pc.fill_null(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False) // 86_400_000
    return whole(array.cast(pa.int32())).view(np.int64)


def micros(array):
    """Microseconds since 1970 as int64, 0 for null."""
    return whole(array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64())).view(np.int64)


def spans(array):
    """Where each value's elements stand in `elements(array)`; of a map, in its keys and items."""
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        starts = [(array.offset + i) * kind.list_size for i in range(len(array))]
        return [(a, a + kind.list_size) for a in starts]
    offsets = array.offsets.to_pylist()
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return [(a, a + n) for a, n in zip(offsets, array.sizes.to_pylist())]
    return list(zip(offsets, offsets[1:]))


def elements(array):
    return plain(array.values)


def by_distinct(array, hash_of):
    """The hash of each value, computed once per distinct one."""
    coded = array.dictionary_encode()
    hashes = np.array([hash_of(v) for v in coded.dictionary.to_pylist()] or [0], U64)
    return hashes[pc.fill_null(coded.indices, 0).to_numpy(zero_copy_only=False)]


def decimals(array):
    def cell(value):
        sign, digits, exponent = decimal.Decimal(value).as_tuple()
        number, scale = int("".join(map(str, digits))) * (-1 if sign else 1) * 10 ** max(exponent, 0), max(-exponent, 0)
        while scale > 0 and number % 10 == 0:
            number, scale = number // 10, scale - 1
        if scale == 0 and -(2**63) <= number < 2**63:
            return 2, number % 2**64
        return 3, xxh3_64_intdigest((number % 2**128).to_bytes(16, "little") + bytes([scale]))

    if not pa.types.is_decimal128(array.type):  # the others have no dictionary
        tags, words = zip(*[(0, 0) if v is None else cell(v) for v in array.to_pylist()] or [((), ())])
        return np.array(tags, U64), np.array(words, U64)
    coded = array.dictionary_encode()
    tags, words = zip(*[cell(v) for v in coded.dictionary.to_pylist()] or [(0, 0)])
    indices = pc.fill_null(coded.indices, 0).to_numpy(zero_copy_only=False)
    return np.array(tags, U64)[indices], np.array(words, U64)[indices]


def lists(array):
    inner = to_bytes(*cells(elements(array)))
    hash_of = lambda a, b: xxh3_64_intdigest((b - a).to_bytes(8, "little") + inner[16 * a : 16 * b])
    return np.array([hash_of(a, b) for a, b in spans(array)], U64)


def structs(array):
    low, high = np.zeros(len(array), U64), np.zeros(len(array), U64)
    for i, field in enumerate(array.type):
        low, high = add(low, high, *times(*cells(array.field(i)), key_of(field.name)))
    data = to_bytes(low, high)
    return np.array([xxh3_64_intdigest(data[i : i + 16]) for i in range(0, len(data), 16)], U64)


def maps(array):
    keys, values = to_bytes(*cells(array.keys)), to_bytes(*cells(array.items))
    entries = [xxh3_128_intdigest(keys[i : i + 16] + values[i : i + 16]) for i in range(0, len(keys), 16)]
    sums = (sum(entries[a:b]) % 2**128 for a, b in spans(array))
    return np.array([xxh3_64_intdigest(s.to_bytes(16, "little")) for s in sums], U64)


if __name__ == "__main__":
    known = of(pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["ä", ""]}))
    assert known == "b42bfe5b00ef7c7704afd342bbc2b309", known
    print("the known value is right")
