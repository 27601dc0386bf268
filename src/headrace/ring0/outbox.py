"""The messages of one task, numbered in the order in which they are made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.base.faults import fault_chosen
from headrace.base.identity import kept_by_identity
from headrace.bridge.messages import (
    STREAM_LANE,
    LaneEnd,
    LaneEpoch,
    MessageKind,
    PooledEnd,
    Receipt,
    Row,
    encode,
)
from headrace.bridge.packs import PACK_BYTES, PackEntry, packs
from headrace.bridge.pools import PoolKey, pool_key
from headrace.bridge.reports import Failure, TaskReport, TrafficCounts
from headrace.bridge.spark_rows import RowsForSpark
from headrace.bridge.task_counts import PipelineCounts, encode_report
from headrace.model.codec import dump, pack
from headrace.model.definitions import PipelineDef
from headrace.model.plan_version import PlanVersion
from headrace.ring0.task_input import TaskInput
from headrace.sinks.sink_kind import Staged

KEPT = 8  # plan versions


@dataclass(slots=True)
class SentCounts:
    """The messages of a task to the lanes of one instance. Each lane in `lanes` got a watermark and a barrier."""

    batches: int = 0
    rows: int = 0
    lanes: int = 0
    ends: int = 0
    dropped: int = 0

    @property
    def traffic(self) -> TrafficCounts:
        return self.batches, self.rows, self.lanes, self.lanes, self.ends, self.dropped


class Outbox:
    """Makes a task's messages. No two messages have the same number. `sent` counts the messages to the lanes of each
    instance."""

    def __init__(self, given: TaskInput) -> None:
        self.given = given
        self.seq = 0
        self.sent: dict[int, SentCounts] = defaultdict(SentCounts)
        self._events: dict[PoolKey, list[PackEntry]] = defaultdict(list)
        self._sizes: dict[PoolKey, int] = defaultdict(int)
        self._ends: list[tuple[PooledEnd, PipelineDef]] = []

    def row(self, instance: int, bucket: int, kind: MessageKind, payload: bytes) -> Row:
        """The next message, to one lane."""
        self.seq += 1
        return Row(instance, bucket, task=self.given.task, seq=self.seq, kind=int(kind), payload=payload)

    def report(self, report: TaskReport, counts: Sequence[PipelineCounts]) -> Row:
        """The task's report to the driver, with its counters for each pipeline."""
        return self._to_driver(MessageKind.REPORT, encode_report(report, counts))

    def failure(self, failure: Failure) -> Row:
        """Tells the driver that a pipeline or one of its sinks failed."""
        return self._to_driver(MessageKind.ERROR, encode(failure))

    def receipt(self, instance: int, sink: str, staged: Staged) -> Row:
        """Tells the driver what a sink has staged."""
        return self._to_driver(MessageKind.OUTPUT, Receipt(instance, sink, staged).encode())

    def staged_rows(self, staged: RowsForSpark) -> Row:
        """Rows for the Spark query of a pipeline."""
        return self._to_driver(MessageKind.STAGED, staged.encode())

    def _to_driver(self, kind: MessageKind, payload: bytes) -> Row:
        return self.row(STREAM_LANE, self.given.task, kind, payload)

    def events(self, pipeline: PipelineDef, bucket: int, entry: PackEntry) -> list[Row]:
        """Partial aggregates for one lane. Those for a pool wait for others of its lanes."""
        if not pipeline.pooled:
            return [self.row(pipeline.lane, bucket, MessageKind.EVENTS, entry.payload)]
        key = pool_key(pipeline.spread, bucket)
        self._events[key].append(entry)
        self._sizes[key] += len(entry.payload)
        return self._packed(key) if self._sizes[key] >= PACK_BYTES else []

    def _packed(self, key: PoolKey) -> list[Row]:
        entries = self._events.pop(key, [])
        self._sizes[key] = 0
        return [self.row(*key, MessageKind.EVENTS, message) for message in packs(entries, self.given.planned.packs)]

    def finish(self, pipeline: PipelineDef, end: LaneEnd | None, max_time: int | None, left: bool = False) -> list[Row]:
        """The last messages to the lanes of a pipeline: watermark, barrier, and maybe an end. `left` says that it is
        not in the plan. Those to a pool are sent for all its lanes by `pools`."""
        count = pipeline.buckets
        ends = end is not None and self.given.task == 0
        sent = self.sent[pipeline.instance]
        sent.lanes += count
        sent.ends += count if ends else 0
        if not pipeline.pooled:
            return self._watermarks(pipeline, end, max_time)
        if end is not None and ends:
            program = _text(pipeline, self.given.planned.checkpoint) if left else ""
            self._ends.append((PooledEnd(pipeline.lane, end, program), pipeline))
        return []

    def pools(self, max_time: int | None) -> list[Row]:
        """The messages to all pools: the events that wait, the task's watermark and barrier, and the ends. Task 0 also
        sends the programs."""
        given, planned, rows = self.given, self.given.planned, list[Row]()
        first = given.task == 0
        leaving = (left.pipeline for left in given.leaving)
        pooled = [p for p in (*given.plan.pipelines, *leaving) if p.pooled and p.program.ring1 is not None]
        barrier = encode(planned.barrier)
        for spread in (False, True):
            members = [p for p in pooled if p.spread == spread]
            message = self._epoch(max_time, _pool_programs(given.plan)[spread] if first and members else b"")
            for bucket in range(max((p.buckets for p in members), default=0)):
                key = pool_key(spread, bucket)
                rows += self._packed(key)
                rows.append(self.row(*key, MessageKind.WATERMARK, message))
                if not fault_chosen("drop-barrier-row"):
                    rows.append(self.row(*key, MessageKind.BARRIER, barrier))
                ends = (end for end, p in self._ends if bucket < p.buckets and p.spread == spread)
                rows += [self.row(*key, MessageKind.EOF, encode(end)) for end in ends]
        return rows

    def _watermarks(self, pipeline: PipelineDef, end: LaneEnd | None, max_time: int | None) -> list[Row]:
        """The task's watermark and barrier for every lane of a pipeline that is not pooled. Task 0 also sends the
        program and the end."""
        first = self.given.task == 0
        message = self._epoch(max_time, pack(_text(pipeline, self.given.planned.checkpoint)) if first else b"")
        rows, barrier = [], encode(self.given.planned.barrier)
        for bucket in range(pipeline.buckets):
            rows.append(self.row(pipeline.lane, bucket, MessageKind.WATERMARK, message))
            if not fault_chosen("drop-barrier-row"):
                rows.append(self.row(pipeline.lane, bucket, MessageKind.BARRIER, barrier))
            if end is not None and first:
                rows.append(self.row(pipeline.lane, bucket, MessageKind.EOF, encode(end)))
        return rows

    def _epoch(self, max_time: int | None, program: bytes) -> bytes:
        planned = self.given.planned
        return LaneEpoch(
            epoch=planned.epoch,
            tasks=planned.tasks,
            checkpoint=planned.checkpoint,
            watermark=planned.watermark,
            max_time=max_time,
            delay=self.given.plan.stream.delay_us,
            staging=planned.staging,
            program=program,
        ).encode()


_texts: dict[tuple[str, int], tuple[PipelineDef, str]] = {}


def _text(pipeline: PipelineDef, checkpoint: str) -> str:
    """A pipeline as JSON for its lanes, written once per worker.

    A worker may serve several hubs that use the same instance numbers, so the checkpoint is part of the key.
    """
    key = (checkpoint, pipeline.instance)
    held = _texts.get(key)
    if held is None or held[0] != pipeline:
        if len(_texts) > 1024:
            _texts.clear()
        held = _texts[key] = (pipeline, dump(pipeline))
    return held[1]


@kept_by_identity(KEPT)
def _pool_programs(plan: PlanVersion) -> tuple[bytes, bytes]:
    """The stateful pipelines of a plan that are pooled, packed once per worker and plan: first those that are not
    `spread`, then those that are."""
    members = [p for p in plan.pipelines if p.pooled and p.program.ring1 is not None]
    old, spread = ([p for p in members if p.spread == wanted] for wanted in (False, True))
    return pack(dump(old)), pack(dump(spread))
