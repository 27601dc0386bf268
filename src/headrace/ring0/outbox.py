"""The messages of one task, numbered in the order in which they are made."""

from __future__ import annotations

from collections import defaultdict

from headrace.base.faults import fault_chosen
from headrace.bridge.messages import STREAM_LANE, LaneEnd, LaneEpoch, MessageKind, Receipt, Row, encode
from headrace.bridge.reports import Failure, TaskReport
from headrace.bridge.spark_rows import RowsForSpark
from headrace.model.codec import dump
from headrace.model.program import PipelineDef
from headrace.model.status import Traffic
from headrace.ring0.task_input import TaskInput
from headrace.sinks.sink_kind import Staged


class Outbox:
    """Makes a task's messages. No two messages have the same number. `sent` counts the messages to the lanes of each
    instance."""

    def __init__(self, given: TaskInput) -> None:
        self.given = given
        self.seq = 0
        self.sent: dict[int, Traffic] = defaultdict(Traffic)

    def row(self, instance: int, bucket: int, kind: MessageKind, payload: bytes) -> Row:
        """The next message, to one lane."""
        self.seq += 1
        return Row(instance, bucket, self.given.task, self.seq, int(kind), payload)

    def report(self, report: TaskReport) -> Row:
        """The task's report to the driver."""
        return self._to_driver(MessageKind.REPORT, encode(report))

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

    def watermarks(self, pipeline: PipelineDef, end: LaneEnd | None, max_time: int | None) -> list[Row]:
        """The task's watermark and barrier for every lane of a pipeline. Task 0 also sends the program and the end."""
        given, planned = self.given, self.given.planned
        message = LaneEpoch(
            epoch=planned.epoch,
            tasks=planned.tasks,
            checkpoint=planned.checkpoint,
            watermark=planned.watermark,
            max_time=max_time,
            delay=given.plan.stream.delay_us,
            staging=planned.staging,
            program=_text(pipeline, planned.checkpoint) if given.task == 0 else "",
        ).encode()
        rows, barrier = [], encode(planned.barrier)
        ending = encode(end) if end is not None and given.task == 0 else None
        for bucket in range(pipeline.buckets):
            rows.append(self.row(pipeline.lane, bucket, MessageKind.WATERMARK, message))
            if not fault_chosen("drop-barrier-row"):
                rows.append(self.row(pipeline.lane, bucket, MessageKind.BARRIER, barrier))
            if ending is not None:
                rows.append(self.row(pipeline.lane, bucket, MessageKind.EOF, ending))
        count = pipeline.buckets
        self.sent[pipeline.instance] += Traffic(watermarks=count, barriers=count, ends=count if ending else 0)
        return rows


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
