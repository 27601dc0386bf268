"""Bad values of any length, kind and number: each is one bad value and costs little."""

from __future__ import annotations

import datetime as dt
import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.bridge.reports import PlannedEpoch
from headrace.errors import BadOption
from headrace.formats import FORMATS
from headrace.formats.bad import BadRecord, BadRecords, merged
from headrace.formats.format_kind import Decoded
from headrace.formats.native import write_rows
from headrace.model.definitions import PipelineDef, SinkDef, StreamDef
from headrace.model.plan_version import PlanVersion
from headrace.model.program import Expression, Meaning, PipelineProgram, Ring0Program
from headrace.model.schema import Field, Schema, View, parse_type
from headrace.ring0.task import run_task
from headrace.ring0.task_input import TaskInput
from tests.ring0.tasks import WORD, Chunks, N, Sent, at, lines, stateless, stream, task

DIGITS = "9" * 5000  # more than Python reads as an integer
ZEROS = "0" * 5000 + "7"


def decode(fmt: str, kind: str, *texts: str, **options: str) -> Decoded:
    schema = Schema((Field("v", parse_type(kind)),))
    data = "".join((f'{{"v":{t}}}' if fmt == "json" else t) + "\n" for t in texts)
    return FORMATS[fmt].make(schema, options).decode(data.encode("utf-8", "surrogateescape"), [0], "o", 0)


def outcome(decoded: Decoded) -> list[Any]:
    """For each row its value, or the reason why it has none."""
    found = decoded.columns[0].to_pylist()
    for bad in decoded.bad:
        found[bad.row] = bad.reason
    return found


@pytest.mark.parametrize(
    ("fmt", "kind", "text", "expected"),
    [
        ("csv", "INT", DIGITS, "out_of_range"),
        ("csv", "INT", "-" + DIGITS, "out_of_range"),
        ("csv", "INT", ZEROS, 7),
        ("csv", "BIGINT", "-" + ZEROS, -7),
        ("csv", "INT", DIGITS + "x", "bad_integer"),
        ("csv", "INT", f'"{ZEROS}""', "open_quote"),
        ("csv", "INT", f'"{DIGITS}"""', "bad_integer"),
        ("json", "INT", DIGITS, "out_of_range"),
        ("json", "INT", f'"\\u0031{DIGITS}"', "bad_integer"),
        ("json", "MAP<INT, INT>", f'{{"{ZEROS}": 1}}', [(7, 1)]),
        ("json", "MAP<INT, INT>", f'{{"\\u0030{ZEROS}": 1}}', [(7, 1)]),
        ("json", "MAP<INT, INT>", f'{{"{DIGITS}": 1}}', "out_of_range"),
        ("json", "ARRAY<INT>", f"[{DIGITS}]", "out_of_range"),
        ("csv", "DOUBLE", DIGITS, float("inf")),
        ("csv", "DOUBLE", f"1e{DIGITS}", float("inf")),
        ("csv", "DOUBLE", f"1e-{DIGITS}", 0.0),
        ("csv", "FLOAT", f"-1e{DIGITS}", float("-inf")),
        ("csv", "FLOAT", ZEROS, 7.0),
        ("csv", "DECIMAL(38,2)", DIGITS, "out_of_range"),
        ("csv", "DECIMAL(9,2)", f"1e{DIGITS}", "out_of_range"),
        ("csv", "DECIMAL(9,0)", f"1e-{DIGITS}", 0),
        ("csv", "DECIMAL(9,0)", f"0e{DIGITS}", 0),
        ("csv", "DECIMAL(9,0)", ZEROS, 7),
        ("csv", "DATE", f"{DIGITS}-01-01", "bad_date"),
        ("csv", "TIMESTAMP", f"{DIGITS}-01-01T00:00:00Z", "bad_timestamp"),
        ("csv", "TIMESTAMP", f"2024-01-01T00:00:00.{DIGITS}", "bad_timestamp"),
        ("csv", "TIMESTAMP", "9999-12-31T23:59:59-18:00", "out_of_range"),
    ],
)  # fmt: skip
def test_values_of_any_length_are_ordinary_values_or_ordinary_bad_values(
    fmt: str, kind: str, text: str, expected: Any
) -> None:
    decoded = decode(fmt, kind, text)
    if expected == "open_quote":
        assert decoded.bad.counts() == {"open_quote": 1}
    else:
        assert outcome(decoded) == [expected]


