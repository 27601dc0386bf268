"""Kernels fold a batch into the same partial aggregates as DuckDB, in the form in which Ring 1 gets them."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal as D
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from headrace.bridge import merge_form
from headrace.bridge.buckets import buckets
from headrace.bridge.merging import CannotMerge
from headrace.bridge.packs import PackEntry
from headrace.bridge.rows import decode_rows
from headrace.errors import OutOfMemory
from headrace.exec import sizing
from headrace.exec.aggregates import aggregate_rows, schema_of
from headrace.model.definitions import PipelineDef, SinkDef
from headrace.model.program import (
    MEMBER,
    Expression,
    Meaning,
    Partial,
    PipelineProgram,
    Ring0Program,
    Ring1Program,
    Window,
)
from headrace.model.schema import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    DataType,
    Decimal,
    Field,
    Schema,
    View,
)
from headrace.ring0 import fold_columns, fold_passes, folding
from headrace.ring0 import runner as runner_module
from headrace.ring0.cuts import CutRule, cutting
from headrace.ring0.fold_program import fold_program
from headrace.ring0.runner import Runner
from headrace.sinks.sink_kind import SinkKey
from headrace.sql.rules.split_aggregates import PRESENCE

SECOND = 1_000_000
SUM = Decimal(38, 0)
# Columns of the relation `rows`: c0 to c6, and the event time.
COLUMNS: list[tuple[str, pa.DataType]] = [
    ("c0", pa.string()),
    ("c1", pa.int64()),
    ("c2", pa.float64()),
    ("c3", pa.bool_()),
    ("c4", pa.int32()),
    ("c5", pa.date32()),
    ("c6", pa.timestamp("us", "UTC")),
    ("_t", pa.int64()),
]


def partial(number: int, function: str, argument: str, kind: DataType, merge: str = "sum") -> Partial:
    return Partial(
        name=f"p{number}",
        type=kind,
        sql=f"{function}({argument})",
        merge=f"{merge}(p{number})",
        filtered=f"{function}(CASE WHEN {MEMBER} THEN {argument} END)",
    )


ALL = (
    PRESENCE,
    partial(1, "sum", "c1", SUM),
    partial(2, "count", "c1", BIGINT),
    partial(3, "fsum", "c2", DOUBLE, "fsum"),
    partial(4, "sum", "c2", DOUBLE),
    partial(5, "min", "c2", DOUBLE, "min"),
    partial(6, "max", "c2", DOUBLE, "max"),
    partial(7, "min", "c1", BIGINT, "min"),
    partial(8, "max", "c4", INT, "max"),
    partial(9, "min", "c5", DATE, "min"),
    partial(10, "max", "c6", TIMESTAMP, "max"),
    partial(11, "sum", "(c4 + 1)", SUM),
    partial(12, "count", "c0", BIGINT),
)
KEYS = {
    "text": (Expression("k0", STRING, "c0"),),
    "flag": (Expression("k0", BOOLEAN, "c3"),),
    "number": (Expression("k0", BIGINT, "c1"),),
    "several": (Expression("k0", STRING, "c0"), Expression("k1", INT, "c4"), Expression("k2", DATE, "c5")),
    "computed": (Expression("k0", INT, "(c4 % 3)"), Expression("k1", TIMESTAMP, "c6")),
    "none": (),
}
TUMBLE = Window("tumble", 10 * SECOND, 10 * SECOND, offset=3)
FILTERS = (None, "c1 > 0", "c2 < 1.5", "c3", "c4 % 2 = 0 AND c1 > 1")


def pipeline(
    instance: int, keys: str, where: str | None, window: Window | None, partials: tuple[Partial, ...] = ALL
) -> PipelineDef:
    ring0 = Ring0Program(where, keys=KEYS[keys], window=window, partials=partials)
    fields = tuple(Field(k.name, k.type) for k in KEYS[keys])
    outputs = (Expression("n", BIGINT, "p0"),)
    ring1 = Ring1Program(fields, window, partials, "close" if window else "changes", None, outputs)
    program = PipelineProgram("s", View.all(), ring0, ring1, Schema((Field("n", BIGINT),)), Meaning())
    return PipelineDef(f"p{instance}", instance, (SinkDef("out", "memory", {}),), program, 3, pooled=True)


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(COLUMNS)
    arrays = [pa.array(values, kind) for values, (_, kind) in zip(columns, COLUMNS, strict=True)]
    return pa.Table.from_arrays(arrays, names=[name for name, _ in COLUMNS])


def folded(pipelines: list[PipelineDef], rows: pa.Table, watermark: int | None = None) -> dict[int, Runner]:
    runners = {p.instance: Runner(p, SinkKey("c", p.instance, 1), watermark) for p in pipelines}
    done = fold_passes.run_folded(runners, [list(runners)], rows, {}, watermark)
    assert done == dict.fromkeys(runners)
    return runners


def same(value: Any) -> Any:
    """NaN equals itself here."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def compensated(total: float | None) -> Any:
    """A compensated sum that is not finite is not used: the plain sum is. DuckDB returns NaN or an infinity then.
    Without keys, its last bit may differ."""
    if total is None:
        return None
    return float(f"{total:.12e}") if math.isfinite(total) else "not finite"


