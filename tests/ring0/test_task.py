"""One task of one epoch: what it decodes, what each pipeline sends, and that a failure stays with its pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from headrace.bridge.messages import STREAM_LANE, LaneEnd, MessageKind, Receipt
from headrace.bridge.reports import PlannedEpoch
from headrace.formats import FORMATS
from headrace.formats.format_kind import Format, Indexed
from headrace.model.codec import load_packed
from headrace.model.definitions import PipelineDef, SinkDef
from headrace.model.plan_version import PipelineExit
from headrace.model.program import Meaning, Window
from headrace.model.schema import Schema, View
from headrace.model.status import Traffic
from headrace.sql import Select, parse_script, plan_on_shared_host
from headrace.state.catalog import Catalog
from tests.ring0.tasks import SECOND, SPARE, TS, WORD, N, X, at, counting, lines, stateless, stream, task

TUMBLE = Window("tumble", 10 * SECOND, 10 * SECOND)
RECORDS = lines(
    {"word": "a", "n": 1, "x": 0.5, "ts": at(1)},
    {"word": "b", "n": 2, "x": 1.5, "ts": at(12), "spare": "s"},
    {"word": "a", "n": None, "x": 2.5, "ts": at(25)},
)
MORE = lines({"word": "é", "n": 4, "ts": at(5)}, {"word": "a", "n": 5, "ts": at(6)})
NEIGHBOURS = [
    stateless(1, WORD, N, where="c1 IS NOT NULL"),
    counting(2, WORD, window=TUMBLE),
    counting(3, WORD, window=TUMBLE, where="c1 > 1", view=View.some([WORD, N])),
    counting(4, None),
]
GUILTY = [
    stateless(9, WORD, sql="CAST(c0 AS INTEGER)"),
    stateless(9, WORD, where="CAST(c0 AS INTEGER) > 0"),
    counting(9, WORD, sql="CAST(c0 AS INTEGER)"),
    counting(9, WORD, window=TUMBLE, where="CAST(c0 AS INTEGER) > 0"),
]


def test_pipelines_get_their_rows_from_one_decoding() -> None:
    sent = task(NEIGHBOURS, RECORDS, MORE)
    assert sent.rows[1] == [
        {"word": "a", "n": 1},
        {"word": "b", "n": 2},
        {"word": "é", "n": 4},
        {"word": "a", "n": 5},
    ]
    groups = {(e["k0"], e["window_start"]): e["p0"] for (i, _), rows in sent.events.items() if i == 2 for e in rows}
    assert groups == {("a", 0): 2, ("é", 0): 1, ("b", 10 * SECOND): 1, ("a", 20 * SECOND): 1}
    assert sent.events[4, 0] == [{"p0": 5}]
    assert not sent.errors


@pytest.mark.parametrize("guilty", GUILTY, ids=["output", "filter", "key", "family"])
def test_a_failing_pipeline_is_reported_and_does_not_change_the_others(guilty: PipelineDef) -> None:
    without, sent = task(NEIGHBOURS, RECORDS, MORE), task([guilty, *NEIGHBOURS], RECORDS, MORE)
    assert list(sent.errors) == [9]
    assert "[EVALUATION_FAILED]" in sent.errors[9]  # DuckDB's own words reach the user
    for neighbour in NEIGHBOURS:
        assert sent.of(neighbour) == without.of(neighbour)
    assert 9 not in sent.rows
    lanes = range(guilty.buckets) if guilty.program.ring1 is not None else ()
    assert {lane for lane in sent.watermarks if lane[0] == 9} == {(9, b) for b in lanes}
    assert not [lane for lane in sent.events if lane[0] == 9]


def test_a_pipeline_that_fails_at_the_end_of_the_task_is_reported_too() -> None:
    broken = replace(NEIGHBOURS[0], instance=9, sinks=(replace(NEIGHBOURS[0].sinks[0], kind="nowhere"),))
    sent = task([broken, *NEIGHBOURS], RECORDS)
    assert list(sent.errors) == [9]
    assert sent.of(NEIGHBOURS[0]) == task(NEIGHBOURS, RECORDS).of(NEIGHBOURS[0])


def test_every_task_sends_to_every_lane_also_a_task_without_rows() -> None:
    busy, idle = task(NEIGHBOURS, RECORDS, tasks=2), task(NEIGHBOURS, number=1, tasks=2)
    lanes = {(p.instance, b) for p in NEIGHBOURS if p.program.ring1 is not None for b in range(p.buckets)}
    for sent, top in ((busy, 25 * SECOND), (idle, None)):
        assert set(sent.watermarks) == lanes
        for (word,) in sent.watermarks.values():
            assert (word.tasks, word.epoch, word.max_time, word.delay) == (2, 7, top, 10 * SECOND)
    assert not idle.events
    assert load_packed(PipelineDef, busy.watermarks[2, 1][0].program) == NEIGHBOURS[1]
    assert idle.watermarks[2, 1][0].program == b""


def test_the_watermark_counts_rows_that_every_filter_drops() -> None:
    sent = task([counting(1, WORD, window=TUMBLE, where="false")], RECORDS)
    assert sent.watermarks[1, 0][0].max_time == 25 * SECOND
    assert not sent.events


def test_late_rows_are_judged_by_the_watermark_before_the_epoch() -> None:
    sent = task([counting(1, WORD, window=TUMBLE)], RECORDS, watermark=10 * SECOND)
    assert sent.counts[1].late == 1
    assert sent.watermarks[1, 0][0].watermark == 10 * SECOND


def test_messages_of_a_task_are_numbered_and_each_lane_s_are_in_order() -> None:
    leaving = (PipelineExit(counting(8, WORD, window=TUMBLE), flush=True),)
    sent = task(NEIGHBOURS, RECORDS, ending=True, leaving=leaving)
    assert [m.seq for m in sent.messages] == list(range(1, len(sent.messages) + 1))
    for lane in sent.watermarks:
        kinds = [m.kind for m in sent.messages if (m.instance, m.bucket) == lane]
        assert kinds == sorted(kinds)
    assert sent.messages[-1].kind == MessageKind.REPORT


@pytest.mark.parametrize("flush", [True, False])
def test_a_leaving_pipeline_gets_one_end_per_lane_and_no_events(flush: bool) -> None:
    gone = counting(8, WORD, window=TUMBLE, buckets=3)
    sents = [task(NEIGHBOURS, RECORDS, number=n, tasks=2, leaving=(PipelineExit(gone, flush),)) for n in (0, 1)]
    for bucket in range(3):
        ends = [end for sent in sents for end in sent.ends.get((8, bucket), [])]
        assert ends == [LaneEnd(flush, drop=True)]
        assert all(len(sent.watermarks[8, bucket]) == 1 for sent in sents)
    assert all(lane[0] == 8 for sent in sents for lane in sent.ends)
    assert not [lane for sent in sents for lane in sent.events if lane[0] == 8]


def test_a_pipeline_that_left_and_is_started_again_begins_with_empty_state_and_the_events_of_this_epoch() -> None:
    back = counting(8, WORD, window=TUMBLE, buckets=2)
    sent = task([back], RECORDS, leaving=(PipelineExit(back, flush=False),))
    for bucket in range(2):
        assert sent.ends[8, bucket] == [LaneEnd(flush=False, drop=False, reset=True)]
        assert len(sent.watermarks[8, bucket]) == 1
    assert [lane for lane in sent.events if lane[0] == 8]


def test_a_stateless_pipeline_that_leaves_sends_no_message() -> None:
    sent = task(NEIGHBOURS, RECORDS, leaving=(PipelineExit(stateless(8, WORD), flush=True),))
    assert not [m for m in sent.messages if m.instance == 8]


def test_the_end_of_a_finite_source_flushes_every_lane_once_and_keeps_it() -> None:
    sents = [task(NEIGHBOURS, RECORDS, number=n, tasks=2, ending=True) for n in (0, 1)]
    lanes = {(p.instance, b) for p in NEIGHBOURS if p.program.ring1 is not None for b in range(p.buckets)}
    assert set(sents[0].ends) == lanes
    assert all(ends == [LaneEnd(flush=True, drop=False)] for ends in sents[0].ends.values())
    assert not sents[1].ends


class Spy:
    """A format that records which columns it has to parse."""

    def __init__(self, inner: Format, asked: list[tuple[int, ...]]) -> None:
        self.inner, self.asked = inner, asked

    def index(self, data: bytes | memoryview, wanted: Sequence[int], origin: str, offset: int) -> Indexed:
        self.asked.append(tuple(wanted))
        return self.inner.index(data, wanted, origin, offset)


@pytest.mark.parametrize(
    ("pipelines", "event_time", "columns"),
    [
        ([counting(1, None)], TS, (TS,)),
        ([counting(1, None)], None, ()),
        ([stateless(1, WORD), counting(2, N)], TS, (WORD, N, TS)),
        ([stateless(1, X), counting(2, None)], None, (X,)),
        ([stateless(1, X, view=View.all()), counting(2, N)], TS, (WORD, N, X, TS, SPARE)),
    ],
    ids=["none", "none, no time", "some", "some, no time", "all"],
)
def test_exactly_the_union_is_decoded(
    monkeypatch: pytest.MonkeyPatch, pipelines: list[PipelineDef], event_time: int | None, columns: tuple[int, ...]
) -> None:
    asked: list[tuple[int, ...]] = []
    kind = FORMATS["json"]

    def build(schema: Schema, values: Mapping[str, object]) -> Any:
        return Spy(kind.build(schema, values), asked)

    monkeypatch.setitem(FORMATS, "json", replace(kind, build=build))
    sent = task(pipelines, RECORDS, MORE, declared=stream(event_time=event_time))
    assert asked == [columns, columns]
    assert sent.report.values == 5 * len(columns)
    assert not sent.errors


def test_columns_that_no_pipeline_needs_are_null() -> None:
    nosy = stateless(1, WORD, SPARE, view=View.some([WORD]))
    assert {r["spare"] for r in task([nosy], RECORDS).rows[1]} == {None}
    assert "s" in {r["spare"] for r in task([nosy, stateless(2, SPARE)], RECORDS).rows[1]}


def test_the_report_adds_up() -> None:
    bad = lines("{", {"word": "a", "n": "many", "ts": at(1)}, {"word": "a", "ts": "never"}, {"word": "c"})
    sent = task([stateless(1, WORD, N), counting(2, WORD, window=TUMBLE)], RECORDS, bad)
    report = sent.report
    assert (report.rows, report.rejected) == (7, 2)  # all records; what has no structure or no time is rejected
    assert report.bytes == len(RECORDS) + len(bad)
    assert report.values == 6 * 3
    assert report.bad == {"bad_json": 1, "bad_integer": 1, "bad_timestamp": 1, "null_event_time": 1}
    assert (report.task, report.planned, report.plan) == (0, PlannedEpoch(7, 1, "checkpoint"), 3)
    assert report.max_time == 25 * SECOND
    one, two = sent.counts[1], sent.counts[2]
    assert (one.late, one.bad, len(sent.rows[1])) == (0, 1, 5)
    assert (two.late, two.bad) == (0, 0)


def test_every_message_to_a_lane_is_counted() -> None:
    late = counting(3, WORD, window=TUMBLE, buckets=3)
    sent = task([stateless(1, WORD), counting(2, WORD), late], RECORDS, watermark=20 * SECOND, ending=True)
    for instance, buckets in ((2, 2), (3, 3)):
        mine = [m for m in sent.messages if m.instance == instance]
        assert Traffic(*sent.counts[instance].sent) == Traffic(
            batches=sum(m.kind == MessageKind.EVENTS for m in mine),
            rows=sum(len(rows) for (i, _), rows in sent.events.items() if i == instance),
            watermarks=buckets,
            barriers=buckets,
            ends=buckets,
            dropped=sent.counts[instance].late,
        )
    assert Traffic(*sent.counts[3].sent).dropped == 2


def test_a_message_holds_at_most_max_rows_rows() -> None:
    many = lines(*({"word": f"w{i}", "ts": at(1)} for i in range(100)))
    sent = task([counting(1, WORD, buckets=1)], many, declared=stream(max_rows="7"))
    assert sum(sent.sizes) == 100 and max(sent.sizes) == 7 and len(sent.sizes) == 15


def test_rows_too_far_ahead_of_the_clock_do_not_move_the_watermark_and_are_counted() -> None:
    rows = lines(*({"word": "a", "ts": at(second)} for second in (1, 10, 11, 59)))
    declared = stream(max_future="5s")
    found = task([counting(1, WORD)], rows, declared=declared, now=5 * SECOND)
    assert found.watermarks[1, 0][0].max_time == 10 * SECOND
    assert (found.report.max_time, found.report.future) == (10 * SECOND, 2)
    assert sum(r["p0"] for sent in found.events.values() for r in sent) == 4  # rows all the same
    filtered = task([counting(1, WORD, where="c0 = 'b'")], rows, declared=declared, now=0)
    assert (filtered.report.max_time, filtered.report.future) == (SECOND, 3)
    assert task([counting(1, WORD)], rows, declared=declared, now=-5 * SECOND).report.max_time is None
    assert task([counting(1, WORD)], rows).report.future == 0


def test_the_current_timestamp_is_the_clock_of_the_epoch() -> None:
    names = Catalog().with_stream(stream())
    (statement,) = parse_script(
        "SELECT word, now() AS t, current_date AS d, localtimestamp() AS l FROM s WHERE now() > ts"
    )
    assert isinstance(statement, Select)
    program = plan_on_shared_host(statement, names, Meaning("America/New_York")).program
    clocked = replace(stateless(1, WORD), program=program)
    for now in (5 * SECOND, 20 * SECOND):
        found = task([clocked], RECORDS, now=now).rows[1]
        assert [row["word"] for row in found] == ["a", "b"][: 1 + (now > 12 * SECOND)]
        moment = datetime.fromtimestamp(now / SECOND, UTC)
        local = moment.astimezone(ZoneInfo("America/New_York")).replace(tzinfo=None)
        assert {(row["t"], row["d"], row["l"]) for row in found} == {(moment, local.date(), local)}
    assert 1 in task([clocked], RECORDS).errors


def test_a_global_aggregate_sends_an_empty_partial_at_the_end_of_input() -> None:
    everything, grouped = counting(1, None, buckets=1), counting(2, WORD)
    end = task([everything, grouped], ending=True)
    assert end.events == {(1, 0): [{"p0": 0}]}
    assert task([everything, grouped], ending=True, number=1, tasks=2).events == {}
    assert task([everything, grouped]).events == {}


def test_the_same_task_sends_the_same_messages() -> None:
    pairs = zip(task(NEIGHBOURS, RECORDS, MORE).messages, task(NEIGHBOURS, RECORDS, MORE).messages, strict=True)
    assert all(a == b for a, b in pairs if a.instance != STREAM_LANE)


def test_csv_and_json_give_the_same_messages() -> None:
    csv = b"a,1,0.5,1970-01-01T00:00:01Z,\nb,2,1.5,1970-01-01T00:00:12Z,s\na,,2.5,1970-01-01T00:00:25Z,\n"
    from_csv, from_json = task(NEIGHBOURS, csv, declared=stream("csv", header="false")), task(NEIGHBOURS, RECORDS)
    for pipeline in NEIGHBOURS:
        assert from_csv.of(pipeline) == from_json.of(pipeline)


def test_a_stream_without_event_time_has_no_watermark() -> None:
    sent = task([counting(1, WORD)], RECORDS, declared=stream(event_time=None))
    assert sent.watermarks[1, 0][0].max_time is None
    assert sent.report.bad == {}


@pytest.mark.parametrize(("kind", "kept"), [("memory", [8, 9, 10]), ("console", [1, 2, 3])])
def test_a_task_sends_at_most_max_rows_however_many_pieces_it_stages(
    monkeypatch: pytest.MonkeyPatch, kind: str, kept: list[int]
) -> None:
    monkeypatch.setattr("headrace.ring0.runner.STAGE_BYTES", 1)
    pipeline = stateless(1, N)
    pipeline = replace(pipeline, sinks=(SinkDef("out", kind, {"max_rows": "3"}),))
    sent = task([pipeline], *(lines({"n": i, "ts": at(1)}, {"n": i + 1, "ts": at(1)}) for i in range(1, 11, 2)))
    assert [r["n"] for r in sent.rows[1]] == kept
    assert [Receipt.decode(m.payload).staged.rows for m in sent.messages if m.kind == MessageKind.OUTPUT] == [10]


def test_dead_letters_of_a_task_stay_within_the_bound_of_their_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.ring0.letters.STAGE_BYTES", 1)
    declared = replace(stream(on_error="dead_letter"), dead_letters=SinkDef("out", "memory", {"max_rows": "2"}))
    sent = task([stateless(1, N)], lines("{1", "{2", "{3"), lines("{4"), declared=declared)
    assert [letter["raw"] for letter in sent.letters] == [b"{3", b"{4"]
    assert [Receipt.decode(m.payload).staged.rows for m in sent.messages if m.kind == MessageKind.OUTPUT] == [4]
