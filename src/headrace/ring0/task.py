"""The work of one Spark task in one epoch: read a split, decode it once, run every pipeline, send bridge messages.

`run_task` depends on nothing but its arguments: the same `TaskInput` gives the same messages, on any machine. A
failure of one pipeline becomes an `error` message; a failure of the stream itself (unreadable input) is raised.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

import numpy as np
import pyarrow as pa

from headrace.bridge.messages import STREAM_LANE, Kind, LaneEnd, Row
from headrace.bridge.rows import payloads
from headrace.faults import crash_point
from headrace.formats.bad import BadRecord, BadRecords, merged
from headrace.formats.base import Decoded
from headrace.program import PipelineDef
from headrace.ring0.batch import to_rows
from headrace.ring0.decode import Batch, Decoder
from headrace.ring0.letters import DeadLetters
from headrace.ring0.outbox import Outbox
from headrace.ring0.passes import Passes
from headrace.ring0.pieces import pieces
from headrace.ring0.task_input import TaskInput
from headrace.ring0.validity import Judge, policy_of
from headrace.sinks.base import SinkKey
from headrace.sources.badfiles import BadRange
from headrace.sources.base import LineTelling, RawChunk, Split
from headrace.status import Traffic
from headrace.streams import stream_values


def run_task(given: TaskInput) -> Iterator[list[Row]]:
    """The messages of one task: each pipeline's events, its watermark, the barrier, then eof; last the report."""
    yield from _Task(given).run()


