"""Kernels of hash functions. Spark's `hash` (Murmur3) and `xxhash64` start with a seed, which is the hash of the
arguments before; NULL leaves it unchanged."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.exec.kernels.hash_loops import FEWEST_ROWS, murmur, xxh
from headrace.exec.kernels.kernel import Kernel, per_row

U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
Values: TypeAlias = "pa.Array[Any]"

_C1, _C2, _M = np.uint32(0xCC9E2D51), np.uint32(0x1B873593), np.uint32(0xE6546B64)
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(p)
    for p in (
        0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
    )
)  # fmt: skip


def _bytes_of(column: Values) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The bytes of all rows, followed by some zeros, and where each row begins and how long it is."""
    wide = column.cast(pa.large_binary()) if pa.types.is_binary(column.type) else column.cast(pa.large_string())
    _, offsets, data = wide.buffers()
    assert offsets is not None
    bounds = np.frombuffer(memoryview(offsets), np.int64)[wide.offset : wide.offset + len(wide) + 1]
    raw = np.zeros(0, np.uint8) if data is None else np.frombuffer(memoryview(data), np.uint8)
    padded = np.concatenate((raw[: bounds[-1] if len(bounds) else 0], np.zeros(8, np.uint8)))
    lengths = np.diff(bounds)
    lengths[np.asarray(column.is_null())] = 0
    return padded, bounds[:-1], lengths


def _word(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], width: int) -> U64:
    """The little-endian words at the given places."""
    words: npt.NDArray[Any] = np.ndarray((len(data) - width + 1,), f"<u{width}", data, strides=(1,))
    return words[at].astype(np.uint64)


def _steps(lengths: npt.NDArray[np.int64], width: int) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """For each place that holds a whole word in some row: the place, and those rows."""
    order = np.argsort(-lengths, kind="stable")
    counts = lengths[order] // width
    for step in range(int(counts[0]) if len(counts) else 0):
        yield step * width, order[: int(np.searchsorted(-counts, -step, side="left"))]


def _keep(hashed: npt.NDArray[Any], column: Values, seed: npt.NDArray[Any], kind: pa.DataType) -> Values:
    return pa.array(np.where(np.asarray(column.is_null()), seed, hashed).view(kind.to_pandas_dtype()), kind)


# --- Murmur3 ------------------------------------------------------------------------------------


def _rotate32(value: U32, by: int) -> U32:
    return (value << np.uint32(by)) | (value >> np.uint32(32 - by))


def _mixed32(state: U32, word: U32) -> U32:
    state = state ^ (_rotate32(word * _C1, 15) * _C2)
    return _rotate32(state, 13) * np.uint32(5) + _M


def _final32(state: U32, length: Any) -> U32:
    state = state ^ np.asarray(length).astype(np.uint32)
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return state ^ (state >> np.uint32(16))


def _seed32(seed: Values) -> U32:
    found: U32 = seed.to_numpy(zero_copy_only=False).astype(np.int32).view(np.uint32)
    return found


def _murmur_int(column: Values, seed: Values) -> Values:
    state = _seed32(seed)
    words = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int32).view(np.uint32)
    return _keep(_final32(_mixed32(state, words), 4), column, state, pa.int32())


def _murmur_words(column: Values, words: U64, seed: Values) -> Values:
    state = _seed32(seed)
    low, high = words.astype(np.uint32), (words >> np.uint64(32)).astype(np.uint32)
    return _keep(_final32(_mixed32(_mixed32(state, low), high), 8), column, state, pa.int32())


def _murmur_long(column: Values, seed: Values) -> Values:
    return _murmur_words(column, _longs(column), seed)


def _murmur_double(column: Values, seed: Values) -> Values:
    return _murmur_words(column, _double_bits(column), seed)


def _murmur_float(column: Values, seed: Values) -> Values:
    state = _seed32(seed)
    return _keep(_final32(_mixed32(state, _float_bits(column)), 4), column, state, pa.int32())


