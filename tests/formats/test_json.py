"""The `json` format against Python's own json: same rows and same verdicts for any input."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.base.options import check_options
from headrace.errors import BadOption, UnknownOption
from headrace.formats import FORMATS
from headrace.formats.format_kind import Decoded
from headrace.model.schema import Field, Schema, parse_type
from tests.formats import oracle

TYPES = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BINARY", "DATE", "TIMESTAMP",
    "TIMESTAMP_NTZ", "DECIMAL(9,2)", "DECIMAL(38,10)",
)  # fmt: skip
NESTED = (
    "STRUCT<a: INT, b: STRING, c: ARRAY<DOUBLE>>", "ARRAY<INT>", "MAP<STRING, BIGINT>", "MAP<INT, STRING>",
    "ARRAY<STRUCT<x: BOOLEAN, y: ARRAY<STRING>>>", "MAP<STRING, STRUCT<z: TIMESTAMP>>",
)  # fmt: skip


def schema(*types: str) -> Schema:
    return Schema(tuple(Field(f"c{i}", parse_type(t)) for i, t in enumerate(types)))


def decode(data: bytes, s: Schema, wanted: list[int] | None = None, **options: str) -> Decoded:
    return FORMATS["json"].make(s, options).decode(data, range(len(s)) if wanted is None else wanted, "o", 0)


def table(decoded: Decoded) -> list[list[Any]]:
    columns = [c.to_pylist(maps_as_pydicts="strict") if "map" in str(c.type) else c.to_pylist()
               for c in decoded.columns.values()]  # fmt: skip
    return [list(row) for row in zip(*columns, strict=True)] if columns else [[] for _ in range(decoded.rows)]


def verdicts(decoded: Decoded) -> set[tuple[int, str, int | None]]:
    return {(b.offset, b.reason, b.column) for b in decoded.bad}


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(v, b[k]) for k, v in a.items())
    return bool(a == b)


def assert_as_oracle(data: bytes, s: Schema) -> None:
    rows, bad = oracle.decode_json(data, s)
    decoded = decode(data, s)
    assert verdicts(decoded) == bad
    found = table(decoded)
    assert len(found) == len(rows)
    for mine, expected in zip(found, rows, strict=True):
        assert same(mine, expected), (mine, expected)


NUMBERS = st.one_of(
    st.integers(-(10**20), 10**20).map(str), st.integers(-200, 200).map(str), st.floats().map(repr),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda x: f"{x:.3f}" if abs(x) < 1e15 else repr(x)),
    st.from_regex(r"-?[0-9]{1,22}(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
)  # fmt: skip
STRINGS = st.one_of(
    st.text(max_size=40).map(lambda t: json.dumps(t, ensure_ascii=False)),
    st.text(max_size=40).map(json.dumps),
    st.sampled_from([
        '"2024-02-29"', '"2023-02-29"', '"2024-02-29T12:34:56.789Z"', '"2024-02-29 12:34:56+05:30"',
        '"1969-12-31T23:59"', '"aGVsbG8="', '"aGVsbG8"', '"NaN"', '"-Infinity"', '"12.345"', '"\\ud83d\\ude00"',
        '"\\ud83d"', '"\\/\\b\\f\\n"',
        '"2024-01-01T00:00:00.1234567891"', '"0001-01-01"', '"9999-12-31T23:59:59.999999-18:00"', '"2024-13-01"', '""',
    ]),
)  # fmt: skip
SCALARS = st.one_of(
    NUMBERS, STRINGS, st.sampled_from(["true", "false", "null", "True", "nul", "NaN", "-", "01", "1.", "+1"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda v: "[" + ",".join(v) + "]"),
        st.lists(st.tuples(st.sampled_from("abcxyz12"), inner), max_size=4).map(
            lambda v: "{" + ", ".join(f'"{k}": {x}' for k, x in v) + "}"
        ),
    ),
    max_leaves=6,
)  # fmt: skip
KEYS = st.sampled_from(["c0", "c1", "c2", "c3", "zz", "C0", "c\\u0030", "", "c"])
SPACE = st.sampled_from(["", "", "", " ", "\t", "  \r"])


@st.composite
def objects(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    members = draw(st.lists(st.tuples(KEYS, SPACE, SPACE, values, SPACE), max_size=5))
    return "{" + ",".join(f'{a}"{k}"{b}:{v}{c}' for k, a, b, v, c in members) + "}" + draw(SPACE)


@settings(deadline=None, max_examples=150)
@given(st.data(), st.lists(st.sampled_from(TYPES), min_size=1, max_size=4))
def test_every_scalar_is_read_as_python_reads_it(data: st.DataObject, types: list[str]) -> None:
    records = data.draw(st.lists(objects(SCALARS), max_size=6))
    assert_as_oracle("\n".join(records).encode("utf-8", "surrogatepass"), schema(*types))


@settings(deadline=None, max_examples=150)
@given(st.lists(objects(VALUES), max_size=5), st.lists(st.sampled_from(NESTED), min_size=1, max_size=3))
def test_nested_values_are_read_as_python_reads_them(records: list[str], types: list[str]) -> None:
    assert_as_oracle("\n".join(records).encode("utf-8", "surrogatepass"), schema(*types))


@settings(deadline=None, max_examples=200)
@given(
    st.binary(max_size=120)
    | st.text(alphabet='{}[]",:\\0123456789.eE+-truefalsn \n\tc\x00é', max_size=120).map(str.encode)
)
@example(b'{"c0":1}{"c0":2}')
@example(b'{"c0":1,}')
@example(b'{"c0" 1}')
@example(b'{"c0":"\\x"}')
@example(b'{"c0":"\t"}')
@example(b'\xef\xbb\xbf{"c0":1}')
def test_no_bytes_are_misjudged(data: bytes) -> None:
    assert_as_oracle(data, schema("INT", "STRING"))


@settings(deadline=None, max_examples=60)
@given(st.lists(objects(VALUES), max_size=5), st.permutations(range(4)), st.integers(0, 4))
def test_a_column_does_not_depend_on_which_others_are_wanted(records: list[str], order: list[int], count: int) -> None:
    s = schema("INT", "STRING", "DOUBLE", "ARRAY<INT>")
    data = "\n".join(records).encode("utf-8", "surrogatepass")
    whole, some = decode(data, s), decode(data, s, order[:count])
    assert some.rows == whole.rows
    assert set(some.columns) == set(order[:count])
    for column in order[:count]:
        assert same(some.columns[column].to_pylist(), whole.columns[column].to_pylist())
    kept = {v for v in verdicts(whole) if v[2] is None or v[2] in order[:count]}
    assert verdicts(some) == kept


def test_a_selection_parses_only_its_rows_in_its_order() -> None:
    s = schema("INT", "STRING")
    data = b'{"c0":1,"c1":"a"}\n{"c0":"x","c1":"b"}\nbroken\n{"c0":3,"c1":"c"}\n{"c0":4}\n'
    index = FORMATS["json"].make(s, {}).index(data, [0, 1], "o", 100)
    assert index.rows == 4
    assert [(b.offset, b.reason) for b in index.bad] == [(138, "bad_json")]
    picked = index.parse([0], np.array([2, 1]))
    assert picked.columns[0].to_pylist() == [3, None]
    assert [(b.row, b.column, b.offset, b.raw) for b in picked.bad] == [(1, 0, 118, b'{"c0":"x","c1":"b"}')]
    assert index.parse([1], np.array([3, 0])).columns[1].to_pylist() == [None, "a"]


@settings(deadline=None, max_examples=60)
@given(st.lists(objects(VALUES), max_size=12), st.sets(st.integers(0, 3)), st.data())
def test_late_columns_are_those_that_would_have_been_located_at_once(
    records: list[str], early: set[int], data: st.DataObject
) -> None:
    s = schema("INT", "STRING", "DOUBLE", "ARRAY<INT>")
    raw = "\n".join(records).encode("utf-8", "surrogatepass")
    fmt = FORMATS["json"].make(s, {})
    whole, some = fmt.index(raw, range(4), "o", 7), fmt.index(raw, sorted(early), "o", 7)
    assert (whole.rows, tuple(whole.bad)) == (some.rows, tuple(some.bad))
    picked = np.array(data.draw(st.lists(st.integers(0, whole.rows - 1)) if whole.rows else st.just([])), np.int64)
    for selection in (None, picked):
        a, b = whole.parse(range(4), selection), some.parse(range(4), selection)
        assert tuple(a.bad) == tuple(b.bad)
        assert all(same(a.columns[i].to_pylist(), b.columns[i].to_pylist()) for i in range(4))


def test_the_last_of_equal_keys_wins_and_null_counts() -> None:
    s = schema("INT")
    assert table(decode(b'{"c0":1,"c0":2}\n{"c0":1,"c0":null}\n{"c0":null,"c0":3}', s)) == [[2], [None], [3]]


@pytest.mark.parametrize("levels", [255, 256, 257, 400])
@pytest.mark.parametrize("inner", ["", "1", "[]", "[ ]", "{}"])
def test_the_deepest_value_has_256_levels_also_where_it_is_malformed_later(levels: int, inner: str) -> None:
    s = schema("TIMESTAMP", "MAP<STRING, INT>")
    for end in ("]" * levels, ""):
        texts = ['{"c0":1,"c1":' + "[" * levels + inner + end + "}", "[" * levels + inner + end]
        texts.append('{"x":' * levels + (inner or "1") + end.replace("]", "}"))
        for text in texts:
            rows, bad = oracle.decode_json(text.encode(), s)
            decoded = decode(text.encode(), s)
            assert verdicts(decoded) == bad, text
            assert decoded.rows == len(rows)


def test_thousands_of_members_and_deep_nesting_are_read_and_too_deep_is_a_verdict() -> None:
    s = schema("INT", "STRING")
    wide = "{" + ",".join(f'"k{i}":{i}' for i in range(5000)) + ',"c0":7}'
    deep = '{"c0":8,"x":' + "[" * 200 + "]" * 200 + "}"
    deeper = '{"c0":9,"x":' + "[" * 400 + "]" * 400 + "}"
    decoded = decode("\n".join([wide, deep, deeper, wide]).encode(), s)
    assert decoded.columns[0].to_pylist() == [7, 8, 7]
    assert [b.reason for b in decoded.bad] == ["too_deep"]


def test_a_record_that_is_too_long_is_bad_and_its_neighbours_are_not() -> None:
    s = schema("STRING")
    decoded = decode(b'{"c0":"a"}\n{"c0":"' + b"x" * 100 + b'"}\n{"c0":"b"}', s, max_record_bytes="50")
    assert table(decoded) == [["a"], ["b"]]
    assert [(b.reason, b.offset, len(b.raw)) for b in decoded.bad] == [("record_too_long", 11, 50)]


@pytest.mark.parametrize(
    ("fmt", "text", "expected"),
    [
        ("epoch_s", "1700000000", 1700000000_000000), ("epoch_s", "1700000000.5", 1700000000_500000),
        ("epoch_ms", '"1700000000123"', 1700000000_123000), ("epoch_us", "-1", -1), ("epoch_ns", "1999", 1),
        ("epoch_ns", "1700000000123456789", 1700000000_123456),
        ("epoch_ns", '"-1700000000123456789"', -1700000000_123457),
        ("epoch_ms", "1.7e12", 1700000000_000000),
        ("dd/MM/yyyy HH:mm:ss", '"29/02/2024 01:02:03"', 1709168523_000000),
        ("dd/MM/yyyy HH:mm:ss", '"29\\/02\\/2024 01:02:03"', 1709168523_000000),
        ("yyyyMMdd'T'HHmmss.SSSXXX", '"20240229T010203.250+01:00"', 1709164923_250000),
    ],
)  # fmt: skip
def test_timestamps_in_other_spellings(fmt: str, text: str, expected: int) -> None:
    decoded = decode(f'{{"c0":{text}}}\n{{"c0":"x"}}'.encode(), schema("TIMESTAMP"), timestamp_format=fmt)
    assert [v.value for v in decoded.columns[0]] == [expected, None]
    assert [b.reason for b in decoded.bad] == ["bad_timestamp"]


def test_bytes_that_are_not_utf8_are_rejected_replaced_or_kept() -> None:
    data = b'{"c0":"a\xffb","c1":"a\xffb"}\n{"c0":"\\ud800","c1":"aGk="}'
    rejected = decode(data, schema("STRING"))
    assert table(rejected) == [[None], [None]]
    assert [b.reason for b in rejected.bad] == ["bad_utf8", "bad_utf8"]
    assert table(decode(data, schema("STRING"), utf8="replace"))[0] == ["a\ufffdb"]
    assert table(decode(data, schema("STRING", "BINARY"), binary="raw"))[0][1] == b"a\xffb"
    assert table(decode(b'{"c0":"00fF"}\n{"c0":"0"}', schema("BINARY"), binary="hex")) == [[b"\x00\xff"], [None]]


def test_integers_of_nineteen_digits_are_distinguished_at_the_limits() -> None:
    numbers = [2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 9999999999999999999, 10**18, -(10**18), 10**19]
    data = "\n".join(f'{{"c0":{n},"c1":{n}}}' for n in numbers).encode()
    decoded = decode(data, schema("BIGINT", "DECIMAL(19,0)"))
    assert decoded.columns[0].to_pylist() == [n if -(2**63) <= n < 2**63 else None for n in numbers]
    assert decoded.columns[1].to_pylist() == [n if abs(n) < 10**19 else None for n in numbers]
    assert {b.reason for b in decoded.bad} == {"out_of_range"}


def test_no_column_wanted_still_counts_and_checks() -> None:
    decoded = decode(b'{"c0":1}\n{\n{"c0":"bad"}\n', schema("INT"), [])
    assert decoded.rows == 2
    assert [b.reason for b in decoded.bad] == ["bad_json"]


def test_options_are_checked() -> None:
    with pytest.raises(BadOption):
        FORMATS["json"].make(schema("INT"), {"timestamp_format": "yyyy-QQ"})
    with pytest.raises(BadOption):
        FORMATS["json"].make(schema("INT"), {"utf8": "guess"})
    with pytest.raises(UnknownOption):
        check_options("format", FORMATS["json"].options, {"delimiter": ","})


def test_a_bad_value_of_a_repeated_map_key_counts_only_if_it_is_the_last() -> None:
    data = b'{"c0":{"a": 0, "a": {}}}\n{"c0":{"a": {}, "a": 0}}\n'
    decoded = decode(data, schema("MAP<STRING, STRUCT<z: INT>>"))
    assert decoded.columns[0].to_pylist() == [[("a", {"z": None})], None]
    assert [(b.reason, b.row) for b in decoded.bad] == [("bad_nested", 1)]
