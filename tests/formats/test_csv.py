"""The `csv` format against Python's csv module and pure-Python twins, for every dialect."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.errors import BadOption, HeaderMismatch
from headrace.formats import FORMATS
from headrace.formats.csv import Csv, Dialect
from headrace.formats.format_kind import Decoded, Preamble
from headrace.formats.values import Rules
from headrace.model.schema import Field, Schema, parse_type
from tests.formats import oracle
from tests.formats.test_json import TYPES, same, verdicts


def schema(*types: str) -> Schema:
    return Schema(tuple(Field(f"c{i}", parse_type(t)) for i, t in enumerate(types)))


def make(s: Schema, dialect: Dialect, longest: int = 1 << 20) -> Csv:
    return Csv(s, dialect, longest, Rules())


def table(decoded: Decoded) -> list[list[Any]]:
    return [list(row) for row in zip(*(c.to_pylist() for c in decoded.columns.values()), strict=True)]


def assert_as_oracle(data: bytes, s: Schema, dialect: Dialect) -> None:
    rows, bad = oracle.decode_csv(data, s, dialect)
    decoded = make(s, dialect).decode(data, range(len(s)), "o", 0)
    assert verdicts(decoded) == bad
    assert len(rows) == decoded.rows
    for mine, expected in zip(table(decoded), rows, strict=True):
        assert same(mine, expected), (mine, expected)


DIALECTS = st.builds(
    Dialect,
    delimiter=st.sampled_from([b",", b",", b"\t", b"||", b"<>;"]),
    quote=st.sampled_from([b'"', b'"', b"'", b""]),
    escape=st.sampled_from([b"", b"", b"\\"]),
    comment=st.sampled_from([b"", b"", b"#"]),
    nulls=st.sampled_from([(b"",), (), (b"", b"NULL", b"\\N")]),
    ragged=st.booleans(),
    trailing=st.booleans(),
)
PIECES = [b",", b",", b"\t", b"||", b"|", b"<>;", b'"', b"'", b'""', b"\\", b"#", b"\r", b"\n", b"\r\n", b"a",
          b"NULL", b"\\N", b"12", b"-3.5", b"true", b" ", b"\xc3\xa9", b"\xff", b"x" * 70]  # fmt: skip


@settings(deadline=None, max_examples=400)
@given(st.lists(st.sampled_from(PIECES), max_size=60).map(b"".join), DIALECTS)
@example(b'a,"b""c"\r\n', Dialect())
@example(b'"a"x,b\n1,2\n', Dialect())
@example(b'"a,b\n1,2\n', Dialect())
@example(b'1,"2"\r', Dialect())
@example(b"#" + b"x" * 200 + b"\n1,2", Dialect(comment=b"#"))
def test_no_bytes_are_misjudged_in_any_dialect(data: bytes, dialect: Dialect) -> None:
    assert_as_oracle(data, schema("STRING", "INT"), dialect)


TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["", "1", "-77", "1e3", "NaN", "inf", "TRUE", "false", "2024-02-29", "2024-02-29 10:11:12.5Z",
                     "aGk=", "123456789012345678901234567890", "0.1", "12345678.905", "1.7976931348623157e308",
                     "4.9e-324", "+5"]),
    st.floats().map(repr), st.integers().map(str),
)  # fmt: skip


@settings(deadline=None, max_examples=200)
@given(st.data(), st.lists(st.sampled_from(TYPES), min_size=2, max_size=4))
def test_every_type_is_read_as_python_reads_it(data: st.DataObject, types: list[str]) -> None:
    rows = data.draw(st.lists(st.lists(TEXTS, min_size=len(types), max_size=len(types)), max_size=5))
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerows(rows)
    text = out.getvalue().encode("utf-8", "surrogatepass")
    assert_as_oracle(text, schema(*types), Dialect())


@settings(deadline=None, max_examples=150)
@given(st.lists(st.lists(st.text(max_size=8), min_size=2, max_size=2), max_size=8), st.sampled_from([b"\n", b"\r\n"]))
def test_what_pythons_csv_writes_is_read_back_with_its_newlines(rows: list[list[str]], ending: bytes) -> None:
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator=ending.decode(), quoting=csv.QUOTE_ALL).writerows(rows)
    fmt = make(schema("STRING", "STRING"), Dialect(multiline=True))
    data = out.getvalue().encode("utf-8", "surrogatepass")
    decoded = fmt.decode(data, [0, 1], "o", 0)
    good = [r for r in rows if all(_encodable(x) for x in r)]
    if len(good) == len(rows):
        assert table(decoded) == rows
        assert len(decoded.bad) == 0
    assert fmt.frame(data, True).whole == len(data)


def _encodable(text: str) -> bool:
    return all(not 0xD800 <= ord(c) < 0xE000 for c in text)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join), DIALECTS)
def test_the_fast_and_the_general_scanner_agree(data: bytes, dialect: Dialect) -> None:
    simple = replace(dialect, delimiter=b",", escape=b"")
    s = schema("STRING", "INT")
    fast, general = make(s, simple), make(s, simple)
    general.dialect = _Slow(**{f: getattr(simple, f) for f in simple.__dataclass_fields__})
    a, b = fast.decode(data, [0, 1], "o", 0), general.decode(data, [0, 1], "o", 0)
    assert table(a) == table(b)
    assert tuple(a.bad) == tuple(b.bad)


class _Slow(Dialect):
    @property
    def simple(self) -> bool:
        return False


@settings(deadline=None, max_examples=100)
@given(st.lists(st.sampled_from(PIECES), max_size=60).map(b"".join), DIALECTS, st.data())
def test_late_columns_are_those_that_would_have_been_located_at_once(
    raw: bytes, dialect: Dialect, data: st.DataObject
) -> None:
    fmt = make(schema("STRING", "INT"), dialect)
    whole, some = fmt.index(raw, [0, 1], "o", 7), fmt.index(raw, [], "o", 7)
    assert (whole.rows, tuple(whole.bad)) == (some.rows, tuple(some.bad))
    picked = np.array(data.draw(st.lists(st.integers(0, whole.rows - 1)) if whole.rows else st.just([])), np.int64)
    for selection in (None, picked):
        a, b = whole.parse([0, 1], selection), some.parse([0, 1], selection)
        assert (tuple(a.bad), table(a)) == (tuple(b.bad), table(b))


@settings(deadline=None, max_examples=100)
@given(st.lists(st.sampled_from([b"a", b"bb", b"@", b"#", b"@#", b"#@", b","]), max_size=40).map(b"".join))
def test_record_delimiters_of_several_bytes(data: bytes) -> None:
    fmt = make(schema("STRING", "STRING"), Dialect(ending=b"@#", nulls=()))
    expected = [r.split(b",") for r in data.split(b"@#") if r]
    decoded = fmt.decode(data, [0, 1], "o", 0)
    assert table(decoded) == [[f.decode() for f in r] for r in expected if len(r) == 2]
    assert [b.reason for b in decoded.bad] == ["field_count" for r in expected if len(r) != 2]


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.sampled_from([b'"', b"a", b",", b"\n", b"\r\n", b"b" * 20]), max_size=40).map(b"".join),
    st.integers(1, 30),
)
def test_quoted_newlines_are_framed_the_same_for_every_buffer_size(data: bytes, step: int) -> None:
    fmt = make(schema("STRING", "STRING"), Dialect(multiline=True), longest=60)
    whole = fmt.decode(data, [0, 1], "o", 0)
    rows: list[list[Any]] = []
    bad: list[tuple[int, str]] = []
    carry, at, seen = b"", 0, 0
    while seen < len(data):
        carry += data[seen : seen + step]
        seen += step
        done = fmt.frame(carry, seen >= len(data)).whole
        part = fmt.decode(carry[:done], [0, 1], "o", at)
        rows += table(part)
        bad += [(b.offset, b.reason) for b in part.bad]
        carry, at = carry[done:], at + done
    assert carry == b""
    assert rows == table(whole)
    assert bad == [(b.offset, b.reason) for b in whole.bad]


def test_an_unwanted_column_is_skipped_but_still_checked() -> None:
    fmt = make(schema("INT", "STRING", "INT"), Dialect())
    data = b'1,x,2\nz,"open,3\n4,y,q\n5,y\n'
    decoded = fmt.decode(data, [2], "o", 0)
    assert decoded.columns[2].to_pylist() == [2, None]
    assert [(b.reason, b.column, b.row) for b in decoded.bad] == [
        ("open_quote", None, -1), ("field_count", None, -1), ("bad_integer", 2, 1),
    ]  # fmt: skip


def test_a_header_is_skipped_and_checked_by_name() -> None:
    s = Schema((Field("id", parse_type("INT")), Field("Name", parse_type("STRING"))))
    fmt = FORMATS["csv"].make(s, {"header": "true", "comment": "#"})
    head = b'\xef\xbb\xbf\r\n# made by hand\r\n"ID", name\r\n1,x\r\n'
    assert head[fmt.preamble(head, True, True).passed :] == b"1,x\r\n"
    with pytest.raises(HeaderMismatch):
        fmt.preamble(b"name,id\n", True, True)
    assert FORMATS["csv"].make(s, {}).preamble(b"name,id\n", True, True) == Preamble(0)


@pytest.mark.parametrize("head", ["id,name,", "id,name", '"id",name,'])
def test_a_header_may_end_with_the_delimiter_that_records_end_with(head: str) -> None:
    s = Schema((Field("id", parse_type("INT")), Field("name", parse_type("STRING"))))
    fmt = FORMATS["csv"].make(s, {"header": "true", "trailing_delimiter": "true"})
    data = f"{head}\n1,x,\n2,y\n".encode()
    begin = fmt.preamble(data, True, True).passed
    assert table(fmt.decode(data[begin:], [0, 1], "o", begin)) == [[1, "x"], [2, "y"]]
    for wrong in ("id,name,,", 'id,name,""', "id,,"):
        with pytest.raises(HeaderMismatch):
            fmt.preamble(wrong.encode() + b"\n", True, True)
    with pytest.raises(HeaderMismatch):
        FORMATS["csv"].make(s, {"header": "true"}).preamble(b"id,name,\n", True, True)


def test_a_thousand_columns_are_scanned() -> None:
    s = schema(*["INT"] * 1000)
    data = b"\n".join(b",".join(b"%d" % (r * 1000 + c) for c in range(1000)) for r in range(50))
    decoded = make(s, Dialect()).decode(data, [0, 500, 999], "o", 0)
    assert decoded.columns[500].to_pylist() == [r * 1000 + 500 for r in range(50)]
    assert decoded.columns[999].to_pylist()[-1] == 49_999


@pytest.mark.parametrize(
    "options",
    [
        {"delimiter": ""},
        {"quote": "ab"},
        {"delimiter": '"'},
        {"delimiter": "\\n"},
        {"ragged": "maybe"},
        {"escape": "é"},
    ],
)
def test_impossible_dialects_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(BadOption):
        FORMATS["csv"].make(schema("INT", "INT"), options)


def test_nested_columns_need_another_format() -> None:
    with pytest.raises(BadOption):
        FORMATS["csv"].make(schema("ARRAY<INT>"), {})
