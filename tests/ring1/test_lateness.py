"""Late rows: which windows a row loses, which rows are dropped, and that every drop is counted once.

A brute-force model holds whole rows per open window and applies the rules of docs/windows.md one row at a time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.exec.aggregates import aggregate_rows, late_rows
from headrace.model.program import Emit, Expression, Window
from headrace.model.schema import BIGINT, STRING
from tests.ring1.pipelines import DROPPED, Event, Run, make_pipeline, to_table, windows_of
from tests.strategies import examples

_events = st.builds(
    Event,
    st.sampled_from(["a", None]),
    st.none(),
    st.none(),
    st.none(),
    st.sampled_from([None, None, None, DROPPED]),
    st.none() | st.integers(-10, 60),
)
_epochs = st.lists(
    st.lists(st.lists(st.lists(_events, max_size=4), max_size=2), min_size=1, max_size=2), min_size=2, max_size=5
)
_delays = st.sampled_from([0, 3, 10])


def at(t: int, word: str = "a") -> Event:
    return Event(word, None, None, None, None, t)


@dataclass
class Model:
    """What a pipeline must do with each epoch. `emitted` has (epoch, start, end, word, rows); `late` counts rows."""

    window: Window
    emit: Emit
    delay: int
    watermark: int | None = None
    late: int = 0
    in_time: int = 0
    epoch: int = 0
    open: dict[tuple[int, int, str | None], int] = field(default_factory=dict)
    emitted: list[tuple[int, int, int, str | None, int]] = field(default_factory=list)

    def closed(self, end: int) -> bool:
        if self.watermark is None:
            return False
        return end < self.watermark if self.window.kind == "session" else end <= self.watermark

    def run(self, tasks: list[list[list[Event]]]) -> None:
        events = [e for batches in tasks for batch in batches for e in batch]
        changed: set[tuple[int, int, str | None]] = set()
        for event in events:
            if event.note != DROPPED and event.t is not None:
                changed |= self.take(event.word, event.t)
        if self.emit == "changes":
            self.emitted += [(self.epoch, *group, self.open[group]) for group in changed]
        for event in events:
            if event.t is not None and (self.watermark is None or event.t - self.delay > self.watermark):
                self.watermark = event.t - self.delay
        for group in [g for g in self.open if self.closed(g[1])]:
            rows = self.open.pop(group)
            if self.emit == "close":
                self.emitted.append((self.epoch, *group, rows))
        self.epoch += 1

    def take(self, word: str | None, t: int) -> set[tuple[int, int, str | None]]:
        session = self.window.kind == "session"
        bounds = [(t, t + self.window.size)] if session else windows_of(self.window, t)
        wanted = [b for b in bounds if not self.closed(b[1])]
        self.late += not wanted
        self.in_time += bool(wanted)
        groups = {(start, end, word) for start, end in wanted}
        for group in groups:
            if session:
                self.join(*group)
            else:
                self.open[group] = self.open.get(group, 0) + 1
        return groups

    def join(self, start: int, end: int, word: str | None) -> None:
        touching = [g for g in self.open if g[2] == word and g[0] <= end and start <= g[1]]
        rows = 1 + sum(self.open.pop(g) for g in touching)
        whole = (min([start, *(g[0] for g in touching)]), max([end, *(g[1] for g in touching)]), word)
        self.open[whole] = rows


WINDOWS = {
    "tumble": Window("tumble", 10, 10, 3),
    "hop": Window("hop", 15, 5),
    "hop with a rest": Window("hop", 12, 5, 1),
    "cumulate": Window("cumulate", 20, 5),
    "session": Window("session", 6, 6),
}
CHANGES = [(WINDOWS["tumble"], "changes"), (WINDOWS["hop"], "changes")]
MODES: list[tuple[Window, Emit]] = [*((w, "close") for w in WINDOWS.values()), *CHANGES]  # type: ignore[list-item]


def facts(run: Run) -> Counter[tuple[Any, ...]]:
    return Counter(
        (epoch, r["window_start"], r["window_end"], r["word"], r["rows"])
        for epoch, rows in enumerate(run.outputs)
        for r in rows
    )


@pytest.mark.parametrize(("window", "emit"), MODES, ids=[*WINDOWS, "tumble, changes", "hop, changes"])
@settings(max_examples=examples(10))
@given(epochs=_epochs, delay=_delays)
@example(epochs=[[[[at(40)]]], [[[at(0), at(25), at(33)]]], [[[at(60)]]]], delay=3)
def test_late_rows_are_dropped_and_counted_as_the_model_says(
    window: Window, emit: Emit, epochs: list[list[list[list[Event]]]], delay: int
) -> None:
    model = Model(window, emit, delay)
    run = Run(make_pipeline(window, emit, keys=(0,), aggregates=()), delay)
    watermarks: list[int] = []
    for tasks in epochs:
        model.run(tasks)
        run.epoch(tasks)
        assert run.watermark == model.watermark
        watermarks += [] if run.watermark is None else [run.watermark]
    assert watermarks == sorted(watermarks)
    assert run.late == model.late
    assert facts(run) == Counter(model.emitted)


@settings(max_examples=examples(10))
@given(epochs=_epochs, delay=_delays)
def test_every_row_is_in_the_output_or_counted_as_late(epochs: list[list[list[list[Event]]]], delay: int) -> None:
    run = Run(make_pipeline(WINDOWS["tumble"], "close", keys=(0,), aggregates=()), delay)
    for tasks in epochs:
        run.epoch(tasks)
    run.epoch([[]], flush=True)
    events = [e for tasks in epochs for batches in tasks for batch in batches for e in batch]
    counted = sum(e.note != DROPPED and e.t is not None for e in events)
    assert sum(r["rows"] for r in run.rows) + run.late == counted


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@settings(max_examples=examples(10))
@given(st.lists(_events, max_size=20), st.integers(-20, 80))
def test_the_rows_for_the_late_sink_are_those_that_are_counted(
    window: Window, events: list[Event], watermark: int
) -> None:
    program = make_pipeline(window, "close", keys=(0,), aggregates=()).program
    outputs = (Expression("word", STRING, "c0"), Expression("t", BIGINT, "_t"))
    counted = aggregate_rows(program.ring0, program.meaning, to_table(events), watermark).late
    rows = late_rows(outputs, program.ring0, program.meaning, to_table(events), watermark).to_pylist()
    assert len(rows) == counted
    model = Model(window, "close", 0, watermark=watermark)
    wanted = [
        (e.word, e.t)
        for e in events
        if e.note != DROPPED
        and e.t is not None
        and all(
            model.closed(end)
            for _, end in ([(e.t, e.t + window.size)] if window.kind == "session" else windows_of(window, e.t))
        )
    ]
    assert Counter((r["word"], r["t"]) for r in rows) == Counter(wanted)


def test_a_hopping_row_loses_only_the_windows_that_are_closed() -> None:
    run = Run(make_pipeline(WINDOWS["hop"], "close", keys=(0,), aggregates=()), 0)
    run.epoch([[[at(22, "clock")]]])  # closes what ends at 20 and before
    run.epoch([[[at(10)]]])  # is in [0, 15), [5, 20) and [10, 25)
    assert run.late == 0
    run.epoch([[[at(9)]]])  # is in [-5, 10), [0, 15) and [5, 20): all closed
    assert run.late == 1
    rows = run.epoch([[]], flush=True)
    assert [(r["window_start"], r["rows"]) for r in rows if r["word"] == "a"] == [(10, 1)]


@pytest.mark.parametrize(("t", "late"), [(15, 0), (14, 1)])
def test_a_session_row_is_late_when_its_own_end_has_passed(t: int, late: int) -> None:
    run = Run(make_pipeline(Window("session", 5, 5), "close", keys=(0,), aggregates=()), 0)
    run.epoch([[[at(20, "clock")]]])
    run.epoch([[[at(t)]]])
    assert run.late == late


def test_session_rows_are_judged_one_by_one_before_they_become_a_session() -> None:
    run = Run(make_pipeline(Window("session", 5, 5), "close", keys=(0,), aggregates=()), 0)
    run.epoch([[[at(20, "clock")]]])
    run.epoch([[[at(13), at(14), at(15)]]])  # one island, but only the last row is in time
    assert run.late == 2
    rows = run.epoch([[]], flush=True)
    assert [(r["window_start"], r["rows"]) for r in rows if r["word"] == "a"] == [(15, 1)]


def test_a_pipeline_without_a_window_drops_nothing() -> None:
    run = Run(make_pipeline(None, "changes", keys=(0,), aggregates=()), 0)
    run.epoch([[[at(1_000)]]])
    rows = run.epoch([[[at(-1_000), Event("a", None, None, None, None, None)]]])
    assert [r["rows"] for r in rows] == [3]
    assert run.late == 0


@pytest.mark.parametrize("window", [w for n, w in WINDOWS.items() if n != "session"], ids=lambda w: w.kind)
@pytest.mark.parametrize("emit", ["close", "changes"])
def test_rows_for_windows_that_an_end_of_input_closed_are_counted_once_each(window: Window, emit: Emit) -> None:
    run = Run(make_pipeline(window, emit, keys=(0,), aggregates=()), 1_000)
    run.epoch([[[at(20), at(40)]]], flush=True)
    assert run.late == 0
    floor = max(end for _, end in windows_of(window, 40))
    times = list(range(-10, 60))
    kept: dict[tuple[int, int], int] = defaultdict(int)
    for t in times:
        for bounds in windows_of(window, t):
            kept[bounds] += bounds[1] > floor
    rows = run.epoch([[[at(t) for t in times[::2]], [at(t) for t in times[1::2]]]], flush=True)
    assert run.late == sum(all(end <= floor for _, end in windows_of(window, t)) for t in times)
    found = {(r["window_start"], r["window_end"]): r["rows"] for r in rows}
    assert found == {bounds: count for bounds, count in kept.items() if count}