def groups(partials: pa.Table, keys: int) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    found = {}
    for row in partials.to_pylist():
        values = [compensated(v) if name == "p3" else same(v) for name, v in row.items()]
        group = tuple(values[: keys + (2 if "window_start" in row else 0)])
        assert group not in found
        found[group] = tuple(values[len(group) :])
    return found


def check(pipeline: PipelineDef, runner: Runner, rows: pa.Table, watermark: int | None = None) -> None:
    """Compare what a runner sends with what DuckDB computes, and check where it is sent."""
    ring0 = pipeline.program.ring0
    wanted = aggregate_rows(ring0, pipeline.program.meaning, rows, watermark)
    sent: list[tuple[int, PackEntry]] = runner.finish(1 << 20)
    schema = schema_of(ring0)
    got = decode_rows([entry.payload for _, entry in sent], schema)
    assert groups(got, len(ring0.keys)) == groups(wanted.partials, len(ring0.keys))
    assert runner.late == wanted.late
    assert [b for b, _ in sent] == sorted(b for b, _ in sent)
    for bucket, entry in sent:
        part = decode_rows([entry.payload], schema)
        assert entry.rows == part.num_rows > 0
        assert entry.lane == pipeline.lane
        keys = [part.column(f"k{i}") for i in range(len(ring0.keys))]
        assert set(buckets(keys, part.num_rows, pipeline.buckets).tolist()) == {bucket}
        if ring0.window is not None:
            assert set(part.column("window_start").to_pylist()) == {entry.start}
            assert set(part.column("window_end").to_pylist()) == {entry.end}


wholes = st.one_of(st.none(), st.sampled_from([-(2**63), 2**63 - 1, 0]), st.integers(-5, 5))
doubles = st.one_of(st.none(), st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e308]), st.floats(-100, 100))
records = st.lists(
    st.tuples(
        st.sampled_from([None, "", "a", "ä€", "long text " * 9]),
        wholes,
        doubles,
        st.sampled_from([None, True, False]),
        st.one_of(st.none(), st.integers(-3, 3)),
        st.one_of(st.none(), st.dates()),
        st.one_of(st.none(), st.sampled_from([-1, 0, 12 * SECOND, 2**40])),
        st.one_of(st.none(), st.integers(-40 * SECOND, 60 * SECOND)),
    ),
    max_size=40,
)


@settings(max_examples=30, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(records, st.sampled_from([*KEYS]), st.sampled_from([None, TUMBLE]), st.sampled_from([None, 0, 25 * SECOND + 3]))
def test_kernels_give_what_duckdb_gives(
    found: list[tuple[Any, ...]], keys: str, window: Window | None, watermark: int | None
) -> None:
    rows = table(found)
    family = [pipeline(i + 1, keys, where, window) for i, where in enumerate(FILTERS)]
    runners = folded(family, rows, watermark)
    for member in family:
        check(member, runners[member.instance], rows, watermark)


def test_many_groups_and_many_members_are_written_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "SLOT_BYTES", 4096)
    rows = table(
        [(f"k{i % 97}", i, i / 3, i % 2 == 0, i % 7, None, None, (i * 7919) % 90 * SECOND) for i in range(3000)]
    )
    family = [pipeline(i, "text", f"c1 % {i + 1} = 0", TUMBLE) for i in range(1, 9)]
    runners = folded(family, rows, 20 * SECOND)
    for member in family:
        check(member, runners[member.instance], rows, 20 * SECOND)


