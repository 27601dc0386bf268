"""The result does not depend on how the input was cut into batches, tasks and epochs, and it is the right one.

Rows come out of order by at most the watermark delay, so none is late under any cut, and windows do close on the way.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from decimal import Decimal as D
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model.program import Emit, Window
from headrace.sql.functions.aggregate_functions import AGGREGATES as REGISTRY
from tests.ring1.pipelines import (
    AGGREGATES,
    DROPPED,
    FEW,
    Event,
    Run,
    assert_row,
    every_aggregate,
    group_of,
    make_pipeline,
    number,
    pooled_windows,
    windows_of,
)
from tests.strategies import examples

DELAY = 40
LAST = 1_000  # a time after which every window of the test is closed

NAN = float("nan")
_doubles = st.sampled_from([None, NAN, -0.0, 0.0, 1e16, 1.0, -1e16, float("inf")]) | st.floats(-1e6, 1e6)
_events = st.builds(
    Event,
    st.sampled_from([None, "", "a", "é"]),
    st.sampled_from([None, NAN, -0.0, 0.0, 2.5]),
    st.none() | st.decimals(-10_000, 10_000, places=2),
    _doubles,
    st.sampled_from([None, "x", "ß", "Z", DROPPED]),
    st.none() | st.integers(-60, 140),
)


@dataclass(frozen=True)
class Cut:
    """One way in which the rows arrive: how late each is, where epochs begin, and each row's task and batch."""

    jitter: list[int]
    epochs: list[int]
    places: list[tuple[int, int]]
    order: int

    def apply(self, events: list[Event]) -> list[list[list[list[Event]]]]:
        arrival = sorted(range(len(events)), key=lambda i: (events[i].t or 0) + self.jitter[i])
        edges = [0, *sorted(self.epochs), len(events)]
        epochs = []
        for a, b in pairwise(edges):
            tasks: list[list[list[Event]]] = [[[], []] for _ in range(3)]
            for i in arrival[a:b]:
                task, batch = self.places[i]
                tasks[task][batch].append(events[i])
            epochs.append(tasks)
        return epochs


@st.composite
def _cuts(draw: st.DrawFn, rows: int) -> Cut:
    places = st.tuples(st.integers(0, 2), st.integers(0, 1))
    return Cut(
        draw(st.lists(st.integers(0, DELAY), min_size=rows, max_size=rows)),
        draw(st.lists(st.integers(0, rows), max_size=3)),
        draw(st.lists(places, min_size=rows, max_size=rows)),
        draw(st.integers(0, 99)),
    )


@st.composite
def _cases(draw: st.DrawFn) -> tuple[list[Event], list[Cut]]:
    events = draw(st.lists(_events, min_size=4, max_size=24))
    whole = Cut([0] * len(events), [], [(0, 0)] * len(events), 0)
    return events, [whole, draw(_cuts(len(events)))]


WINDOWS = {
    "tumble": Window("tumble", 20, 20, 3),
    "hop": Window("hop", 30, 10),
    "hop with a rest": Window("hop", 25, 10, -4),
    "cumulate": Window("cumulate", 30, 10),
    "cumulate with a rest": Window("cumulate", 25, 10, 7),
}
CHANGING = (WINDOWS["tumble"], WINDOWS["hop with a rest"], WINDOWS["cumulate"])
SESSION = Window("session", 7, 7)
TICK = Event("tick", None, None, None, DROPPED, LAST)


