"""The messages of one task, numbered in the order in which they are made."""

from __future__ import annotations

from collections import defaultdict

from headrace.base.faults import fault_chosen
from headrace.bridge.alignment import encode_barrier
from headrace.bridge.messages import STREAM_LANE, Kind, LaneEnd, LaneEpoch, Row, encode_json, encode_receipt
from headrace.model.codec import dump
from headrace.model.program import PipelineDef
from headrace.model.status import Traffic
from headrace.ring0.task_input import TaskInput
from headrace.sinks.base import Staged


class Outbox:
    """Makes a task's messages: no two have one number. `sent` counts what went to the lanes of each instance."""

    def __init__(self, given: TaskInput) -> None:
        self.given = given
        self.seq = 0
        self.sent: dict[int, Traffic] = defaultdict(Traffic)

    def row(self, instance: int, bucket: int, kind: Kind, payload: bytes) -> Row:
        """The next message, to one lane."""
        self.seq += 1
        return Row(instance, bucket, self.given.task, self.seq, int(kind), payload)

    def to_driver(self, kind: Kind, value: dict[str, object]) -> Row:
        """A message on the stream's own lane."""
        return self.row(STREAM_LANE, self.given.task, kind, encode_json(value))

    def receipt(self, instance: int, sink: str, receipt: Staged) -> Row:
        """What a sink has staged, for the driver to commit."""
        return self.row(STREAM_LANE, self.given.task, Kind.OUTPUT, encode_receipt(instance, sink, receipt))

    def watermarks(self, pipeline: PipelineDef, end: LaneEnd | None, max_time: int | None) -> list[Row]:
        """This task's word to every lane of a pipeline; the first task also says what the lane is."""
        given = self.given
        program = _text(pipeline, given.checkpoint) if given.task == 0 else ""
        message = LaneEpoch(
            given.epoch,
            given.tasks,
            given.checkpoint,
            given.watermark,
            max_time,
            given.plan.stream.delay_us,
            program,
        ).encode()
        rows, barrier = [], encode_barrier(given.cut)
        ending = end.encode() if end is not None and given.task == 0 else None
        for bucket in range(pipeline.buckets):
            rows.append(self.row(pipeline.lane, bucket, Kind.WATERMARK, message))
            if not fault_chosen("drop-barrier-row"):
                rows.append(self.row(pipeline.lane, bucket, Kind.BARRIER, barrier))
            if ending is not None:
                rows.append(self.row(pipeline.lane, bucket, Kind.EOF, ending))
        count = pipeline.buckets
        self.sent[pipeline.instance] += Traffic(watermarks=count, barriers=count, ends=count if ending else 0)
        return rows


_texts: dict[tuple[str, int], tuple[PipelineDef, str]] = {}


def _text(pipeline: PipelineDef, checkpoint: str) -> str:
    """A pipeline as its lanes get it; written once per worker. A worker may serve several hubs, whose instances are
    numbered alike: the checkpoint tells them apart."""
    key = (checkpoint, pipeline.instance)
    held = _texts.get(key)
    if held is None or held[0] != pipeline:
        if len(_texts) > 1024:
            _texts.clear()
        held = _texts[key] = (pipeline, dump(pipeline))
    return held[1]