def test_batches_of_one_task_are_merged() -> None:
    first = table([("a", i, 0.5, True, 1, None, None, i * SECOND) for i in range(20)])
    second = table([("a", 7, 0.25, True, 1, None, None, i * SECOND) for i in range(30)])
    member = pipeline(1, "text", None, TUMBLE)
    runner = Runner(member, SinkKey("c", 1, 1), None)
    for rows in (first, second):
        assert fold_passes.run_folded({1: runner}, [[1]], rows, {}, None) == {1: None}
    check(member, runner, pa.concat_tables([first, second]))


def test_rows_that_are_merged_again_are_cut_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "MERGE_BYTES", 1)
    # DuckDB keeps the order of fewer groups.
    rows = table([(f"k{i % 997}", i, 0.5, True, 1, None, None, i % 6011 * SECOND) for i in range(300_000)])
    member = pipeline(1, "text", None, TUMBLE)
    found = aggregate_rows(member.program.ring0, member.program.meaning, rows, None)
    order, cut = cutting(found.partials, CutRule.of(member))
    assert order is not None
    runner = Runner(member, SinkKey("c", 1, 1), None)
    runner.take(replace(found, partials=found.partials.take(order)), rows, cut)
    check(member, runner, rows)


def test_encoded_groups_that_fit_into_no_task_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "HELD_BYTES", 1000)
    with pytest.raises(OutOfMemory):
        fed(pipeline(1, "text", None, TUMBLE), batches()).finish(1 << 20)


@pytest.mark.parametrize("together", [1, 3])
def test_filters_may_need_several_statements(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_columns, "TOGETHER", together)
    rows = table([(f"k{i % 3}", i, i / 3, i % 2 == 0, i % 7, None, None, i * SECOND) for i in range(40)])
    plain = (PRESENCE, partial(1, "sum", "c1", SUM))  # no argument is computed
    for partials in (plain, ALL):
        family = [pipeline(i, "text", f"c1 % {i + 1} = 0", TUMBLE, partials) for i in range(1, 9)]
        runners = folded(family, rows)
        for member in family:
            check(member, runners[member.instance], rows)


def batches() -> list[pa.Table]:
    """Three batches of which each shares one window with the one before."""
    return [
        table([(f"k{i % 5}", i, i / 4, True, i % 3, None, None, (10 * batch + i % 20) * SECOND) for i in range(60)])
        for batch in range(3)
    ]


def fed(member: PipelineDef, given: list[pa.Table]) -> Runner:
    runner = Runner(member, SinkKey("c", member.instance, 1), None)
    for rows in given:
        assert fold_passes.run_folded({member.instance: runner}, [[member.instance]], rows, {}, None) == {
            member.instance: None
        }
    return runner


@pytest.mark.parametrize("limit", [1 << 30, 1])
@pytest.mark.parametrize("keys", ["text", "several", "none"])
@pytest.mark.parametrize("window", [TUMBLE, None])
def test_only_pieces_that_several_batches_have_are_merged_and_not_by_duckdb(
    keys: str, window: Window | None, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unwanted(*arguments: Any) -> Any:
        raise AssertionError("DuckDB merges")

    monkeypatch.setattr(runner_module, "merge", unwanted)
    monkeypatch.setattr(runner_module, "MERGE_BYTES", limit)  # with 1 they are merged after every batch, too
    member = pipeline(1, keys, "c1 > 0", window)
    runner = fed(member, batches())
    sent = runner.finish(1 << 20)
    assert len({(bucket, e.start, e.end) for bucket, e in sent}) == len(sent)
    check(member, runner, pa.concat_tables(batches()))


def test_pieces_that_the_kernels_cannot_merge_are_left_to_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: Any) -> Any:
        raise CannotMerge("a sum does not fit")

    monkeypatch.setattr(merge_form, "merge_blobs", refused)
    member = pipeline(1, "text", None, TUMBLE)
    check(member, fed(member, batches()), pa.concat_tables(batches()))