class _Task:
    """One run: reads and judges batches, counts them, and says what each pipeline made of them."""

    def __init__(self, given: TaskInput) -> None:
        self.given, self.plan = given, given.plan
        self.passes, self.outbox = Passes(given), Outbox(given)
        # Instances that left and were started again before an epoch could tell their lanes: they begin anew here.
        self.present = frozenset(self.passes.runners)
        self.back = {left.pipeline.instance for left in given.leaving if left.drop} & self.present
        stream = given.plan.stream
        self.judge = Judge(policy_of(stream), stream.schema, self._line)
        self.letters = (
            DeadLetters(stream, stream.dead_letters, SinkKey(given.checkpoint, STREAM_LANE, given.epoch))
            if stream.dead_letters is not None
            else None
        )
        self.lines: dict[tuple[str, int], int | None] = {}
        self.max_rows: int = stream_values(given.plan.stream)["max_rows"]
        self.rows = self.bytes = self.values = self.rejected = self.nulled = 0
        self.unreadable: list[BadRange] = []
        self.bad: Counter[str] = Counter()
        self.max_time: int | None = None
        self.future = 0
        self.reading = self.working = 0.0  # seconds spent on reading and decoding, and in pipelines

    def run(self) -> Iterator[list[Row]]:
        if self.given.split is not None:
            began = time.perf_counter()
            self._read(self.given.split)
            self.reading = time.perf_counter() - began - self.working
        for pipeline in self.plan.pipelines:
            began = time.perf_counter()
            messages = self._finish(pipeline)
            self.working += time.perf_counter() - began
            yield messages
        yield from self._ends()
        if self.letters is not None:
            yield [self.outbox.receipt(STREAM_LANE, sink, receipt) for sink, receipt in self.letters.finish()]
        yield [self.outbox.to_driver(Kind.REPORT, self._report())]

    def _read(self, split: Split) -> None:
        given = self.given
        limit = None if given.now is None else given.now + stream_values(self.plan.stream)["max_future"]
        decoder = self.decoder = Decoder(self.plan, limit)
        for chunk in split.read(decoder.format):
            if chunk.unreadable is not None:
                self.unreadable.append(chunk.unreadable)
            else:
                self._decode(chunk, decoder)
        began = time.perf_counter()
        self.passes.fold()
        self.working += time.perf_counter() - began

    def _decode(self, chunk: RawChunk, decoder: Decoder) -> None:
        for piece in pieces(decoder.format, chunk, decoder.columns):
            batch = decoder.decode(piece)
            self.bytes += len(piece.data)
            self.rows += batch.records
            self.rejected += batch.lost
            self.nulled += len(batch.rejected) - batch.lost
            self.values += batch.values
            self.bad.update({"null_event_time": batch.untimed} if batch.untimed else {})
            self.future += batch.future
            if batch.top is not None and (self.max_time is None or batch.top > self.max_time):
                self.max_time = batch.top
            began = time.perf_counter()
            self._feed(batch)
            self.working += time.perf_counter() - began

    def _feed(self, batch: Batch) -> None:
        """Judge one batch, and hand on what each pipeline gets of it."""
        rows = batch.rows
        batches: dict[int, pa.Table] = {}
        concerned = np.zeros(len(batch.cells), dtype=bool)
        for instance, runner in list(self.passes.runners.items()):
            crash_point(runner.pipeline.name)
            try:
                verdict = self.judge(runner.pipeline, rows, batch.rejected, batch.cells)
                runner.bad += verdict.bad
                batches[instance] = verdict.rows
                concerned |= verdict.concerned
            except Exception as problem:  # the pipeline's own failure must not reach its neighbours
                self.passes.fold()  # what failed in an earlier batch is the pipeline's first failure
                self.passes.fail(instance, problem)
        self._note(batch.rejected, batch.cells.pick(concerned))
        self.passes.add(batches, rows)

    def _note(self, rejected: BadRecords, cells: BadRecords) -> None:
        """Count what was rejected for all or concerns a pipeline, and write it to the dead letters, if there are."""
        for bad in (rejected, cells):
            self.bad.update(bad.counts())
        if self.letters is not None:
            self.letters.add(merged(rejected, cells))

    def _line(self, record: BadRecord) -> int | None:
        """The line of a record in its origin, if the split can tell."""
        split = self.given.split
        if not isinstance(split, LineTelling):
            return None
        place = (record.origin, record.offset)
        if place not in self.lines:
            self.lines[place] = split.line(*place, self.decoder.format)
        return self.lines[place]

    def _finish(self, pipeline: PipelineDef) -> list[Row]:
        """A pipeline's messages. One that failed here still sends its watermark: its lanes must not miss a task."""
        instance, messages = pipeline.instance, []
        runner = self.passes.runners.get(instance)
        if runner is not None:
            try:
                if self.plan.ending and self.given.task == 0:
                    runner.end_of_input(to_rows(Decoded(0, {}), self.plan.stream.schema, None))
                for bucket, table in runner.finish():
                    batches = list(payloads(table, self.max_rows))
                    messages += [self.outbox.row(pipeline.lane, bucket, Kind.EVENTS, payload) for payload in batches]
                    self.outbox.sent[instance] += Traffic(batches=len(batches), rows=table.num_rows)
            except Exception as problem:  # the pipeline's own failure must not reach its neighbours
                self.passes.fail(instance, problem)
            self.outbox.sent[instance] += Traffic(dropped=runner.late)
            for sink, staged in runner.staged.items():
                messages += [self.outbox.receipt(instance, sink, receipt) for receipt in staged]
            for sink, reason in runner.lost.items():
                messages.append(
                    self.outbox.to_driver(Kind.ERROR, {"instance": instance, "sink": sink, "reason": reason})
                )
        if pipeline.program.ring1 is not None:
            # Stopped with its windows to be closed, and started again before an epoch could tell its lanes.
            closing = any(e.flush and not e.drop for e in self.given.leaving if e.pipeline.instance == instance)
            back, flush = instance in self.back, self.plan.ending or closing
            end = LaneEnd(flush, reset=back) if flush or back else None
            messages += self.outbox.watermarks(pipeline, end, self.max_time)
        return messages

    def _ends(self) -> Iterator[list[Row]]:
        for leaving in self.given.leaving:
            if leaving.pipeline.program.ring1 is not None and leaving.pipeline.instance not in self.present:
                end = LaneEnd(leaving.flush, leaving.drop)
                # It left before this epoch's rows, so their times close none of its windows.
                yield self.outbox.watermarks(leaving.pipeline, end, None)
        for instance, reason in self.passes.failures.items():
            yield [self.outbox.to_driver(Kind.ERROR, {"instance": instance, "reason": reason})]

    def _report(self) -> dict[str, object]:
        return {
            "task": self.given.task,
            "tasks": self.given.tasks,
            "epoch": self.given.epoch,
            "end": self.given.end,
            "plan": self.plan.version,
            "ending": self.plan.ending,
            "out": list(self.given.out),
            "probing": self.given.probing,
            "barrier": [self.given.cut.kind, self.given.cut.id],
            "leaving": [left.pipeline.instance for left in self.given.leaving],
            "rows": self.rows,
            "bytes": self.bytes,
            "values": self.values,
            "bad": dict(self.bad),
            "rejected": self.rejected,
            "nulled": self.nulled,
            "unreadable": [asdict(found) for found in self.unreadable],
            "max_time": self.max_time,
            "watermark": self.given.watermark,
            "future": self.future,
            "read_ms": round(self.reading * 1000, 3),
            "ring0_ms": round(self.working * 1000, 3),
            "pipelines": {
                str(i): {"late": r.late, "bad": r.bad, "ms": round(r.seconds * 1000, 3)}
                for i, r in self.passes.runners.items()
            },
            "sent": {str(i): asdict(traffic) for i, traffic in self.outbox.sent.items()},
        }