def _murmur_bytes(column: Values, seed: Values) -> Values:
    """Spark mixes the last one to three bytes as if each were a word."""
    data, starts, lengths = _bytes_of(column)
    seeds = _seed32(seed)
    if len(column) >= FEWEST_ROWS:
        return _keep(murmur(data, starts, lengths, seeds), column, seeds, pa.int32())
    state = seeds.copy()
    for at, rows in _steps(lengths, 4):
        state[rows] = _mixed32(state[rows], _word(data, starts[rows] + at, 4).astype(np.uint32))
    whole = lengths // 4 * 4
    for i in range(3):
        rows = np.flatnonzero(lengths - whole > i)
        tail = data[starts[rows] + whole[rows] + i].view(np.int8).astype(np.int32).view(np.uint32)
        state[rows] = _mixed32(state[rows], tail)
    return _keep(_final32(state, lengths), column, seeds, pa.int32())


# --- XXH64 --------------------------------------------------------------------------------------


def _rotate64(value: U64, by: int) -> U64:
    return (value << np.uint64(by)) | (value >> np.uint64(64 - by))


def _final64(state: U64) -> U64:
    state = (state ^ (state >> np.uint64(33))) * _P2
    state = (state ^ (state >> np.uint64(29))) * _P3
    return state ^ (state >> np.uint64(32))


def _eight(state: U64, word: U64) -> U64:
    return _rotate64(state ^ (_rotate64(word * _P2, 31) * _P1), 27) * _P1 + _P4


def _four(state: U64, word: U64) -> U64:
    return _rotate64(state ^ (word * _P1), 23) * _P2 + _P3


def _seed64(seed: Values) -> U64:
    found: U64 = seed.to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
    return found


def _xxh_int(column: Values, seed: Values) -> Values:
    state = _seed64(seed)
    words = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int32).view(np.uint32).astype(np.uint64)
    return _keep(_final64(_four(state + _P5 + np.uint64(4), words)), column, state, pa.int64())


def _xxh_float(column: Values, seed: Values) -> Values:
    state = _seed64(seed)
    words = _float_bits(column).astype(np.uint64)
    return _keep(_final64(_four(state + _P5 + np.uint64(4), words)), column, state, pa.int64())


def _xxh_words(column: Values, words: U64, seed: Values) -> Values:
    state = _seed64(seed)
    return _keep(_final64(_eight(state + _P5 + np.uint64(8), words)), column, state, pa.int64())


def _xxh_long(column: Values, seed: Values) -> Values:
    return _xxh_words(column, _longs(column), seed)


def _xxh_double(column: Values, seed: Values) -> Values:
    return _xxh_words(column, _double_bits(column), seed)


def _xxh_bytes(column: Values, seed: Values) -> Values:
    data, starts, lengths = _bytes_of(column)
    seeds = _seed64(seed)
    if len(column) >= FEWEST_ROWS:
        return _keep(xxh(data, starts, lengths, seeds), column, seeds, pa.int64())
    state = seeds + _P5
    lanes = [seeds + _P1 + _P2, seeds + _P2, seeds.copy(), seeds - _P1]
    for at, rows in _steps(lengths, 32):
        for i, lane in enumerate(lanes):
            word = _word(data, starts[rows] + at + 8 * i, 8)
            lane[rows] = _rotate64(lane[rows] + word * _P2, 31) * _P1
    long = np.flatnonzero(lengths >= 32)
    if len(long):
        own = [lane[long] for lane in lanes]
        joined = _rotate64(own[0], 1) + _rotate64(own[1], 7) + _rotate64(own[2], 12) + _rotate64(own[3], 18)
        for lane in own:
            joined = (joined ^ (_rotate64(lane * _P2, 31) * _P1)) * _P1 + _P4
        state[long] = joined
    state = state + lengths.astype(np.uint64)
    done = lengths // 32 * 32
    for _ in range(3):
        rows = np.flatnonzero(lengths - done >= 8)
        state[rows] = _eight(state[rows], _word(data, starts[rows] + done[rows], 8))
        done[rows] += 8
    rows = np.flatnonzero(lengths - done >= 4)
    state[rows] = _four(state[rows], _word(data, starts[rows] + done[rows], 4))
    done[rows] += 4
    for _ in range(3):
        rows = np.flatnonzero(lengths > done)
        byte = data[starts[rows] + done[rows]].astype(np.uint64)
        state[rows] = _rotate64(state[rows] ^ (byte * _P5), 11) * _P1
        done[rows] += 1
    return _keep(_final64(state), column, seeds, pa.int64())


