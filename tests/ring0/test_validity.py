"""Bad records, per pipeline: the rows of a pipeline never depend on the other pipelines."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model.definitions import PipelineDef
from headrace.model.program import Condition, Window
from headrace.model.schema import View
from tests.ring0.tasks import SECOND, WORD, N, X, at, counting, lines, stateless, stream, task
from tests.strategies import examples

TUMBLE = Window("tumble", 10 * SECOND, 10 * SECOND)
BAD_N = lines(
    {"word": "a", "n": 1, "ts": at(1)}, {"word": "b", "n": "x", "ts": at(2)}, {"word": "c", "n": 3, "ts": at(3)}
)
WORDS, NUMBERS = stateless(1, WORD), stateless(2, WORD, N)


def test_null_nulls_the_cell_and_keeps_the_row() -> None:
    sent = task([WORDS, NUMBERS], BAD_N)
    assert [r["word"] for r in sent.rows[1]] == ["a", "b", "c"]
    assert [r["n"] for r in sent.rows[2]] == [1, None, 3]
    assert [sent.counts[i].bad for i in (1, 2)] == [0, 1]


def test_skip_drops_the_row_only_where_the_column_is_in_the_view() -> None:
    sent = task([WORDS, NUMBERS], BAD_N, declared=stream(on_error="skip"))
    assert [r["word"] for r in sent.rows[1]] == ["a", "b", "c"]
    assert [r["n"] for r in sent.rows[2]] == [1, 3]
    assert [sent.counts[i].bad for i in (1, 2)] == [0, 1]


def test_fail_fails_only_where_the_column_is_in_the_view() -> None:
    sent = task([WORDS, NUMBERS], BAD_N, declared=stream(on_error="fail"))
    assert [r["word"] for r in sent.rows[1]] == ["a", "b", "c"]
    assert list(sent.errors) == [2]
    assert "[BAD_RECORD]" in sent.errors[2]
    assert 2 not in sent.rows


@pytest.mark.parametrize("policy", ["skip", "fail", "dead_letter"])
def test_a_bad_value_on_a_row_that_the_filter_drops_has_no_effect(policy: str) -> None:
    picky = stateless(2, WORD, N, where="c0 <> 'b'")
    sent = task([picky], BAD_N, declared=stream(on_error=policy))
    assert [r["n"] for r in sent.rows[2]] == [1, 3]
    assert not sent.errors
    assert sent.counts[2].bad == 0
    assert sent.report.bad == {}
    assert sent.letters == []


FILTERED = [stateless(2, WORD, N, where="c1 > 0"), counting(2, WORD, where="c1 > 0", view=View.some([WORD, N]))]


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("pipeline", FILTERED, ids=["rows", "groups"])
@pytest.mark.parametrize("policy", ["null", "skip", "fail", "dead_letter"])
def test_a_bad_value_in_the_filter_s_own_column_never_goes_unnoticed(
    policy: str, pipeline: PipelineDef, late: bool
) -> None:
    others = [] if late else [stateless(1, WORD)]  # with a pipeline without a filter nothing is parsed late
    sent = task([pipeline, *others], BAD_N, declared=stream(on_error=policy))
    if policy == "fail":
        assert "[BAD_RECORD]" in sent.errors[2]
        return
    assert sent.counts[2].bad == 1
    assert sent.report.bad == {"bad_integer": 1}
    assert [letter["column"] for letter in sent.letters] == (["n"] if policy == "dead_letter" else [])


def _picky(*parts: tuple[str, tuple[int, ...]], instance: int = 2) -> PipelineDef:
    """A pipeline whose filter is split into conditions, as the planner splits it."""
    made = stateless(instance, WORD, N, X, where=" AND ".join(sql for sql, _ in parts))
    ring0 = replace(made.program.ring0, conditions=tuple(Condition(sql, columns) for sql, columns in parts))
    return replace(made, program=replace(made.program, ring0=ring0))


@pytest.mark.parametrize(
    ("word", "n", "x", "concerned"),
    [
        ("a", "bad", 1.0, True),  # the good conditions do not decide
        ("b", "bad", 1.0, False),  # dropped by a good word, whatever n was meant to be
        ("a", "bad", 0.0, False),
        ("a", "bad", "bad", True),
        ("a", 1, "bad", True),
        ("a", 0, "bad", False),
        (None, "bad", 1.0, False),  # NULL is not true
    ],
)
def test_conditions_that_read_no_bad_value_still_drop_the_row(word: Any, n: Any, x: Any, concerned: bool) -> None:
    picky = _picky(("c0 = 'a'", (WORD,)), ("coalesce(c1, 1) > 0", (N,)), ("c2 > 0.5", (X,)))
    data = lines({"word": word, "n": n, "x": x, "ts": at(1)}, {"word": "a", "n": 1, "x": 1.0, "ts": at(2)})
    sent = task([picky], data, declared=stream(on_error="skip"))
    assert [r["n"] for r in sent.rows[2]] == [1]
    assert sent.counts[2].bad == concerned
    failing = task([picky], data, declared=stream(on_error="fail"))
    assert bool(failing.errors) == concerned


def test_a_guard_in_the_filter_still_guards_when_another_value_is_bad() -> None:
    picky = _picky(("c2 <> 0", (X,)), ("CAST(1 / CAST(c2 AS INTEGER) AS INTEGER) > 0", (X,)), ("c1 > 0", (N,)))
    data = lines({"word": "a", "n": "bad", "x": 0.0, "ts": at(1)})
    assert not task([picky], data, declared=stream(on_error="fail")).errors


@pytest.mark.parametrize("policy", ["null", "skip"])
def test_a_record_with_bad_structure_is_no_row_for_any_pipeline(policy: str) -> None:
    data = lines({"word": "a", "ts": at(1)}, "{", "[1]", {"word": "b", "ts": at(2)})
    sent = task([WORDS, counting(2, None)], data, declared=stream(on_error=policy))
    assert [r["word"] for r in sent.rows[1]] == ["a", "b"]
    assert sent.events[2, 0] == [{"p0": 2}]
    assert sent.report.bad == {"bad_json": 1, "not_an_object": 1}


def test_bad_structure_fails_every_pipeline_under_fail() -> None:
    sent = task([WORDS, counting(2, None)], lines({"word": "a", "ts": at(1)}, "{"), declared=stream(on_error="fail"))
    assert set(sent.errors) == {1, 2}
    assert all("[BAD_RECORD]" in reason for reason in sent.errors.values())


@pytest.mark.parametrize("policy", ["null", "skip", "dead_letter"])
def test_a_bad_event_time_rejects_the_row_for_all(policy: str) -> None:
    data = lines(
        {"word": "a", "n": 1, "ts": at(1)}, {"word": "b", "n": 2, "ts": "soon"}, {"word": "c", "n": 3, "ts": at(2)}
    )
    sent = task([WORDS, NUMBERS, counting(3, None)], data, declared=stream(on_error=policy))
    assert [r["word"] for r in sent.rows[1]] == ["a", "c"]
    assert [r["n"] for r in sent.rows[2]] == [1, 3]
    assert sent.events[3, 0] == [{"p0": 2}]
    assert sent.report.bad == {"bad_timestamp": 1}
    assert [letter["reason"] for letter in sent.letters] == ["bad_timestamp"] * (policy == "dead_letter")
    assert not sent.errors


def test_a_bad_event_time_fails_every_pipeline_under_fail() -> None:
    data = lines({"word": "a", "n": 1, "ts": "soon"})
    sent = task([WORDS, counting(3, None)], data, declared=stream(on_error="fail"))
    assert set(sent.errors) == {1, 3}


def test_a_dead_letter_has_the_position_of_the_record_and_is_written_once() -> None:
    data = lines({"word": "a", "n": 1, "ts": at(1)}, "{", {"word": "b", "n": "x", "x": "y", "ts": at(2)})
    readers = [stateless(1, WORD), stateless(2, WORD, N), stateless(3, N, X), counting(4, N)]
    sent = task(readers, data, declared=stream(on_error="dead_letter"))
    first, second, third = data.splitlines()
    places = (len(first) + 1, len(first) + len(second) + 2)
    common = {"stream": "s", "origin": "memory"}
    assert sent.letters == [
        {**common, "offset": places[0], "column": None, "reason": "bad_json", "raw": second, "text": second.decode()},
        {**common, "offset": places[1], "column": "n", "reason": "bad_integer", "raw": third, "text": third.decode()},
        {**common, "offset": places[1], "column": "x", "reason": "bad_number", "raw": third, "text": third.decode()},
    ]
    assert [r["word"] for r in sent.rows[1]] == ["a", "b"]
    assert [r["n"] for r in sent.rows[2]] == [1]
    assert sent.report.bad == {"bad_json": 1, "bad_integer": 1, "bad_number": 1}


def test_a_bad_value_after_a_rejected_row_is_still_found_in_its_own_row() -> None:
    data = lines(
        {"word": "a", "n": "x", "ts": "soon"}, {"word": "b", "n": "y", "ts": at(2)}, {"word": "c", "n": 3, "ts": at(3)}
    )
    sent = task([NUMBERS], data, declared=stream(on_error="skip"))
    assert [r["word"] for r in sent.rows[2]] == ["c"]
    assert sent.counts[2].bad == 1


def test_a_row_without_an_event_time_is_kept_where_no_window_needs_one() -> None:
    data = lines({"word": "a", "ts": None}, {"word": "b"}, {"word": "c", "ts": at(3)})
    sent = task([WORDS, counting(2, None), counting(3, None, window=TUMBLE)], data)
    assert [r["word"] for r in sent.rows[1]] == ["a", "b", "c"]
    assert sent.events[2, 0] == [{"p0": 3}]
    assert [e["p0"] for e in sent.events[3, 0]] == [1]
    assert sent.report.bad == {"null_event_time": 2}


PIPELINES = [
    stateless(1, WORD),
    stateless(2, WORD, N, where="c1 IS NULL OR c1 < 3"),
    stateless(3, N, X, view=View.all()),
    stateless(4, WORD, sql="CAST(c0 AS INTEGER)"),
    counting(5, WORD, window=TUMBLE),
    counting(6, WORD, window=TUMBLE, where="c1 > 1", view=View.some([WORD, N])),
    counting(7, WORD, window=TUMBLE, where="c2 >= 0.5", view=View.some([WORD, X])),
    counting(8, N),
    counting(9, None),
    counting(10, None, where="c0 = 'a'", view=View.some([WORD])),
    counting(11, WORD, window=Window("hop", 20 * SECOND, 10 * SECOND)),
    counting(12, WORD, window=Window("hop", 20 * SECOND, 10 * SECOND), where="c1 > 1", view=View.some([WORD, N])),
    counting(13, WORD, window=Window("session", SECOND, SECOND)),
    counting(14, WORD, window=TUMBLE, where="CAST(c0 AS INTEGER) > 0"),
    _picky(("c0 = 'a'", (WORD,)), ("c1 > 1", (N,)), ("c2 IS NOT NULL", (X,)), instance=15),
    _picky(("c1 >= 0", (N,)), ("c2 < 1", (X,)), instance=16),
]

_words = st.sampled_from(["a", "b", "7", None, 5])
_numbers = st.sampled_from([0, 1, 5, None, "x", 2**40, 1.5])
_doubles = st.sampled_from([0.0, 0.5, -1, None, "much"])
_times = st.sampled_from([at(0), at(7), at(15), at(31), None, "soon"])
_records = st.one_of(
    st.fixed_dictionaries({"ts": _times}, optional={"word": _words, "n": _numbers, "x": _doubles}).map(json.dumps),
    st.fixed_dictionaries({"ts": _times, "word": _words, "n": _numbers, "x": _doubles}).map(json.dumps),
    st.fixed_dictionaries({"ts": _times, "word": st.sampled_from("ab"), "n": st.integers(0, 4)}).map(json.dumps),
    st.sampled_from(["{", "[]", "", " "]),
)


@settings(max_examples=examples(25))
@given(
    records=st.lists(_records, max_size=10),
    cut=st.integers(0, 10),
    policy=st.sampled_from(["null", "skip", "fail", "dead_letter"]),
    watermark=st.none() | st.integers(0, 30 * SECOND),
    chosen=st.sets(st.sampled_from(range(len(PIPELINES))), min_size=2),
)
def test_the_rows_of_a_pipeline_do_not_depend_on_other_pipelines(
    records: list[str], cut: int, policy: str, watermark: int | None, chosen: set[int]
) -> None:
    chunks = (lines(*records[:cut]), lines(*records[cut:]))
    settings: dict[str, Any] = {"declared": stream(on_error=policy), "watermark": watermark}
    together = task([PIPELINES[i] for i in sorted(chosen)], *chunks, **settings)
    expected: set[str] = set()
    for pipeline in (PIPELINES[i] for i in sorted(chosen)):
        alone = task([pipeline], *chunks, **settings)
        assert together.of(pipeline) == alone.of(pipeline)
        assert together.report.rows == alone.report.rows
        assert together.report.max_time == alone.report.max_time
        expected |= set(map(repr, alone.letters))
    found = sorted(map(repr, together.letters))
    if together.errors:  # a pipeline that fails is judged up to some batch; what it rejected there may be written
        assert len(found) == len(set(found)) and set(found) <= expected
    else:
        assert found == sorted(expected)  # each once, and only those that some pipeline rejects alone
    if policy == "dead_letter":
        untimed = together.report.bad.get("null_event_time", 0)
        assert sum(together.report.bad.values()) - untimed == len(together.letters)


@settings(max_examples=examples(15))
@given(records=st.lists(_records, max_size=10), cuts=st.sets(st.integers(0, 10), max_size=3))
def test_the_result_does_not_depend_on_chunks(records: list[str], cuts: set[int]) -> None:
    edges = [0, *sorted(cuts), len(records)]
    pieces = [lines(*records[a:b]) for a, b in pairwise(edges) if b > a]
    pipelines: list[PipelineDef] = [p for p in PIPELINES if p.instance not in (4, 14)]
    whole, cut = task(pipelines, lines(*records)), task(pipelines, *(pieces or [b""]))
    for pipeline in pipelines:
        assert cut.of(pipeline) == whole.of(pipeline)
    assert cut.report.bad == whole.report.bad
    assert whole.report.max_time == cut.report.max_time
