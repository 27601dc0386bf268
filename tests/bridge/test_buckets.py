"""The bucket of a key is a promise to stored state: these numbers never change."""

from __future__ import annotations

import datetime as dt
import struct
from collections import Counter
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from headrace.bridge.buckets import buckets, hashes

NAN, INF = float("nan"), float("inf")
PLACE = pa.struct([("x", pa.float64()), ("y", pa.string())])
NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 1)

VECTORS: list[tuple[Any, pa.DataType, int]] = [
    (None, pa.int64(), 0x6E789E6AA1B965F4),
    (None, pa.string(), 0x6E789E6AA1B965F4),
    (None, pa.float64(), 0x6E789E6AA1B965F4),
    (None, pa.decimal128(10, 2), 0x6E789E6AA1B965F4),
    (None, pa.list_(pa.int32()), 0x6E789E6AA1B965F4),
    (None, pa.null(), 0x6E789E6AA1B965F4),
    (True, pa.bool_(), 0x5E41AB087439611E),
    (False, pa.bool_(), 0xA706DD2F4D197E6F),
    (0, pa.int8(), 0xA706DD2F4D197E6F),
    (-1, pa.int8(), 0x5DC20AA7B2A27137),
    (-1, pa.int16(), 0x5DC20AA7B2A27137),
    (-1, pa.int64(), 0x5DC20AA7B2A27137),
    (7, pa.int32(), 0xB8B4C2977EABCE45),
    (2**63 - 1, pa.int64(), 0x69C9D98A86C5CD1E),
    (-(2**63), pa.int64(), 0x86DB92E833B0C1A0),
    (0.0, pa.float64(), 0xA706DD2F4D197E6F),
    (-0.0, pa.float64(), 0xA706DD2F4D197E6F),
    (-0.0, pa.float32(), 0xA706DD2F4D197E6F),
    (1.5, pa.float64(), 0x6A09D17EBA9BF03E),
    (1.5, pa.float32(), 0x6A09D17EBA9BF03E),
    (NAN, pa.float64(), 0x5366251C28A3E1FF),
    (-NAN, pa.float64(), 0x5366251C28A3E1FF),
    (NAN, pa.float32(), 0x5366251C28A3E1FF),
    (INF, pa.float64(), 0x1C980BBC4B761541),
    ("", pa.string(), 0xE8780CFCD2ADA444),
    ("a", pa.string(), 0x37E2CAD4E004F963),
    ("Zürich 東京 🙂", pa.string(), 0x47B551C922D6CC65),
    (b"\x00\xff", pa.binary(), 0x18E12F3D52C27EBF),
    (Decimal("1.10"), pa.decimal128(10, 2), 0x9E8F80B3715798D9),
    (Decimal("1.1"), pa.decimal128(10, 1), 0x9E8F80B3715798D9),
    (Decimal("1.1000000"), pa.decimal128(38, 7), 0x9E8F80B3715798D9),
    (Decimal("-0.5"), pa.decimal128(38, 6), 0x26CF626C7D08FBD4),
    (Decimal("100"), pa.decimal128(5, 0), 0xDD69A1438BA7066F),
    (Decimal("100.00"), pa.decimal128(5, 2), 0xDD69A1438BA7066F),
    (Decimal("0"), pa.decimal128(10, 2), 0x767CA7CCA141510B),
    (dt.date(1969, 12, 31), pa.date32(), 0x5DC20AA7B2A27137),
    (dt.date(2024, 2, 29), pa.date32(), 0x2E81740D537ED9FE),
    (NOON, pa.timestamp("us"), 0x37937CB7647A2DD0),
    (NOON.replace(tzinfo=dt.UTC), pa.timestamp("us", "UTC"), 0x37937CB7647A2DD0),
    ({"x": 0.0, "y": "é"}, PLACE, 0x4E988729CE1CEB69),
    ({"x": -0.0, "y": "é"}, PLACE, 0x4E988729CE1CEB69),
    ([1, None, 3], pa.list_(pa.int32()), 0x42F53A5A8AA66506),
    ([Decimal("1.50")], pa.list_(pa.decimal128(5, 2)), 0x1FFE1F5D49C24EBD),
]


def one_hash(value: Any, kind: pa.DataType) -> int:
    return int(hashes([pa.chunked_array([pa.array([value], kind)])], 1)[0])


