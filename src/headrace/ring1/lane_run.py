"""Runs lanes for one epoch from their messages: decode, `advance`, stage the output, report.

A pipeline's own failure becomes an `error` message, and the other lanes of its pool continue. A failure of the state
store is raised, because no pipeline has caused it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa

from headrace.base.faults import crash_point, crashes_listed
from headrace.bridge.alignment import align_tasks
from headrace.bridge.messages import (
    LaneEnd,
    LaneEpoch,
    MessageKind,
    PooledEnd,
    Receipt,
    Row,
    decode,
    encode,
)
from headrace.bridge.packs import PackEntry, unpack
from headrace.bridge.reports import Failure, LaneReport, PoolReport, TrafficCounts
from headrace.bridge.rows import decode_rows
from headrace.bridge.spark_rows import stage_rows
from headrace.control.signals import Barrier
from headrace.errors import InternalError
from headrace.exec.aggregates import schema_of
from headrace.exec.failures import failure_text
from headrace.model.codec import load, load_packed
from headrace.model.definitions import PipelineDef
from headrace.ring1.lane import advance
from headrace.ring1.lane_state import NOTHING, LaneStep, Outcome, Store
from headrace.ring1.log_pool import LogStep, begin, close
from headrace.ring1.pool_store import PoolStore
from headrace.sinks.delivery import stage
from headrace.sinks.sink_kind import SinkKey

# Lanes wait for others to close their windows together with them, until the closed windows take this many bytes.
WAITING_BYTES = 64 << 20
Raised = tuple[type[Exception], ...]
Answer = list[tuple[MessageKind, bytes]]
Done = tuple[Answer, LaneReport, bool]  # the answer to the driver, and whether the pipeline has failed


class LaneEpochFacts(NamedTuple):
    """What all lanes of a bucket have in common in one epoch, after every task has delivered its barrier."""

    bucket: int
    checkpoint: str
    epoch: int
    barrier: Barrier
    tasks: int
    staging: str


class LaneInput(NamedTuple):
    """The input of one lane in one epoch.

    `pipeline` is the instance that has the lane now. It reports to the driver under its own number, even in a lane that
    it took over from the pipeline it replaced.
    """

    pipeline: PipelineDef
    facts: LaneEpochFacts
    watermark: int | None
    events: Sequence[PackEntry] = ()
    ends: Sequence[LaneEnd] = ()

    @property
    def key(self) -> SinkKey:
        return SinkKey(self.facts.checkpoint, self.pipeline.instance, self.facts.epoch)

    def received(self, rows: int) -> TrafficCounts:
        """The messages that arrived, with `rows` partial aggregates in them."""
        tasks = self.facts.tasks  # each has sent a watermark and a barrier
        return len(self.events), rows, tasks, tasks, len(self.ends), 0

    def step(self, events: pa.Table) -> LaneStep:
        """The lane's next step with these partial aggregates."""
        return LaneStep(
            events,
            self.watermark,
            flush=any(e.flush for e in self.ends),
            drop=any(e.drop for e in self.ends),
            reset=any(e.reset for e in self.ends),
            max_groups=self.pipeline.max_groups,
            share=-(-self.pipeline.max_groups // self.pipeline.buckets),
            max_values=self.pipeline.max_group_values,
        )


def run_lane(lane: int, bucket: int, messages: list[Row], store: Store, raised: Raised) -> list[Row]:
    """Run one lane that is not pooled. `messages` are in order. The answer goes to the driver. Raises MissingInput when
    a task's messages are missing, and errors of the classes `raised`."""
    epochs = _epochs(messages)
    barrier = align_tasks(f"lane {lane}/{bucket}", epochs, messages)
    given = LaneInput(
        _pipeline(epochs[0].program),
        _facts(bucket, barrier, epochs),
        watermark_after(epochs),
        events=[PackEntry(lane, 0, end=0, rows=0, payload=m.payload) for m in messages if m.kind == MessageKind.EVENTS],
        ends=[decode(LaneEnd, m.payload) for m in messages if m.kind == MessageKind.EOF],
    )
    answer, report, _ = _run(given, store, raised)
    answer.append((MessageKind.REPORT, encode(PoolReport.of([report]))))
    return _rows(given.pipeline.instance, bucket, answer)


def run_pool(bucket: int, messages: list[Row], store: Store, raised: Raised) -> list[Row]:
    """Run all lanes of a bucket that are pooled. As `run_lane`."""
    inputs = list(_pool_inputs(bucket, messages))
    pool, rows, reports = PoolStore(store), list[Row](), list[LaneReport]()
    pool.load()
    together: list[tuple[LaneInput, LogStep, float]] = []
    waiting = 0
    done: list[tuple[LaneInput, Done]] = []
    crashes = crashes_listed()
    for given in inputs:
        lane = pool.lane(given.pipeline.lane)
        began = time.perf_counter()
        try:
            step = _begin(given, lane, crashes)
        except raised:
            raise
        except Exception as problem:  # the pipeline's own failure must not stop the others
            done.append((given, _failed(given, problem, began)))
            continue
        if step is None:
            done.append((given, _run(given, lane, raised)))
        else:
            together.append((given, step, time.perf_counter() - began))
            waiting += step.size
            if waiting > WAITING_BYTES:
                done += _close(together, raised)
                together, waiting = [], 0
    done += _close(together, raised)
    for given, (answer, report, failed) in done:
        if failed:
            pool.give_up(given.pipeline.lane)
        rows += _rows(given.pipeline.instance, bucket, answer)
        reports.append(report)
    pool.settle()
    if reports:
        key, payload = messages[0], encode(PoolReport.of(reports))
        rows.append(Row(key.instance, key.bucket, task=0, seq=0, kind=int(MessageKind.REPORT), payload=payload))
    return rows


def _begin(given: LaneInput, store: Store, crashes: bool) -> LogStep | None:
    """Let a lane append its rows, if it can run together with others."""
    if given.ends or not given.pipeline.program.logged:
        return None
    if crashes:
        crash_point(f"{given.pipeline.name}/state")
    return begin(given.pipeline, store, given.events, given.watermark)


def _close(waiting: list[tuple[LaneInput, LogStep, float]], raised: Raised) -> Iterator[tuple[LaneInput, Done]]:
    """Close the windows of lanes that run together."""
    began = time.perf_counter()
    outputs = close([step for _, step, _ in waiting])
    shared = (time.perf_counter() - began) / max(1, sum(output is not None for output in outputs))
    for (given, step, spent), output in zip(waiting, outputs, strict=True):
        began = time.perf_counter() - spent - (0 if output is None else shared)
        try:
            if isinstance(output, Exception):
                raise output
            found = step.finish(output)
            rows = sum([entry.rows for entry in given.events])
            yield given, (_staged(given, found), _report(given, rows, found, began), False)
        except raised:
            raise
        except Exception as problem:  # the pipeline's own failure must not stop the others
            yield given, _failed(given, problem, began)


def _pool_inputs(bucket: int, messages: list[Row]) -> Iterator[LaneInput]:
    """The input of each lane of a pool: of the pipelines in the plan, and of those that have left it."""
    epochs = _epochs(messages)
    barrier = align_tasks(f"pool {bucket}", epochs, messages)
    first, facts = epochs[0], _facts(bucket, barrier, epochs)
    events: dict[int, list[PackEntry]] = defaultdict(list)
    for message in (m for m in messages if m.kind == MessageKind.EVENTS):
        for entry in unpack(message.payload):
            events[entry.lane].append(entry)
    ends: dict[int, list[LaneEnd]] = defaultdict(list)
    left: list[PipelineDef] = []
    for ended in (decode(PooledEnd, m.payload) for m in messages if m.kind == MessageKind.EOF):
        ends[ended.lane].append(ended.end)
        left += [_left_pipeline(ended.program)] if ended.program else []
    # What has left did so before this epoch's rows, so their times close none of its windows.
    watermark_now = watermark_after(epochs)
    members = [(p, watermark_now) for p in _pipelines(first.program)]
    members += [(p, first.watermark) for p in left]
    for pipeline, watermark in members:
        if bucket < pipeline.buckets:
            lane = pipeline.lane
            yield LaneInput._make((pipeline, facts, watermark, events.get(lane, ()), ends.get(lane, ())))


def _run(given: LaneInput, store: Store, raised: Raised) -> Done:
    """Run one lane by itself."""
    began = time.perf_counter()
    try:
        program = given.pipeline.program
        if program.ring1 is None:
            raise InternalError(f"pipeline {given.pipeline.name} has lanes but no state")
        events = decode_rows([entry.payload for entry in given.events], schema_of(program.ring1))
        step = given.step(events)
        if step.flush or not step.drop:
            crash_point(f"{given.pipeline.name}/state")
        found = advance(program.ring1, program.meaning, store, step)
        return _staged(given, found), _report(given, events.num_rows, found, began), False
    except raised:
        raise
    except Exception as problem:  # the pipeline's own failure must not stop the others
        return _failed(given, problem, began)


def _failed(given: LaneInput, problem: Exception, began: float) -> Done:
    failure = Failure(given.pipeline.instance, failure_text(problem))
    return [(MessageKind.ERROR, encode(failure))], _report(given, 0, NOTHING, began), True


def _report(given: LaneInput, rows: int, outcome: Outcome, began: float) -> LaneReport:
    facts, ms = given.facts, round((time.perf_counter() - began) * 1000, 3)
    return LaneReport(
        given.pipeline.instance, facts.bucket, facts.barrier, given.received(rows), *outcome.counts, ms=ms
    )


def _staged(given: LaneInput, outcome: Outcome) -> Answer:
    """Stage the lane's output in the pipeline's sinks, or for its Spark query. The receipts, and the sinks that
    failed."""
    if outcome.output is None:
        return []
    instance, lost = given.pipeline.instance, dict[str, str]()
    if given.pipeline.program.spark is not None:
        rows = stage_rows(instance, outcome.output, given.facts.staging)
        return [(MessageKind.STAGED, part.encode()) for part in rows]
    staged = stage(given.pipeline.sinks, outcome.output, given.key, lost)
    return [
        *((MessageKind.OUTPUT, Receipt(instance, sink, receipt).encode()) for sink, receipt in staged),
        *((MessageKind.ERROR, encode(Failure(instance, reason, sink))) for sink, reason in lost.items()),
    ]


def _rows(instance: int, bucket: int, answer: Answer) -> list[Row]:
    return [Row(instance, bucket, 0, i, int(kind), payload) for i, (kind, payload) in enumerate(answer)]


def _facts(bucket: int, barrier: Barrier, epochs: dict[int, LaneEpoch]) -> LaneEpochFacts:
    first = epochs[0]
    return LaneEpochFacts(bucket, first.checkpoint, first.epoch, barrier, tasks=len(epochs), staging=first.staging)


def _epochs(messages: list[Row]) -> dict[int, LaneEpoch]:
    return {m.task: LaneEpoch.decode(m.payload) for m in messages if m.kind == MessageKind.WATERMARK}


@lru_cache(maxsize=1024)
def _left_pipeline(text: str) -> PipelineDef:
    return load(PipelineDef, text)


@lru_cache(maxsize=1024)
def _pipeline(packed: bytes) -> PipelineDef:
    return load_packed(PipelineDef, packed)


@lru_cache(maxsize=8)
def _pipelines(packed: bytes) -> tuple[PipelineDef, ...]:
    """The members of a pool. All epochs of a plan version send the same bytes."""
    return load_packed(tuple[PipelineDef, ...], packed) if packed else ()


def watermark_after(epochs: dict[int, LaneEpoch]) -> int | None:
    """The stream's watermark after this epoch: the highest event time of all tasks minus the delay. It never goes
    back."""
    known = [e.max_time - e.delay for e in epochs.values() if e.max_time is not None]
    known += [e.watermark for e in epochs.values() if e.watermark is not None]
    return max(known) if known else None
