"""Kernels close windows as DuckDB does."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal as D
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from headrace.bridge.merging import CannotMerge
from headrace.bridge.rows import decode_rows, encode_rows
from headrace.exec import duck
from headrace.exec.aggregates import merge, schema_of
from headrace.exec.stacks import stack_of
from headrace.model.program import Expression, Meaning, Partial, Ring1Program, Window
from headrace.model.schema import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    Array,
    DataType,
    Decimal,
    Field,
)
from headrace.ring1 import merge_program as merge_program_module
from headrace.ring1.merge_program import MergeProgram, merge_program
from tests.ring1.test_pool import Epochs, pipelines

WHOLE, MONEY = Decimal(38, 0), Decimal(38, 2)
TUMBLE = Window("tumble", 10, 10)
SECOND = datetime(2026, 1, 1, tzinfo=UTC)
STATES: list[tuple[str, DataType]] = [
    ("sum({p})", BIGINT),  # the presence count
    ("sum({p})", WHOLE),
    ("sum({p})", BIGINT),
    ("fsum({p})", DOUBLE),
    ("sum({p})", DOUBLE),
    ("min({p})", DOUBLE),
    ("max({p})", DOUBLE),
    ("min({p})", SMALLINT),
    ("max({p})", INT),
    ("max({p})", TIMESTAMP),
    ("min({p})", DATE),
    ("bool_or({p})", BOOLEAN),
    ("bool_and({p})", BOOLEAN),
    ("sum({p})", MONEY),
]
OUTPUTS = [
    ("make_timestamptz(window_start)", TIMESTAMP),
    ("make_timestamptz(window_end)", TIMESTAMP),
    ("k0", STRING),
    ("k1", BIGINT),
    ("p0", BIGINT),
    ("(CAST(p1 AS BIGINT))", BIGINT),
    ("(CASE WHEN p2 > 0 THEN CAST(p1 AS DOUBLE) / p2 END)", DOUBLE),
    ("(CASE WHEN isfinite(p3) THEN p3 ELSE p4 END)", DOUBLE),
    *((f"(p{i})", kind) for i, (_, kind) in enumerate(STATES) if i not in (0, 1, 3)),
]


def partial(number: int, text: str, kind: DataType) -> Partial:
    return Partial(f"p{number}", kind, "unused", text.format(p=f"p{number}"))


def program(
    states: list[tuple[str, DataType]], outputs: list[tuple[str, DataType]], window: Window = TUMBLE, **more: Any
) -> Ring1Program:
    return Ring1Program(
        keys=(Field("k0", STRING), Field("k1", BIGINT)),
        window=window,
        partials=tuple(partial(i, text, kind) for i, (text, kind) in enumerate(states)),
        emit="close",
        having=more.pop("having", None),
        outputs=tuple(Expression(f"c{i}", kind, sql) for i, (sql, kind) in enumerate(outputs)),
        **more,
    )


WIDE = program(STATES, OUTPUTS)


def known(made: Ring1Program) -> MergeProgram:
    found = merge_program(made)
    assert found is not None
    return found


def nullable(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


small = st.integers(-(2**40), 2**40)
doubles = st.floats(width=64) | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1e308, 0.1])
partials = st.tuples(
    st.sampled_from([0, 10]),
    nullable(st.sampled_from(["", "a", "b", "ä", "a long key of many bytes"])),
    nullable(st.sampled_from([0, 1, -1, 2**63 - 1])),
    st.integers(1, 1000),
    nullable(small.map(D)),
    st.integers(0, 1000),
    nullable(doubles),
    nullable(st.integers(-(2**15), 2**15 - 1)),
    nullable(st.integers(-(2**31), 2**31 - 1)),
    nullable(st.integers(0, 1000).map(lambda n: SECOND + timedelta(seconds=n))),
    nullable(st.integers(0, 1000).map(lambda n: date(2026, 1, 1) + timedelta(days=n))),
    nullable(st.booleans()),
    nullable(st.integers(-(10**9), 10**9).map(lambda n: D(n).scaleb(-2))),
)


def table(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns: list[list[Any]] = [[] for _ in schema]
    for start, word, number, present, whole, counted, value, short, middle, time, day, flag, money in rows:
        sums = [whole, counted, value, value, value, value, short, middle, time, day, flag, flag, money]
        for column, one in zip(columns, [start, start + 10, word, number, present, *sums], strict=True):
            column.append(one)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def plain(value: Any) -> Any:
    """NaN equals itself here, and -0.0 is not 0.0."""
    return repr(value) if isinstance(value, float) else value


def rows_of(output: pa.Table, either_zero: Sequence[int]) -> Counter[tuple[Any, ...]]:
    """The rows, with 0.0 for -0.0 in some columns: the least and the greatest DOUBLE. The two are equal there, as in
    Spark, so that either may be kept."""
    columns = [column.to_pylist() for column in output.columns]
    for number in either_zero:
        columns[number] = [value if value is None else value + 0.0 for value in columns[number]]
    return Counter(tuple(map(plain, row)) for row in zip(*columns, strict=True))


def counted(tables: list[pa.Table]) -> list[tuple[int, bytes]]:
    return [(t.num_rows, encode_rows(t)) for t in tables]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.lists(partials, max_size=6), min_size=1, max_size=3), min_size=1, max_size=3))
def test_kernels_close_windows_as_duckdb_does(lanes: list[list[list[tuple[Any, ...]]]]) -> None:
    schema = schema_of(WIDE)
    made = [[table(rows, schema) for rows in lane] for lane in lanes]
    outputs = known(WIDE).close([counted(lane) for lane in made])
    stack = stack_of(WIDE)
    assert stack is not None
    parts = pa.concat_tables([t for lane in made for t in lane])
    numbers = np.repeat(np.arange(len(made)), [sum(t.num_rows for t in lane) for lane in made])
    if parts.num_rows:
        expected = stack.run(Meaning(), parts, numbers)
        assert expected is not None
        expected += [parts.slice(0, 0)] * (len(made) - len(expected))
        extremes = [OUTPUTS.index((f"({name})", DOUBLE)) for name in ("p5", "p6")]
        assert [rows_of(o, extremes) for o in outputs] == [rows_of(e, extremes) for e in expected]
        assert {o.schema for o in outputs} == {stack.output}
    size, blob = known(WIDE).form.merge(counted(made[0]))
    again = decode_rows([blob], schema)
    assert again.num_rows == size
    # The compensated sum of values that are not finite is never used.
    kept = [name for name in schema.names if name != "p3"]
    extremes = [kept.index("p5"), kept.index("p6")]
    assert rows_of(again.select(kept), extremes) == rows_of(merge(WIDE, Meaning(), made[0]).select(kept), extremes)


@settings(max_examples=40, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    st.lists(st.tuples(*[st.lists(st.lists(partials, max_size=6), max_size=2)] * 2), min_size=1, max_size=3),
    st.booleans(),
)
def test_segments_that_need_no_merging_are_finished_as_they_are(
    lanes: list[tuple[list[list[tuple[Any, ...]]], ...]], some_rest: bool
) -> None:
    schema, form = schema_of(WIDE), known(WIDE).form
    rest = [counted([table(rows, schema) for rows in lane]) if some_rest else [] for lane, _ in lanes]
    merged = []
    for _, lane in lanes:  # each of a window of its own
        later = [[(100 * n + row[0], *row[1:]) for row in rows] for n, rows in enumerate(lane, 1)]
        merged.append([form.merge(counted([table(rows, schema)])) for rows in later if rows])
    if not any(merged):
        return
    expected = known(WIDE).close([[*one, *other] for one, other in zip(rest, merged, strict=True)])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(merge_program_module, "FEW", -1)
        outputs = known(WIDE).close(rest, merged)
    assert [o.schema for o in outputs] == [o.schema for o in expected]
    assert [rows_of(o, []) for o in outputs] == [rows_of(o, []) for o in expected]


def test_a_damaged_segment_that_needs_no_merging_is_left_to_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_program_module, "FEW", -1)
    ((rows, data),) = counted([row()])
    for damaged in ((rows, data[:-8]), (rows + 1, data)):
        with pytest.raises(CannotMerge):
            known(WIDE).close([[]], [[damaged]])


def test_overlapping_windows_are_merged_too() -> None:
    hop = program([("sum({p})", BIGINT)], [("k0", STRING), ("p0", BIGINT)], window=Window("hop", 10, 5))
    rows = pa.Table.from_pylist(
        [{"window_start": 0, "window_end": 10, "k0": "a", "k1": 1, "p0": 2, "_newest": n} for n in (1, 2)],
        schema=schema_of(hop),
    )
    _, blob = known(hop).form.merge(counted([rows, rows]))
    assert decode_rows([blob], schema_of(hop)).to_pylist()[0]["_newest"] == 6


@pytest.mark.parametrize(
    "made",
    [
        program([("sum({p})", BIGINT)], [("p0 + 1", BIGINT)]),
        program([("sum({p})", BIGINT)], [("p0", INT)]),
        program([("sum({p})", BIGINT)], [("p0", BIGINT)], having="p0 > 1"),
        program([("sum({p})", BIGINT), ("max({p})", STRING)], [("p1", STRING)]),
        program([("sum({p})", BIGINT), ("list_sort({p})", Array(INT))], [("p0", BIGINT)]),
        program([("sum({p})", BIGINT)], [("p0", BIGINT)], window=Window("session", 10, 10)),
        program([("sum({p})", BIGINT)], [("p0", BIGINT)], ranks=(Expression("r0", BIGINT, "rank() OVER ()"),)),
    ],
    ids=["expression", "cast", "having", "text", "list", "session", "rank"],
)
def test_other_programs_are_left_to_duckdb(made: Ring1Program) -> None:
    assert merge_program(made) is None


def row(**values: Any) -> pa.Table:
    made = {"window_start": 0, "window_end": 10, "k0": "a", "k1": 1, "p0": 1} | values
    return pa.Table.from_pylist([made], schema=schema_of(WIDE))


@pytest.mark.parametrize(
    "values",
    [{"p1": D(2**62)}, {"p1": D(-(2**100))}, {"p1": D("9" * 38)}, {"p2": 2**62}, {"p1": D(2**53), "p2": 1}],
    ids=["64 bits", "many bits", "38 digits", "count", "mean"],
)
def test_values_that_need_duckdb_are_left_to_it(values: dict[str, Any]) -> None:
    with pytest.raises(CannotMerge):
        known(WIDE).close([counted([row(**values), row(**values)])])


def test_damaged_blobs_are_not_merged() -> None:
    rows, data = row().num_rows, encode_rows(row())
    # The first string begins after the prefix, the size of the column, the bounds of the window and its length.
    lengths = data.index(b"a\0") - 8
    for bad in (
        data[:-8],
        data[:lengths] + b"\5" + data[lengths + 1 :],
        data[:lengths] + b"\xff" * 4 + data[lengths + 4 :],
    ):
        with pytest.raises(CannotMerge):
            known(WIDE).close([[(rows, bad)]])
    with pytest.raises(CannotMerge):
        known(WIDE).close([[(rows + 1, data)]])


def test_a_defect_of_the_kernels_is_logged_and_left_to_duckdb(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*arguments: Any) -> Any:
        raise ZeroDivisionError

    def run() -> dict[int, list[str]]:
        epochs = Epochs()
        for first in range(0, 60, 6):
            epochs.run(pipelines(True), first)
        assert not epochs.failures
        return epochs.sorted()

    expected = run()
    monkeypatch.setattr(MergeProgram, "close", broken)
    assert run() == expected
    assert "DuckDB merges instead" in caplog.text


def test_a_pool_closes_plain_windows_without_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    real = duck.run

    def seen(meaning: Meaning, sql: str, relations: Any) -> pa.Table:
        sent.append(sql)
        return real(meaning, sql, relations)

    monkeypatch.setattr(duck, "run", seen)
    epochs = Epochs()
    for first in range(0, 60, 6):
        epochs.run([p for p in pipelines(True) if p.program.logged], first)
    assert sum(map(len, epochs.rows.values())) > 20
    assert not [sql for sql in sent if " FROM parts" in sql]