@pytest.mark.parametrize(("value", "kind", "expected"), VECTORS, ids=lambda v: str(v))
def test_the_hash_of_a_key_never_changes(value: Any, kind: pa.DataType, expected: int) -> None:
    assert one_hash(value, kind) == expected


def test_several_keys_are_combined_from_left_to_right() -> None:
    words = pa.chunked_array([pa.array(["a", None])])
    numbers = pa.chunked_array([pa.array([None, 7], pa.int32())])
    assert hashes([words, numbers], 2).tolist() == [0x94C7F0A399C95D15, 0x43CB4214F7899227]
    assert hashes([numbers, words], 2).tolist() != hashes([words, numbers], 2).tolist()


def test_the_bucket_is_the_hash_modulo_the_count() -> None:
    keys = [pa.chunked_array([pa.array([-1, 0, 7, None], pa.int64())])]
    assert buckets(keys, 4, 8).tolist() == [7, 7, 5, 4]
    assert buckets(keys, 4, 3).tolist() == [
        0x5DC20AA7B2A27137 % 3,
        0xA706DD2F4D197E6F % 3,
        0xB8B4C2977EABCE45 % 3,
        0x6E789E6AA1B965F4 % 3,
    ]


def test_one_bucket_or_no_keys_need_no_hash() -> None:
    keys = [pa.chunked_array([pa.array(["a", "b"])])]
    assert buckets(keys, 2, 1).tolist() == [0, 0]
    assert buckets([], 1, 8).tolist() == [0]


_MASK = 2**64 - 1


def _mix(value: int) -> int:
    """splitmix64's finaliser as its author wrote it, in whole numbers."""
    z = (value + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def _written_again(value: Any) -> int:
    """The documented hash of one value, without numpy or Arrow."""
    if value is None:
        return 0x9E3779B97F4A7C15
    if isinstance(value, float):
        bits = 0x7FF8000000000000 if value != value else struct.unpack("<Q", struct.pack("<d", value + 0.0))[0]
        return _mix(bits)
    if isinstance(value, int):
        return _mix(value & _MASK)
    return int(xxhash.xxh64_intdigest(value.encode() if isinstance(value, str) else value))


_COLUMNS = st.one_of(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)).map(lambda v: pa.array(v, pa.int64())),
    st.lists(st.none() | st.floats()).map(lambda v: pa.array(v, pa.float64())),
    st.lists(st.none() | st.text(max_size=5)).map(lambda v: pa.array(v, pa.string())),
    st.lists(st.none() | st.binary(max_size=5)).map(lambda v: pa.array(v, pa.binary())),
)


@given(_COLUMNS)
def test_the_documented_hash_is_the_one_that_is_computed(column: pa.Array[Any]) -> None:
    expected = [_mix(_written_again(v)) for v in column.to_pylist()]
    assert hashes([pa.chunked_array([column])], len(column)).tolist() == expected


@given(_COLUMNS, st.data())
def test_the_hash_does_not_depend_on_how_a_column_is_chunked(column: pa.Array[Any], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(column)), max_size=4)))
    edges = [0, *cuts, len(column)]
    pieces = [column.slice(a, b - a) for a, b in pairwise(edges)]
    whole = hashes([pa.chunked_array([column])], len(column))
    assert hashes([pa.chunked_array(pieces, column.type)], len(column)).tolist() == whole.tolist()
    assert [int(hashes([pa.chunked_array([p])], 1)[0]) for p in (column.slice(i, 1) for i in range(len(column)))] == (
        whole.tolist()
    )


@pytest.mark.parametrize(
    "column",
    [
        pa.array(range(20_000), pa.int64()),
        pa.array(np.arange(20_000) * 1_000_000, pa.int64()),
        pa.array([f"device-{i}" for i in range(20_000)]),
        pa.array(np.arange(20_000) / 4),
    ],
    ids=["small integers", "round integers", "names", "doubles"],
)
@pytest.mark.parametrize("count", [2, 7, 16])
def test_regular_keys_spread_over_all_buckets(column: pa.Array[Any], count: int) -> None:
    held = Counter(buckets([pa.chunked_array([column])], len(column), count).tolist())
    share = len(column) / count
    assert len(held) == count
    assert max(held.values()) < 1.15 * share
    assert min(held.values()) > 0.85 * share
