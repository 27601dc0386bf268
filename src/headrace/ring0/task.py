"""The work of one Spark task in one epoch: read a split, decode it once, run every pipeline, send bridge messages.

`run_task` depends on nothing but its argument: the same `TaskInput` gives the same messages, on any machine. If a
pipeline fails, the task sends an `error` message and continues with the others. If the stream itself fails (its input
cannot be read), the task raises.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.base.faults import crash_point
from headrace.bridge.messages import STREAM_LANE, LaneEnd, Row
from headrace.bridge.reports import Failure, TaskReport
from headrace.bridge.task_counts import PipelineCounts
from headrace.exec.duck import set_clock
from headrace.formats.bad import BadRecord, BadRecords, merged
from headrace.formats.packing import NO_RECORD
from headrace.model.definitions import PipelineDef
from headrace.model.stream_options import stream_settings
from headrace.ring0.batch import no_rows
from headrace.ring0.decode import Batch, Decoder
from headrace.ring0.failing_rows import RecordPlace
from headrace.ring0.letters import DeadLetters
from headrace.ring0.outbox import Outbox
from headrace.ring0.passes import Passes
from headrace.ring0.pieces import pieces
from headrace.ring0.runner import Runner
from headrace.ring0.task_input import TaskInput
from headrace.ring0.validity import Judge, policy_of
from headrace.sinks.sink_kind import SinkKey
from headrace.sources.badfiles import BadRange
from headrace.sources.extent import BAD_FILE
from headrace.sources.source_kind import CarriesTime, InputSplit, LocatesLines, RawChunk, ReadsLate


def run_task(given: TaskInput) -> Iterator[list[Row]]:
    """The messages of one task: each pipeline's events, watermark, barrier and end, and last the task's report."""
    yield from _Task(given).run()


class _Task:
    """One run of a task: decodes batches, counts them, and sends what each pipeline makes of them."""

    def __init__(self, given: TaskInput) -> None:
        self.given, self.plan = given, given.plan
        self.passes, self.outbox = Passes(given), Outbox(given)
        self.present = frozenset(self.passes.runners)
        # Instances that were dropped and started again before an epoch informed their lanes: their state is deleted.
        self.back = {left.pipeline.instance for left in given.leaving if left.drop} & self.present
        stream, planned = given.plan.stream, given.planned
        self.judge = Judge(policy_of(stream), stream.schema, self._line)
        self.letters = (
            DeadLetters(stream, stream.dead_letters, SinkKey(planned.checkpoint, STREAM_LANE, planned.epoch))
            if stream.dead_letters is not None
            else None
        )
        self.lines: dict[tuple[str, int], int | None] = {}
        self.max_rows: int = stream_settings(given.plan.stream).max_rows
        self.rows = self.bytes = self.values = self.rejected = self.nulled = 0
        self.unreadable: list[BadRange] = []
        self.bad: Counter[str] = Counter()
        self.max_time: int | None = None
        self.future = 0
        self.reading = self.working = 0.0  # seconds spent on reading and decoding, and in pipelines

    def run(self) -> Iterator[list[Row]]:
        set_clock({pipeline.program.meaning for pipeline in self.plan.pipelines}, self.given.planned.now)
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
        yield self.outbox.pools(self.max_time)
        if self.letters is not None:
            yield [self.outbox.receipt(STREAM_LANE, sink, receipt) for sink, receipt in self.letters.finish()]
        yield [self.outbox.report(self._report(), self._counted())]

    def _read(self, split: InputSplit) -> None:
        now = self.given.planned.now
        limit = None if now is None else now + stream_settings(self.plan.stream).max_future
        decoder = self.decoder = Decoder(self.plan, limit)
        self.passes.place_of = self._place
        for chunk in split.read(decoder.format):
            if chunk.unreadable is not None:
                self.unreadable.append(chunk.unreadable)
            else:
                self._decode_or_report(chunk, decoder, split)
        if isinstance(split, CarriesTime) and split.timed:
            self.max_time = split.event_time
        began = time.perf_counter()
        self.passes.fold()
        self.working += time.perf_counter() - began

    def _decode_or_report(self, chunk: RawChunk, decoder: Decoder, split: InputSplit) -> None:
        """Decode a chunk. If it is read only now, and cannot be, it is reported as if the split had found it."""
        try:
            self._decode(chunk, decoder)
        except BAD_FILE as problem:
            if chunk.table is None or not isinstance(split, ReadsLate):
                raise
            self.unreadable.append(split.unreadable(chunk.origin, problem))

    def _decode(self, chunk: RawChunk, decoder: Decoder) -> None:
        self.bad.update(chunk.left_out)
        if chunk.left_out and not chunk.data:
            return
        for piece in pieces(decoder.format, chunk, decoder.cells):
            batch = decoder.decode(piece)
            if piece.packed is not None and len(piece.packed) > batch.records:  # only white space, or a comment
                self.bad[NO_RECORD] += len(piece.packed) - batch.records
            self.bytes += piece.size
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
        """Apply the policy for bad records to one batch, and give each pipeline its rows."""
        rows = batch.rows
        batches: dict[int, pa.Table] = {}
        concerned = np.zeros(len(batch.cells), dtype=bool)
        for instance, runner in list(self.passes.runners.items()):
            crash_point(runner.pipeline.name)
            try:
                judged = self.judge(runner.pipeline, rows, batch.rejected, batch.cells)
                runner.bad += judged.bad
                batches[instance] = judged.rows
                concerned |= judged.concerned
            except Exception as problem:  # the pipeline's own failure must not stop the others
                self.passes.fold()  # batches that wait came earlier: a failure in them is the pipeline's first one
                self.passes.fail(instance, problem)
        self._note(batch.rejected, batch.cells.pick(concerned))
        self.passes.add(batches, rows)

    def _note(self, rejected: BadRecords, cells: BadRecords) -> None:
        """Count the rejected records and the bad values that concern a pipeline, and write them as dead letters."""
        for bad in (rejected, cells):
            self.bad.update(bad.counts())
        if self.letters is not None:
            self.letters.add(merged(rejected, cells))

    def _place(self, number: int) -> RecordPlace:
        """Where the record of a row is."""
        assert self.decoder.places is not None, "a program with expressions that may fail asks for places"
        origin, offset = self.decoder.places.locate(number)
        return RecordPlace(origin, offset, self._line_at(origin, offset))

    def _line(self, record: BadRecord) -> int | None:
        return self._line_at(record.origin, record.offset)

    def _line_at(self, origin: str, offset: int) -> int | None:
        """The line of a record in its origin, if the split can find it."""
        split = self.given.split
        if not isinstance(split, LocatesLines):
            return None
        place = (origin, offset)
        if place not in self.lines:
            self.lines[place] = split.line(*place, self.decoder.format)
        return self.lines[place]

    def _finish(self, pipeline: PipelineDef) -> list[Row]:
        """A pipeline's messages. One that failed here still sends its watermark: its lanes wait for every task."""
        runner = self.passes.runners.get(pipeline.instance)
        messages = [] if runner is None else [*self._events(runner), *self._staged(runner)]
        if pipeline.program.ring1 is not None:
            messages += self.outbox.finish(pipeline, self._end_of(pipeline.instance), self.max_time)
        return messages

    def _events(self, runner: Runner) -> list[Row]:
        """The partial aggregates of one pipeline, by bucket."""
        pipeline, messages = runner.pipeline, list[Row]()
        try:
            if self.plan.ending and self.given.task == 0:
                runner.end_of_input(no_rows(self.plan.stream.schema, pipeline.program.view))
            batches = rows = 0
            for bucket, entry in runner.finish(self.max_rows):
                messages += self.outbox.events(pipeline, bucket, entry)
                batches, rows = batches + 1, rows + entry.rows
            sent = self.outbox.sent[pipeline.instance]
            sent.batches += batches
            sent.rows += rows
        except Exception as problem:  # the pipeline's own failure must not stop the others
            self.passes.fail(pipeline.instance, problem)
        if runner.late:
            self.outbox.sent[pipeline.instance].dropped += runner.late
        return messages

    def _staged(self, runner: Runner) -> list[Row]:
        """What a pipeline's sinks have staged, which of them failed, and the rows for its Spark query."""
        instance, messages = runner.pipeline.instance, [self.outbox.staged_rows(rows) for rows in runner.for_spark]
        for sink, staged in runner.staged.items():
            messages += [self.outbox.receipt(instance, sink, receipt) for receipt in staged]
        for sink, reason in runner.lost.items():
            messages.append(self.outbox.failure(Failure(instance, reason, sink)))
        return messages

    def _end_of(self, instance: int) -> LaneEnd | None:
        """The end message of a pipeline that is in the plan: the input is over, or the pipeline was started again."""
        # It was stopped with its windows to be closed, and started again before an epoch could inform its lanes.
        closing = any(e.flush and not e.drop for e in self.given.leaving if e.pipeline.instance == instance)
        back, flush = instance in self.back, self.plan.ending or closing
        return LaneEnd(flush, reset=back) if flush or back else None

    def _ends(self) -> Iterator[list[Row]]:
        """The end messages of pipelines that have left the plan, and the failures of those in it."""
        for leaving in self.given.leaving:
            if leaving.pipeline.program.ring1 is not None and leaving.pipeline.instance not in self.present:
                end = LaneEnd(leaving.flush, leaving.drop)
                # It left before this epoch's rows, so their times close none of its windows.
                yield self.outbox.finish(leaving.pipeline, end, None, left=True)
        for instance, reason in self.passes.failures.items():
            yield [self.outbox.failure(Failure(instance, reason))]

    def _report(self) -> TaskReport:
        return TaskReport(
            task=self.given.task,
            planned=self.given.planned,
            plan=self.plan.version,
            ending=self.plan.ending,
            leaving=tuple(left.pipeline.instance for left in self.given.leaving),
            rows=self.rows,
            bytes=self.bytes,
            values=self.values,
            rejected=self.rejected,
            nulled=self.nulled,
            future=self.future,
            bad=dict(self.bad),
            max_time=self.max_time,
            read_ms=round(self.reading * 1000, 3),
            ring0_ms=round(self.working * 1000, 3),
            unreadable=tuple(self.unreadable),
        )

    def _counted(self) -> list[PipelineCounts]:
        """The counters of every instance."""
        return [self._counts(instance) for instance in dict.fromkeys([*self.passes.runners, *self.outbox.sent])]

    def _counts(self, instance: int) -> PipelineCounts:
        runner = self.passes.runners.get(instance)
        sent = self.outbox.sent[instance].traffic
        if runner is None:
            return PipelineCounts._make((instance, 0, 0, 0, 0, *sent))
        return PipelineCounts._make((instance, runner.late, runner.bad, 1, round(runner.seconds * 1e6), *sent))