def test_a_number_that_is_too_long_concerns_only_pipelines_that_read_it() -> None:
    data = lines({"word": "a", "n": 1, "ts": at(1)}, f'{{"word": "b", "n": {DIGITS}, "ts": "{at(2)}"}}')
    words, numbers = stateless(1, WORD), stateless(2, WORD, N)
    sent = task([words, numbers], data, declared=stream(on_error="skip"))
    assert [r["word"] for r in sent.rows[1]] == ["a", "b"]
    assert [r["word"] for r in sent.rows[2]] == ["a"]
    assert sent.report.bad == {"out_of_range": 1}
    assert not sent.errors


@pytest.mark.parametrize("unit", ["epoch_s", "epoch_ms", "epoch_us", "epoch_ns"])
def test_a_moment_that_no_type_can_hold_is_out_of_range(unit: str) -> None:
    texts = (DIGITS, f"-{DIGITS}", f"1e{DIGITS}", "1e17" if unit == "epoch_s" else "1e20", ZEROS, "x")
    found = outcome(decode("csv", "TIMESTAMP", *texts, timestamp_format=unit))
    assert found[:4] == ["out_of_range"] * 4
    assert isinstance(found[4], dt.datetime)
    assert found[5] == "bad_timestamp"


def test_native_moments_that_no_type_can_hold_are_out_of_range() -> None:
    schema = Schema((Field("d", parse_type("DATE")), Field("t", parse_type("TIMESTAMP"))))
    good = [[0, -719_162, 2_932_896, None], [0, -62_135_596_800_000_000, 253_402_300_799_999_999, None]]
    wrong = [[-719_163, 2_932_897], [-62_135_596_800_000_001, 253_402_300_800_000_000]]
    table = pa.table(
        {
            "d": pa.array(good[0] + wrong[0], pa.int32()).view(pa.date32()),
            "t": pa.array(good[1] + wrong[1], pa.int64()).view(schema[1].type.arrow),
        }
    )
    decoded = FORMATS["native"].make(schema, {}).decode(write_rows(schema, table), [0, 1], "o", 0)
    for i, column in enumerate(("d", "t")):
        assert decoded.columns[i].slice(0, 4).equals(table.column(column).slice(0, 4).combine_chunks())
        assert decoded.columns[i].slice(4).null_count == 2
    assert {(b.row, b.column, b.reason) for b in decoded.bad} == {
        (row, column, "out_of_range") for row in (4, 5) for column in (0, 1)
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'"a\xffb"', "a\ufffdb"),
        (b'"\\n\xff"', "\n\ufffd"),
        (b'"\\n\xe2\x82"', "\n\ufffd"),  # a character that is cut short is one mark
        (b'"\\n\xed\xa0\x80"', "\n\ufffd\ufffd\ufffd"),
        (b'"x\\ud800y"', "x\ufffdy"),
        (b'"\\udc00\\ud83d\\ude00\\\\u0041\\"\\/"', "\ufffd\U0001f600\\u0041\"/"),
        (b'"\xc3\\u00e9"', "\ufffd\u00e9"),
    ],
)  # fmt: skip
def test_bytes_that_are_not_utf8_are_replaced_as_python_and_java_replace_them(text: bytes, expected: str) -> None:
    schema = Schema((Field("v", parse_type("STRING")),))
    fmt = FORMATS["json"].make(schema, {"utf8": "replace"})
    data = b'{"v":"before"}\n{"v":' + text + b'}\n{"v":"after"}\n{}\n'
    decoded = fmt.decode(data, [0], "o", 0)
    assert decoded.columns[0].to_pylist() == ["before", expected, "after", None]
    assert len(decoded.bad) == 0
    if b"\\" not in text:
        assert text[1:-1].decode("utf-8", "replace") == expected


SPECIAL = ["NaN", "Infinity", "-Infinity", "+Infinity", "-INF", "+INF"]


def test_nan_and_infinity_are_read_without_quotes_unless_the_option_forbids_it() -> None:
    found = outcome(decode("json", "DOUBLE", *SPECIAL))
    assert np.isnan(found[0])
    assert found[1:] == [np.inf, -np.inf, np.inf, -np.inf, np.inf]
    assert outcome(decode("json", "STRING", *SPECIAL)) == SPECIAL
    assert outcome(decode("json", "ARRAY<FLOAT>", "[-Infinity, 1]")) == [[-np.inf, 1.0]]
    assert outcome(decode("json", "INT", *SPECIAL)) == ["bad_integer"] * 6
    strict = decode("json", "DOUBLE", "1", *SPECIAL, '"NaN"', allow_non_numeric_numbers="false")
    assert strict.bad.counts() == {"bad_json": 6}
    assert strict.rows == 2
    assert decode("json", "DOUBLE", "INF", "nan", "-NaN", "Inf", "-Inf", "NaNa").bad.counts() == {"bad_json": 6}
    with pytest.raises(BadOption):
        decode("json", "DOUBLE", allow_non_numeric_numbers="maybe")


