"""Tables of partials as bytes: every type, any division into blobs, and bytes that are no blob."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.bridge import rows
from headrace.bridge.kernels import blobs as k
from headrace.bridge.rows import MAX_PAYLOAD, decode_counted, decode_rows, encode_rows, encode_runs, payloads
from headrace.errors import InternalError

_TIMES = st.integers(-(10**15), 10**15)
Kinds = tuple[tuple[pa.DataType, st.SearchStrategy[Any]], ...]
VALUES: Kinds = (
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.float32(), st.floats(allow_nan=False, width=32)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(max_size=12)),
    (pa.binary(), st.binary(max_size=12)),
    (pa.date32(), st.dates(date(1, 1, 1), date(9999, 12, 31))),
    (pa.timestamp("us"), _TIMES),
    (pa.timestamp("us", "UTC"), _TIMES),
    (pa.decimal128(38, 4), st.decimals(-(10**20), 10**20, places=4, allow_nan=False)),
)
NESTED: tuple[tuple[pa.DataType, st.SearchStrategy[Any]], ...] = (
    (pa.list_(pa.int64()), st.lists(st.integers(0, 9), max_size=3)),
)


@st.composite
def tables(draw: st.DrawFn, kinds: Kinds = VALUES) -> pa.Table:
    """A table of any columns, with NULLs in some, in several chunks, each perhaps a slice of a longer one."""
    columns = draw(st.lists(st.tuples(st.sampled_from(kinds), st.booleans()), min_size=1, max_size=5))
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        count, before = draw(st.integers(0, 12)), draw(st.integers(0, 3))
        arrays = []
        for (kind, values), nullable in columns:
            each = st.none() | values if nullable else values
            size = count + before
            arrays.append(pa.array(draw(st.lists(each, min_size=size, max_size=size)), kind).slice(before))
        parts.append(pa.table({f"c{i}": a for i, a in enumerate(arrays)}))
    return pa.concat_tables(parts)


def cut(table: pa.Table, cuts: Sequence[int]) -> list[pa.Table]:
    return [table.slice(a, b - a) for a, b in pairwise(cuts)]


@given(tables(VALUES + NESTED), st.data())
def test_rows_come_back_from_any_number_of_blobs(table: pa.Table, data: st.DataObject) -> None:
    inner = data.draw(st.lists(st.integers(0, table.num_rows), max_size=6))
    cuts = [0, *sorted(inner), table.num_rows]
    for blobs in ([encode_rows(part) for part in cut(table, cuts)], encode_runs(table, np.array(cuts))):
        found, counts = decode_counted(blobs, table.schema)
        found.validate(full=True)
        assert found.schema == table.schema
        assert found.to_pylist() == table.to_pylist()
        assert counts.tolist() == np.diff(cuts).tolist()


@given(tables())
def test_large_blobs_are_read_in_place_with_the_same_result(table: pa.Table) -> None:
    blobs = [encode_rows(table), encode_rows(table.slice(1))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "LARGE", 0)
        assert decode_rows(blobs, table.schema).to_pylist() == [*table.to_pylist(), *table.slice(1).to_pylist()]


@given(tables(), st.data())
def test_bytes_that_are_no_blob_of_the_schema_are_refused(table: pa.Table, data: st.DataObject) -> None:
    blob = encode_rows(table)
    changed = bytearray(blob)
    changed[data.draw(st.integers(0, 15))] ^= data.draw(st.integers(1, 255))  # magic, rows or layout
    for wrong in (blob[:-1], blob + bytes(8), blob[:12], b"", bytes(changed)):
        with pytest.raises(InternalError):
            decode_rows([blob, wrong], table.schema)


def test_rows_of_another_schema_are_refused() -> None:
    table = pa.table({"k0": ["a"], "p0": [1]})
    with pytest.raises(InternalError, match="k0, p0"):
        decode_rows([encode_rows(table)], pa.table({"k0": ["a"], "p0": [1.0]}).schema)
    nested = pa.table({"k0": [["a"]]})
    with pytest.raises(InternalError, match="k1"):
        decode_rows([encode_rows(nested)], nested.rename_columns(["k1"]).schema)


def test_strings_with_wrong_lengths_are_refused() -> None:
    blob = bytearray(encode_rows(pa.table({"k0": ["abc", "d"]})))
    at = blob.index(struct.pack("<ii", 3, 1))
    for lengths in ((3, 9), (1 << 20, 4 - (1 << 20)), (-1, 5)):
        blob[at : at + 8] = struct.pack("<ii", *lengths)
        with pytest.raises(InternalError, match="k0"):
            decode_rows([bytes(blob)], pa.schema([("k0", pa.string())]))


def test_runs_end_where_the_table_does() -> None:
    with pytest.raises(InternalError, match=r"\b3\b.*\b2\b"):
        encode_runs(pa.table({"k0": ["abc", "d"]}), np.array([0, 3]))


def test_only_bytes_are_read() -> None:
    table = pa.table({"p0": [1]})
    blobs: list[Any] = [bytearray(encode_rows(table))]
    with pytest.raises(InternalError):
        decode_rows(blobs, table.schema)


def test_the_same_rows_are_the_same_bytes() -> None:
    """A re-run of an epoch writes the same state again."""
    table = pa.table({"k0": ["a", None, "bc"], "p0": [True, None, False], "p1": [Decimal("1.5"), None, None]})
    table = table.append_column("t", pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * 3))
    assert encode_rows(table) == encode_rows(pa.concat_tables([table.slice(0, 1), table.slice(1)]))
    assert encode_runs(table, np.array([0, 3])) == [encode_rows(table)]


def test_no_blobs_are_an_empty_table() -> None:
    schema = pa.schema([("k0", pa.string())])
    assert decode_rows([], schema).equals(schema.empty_table())


@pytest.mark.parametrize("rows", [1, 2, 3, 65_536, 1_048_577, 1_100_000])
def test_no_payload_is_larger_than_the_limit(rows: int) -> None:
    table = pa.table({"p0": pa.array(range(rows), pa.int64())})
    parts = list(payloads(table))
    assert max(map(len, parts)) <= MAX_PAYLOAD
    assert decode_rows(parts, table.schema).equals(table)
    assert len(parts) == 1 or sum(map(len, parts)) > MAX_PAYLOAD


def test_rows_that_only_just_fit_are_cut_when_their_encoding_does_not() -> None:
    table = pa.table({"p0": pa.array(range(MAX_PAYLOAD // 8), pa.int64())})
    assert table.nbytes == MAX_PAYLOAD
    parts = list(payloads(table))
    assert len(parts) == 2
    assert decode_rows(parts, table.schema).equals(table)


def test_a_single_larger_row_has_its_own_payload() -> None:
    huge = "x" * (MAX_PAYLOAD + 1)
    table = pa.table({"k0": ["a", huge, "b", "c"]})
    parts = [decode_rows([p], table.schema).column("k0").to_pylist() for p in payloads(table)]
    assert [v for part in parts for v in part] == ["a", huge, "b", "c"]
    assert [huge] in parts


def test_no_rows_make_one_payload() -> None:
    table = pa.table({"k0": pa.array([], pa.string())})
    (part,) = payloads(table)
    assert decode_rows([part], table.schema).equals(table)


def of_one_window(table: pa.Table) -> bytes:
    """As kernels encode rows of one window: with the values of the first two columns once."""
    blob = bytearray(encode_rows(table))
    one = encode_rows(table.slice(0, 1).select([0, 1]))[k.PREFIX :]
    strings = 8 * sum(pa.types.is_string(kind) or pa.types.is_binary(kind) for kind in table.schema.types)
    begin = k.PREFIX + strings
    blob[begin : begin + 16 * table.num_rows] = one
    magic, count, layout = struct.unpack_from("<IIq", blob)
    assert magic == rows.MAGIC
    struct.pack_into("<IIq", blob, 0, k.OF_ONE_WINDOW, count, layout ^ k.OF_ONE_WINDOW << 32)
    return bytes(blob)


@given(tables(), st.lists(st.booleans(), min_size=3, max_size=3), st.booleans())
def test_bounds_of_a_window_may_be_there_once(values: pa.Table, once: list[bool], in_place: bool) -> None:
    """Blobs of both forms are read together: state of earlier releases has the bounds in every row."""
    parts = []
    for number in range(3):
        bounds = [pa.array([n * number] * values.num_rows, pa.int64()) for n in (10, 11)]
        columns: list[Any] = [*bounds, *values.columns]
        parts.append(pa.table(columns, ["window_start", "window_end", *values.column_names]))
    blobs = [
        of_one_window(part) if single and part.num_rows else encode_rows(part)
        for part, single in zip(parts, once, strict=True)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "LARGE", 0 if in_place else rows.LARGE)
        found, counts = decode_counted(blobs, parts[0].schema)
    found.validate(full=True)
    assert found.to_pylist() == pa.concat_tables(parts).to_pylist()
    assert counts.tolist() == [values.num_rows] * 3
    for blob, part in zip(blobs, parts, strict=True):
        assert decode_rows([blob], part.schema).to_pylist() == part.to_pylist()


def test_a_blob_is_not_taken_for_one_of_the_other_form() -> None:
    table = pa.table({"window_start": [0], "window_end": [10], "p0": [1]})
    for blob in (encode_rows(table), of_one_window(table)):
        assert decode_rows([blob], table.schema).equals(table)
        other = bytearray(blob)
        other[3] ^= rows.MAGIC >> 24 ^ k.OF_ONE_WINDOW >> 24
        with pytest.raises(InternalError):
            decode_rows([bytes(other)], table.schema)
    narrow = pa.table({"k0": pa.array([0], pa.int32()), "p0": [1], "p1": [1]})
    for schema in (narrow.schema, table.select([0]).schema):
        with pytest.raises(InternalError):
            decode_rows([of_one_window(table)], schema)
