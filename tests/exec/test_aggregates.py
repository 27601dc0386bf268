"""The SQL of aggregation called directly: windows by definition, partials that merge in any way, families."""

from __future__ import annotations

import math
import random
from decimal import Decimal as D
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.exec.aggregates import Aggregated, aggregate_rows, finish, is_closed, merge, project_rows, schema_of
from headrace.exec.families import family_pass
from headrace.model.definitions import PipelineDef
from headrace.model.program import Expression, Meaning, Ring0Program, Window
from headrace.model.schema import DOUBLE, INT, STRING
from tests.ring1.pipelines import (
    AGGREGATES,
    FILTER,
    Event,
    every_aggregate,
    make_pipeline,
    number,
    to_table,
    windows_of,
)
from tests.strategies import examples

UTC = Meaning()
NAN, INF = float("nan"), float("inf")


def at(*times: int | None, word: str | None = "a", value: float | None = 1.0) -> list[Event]:
    return [Event(word, None, None, value, None, t) for t in times]


def fold(made: PipelineDef, events: list[Event], watermark: int | None = None) -> list[dict[str, Any]]:
    return aggregate_rows(made.program.ring0, UTC, to_table(events), watermark).partials.to_pylist()


def aggregate_family(
    members: list[Ring0Program], meaning: Meaning, rows: pa.Table, watermark: int | None
) -> list[Aggregated]:
    """Each member's share of a family's pass."""
    family = family_pass(members)
    table = family.run(meaning, rows)
    closed = family.closed(table, watermark)
    return [family.share(table, i, closed)[0] for i in range(len(members))]


_windows = st.one_of(
    st.builds(lambda size, o: Window("tumble", size, size, o), st.integers(1, 20), st.integers(-9, 9)),
    st.builds(
        lambda slide, more, o: Window("hop", slide + more, slide, o),
        st.integers(1, 9),
        st.integers(0, 20),
        st.integers(-9, 9),
    ),
    st.builds(
        lambda step, more, o: Window("cumulate", step + more, step, o),
        st.integers(1, 9),
        st.integers(0, 20),
        st.integers(-9, 9),
    ),
)


@settings(max_examples=examples(40))
@given(window=_windows, t=st.integers(-50, 50))
@example(window=Window("hop", 7, 7), t=-1)
@example(window=Window("cumulate", 10, 4), t=9)
def test_a_row_is_in_exactly_the_windows_that_hold_its_time(window: Window, t: int) -> None:
    made = make_pipeline(window, "close", keys=(), aggregates=())
    found = sorted((r["window_start"], r["window_end"]) for r in fold(made, at(t)))
    assert found == sorted(windows_of(window, t))