# --- bits of numbers ----------------------------------------------------------------------------


def _longs(column: Values) -> U64:
    found: U64 = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
    return found


def _double_bits(column: Values) -> U64:
    """Java's bits: one NaN, and no negative zero."""
    values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64) + 0.0
    bits: U64 = values.view(np.uint64)
    return np.where(np.isnan(values), np.uint64(0x7FF8000000000000), bits)


def _float_bits(column: Values) -> U32:
    values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float32) + np.float32(0)
    bits: U32 = values.view(np.uint32)
    return np.where(np.isnan(values), np.uint32(0x7FC00000), bits)


def _big_integer(column: Values) -> Values:
    """The bytes of whole numbers as Java's BigInteger has them: the fewest, in two's complement, high byte first."""
    data = column.buffers()[1]
    assert data is not None
    raw = np.frombuffer(memoryview(data), np.uint8)[16 * column.offset : 16 * (column.offset + len(column))]
    high_first = raw.reshape(-1, 16)[:, ::-1]
    sign = np.where(high_first[:, :1] >= 128, np.uint8(255), np.uint8(0))
    # A byte is not needed if it only repeats the sign, and so does the highest bit of the byte after it.
    spare = (high_first[:, :-1] == sign) & ((high_first[:, 1:] >= 128) == (sign == 255))
    skipped = np.cumprod(spare, axis=1).sum(axis=1)
    kept = np.arange(16) >= skipped[:, None]
    bounds = np.concatenate(([0], np.cumsum(16 - skipped))).astype(np.int32)
    buffers = [None, pa.py_buffer(bounds.tobytes()), pa.py_buffer(high_first[kept].tobytes())]
    found: Values = pc.if_else(column.is_valid(), pa.Array.from_buffers(pa.binary(), len(column), buffers), None)
    return found


def _sha2(column: Values, bits: Values) -> Values:
    width: Any = bits[0].as_py() if len(bits) else None
    digest: Callable[[bytes], Any] | None = {
        0: hashlib.sha256, 224: hashlib.sha224, 256: hashlib.sha256, 384: hashlib.sha384, 512: hashlib.sha512,
    }.get(width)  # fmt: skip
    if digest is None:
        return pa.nulls(len(column), pa.string())
    rows = column.cast(pa.binary()).to_pylist()
    return pa.array([None if row is None else digest(row).hexdigest() for row in rows], pa.string())


def _kernels() -> Iterator[Kernel]:
    murmur = {"int": _murmur_int, "long": _murmur_long, "float": _murmur_float, "double": _murmur_double}
    xxh = {"int": _xxh_int, "long": _xxh_long, "float": _xxh_float, "double": _xxh_double}
    kinds = {"int": "INTEGER", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE"}
    for name, kind in kinds.items():
        yield Kernel(f"hr_murmur_{name}", (kind, "INTEGER"), "INTEGER", murmur[name])
        yield Kernel(f"hr_xxh_{name}", (kind, "BIGINT"), "BIGINT", xxh[name])
    for name, kind in (("text", "VARCHAR"), ("bytes", "BLOB")):
        yield Kernel(f"hr_murmur_{name}", (kind, "INTEGER"), "INTEGER", _murmur_bytes)
        yield Kernel(f"hr_xxh_{name}", (kind, "BIGINT"), "BIGINT", _xxh_bytes)
    yield Kernel("hr_big_integer", ("DECIMAL(38,0)",), "BLOB", _big_integer)
    yield Kernel("hr_sha2", ("BLOB", "INTEGER"), "VARCHAR", _sha2, slow=True)
    yield Kernel("hr_crc32", ("BLOB",), "BIGINT", per_row(pa.int64(), zlib.crc32), slow=True)


KERNELS: tuple[Kernel, ...] = tuple(_kernels())