def grouped(events: list[Event], window: Window | None) -> dict[tuple[Any, ...], list[Event]]:
    """The groups that these events make, found one event and one window at a time."""
    groups: dict[tuple[Any, ...], list[Event]] = defaultdict(list)
    sessions: dict[tuple[Any, ...], list[list[Event]]] = defaultdict(list)
    for event in sorted((e for e in events if e.note != DROPPED), key=lambda e: e.t or 0):
        key = (event.word, number(event.level))
        if window is None:
            groups[None, None, *key].append(event)
        elif event.t is not None and window.kind == "session":
            if not sessions[key] or event.t > (sessions[key][-1][-1].t or 0) + window.size:
                sessions[key].append([])
            sessions[key][-1].append(event)
        elif event.t is not None:
            for bounds in windows_of(window, event.t):
                groups[*bounds, *key].append(event)
    for key, found in sessions.items():
        for session in found:
            start, end = session[0].t, session[-1].t
            assert start is not None and end is not None
            groups[start, end + SESSION.size, *key] = session
    return groups


def run(
    window: Window | None, emit: Emit, events: list[Event], cut: Cut, *, by_watermark: bool, every: bool = False
) -> Run:
    """All epochs of a cut, then the end: either the watermark passes everything, or the input ends. `every` computes
    all aggregates, not just a few."""
    found = Run(make_pipeline(window, emit, aggregates=AGGREGATES if every else FEW, pooled=True), DELAY)
    for tasks in cut.apply(events):
        found.epoch(tasks, shuffle=cut.order)
    if by_watermark:
        found.epoch([[[TICK]], []])
    else:
        found.epoch([[]], flush=True)
    assert found.late == 0
    return found


def check_close(window: Window, case: tuple[list[Event], list[Cut]], by_watermark: bool) -> None:
    events, cuts = case
    expected = grouped(events, window)
    for cut in cuts:
        found = run(window, "close", events, cut, by_watermark=by_watermark, every=window.kind == "tumble")
        assert Counter(map(group_of, found.rows)) == Counter(expected.keys())  # exactly one row per window and group
        for row in found.rows:
            assert_row(row, expected[group_of(row)])
            assert str(row["level"]) != "-0.0"
        assert all(not s.blobs for s in found.stores)
        assert all(pooled_windows(s) == 0 for s in found.stores) and all(o.rows == 0 for o in found.outcomes)


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS.keys())
@settings(max_examples=examples(8))
@given(case=_cases(), by_watermark=st.booleans())
def test_windows_that_emit_on_close(window: Window, case: tuple[list[Event], list[Cut]], by_watermark: bool) -> None:
    check_close(window, case, by_watermark)


@settings(max_examples=examples(12))
@given(case=_cases(), by_watermark=st.booleans())
def test_sessions_that_emit_on_close(case: tuple[list[Event], list[Cut]], by_watermark: bool) -> None:
    check_close(SESSION, case, by_watermark)


@pytest.mark.parametrize("window", [None, *CHANGING], ids=["all time", "tumble", "hop", "cumulate"])
@settings(max_examples=examples(8))
@given(case=_cases())
def test_the_last_row_of_groups_that_emit_changes(window: Window | None, case: tuple[list[Event], list[Cut]]) -> None:
    events, cuts = case
    expected = grouped(events, window)
    for cut in cuts:
        found = run(window, "changes", events, cut, by_watermark=True)
        last: dict[tuple[Any, ...], dict[str, Any]] = {}
        for epoch in found.outputs:
            changed = [group_of(row) for row in epoch]
            assert len(changed) == len(set(changed))  # a group that changed speaks once per epoch
            last.update(zip(changed, epoch, strict=True))
        assert last.keys() == expected.keys()
        for group, row in last.items():
            assert_row(row, expected[group])
            assert str(row["level"]) != "-0.0"


_tame_events = st.builds(
    Event,
    st.sampled_from(["a", "b"]),
    st.none(),
    st.none() | st.sampled_from([D("0.00"), D("1.25"), D("-3.50"), D("100.00")]),
    st.sampled_from([None, NAN, float("inf"), -0.0, 0.0, 0.5, -2.25, 3.0, 100.125]),
    st.sampled_from([None, "x", "ß", "Z", ""]),
    st.integers(0, 40),
)


@st.composite
def _tame_cases(draw: st.DrawFn) -> tuple[list[Event], Cut]:
    events = draw(st.lists(_tame_events, min_size=6, max_size=30))
    return events, draw(_cuts(len(events)))


