"""The bucket of a group: a 64-bit hash over a canonical encoding of its keys, the same on every machine.

    value             canonical encoding                                   hash
    NULL              -                                                    the constant NULL_HASH
    BOOLEAN, integers, DATE, TIMESTAMP*   the value as a signed 64-bit integer   mix64
    FLOAT, DOUBLE     as DOUBLE; -0.0 becomes 0.0, every NaN the one quiet NaN; its 64 bits   mix64
    STRING, BINARY    the bytes                                            xxh64, seed 0
    DECIMAL           its text without trailing zeros of the fraction      xxh64, seed 0
    nested            compact ASCII JSON, members in order, -0.0 as 0.0       xxh64, seed 0

The hashes h1..hn of the keys are combined from left to right, starting at 0: h = mix64(h XOR hi). The bucket is h
modulo the number of buckets of the instance, which never changes. The window is not part of the hash. Test vectors are
in tests/bridge/test_buckets.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

Hashes = npt.NDArray[np.uint64]

NULL_HASH = np.uint64(0x9E3779B97F4A7C15)
_QUIET_NAN = np.uint64(0x7FF8000000000000)


def mix64(values: Hashes) -> Hashes:
    """The finaliser of splitmix64, on each value."""
    z = values + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def buckets(keys: Sequence[pa.ChunkedArray[Any]], rows: int, count: int) -> npt.NDArray[np.int32]:
    """The bucket of each of `rows` groups, given its key columns."""
    if count == 1 or not keys:
        return np.zeros(rows, dtype=np.int32)
    return (hashes(keys, rows) % np.uint64(count)).astype(np.int32)


def hashes(keys: Sequence[pa.ChunkedArray[Any]], rows: int) -> Hashes:
    """The combined 64-bit hash of each row's keys."""
    combined = np.zeros(rows, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in keys:
            combined = mix64(combined ^ column_hashes(column.combine_chunks()))
    return combined


def column_hashes(column: pa.Array[Any]) -> Hashes:
    """The hash of each value of one key."""
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), NULL_HASH)
    if pa.types.is_floating(kind):
        bits = _float_bits(column)
    elif pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        bits = _integer_bits(column)
    else:
        return _by_value(column)
    hashed = mix64(bits)
    if column.null_count:
        hashed[column.is_null().to_numpy(zero_copy_only=False)] = NULL_HASH
    return hashed


def _float_bits(column: pa.Array[Any]) -> Hashes:
    values = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
    bits = values.view(np.uint64).copy()
    bits[np.isnan(values)] = _QUIET_NAN
    return bits


def _integer_bits(column: pa.Array[Any]) -> Hashes:
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    integers = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return integers.astype(np.int64).view(np.uint64).copy()


def _by_value(column: pa.Array[Any]) -> Hashes:
    """Hash each distinct value once, because group keys repeat across windows."""
    nested = pa.types.is_nested(column.type)
    if nested:
        column = pa.array([None if v is None else _json(v) for v in column.to_pylist()], pa.string())
    encoded: Any = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
    values = encoded.dictionary
    plain = pa.types.is_string(values.type) or pa.types.is_binary(values.type)
    distinct = values.cast(pa.binary()).to_pylist() if plain else [_bytes(v) for v in values.to_pylist()]
    table = np.fromiter(map(xxhash.xxh64_intdigest, distinct or [b""]), np.uint64)
    indices = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    hashed: Hashes = table[indices]
    if column.null_count:
        hashed[column.is_null().to_numpy(zero_copy_only=False)] = NULL_HASH
    return hashed


def _json(value: object) -> str:
    return json.dumps(_normal(value), separators=(",", ":"), default=_text)


def _normal(value: object) -> object:
    """A nested value with 0.0 for every -0.0. NaNs need nothing: json writes all of them the same way."""
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, dict):
        return {k: _normal(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_normal(v) for v in value]
    return value


def _text(value: object) -> str:
    return _bytes(value).decode() if isinstance(value, Decimal) else str(value)


def _bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    text = format(value, "f")  # Decimal
    return (text.rstrip("0").rstrip(".") if "." in text else text).encode()