def wide(text: str, rows: int, policy: str) -> TaskInput:
    """A task over rows of 1,000 DOUBLE columns that all contain `text`, with a pipeline that reads them all."""
    schema = Schema(tuple(Field(f"c{i}", parse_type("DOUBLE")) for i in range(1000)))
    sink = SinkDef("letters", "memory", {}) if policy == "dead_letter" else None
    declared = StreamDef("s", schema, None, 0, "files", "csv", {"on_error": policy}, dead_letters=sink)
    outputs = (Expression("c0", schema[0].type, "c0"),)
    program = PipelineProgram(
        "s", View.all(), Ring0Program(None, outputs), None, Schema((Field("c0", schema[0].type),)), Meaning()
    )
    plan = PlanVersion(1, declared, (PipelineDef("p", 1, (SinkDef("out", "memory", {}),), program, 1),))
    data = (",".join([text] * 1000) + "\n").encode() * rows
    return TaskInput(plan, Chunks((data,)), 0, PlannedEpoch(1, 1, "checkpoint"))


@pytest.mark.parametrize("policy", ["null", "skip", "fail"])
def test_a_million_bad_values_cost_a_few_bytes_each(policy: str) -> None:
    for _ in run_task(wide("12", 5, policy)):
        pass
    given = wide("NA", 1000, policy)
    tracemalloc.start()
    try:
        sent = Sent([row for batch in run_task(given) for row in batch], given.plan.pipelines)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    if policy == "fail":
        assert list(sent.errors) == [1]
    else:
        assert sent.report.bad == {"bad_number": 1_000_000}
        assert sent.counts[1].bad == 1000
    assert peak < 64e6  # it was 4.5 GB


def test_dead_letters_of_a_record_share_one_copy_of_it() -> None:
    given = wide("NA", 3, "dead_letter")
    sent = Sent([row for batch in run_task(given) for row in batch], given.plan.pipelines)
    assert len(sent.letters) == 3000
    assert {len(letter["raw"]) for letter in sent.letters} == {2999}
    decoded = FORMATS["csv"].make(given.plan.stream.schema, {}).decode(b"NA," * 999 + b"NA\n", range(1000), "o", 0)
    assert len({id(bad.raw) for bad in decoded.bad.in_order()}) == 1


CELLS = st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 4), st.integers(0, 17)), max_size=30)


@settings(deadline=None, max_examples=100)
@given(CELLS, st.lists(st.integers(0, 9)), st.sets(st.integers(0, 9)))
def test_references_are_the_records_they_stand_for(
    cells: list[tuple[int, int, int]], outside: list[int], kept: set[int]
) -> None:
    data = np.frombuffer(bytes(range(100)), np.uint8)
    rows, columns, codes = (np.array([c[i] for c in cells], np.int32) for i in range(3))
    extra = tuple(BadRecord("o", 7 + 10 * i, "record_too_long", None, b"...") for i in outside)
    bad = BadRecords(data, "o", 7, rows * 10, rows * 10 + 5, rows, columns, codes.astype(np.uint8), extra)
    plain = list(bad)
    assert len(bad) == len(plain) == len(cells) + len(extra)
    assert all(b.raw == bytes(range(10 * b.row, 10 * b.row + 5)) for b in plain[len(extra) :])
    assert list(bad.in_order()) == sorted(plain, key=lambda b: b.place)
    assert sorted(map(repr, merged(bad.pick(rows < 5), bad.pick(rows >= 5)))) == sorted(map(repr, plain[len(extra) :]))
    first = bad.first()
    assert first is None if not plain else first is not None and first.place == min(b.place for b in plain)
    assert bad.counts() == {r: sum(b.reason == r for b in plain) for r in {b.reason for b in plain}}
    assert [b.raw for b in bad.plus(bad.pick(rows >= 0))][len(plain) :] == [b.raw for b in plain[len(extra) :]]
    still = np.array(sorted(kept), np.int64)
    moved = [(b.row, b.offset, b.column) for b in bad.renumbered(still)]
    assert moved == [(sorted(kept).index(b.row), b.offset, b.column) for b in plain[len(extra) :] if b.row in kept]