def test_current_times_are_in_current_windows() -> None:
    day, now = 86_400_000_000, 1_763_164_800_123_456
    made = make_pipeline(Window("hop", day, day // 24), "close", keys=(), aggregates=())
    found = fold(made, at(now))
    assert len(found) == 24
    assert all(r["window_start"] <= now < r["window_end"] == r["window_start"] + day for r in found)
    assert all(r["window_start"] % (day // 24) == 0 for r in found)


@pytest.mark.parametrize(("names", "copies"), [(1, 500), (50, 40), (500, 2), (769, 3)])
def test_rows_with_equal_times_are_one_session_per_key(names: int, copies: int) -> None:
    """DuckDB may see equal rows in another order in each of two window functions; sessions must not fall apart."""
    made = make_pipeline(Window("session", 7, 7), "close", keys=(0,), aggregates=())
    events = [Event(f"k{i}", None, None, None, None, 0) for _ in range(copies) for i in range(names)]
    folded = aggregate_rows(made.program.ring0, UTC, to_table(events), None).partials
    assert sorted(r["k0"] for r in folded.to_pylist()) == sorted({e.word for e in events if e.word})
    assert {r["p0"] for r in folded.to_pylist()} == {copies}
    merged = merge(made.program.ring0, UTC, [folded] * copies)
    assert {r["p0"] for r in merged.to_pylist()} == {copies * copies}
    assert merged.num_rows == names


def test_rows_without_a_time_are_in_no_window_and_in_every_total() -> None:
    for window in (Window("tumble", 5, 5), Window("hop", 5, 2), Window("session", 5, 5)):
        assert fold(make_pipeline(window, "close", aggregates=()), at(None, None), 100) == []
    assert [r["p0"] for r in fold(make_pipeline(None, "changes", aggregates=()), at(None, None))] == [2]


def test_no_rows_give_no_groups_also_without_keys() -> None:
    for keys in ((), (0,)):
        made = make_pipeline(None, "changes", keys=keys, aggregates=())
        assert fold(made, []) == []
        nothing = schema_of(made.program.ring0).empty_table()
        assert merge(made.program.ring0, UTC, [nothing, nothing]).num_rows == 0


_values = st.sampled_from([None, NAN, INF, -INF, -0.0]) | st.floats(-1e12, 1e12)


@settings(max_examples=examples(20))
@given(values=st.lists(_values, min_size=1, max_size=12), cuts=st.sets(st.integers(0, 12)), seed=st.integers(0, 99))
def test_partials_merge_in_any_grouping_and_any_order(values: list[float | None], cuts: set[int], seed: int) -> None:
    made = make_pipeline(None, "changes", keys=(), aggregates=AGGREGATES)
    ring0, ring1 = made.program.ring0, made.program.ring1
    assert ring1 is not None
    events = [Event("a", None, None, v, None, 0) for v in values]
    edges = [0, *sorted(c for c in cuts if c < len(events)), len(events)]
    pieces = [events[a:b] for a, b in pairwise(edges) if b > a]
    parts = [aggregate_rows(ring0, UTC, to_table(p), None).partials for p in pieces]
    random.Random(seed).shuffle(parts)
    half = len(parts) // 2
    nested = [merge(ring0, UTC, part) for part in (parts[:half], parts[half:]) if part]
    whole = aggregate_rows(ring0, UTC, to_table(events), None).partials
    (found,), (expected,) = (finish(ring1, UTC, merge(ring1, UTC, p)).to_pylist() for p in (nested, [whole]))
    magnitude = math.fsum(abs(v) for v in values if v is not None and math.isfinite(v))
    for name in ("total", "mean"):
        a, b = found.pop(name), expected.pop(name)
        assert number(a) == number(b) or abs(a - b) <= 1e-12 * magnitude
    assert {k: number(v) if isinstance(v, float) else v for k, v in found.items()} == {
        k: number(v) if isinstance(v, float) else v for k, v in expected.items()
    }


def test_a_sum_of_doubles_is_compensated_across_merges() -> None:
    made = make_pipeline(None, "changes", keys=(), aggregates=AGGREGATES[:2])
    ring1 = made.program.ring1
    assert ring1 is not None
    parts = [
        aggregate_rows(made.program.ring0, UTC, to_table(at(0, value=v)), None).partials for v in [1e16, *[1.0] * 100]
    ]
    (row,) = finish(ring1, UTC, merge(ring1, UTC, parts)).to_pylist()
    assert row["total"] == 1e16 + 100


@pytest.mark.parametrize(
    "window", [None, Window("tumble", 10, 10), Window("hop", 15, 10), Window("cumulate", 20, 10)], ids=str
)
@settings(max_examples=examples(6))
@given(data=st.data())
def test_a_family_gives_each_member_the_same_result_as_alone(window: Window | None, data: st.DataObject) -> None:
    filters = (None, FILTER, "c3 > 0", "c0 IS NULL", "c3 > 0", "false", "c4 = '_member'")
    members = [
        make_pipeline(window, "changes", where=where, aggregates=AGGREGATES[i : i + 3])
        for i, where in enumerate(filters)
    ]
    events = data.draw(
        st.lists(
            st.builds(
                Event,
                st.sampled_from([None, "a"]),
                st.sampled_from([None, NAN, -0.0]),
                st.none() | st.decimals(-9, 9, places=2),
                st.none() | st.floats(-9, 9),
                st.sampled_from([None, "drop", "_member"]),
                st.none() | st.integers(-30, 60),
            ),
            max_size=15,
        )
    )
    rows, watermark = to_table(events), data.draw(st.none() | st.integers(-30, 60))
    shares = aggregate_family([m.program.ring0 for m in members], UTC, rows, watermark)
    for member, share in zip(members, shares, strict=True):
        alone = aggregate_rows(member.program.ring0, UTC, rows, watermark)
        assert share.late == alone.late
        assert share.partials.schema == alone.partials.schema
        assert sorted(map(repr, share.partials.to_pylist())) == sorted(map(repr, alone.partials.to_pylist()))


def test_every_aggregate_gives_the_same_in_a_family_as_alone() -> None:
    chance = random.Random(3)
    members = [make_pipeline(None, "changes", where=where, aggregates=every_aggregate()) for where in ("c3 > 0", None)]
    events = [
        Event(
            chance.choice("ab"),
            None,
            chance.choice([None, D("1.25"), D("-3.50")]),
            chance.choice([None, NAN, -0.0, 0.5, 3.25]),
            chance.choice([None, "x", "_member"]),
            chance.choice([None, 1, 2, 3]),
        )
        for _ in range(60)
    ]
    rows = to_table(events)
    shares = aggregate_family([m.program.ring0 for m in members], UTC, rows, None)
    for member, share in zip(members, shares, strict=True):
        alone = aggregate_rows(member.program.ring0, UTC, rows, None).partials.to_pylist()
        assert sorted(map(repr, share.partials.to_pylist())) == sorted(map(repr, alone))


def test_an_argument_is_not_evaluated_on_rows_that_its_member_filtered_out() -> None:
    number_of = (("cast", "max", (("CAST(c0 AS INTEGER)", INT),)),)
    careful = make_pipeline(None, "changes", keys=(), aggregates=number_of, where="c0 = '7'")
    open_to_all = make_pipeline(None, "changes", keys=(), aggregates=(), where=None)
    rows = to_table([*at(1, word="7"), *at(2, word="seven")])
    first, second = aggregate_family([careful.program.ring0, open_to_all.program.ring0], UTC, rows, None)
    assert [(r["p0"], r["p1"]) for r in first.partials.to_pylist()] == [(1, 7)]
    assert [r["p0"] for r in second.partials.to_pylist()] == [2]


def test_a_constant_is_the_same_in_a_family_whatever_it_spells() -> None:
    spelled = (("said", "max", (("c0 || ' _member _f0 ''_member'''", STRING),)),)
    members = [make_pipeline(None, "changes", keys=(), aggregates=spelled, where=w) for w in ("c3 > 0", None)]
    rows = to_table(at(1))
    for share in aggregate_family([m.program.ring0 for m in members], UTC, rows, None):
        assert [r["p1"] for r in share.partials.to_pylist()] == ["a _member _f0 '_member'"]


def test_output_rows_have_the_declared_types() -> None:
    outputs = (Expression("word", STRING, "c0"), Expression('odd "name"', INT, "1"), Expression("v", DOUBLE, "c3 / 2"))
    table = project_rows(outputs, "c0 = 'a'", UTC, to_table([*at(1), *at(2, word="b")]))
    assert table.schema.names == ["word", 'odd "name"', "v"]
    assert table.schema.types == [pa.string(), pa.int32(), pa.float64()]
    assert table.to_pylist() == [{"word": "a", 'odd "name"': 1, "v": 0.5}]


def test_a_session_ends_after_its_end_and_other_windows_at_it() -> None:
    for window, closed in ((Window("session", 5, 5), [False, False, True]), (Window("hop", 5, 5), [False, True, True])):
        assert [is_closed(window, 10, w) for w in (9, 10, 11)] == closed
        assert not is_closed(window, 10, None)