def test_a_large_piece_is_cut_to_the_size_of_a_payload() -> None:
    rows = table([(f"key {i}", i, 0.5, True, 1, None, None, SECOND) for i in range(500)])
    member = pipeline(1, "text", None, TUMBLE)
    sent = folded([member], rows)[1].finish(64)
    assert all(entry.rows <= 64 for _, entry in sent)
    assert sum(entry.rows for _, entry in sent) == 500


def test_an_argument_that_fails_only_on_rows_that_its_filter_drops_does_not_fail() -> None:
    rows = table([(text, 1, 0.5, True, 1, None, None, SECOND) for text in ("1", "x", "2")])
    argument = "CAST(c0 AS BIGINT)"
    member = pipeline(1, "flag", "c0 <> 'x'", TUMBLE, (PRESENCE, partial(1, "sum", argument, SUM)))
    check(member, folded([member], rows)[1], rows)


def test_an_argument_that_fails_is_left_to_duckdb() -> None:
    rows = table([(text, 1, 0.5, True, 1, None, None, SECOND) for text in ("1", "x", "2")])
    bad = pipeline(1, "flag", None, TUMBLE, (PRESENCE, partial(1, "sum", "CAST(c0 AS BIGINT)", SUM)))
    runners = {1: Runner(bad, SinkKey("c", 1, 1), None)}
    assert fold_passes.run_folded(runners, [[1]], rows, {}, None) == {}


@pytest.mark.parametrize(
    "state",
    [
        partial(1, "sum", "c1", Decimal(20, 2)),
        partial(1, "min", "c0", STRING, "min"),
        Partial("p1", BIGINT, "count(DISTINCT c1)", "sum(p1)", f"count(DISTINCT CASE WHEN {MEMBER} THEN c1 END)"),
        Partial("p1", DOUBLE, "max(c2) + max(c2)", "max(p1)", f"max(CASE WHEN {MEMBER} THEN c2) + max(c2 END)x"),
    ],
)
def test_other_states_are_left_to_duckdb(state: Partial) -> None:
    assert fold_program(pipeline(1, "text", None, TUMBLE, (PRESENCE, state)).program) is None


def test_sums_beyond_64_bits_are_exact() -> None:
    rows = table(
        [("a", 2**63 - 1, 0.0, True, 1, None, None, 0)] * 5 + [("b", -(2**63), 0.0, True, 1, None, None, 0)] * 3
    )
    member = pipeline(1, "text", None, None, (PRESENCE, partial(1, "sum", "c1", SUM)))
    sent = folded([member], rows)[1].finish(1 << 20)
    got = decode_rows([entry.payload for _, entry in sent], schema_of(member.program.ring0)).to_pylist()
    assert {row["k0"]: row["p1"] for row in got} == {"a": D(5 * (2**63 - 1)), "b": D(-3 * 2**63)}


def test_a_pass_that_fails_does_not_take_the_kernels_from_the_others() -> None:
    rows = table([(text, 1, 0.5, True, 1, None, None, SECOND) for text in ("1", "x", "2")])
    bad = pipeline(1, "flag", None, TUMBLE, (PRESENCE, partial(1, "sum", "CAST(c0 AS BIGINT)", SUM)))
    good = pipeline(2, "text", None, TUMBLE)
    runners = {p.instance: Runner(p, SinkKey("c", p.instance, 1), None) for p in (bad, good)}
    assert fold_passes.run_folded(runners, [[1], [2]], rows, {}, None) == {2: None}
    check(good, runners[2], rows)


def test_a_defect_of_the_kernels_is_logged_and_left_to_duckdb(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*arguments: Any) -> Any:
        raise TypeError("a defect")

    monkeypatch.setattr(fold_passes, "fold", broken)
    rows = table([("a", 1, 0.5, True, 1, None, None, SECOND)])
    runners = {1: Runner(pipeline(1, "text", None, TUMBLE), SinkKey("c", 1, 1), None)}
    assert fold_passes.run_folded(runners, [[1]], rows, {}, None) == {}
    assert "the kernels failed" in caplog.text