@pytest.mark.parametrize("name", sorted({function.name for function in REGISTRY}))
def test_every_aggregate_is_among_those_that_are_cut(name: str) -> None:
    assert name in {function for _, function, _ in every_aggregate()}


@settings(max_examples=examples(6))
@given(case=_tame_cases())
def test_no_aggregate_depends_on_the_cut(case: tuple[list[Event], Cut]) -> None:
    events, cut = case
    calls = every_aggregate()
    whole = Cut([0] * len(events), [], [(0, 0)] * len(events), 0)
    rows = []
    for each in (whole, cut):
        found = Run(make_pipeline(WINDOWS["tumble"], "close", aggregates=calls, pooled=True), DELAY)
        for tasks in each.apply(events):
            found.epoch(tasks, shuffle=each.order)
        found.epoch([[]], flush=True)
        rows.append({group_of(row): row for row in found.rows})
    first, second = rows
    assert first.keys() == second.keys()
    for group, row in first.items():
        for output, function, _ in calls:
            assert same(row[output], second[group][output]), (function, row[output], second[group][output])


def same(a: Any, b: Any) -> bool:
    """Equal. Zero has a sign in lists of values. Numbers that are not exact are within a trillionth."""
    if isinstance(a, list) and isinstance(b, list):
        return repr(a) == repr(b)
    if isinstance(a, float) and isinstance(b, float):
        return number(a) == number(b) or math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-12)
    return bool(a == b)


@pytest.mark.parametrize("window", [None, WINDOWS["hop"]], ids=["all time", "hop"])
@settings(max_examples=examples(8))
@given(case=_cases())
def test_distinct_rows_are_emitted_once(window: Window | None, case: tuple[list[Event], list[Cut]]) -> None:
    events, cuts = case
    expected = Counter(grouped(events, window).keys())
    for cut in cuts:
        found = run(window, "first", events, cut, by_watermark=True)
        assert Counter(map(group_of, found.rows)) == expected
        assert window is None or all(not s.blobs for s in found.stores)


def event(t: int, word: str = "a", value: float = 1.0) -> Event:
    return Event(word, None, D("1.00"), value, None, t)


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (0, 2, 4, 1, 3), (1, 3, 0, 4, 2)])
def test_five_events_in_one_gap_in_five_epochs_are_one_session(order: tuple[int, ...]) -> None:
    found = Run(make_pipeline(SESSION, "close", pooled=True), 1_000)
    for i in order:
        assert found.epoch([[[event(i * 7)]]]) == []  # exactly `gap` after the last still joins
    (row,) = found.epoch([[]], flush=True)
    assert (row["window_start"], row["window_end"], row["rows"]) == (0, 35, 5)


def test_one_event_joins_two_sessions_to_one() -> None:
    found = Run(make_pipeline(SESSION, "close", pooled=True), 1_000)
    found.epoch([[[event(0)]], [[event(14)]]])
    found.epoch([[[event(7)]]])
    (row,) = found.epoch([[]], flush=True)
    assert (row["window_start"], row["window_end"], row["rows"]) == (0, 21, 3)


def test_an_event_one_microsecond_after_the_gap_begins_a_new_session() -> None:
    found = Run(make_pipeline(SESSION, "close", pooled=True), 1_000)
    found.epoch([[[event(0), event(8)]]])
    assert sorted(r["window_start"] for r in found.epoch([[]], flush=True)) == [0, 8]


def test_a_session_stays_open_while_an_event_exactly_at_its_end_may_come() -> None:
    found = Run(make_pipeline(SESSION, "close", pooled=True), 0)
    found.epoch([[[event(0)]]])
    assert found.epoch([[[event(7, "b")]]]) == []  # the watermark is the session's end itself
    assert [r["word"] for r in found.epoch([[[event(8, "b")]]])] == ["a"]
