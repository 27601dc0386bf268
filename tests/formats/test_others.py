"""The formats `text`, `length_prefixed` and `native`."""

from __future__ import annotations

import datetime as dt
import decimal
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import BadOption
from headrace.formats import FORMATS
from headrace.formats.native import write_rows
from headrace.model.schema import Field, Schema, parse_type


def schema(*types: str) -> Schema:
    return Schema(tuple(Field(f"c{i}", parse_type(t)) for i, t in enumerate(types)))


@settings(deadline=None, max_examples=100)
@given(st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"\r", b"\xff", b"xyz" * 30]), max_size=30).map(b"".join))
def test_every_line_of_text_is_a_value(data: bytes) -> None:
    fmt = FORMATS["text"].make(schema("BINARY"), {"max_record_bytes": "80"})
    lines = [line.removesuffix(b"\r") for line in data.split(b"\n")]
    lines = lines[:-1] if data.endswith(b"\n") or not data else lines
    decoded = fmt.decode(data, [0], "o", 0)
    assert decoded.columns[0].to_pylist() == [line for line in lines if len(line) <= 80]
    assert [b.reason for b in decoded.bad] == ["record_too_long"] * sum(len(line) > 80 for line in lines)


def test_text_that_is_not_utf8_is_a_bad_value() -> None:
    fmt = FORMATS["text"].make(schema("STRING"), {"record_delimiter": ";;"})
    decoded = fmt.decode(b"a;;\xff;;;b", [0], "o", 10)
    assert decoded.columns[0].to_pylist() == ["a", None, ";b"]
    assert [(b.reason, b.offset, b.column, b.row) for b in decoded.bad] == [("bad_utf8", 13, 0, 1)]
    assert fmt.in_order
    assert fmt.frame(b"a;;;b", False).whole == 3


def test_text_and_length_prefixed_have_one_column() -> None:
    for name in ("text", "length_prefixed"):
        for wrong in (schema("INT"), schema("STRING", "STRING")):
            with pytest.raises(BadOption):
                FORMATS[name].make(wrong, {})


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.binary(max_size=40), max_size=10), st.sampled_from(["1", "2", "4", "8"]),
    st.sampled_from(["big", "little"]), st.integers(0, 3),
)  # fmt: skip
def test_length_prefixed_records_are_read_back(values: list[bytes], width: str, order: Any, missing: int) -> None:
    fmt = FORMATS["length_prefixed"].make(schema("BINARY"), {"length_bytes": width, "byte_order": order})
    data = b"".join(len(v).to_bytes(int(width), order) + v for v in values)
    cut = data[: max(0, len(data) - missing)]
    decoded = fmt.decode(cut, [0], "o", 0)
    whole = fmt.frame(cut, False).whole
    found = decoded.columns[0].to_pylist()
    assert found == values[: len(found)]
    assert whole == sum(len(v) + int(width) for v in found)
    assert [b.reason for b in decoded.bad] == (["bad_frame"] if whole < len(cut) else [])


def test_a_length_beyond_the_limit_is_skipped_by_its_own_word() -> None:
    fmt = FORMATS["length_prefixed"].make(schema("BINARY"), {"max_record_bytes": "5"})
    framed = fmt.frame(b"\0\0\0\x01a\0\0\1\0", False)
    assert (framed.whole, framed.skip) == (5, 4 + 256)


ROWS: dict[str, list[Any]] = {
    "BOOLEAN": [True, False, None], "TINYINT": [-128, None, 127], "SMALLINT": [None, -5, 300], "INT": [1, 2, 3],
    "BIGINT": [-(2**63), 2**63 - 1, None], "FLOAT": [1.5, None, -0.25], "DOUBLE": [float("inf"), 0.1, None],
    "STRING": ["", "héllo", None], "BINARY": [None, b"\x00\xff", b""],
    "DATE": [dt.date(1969, 12, 31), None, dt.date(2024, 2, 29)],
    "TIMESTAMP": [dt.datetime(2024, 1, 1, 1, 1, 1, 1, dt.UTC), None, dt.datetime(1960, 1, 1, tzinfo=dt.UTC)],
    "TIMESTAMP_NTZ": [None, dt.datetime(2024, 1, 1), dt.datetime(1, 1, 1)],
    "DECIMAL(9,2)": [decimal.Decimal("1.25"), None, decimal.Decimal("-9999999.99")],
    "DECIMAL(38,0)": [decimal.Decimal(10**37), decimal.Decimal(-(10**37)), None],
}  # fmt: skip


def table(s: Schema) -> pa.Table:
    return pa.table({f.name: pa.array(ROWS[f.type.ddl], f.type.arrow) for f in s})


@pytest.mark.parametrize("variable", [True, False])
def test_native_rows_are_read_as_they_were_written(variable: bool) -> None:
    s = schema(*(t for t in ROWS if variable or t not in ("STRING", "BINARY")))
    data = write_rows(s, table(s))
    fmt = FORMATS["native"].make(s, {})
    index = fmt.index(data, range(len(s)), "o", 0)
    decoded = index.parse(range(len(s)))
    assert (len(index.bad), len(decoded.bad), decoded.rows) == (0, 0, 3)
    for i, field in enumerate(s):
        assert decoded.columns[i].to_pylist() == ROWS[field.type.ddl]
        assert decoded.columns[i].type == field.type.arrow
        picked = index.parse([i], np.array([2, 0])).columns[i].to_pylist()
        assert picked == [ROWS[field.type.ddl][2], ROWS[field.type.ddl][0]]
    for cut in range(len(data)):
        whole = fmt.frame(data[:cut], False).whole
        assert fmt.decode(data[:whole], [0], "o", 0).bad.counts() == {}
        assert whole <= cut


def test_native_rows_that_point_outside_themselves_are_bad() -> None:
    s = schema("INT", "STRING")
    good = write_rows(s, pa.table({"c0": pa.array([1], pa.int32()), "c1": ["abc"]}))
    broken = bytearray(good)
    broken[4 + 1 + 4 + 4] = 200  # the length of the string
    decoded = FORMATS["native"].make(s, {}).decode(good + bytes(broken) + good + b"\x09", [0, 1], "o", 0)
    assert decoded.columns[1].to_pylist() == ["abc", "abc"]
    assert [(b.reason, b.offset) for b in decoded.bad] == [("bad_frame", len(good)), ("bad_frame", 3 * len(good))]


def test_native_survives_damage_anywhere() -> None:
    s = schema("INT", "STRING", "DECIMAL(5,0)")
    data = write_rows(s, pa.table({"c0": pa.array([1, 2], pa.int32()), "c1": ["abc", "é"],
                                   "c2": pa.array([decimal.Decimal(1)] * 2, pa.decimal128(5))}))  # fmt: skip
    fmt = FORMATS["native"].make(s, {})
    randomly = random.Random(5)
    for _ in range(300):
        broken = bytearray(data)
        broken[randomly.randrange(len(data))] = randomly.randrange(256)
        decoded = fmt.decode(bytes(broken), [0, 1, 2], "o", 0)
        for column in decoded.columns.values():
            column.validate(full=True)
