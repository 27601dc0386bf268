"""The work of one Spark task in one epoch: read a split, decode it once, run every pipeline, send bridge messages.

`run_task` depends on nothing but its arguments: the same `TaskInput` gives the same messages, on any machine. A
failure of one pipeline becomes an `error` message; a failure of the stream itself (unreadable input) is raised.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa

from headrace.aggregates import aggregate_family
from headrace.bridge.alignment import encode_barrier
from headrace.bridge.messages import STREAM_LANE, Kind, LaneEnd, LaneEpoch, Row, encode_json, encode_receipt, payloads
from headrace.codec import dump
from headrace.control.signals import EPOCH, Barrier
from headrace.failures import describe
from headrace.faults import crash_point, fault_chosen
from headrace.formats.base import BadRecord, Decoded
from headrace.program import Left, PipelineDef, PlanVersion
from headrace.ring0.batch import to_rows
from headrace.ring0.decode import Batch, Decoder
from headrace.ring0.filters import evaluate, in_common, using
from headrace.ring0.letters import DeadLetters
from headrace.ring0.pieces import pieces
from headrace.ring0.projection import projection_of
from headrace.ring0.runner import Runner
from headrace.ring0.validity import Judge, policy_of
from headrace.sinks.base import SinkKey, Staged
from headrace.sources.base import LineTelling, RawChunk, Split
from headrace.status import Traffic
from headrace.streams import stream_values

# Batches are folded together: a pass of DuckDB costs milliseconds to plan however few rows it sees. With 32 pipelines
# 250,000 rows took 0.93 s in batches of 4 MB of input, 0.32 s in four, 0.22 s in one.
FOLD_ROWS = 256 * 1024
FOLD_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TaskInput:
    """All that a task knows. `watermark` is the stream's after the epoch before; `task` counts from 0 to `tasks` - 1;
    `now` is the clock in microseconds when the epoch was planned, None for no clock.

    `out` are instances of the plan version that are in quarantine and not in `plan` any more; while `probing`, nothing
    that this task does is committed.
    """

    plan: PlanVersion
    split: Split | None
    task: int
    tasks: int
    epoch: int
    checkpoint: str
    watermark: int | None
    leaving: tuple[Left, ...] = ()
    out: tuple[int, ...] = ()
    probing: bool = False
    now: int | None = None
    barrier: Barrier | None = None

    @property
    def cut(self) -> Barrier:
        """The barrier behind the epoch's rows: the one that it was cut for, or the epoch's own."""
        return self.barrier or Barrier(EPOCH.name, self.epoch)


def run_task(given: TaskInput) -> Iterator[list[Row]]:
    """The messages of one task: each pipeline's events, its watermark, the barrier, then eof; last the report."""
    yield from _Task(given).run()


class _Task:
    """The state of one run: runners that still live, failures, counters."""

    def __init__(self, given: TaskInput) -> None:
        self.given, self.plan = given, given.plan
        self.runners = {
            p.instance: Runner(p, SinkKey(given.checkpoint, p.instance, given.epoch), given.watermark)
            for p in given.plan.pipelines
        }
        self.failures: dict[int, str] = {}
        # Instances that left and were started again before an epoch could tell their lanes: they begin anew here.
        self.present = frozenset(self.runners)
        self.back = {left.pipeline.instance for left in given.leaving if left.drop} & self.present
        self.projection = projection_of(given.plan)
        self.waiting: list[pa.Table] = []
        self.waiting_rows = self.waiting_bytes = 0
        stream = given.plan.stream
        self.judge = Judge(policy_of(stream), stream.schema, self._line)
        self.letters = (
            DeadLetters(stream, stream.dead_letters, SinkKey(given.checkpoint, STREAM_LANE, given.epoch))
            if stream.dead_letters is not None
            else None
        )
        self.lines: dict[tuple[str, int], int | None] = {}
        self.max_rows: int = stream_values(given.plan.stream)["max_rows"]
        self.seq = 0
        self.rows = self.bytes = self.values = 0
        self.bad: Counter[str] = Counter()
        self.max_time: int | None = None
        self.future = 0
        self.sent: dict[int, Traffic] = defaultdict(Traffic)

    def run(self) -> Iterator[list[Row]]:
        if self.given.split is not None:
            self._read(self.given.split)
        for pipeline in self.plan.pipelines:
            yield self._finish(pipeline)
        yield from self._ends()
        if self.letters is not None:
            yield [self._receipt(STREAM_LANE, sink, receipt) for sink, receipt in self.letters.finish()]
        yield [self._to_driver(Kind.REPORT, self._report())]

    def _read(self, split: Split) -> None:
        given = self.given
        limit = None if given.now is None else given.now + stream_values(self.plan.stream)["max_future"]
        decoder = self.decoder = Decoder(self.plan, limit)
        for chunk in split.read(decoder.format):
            self._decode(chunk, decoder)
        self._fold()

    def _decode(self, chunk: RawChunk, decoder: Decoder) -> None:
        for piece in pieces(decoder.format, chunk, decoder.columns):
            batch = decoder.decode(piece)
            self.bytes += len(piece.data)
            self.rows += batch.records
            self.values += batch.values
            self.bad.update({"null_event_time": batch.untimed} if batch.untimed else {})
            self.future += batch.future
            if batch.top is not None and (self.max_time is None or batch.top > self.max_time):
                self.max_time = batch.top
            self._feed(batch)

    def _feed(self, batch: Batch) -> None:
        """Judge one batch, and let it wait for others unless the pipelines get different rows of it."""
        rows = batch.rows
        batches: dict[int, pa.Table] = {}
        concerned: dict[tuple[int, int | None], BadRecord] = {}
        for instance, runner in list(self.runners.items()):
            crash_point(runner.pipeline.name)
            try:
                verdict = self.judge(runner.pipeline, rows, batch.rejected, batch.cells)
                runner.bad += verdict.bad
                batches[instance] = verdict.rows
                concerned |= {(b.row, b.column): b for b in verdict.concerned}
            except Exception as problem:  # the pipeline's own failure must not reach its neighbours
                self._fold()  # what failed in an earlier batch is the pipeline's first failure
                self._fail(instance, problem)
        if batch.rejected or concerned:
            self._note([*batch.rejected, *concerned.values()])
        if any(own is not rows for own in batches.values()):
            self._fold()
            self._run(batches, rows)
            return
        self.waiting.append(rows)
        self.waiting_rows += rows.num_rows
        self.waiting_bytes += sum(rows.column(c).nbytes for c in self.projection.wanted)
        if self.waiting_rows >= FOLD_ROWS or self.waiting_bytes >= FOLD_BYTES:
            self._fold()

    def _fold(self) -> None:
        """Run the pipelines on the batches that wait."""
        if self.waiting:
            rows = pa.concat_tables(self.waiting)
            self.waiting, self.waiting_rows, self.waiting_bytes = [], 0, 0
            self._run(dict.fromkeys(self.runners, rows), rows)

    def _run(self, batches: dict[int, pa.Table], rows: pa.Table) -> None:
        """Run every pipeline that lives on its batch; those of a family that all get `rows` in one pass."""
        batches = {i: batch for i, batch in batches.items() if i in self.runners}
        alike = [[i for i in members if batches.get(i) is rows] for members in self.projection.families]
        passes = [members for members in alike if len(members) > 1]
        together = {i for members in passes for i in members}
        passes += [[i] for i, batch in batches.items() if batch is rows and i not in together]
        flagged, known = self._filters_in_common(passes, rows)
        for members in passes:
            if len(members) > 1 and self._feed_family([self.runners[i] for i in members], flagged, known):
                for instance in members:
                    del batches[instance]
        for instance, own in batches.items():
            try:
                if own is rows:
                    self.runners[instance].feed(flagged, known)
                else:
                    self.runners[instance].feed(own)
            except Exception as problem:
                self._fail(instance, problem)

    def _filters_in_common(self, passes: list[list[int]], rows: pa.Table) -> tuple[pa.Table, dict[str, str]]:
        """The batch with the answers of the filters that several passes have, which share the time it took."""
        began = time.perf_counter()
        filters = {i: r.pipeline.program.ring0.filter for i, r in self.runners.items()}
        shared = in_common([filters[i] for i in members] for members in passes)
        if not shared or self.projection.meaning is None:
            return rows, {}
        try:
            found = evaluate(shared, self.projection.meaning, rows)
        except Exception:  # whose failure it is shows when each evaluates its own
            return rows, {}
        users = [i for members in passes for i in members if filters[i] in shared]
        for instance in users:
            self.runners[instance].seconds += (time.perf_counter() - began) / len(users)
        return found

    def _note(self, bad: Sequence[BadRecord]) -> None:
        """Count what was rejected for all or concerns a pipeline, and write it to the dead letters, if there are."""
        self.bad.update(b.reason for b in bad)
        if self.letters is not None:
            self.letters.add(sorted(bad, key=lambda b: (b.offset, -1 if b.column is None else b.column)))

    def _line(self, record: BadRecord) -> int | None:
        """The line of a record in its origin, if the split can tell."""
        split = self.given.split
        if not isinstance(split, LineTelling):
            return None
        place = (record.origin, record.offset)
        if place not in self.lines:
            self.lines[place] = split.line(*place, self.decoder.format)
        return self.lines[place]

    def _feed_family(self, runners: list[Runner], rows: pa.Table, known: Mapping[str, str]) -> bool:
        """Fold a batch for a whole family in one pass. When that fails, members run singly to find the guilty one."""
        began = time.perf_counter()
        meaning = runners[0].pipeline.program.meaning
        members = [using(r.pipeline.program.ring0, known) for r in runners]
        try:
            shares = aggregate_family(members, meaning, rows, self.given.watermark)
        except Exception:  # whose failure it is shows when each runs alone
            return False
        for runner, share in zip(runners, shares, strict=True):
            runner.seconds += (time.perf_counter() - began) / len(runners)
            try:
                runner.take(share, rows)
            except Exception as problem:  # its sink for late rows
                self._fail(runner.pipeline.instance, problem)
        return True

    def _finish(self, pipeline: PipelineDef) -> list[Row]:
        """A pipeline's messages. One that failed here still sends its watermark: its lanes must not miss a task."""
        instance, messages = pipeline.instance, []
        runner = self.runners.get(instance)
        if runner is not None:
            try:
                if self.plan.ending and self.given.task == 0:
                    runner.end_of_input(to_rows(Decoded(0, {}), self.plan.stream.schema, None))
                for bucket, table in runner.finish():
                    batches = list(payloads(table, self.max_rows))
                    messages += [self._row(pipeline.lane, bucket, Kind.EVENTS, payload) for payload in batches]
                    self.sent[instance] += Traffic(batches=len(batches), rows=table.num_rows)
            except Exception as problem:  # the pipeline's own failure must not reach its neighbours
                self._fail(instance, problem)
            self.sent[instance] += Traffic(dropped=runner.late)
            for sink, staged in runner.staged.items():
                messages += [self._receipt(instance, sink, receipt) for receipt in staged]
            for sink, reason in runner.lost.items():
                messages.append(self._to_driver(Kind.ERROR, {"instance": instance, "sink": sink, "reason": reason}))
        if pipeline.program.ring1 is not None:
            # Stopped with its windows to be closed, and started again before an epoch could tell its lanes.
            closing = any(e.flush and not e.drop for e in self.given.leaving if e.pipeline.instance == instance)
            back, flush = instance in self.back, self.plan.ending or closing
            end = LaneEnd(flush, reset=back) if flush or back else None
            messages += self._watermarks(pipeline, end, self.max_time)
        return messages

    def _ends(self) -> Iterator[list[Row]]:
        for leaving in self.given.leaving:
            if leaving.pipeline.program.ring1 is not None and leaving.pipeline.instance not in self.present:
                end = LaneEnd(leaving.flush, leaving.drop)
                # It left before this epoch's rows, so their times close none of its windows.
                yield self._watermarks(leaving.pipeline, end, None)
        for instance, reason in self.failures.items():
            yield [self._to_driver(Kind.ERROR, {"instance": instance, "reason": reason})]

    def _watermarks(self, pipeline: PipelineDef, end: LaneEnd | None, max_time: int | None) -> list[Row]:
        """This task's word to every lane of a pipeline; the first task also says what the lane is."""
        given = self.given
        program = _text(pipeline, given.checkpoint) if given.task == 0 else ""
        message = LaneEpoch(
            given.epoch,
            given.tasks,
            given.checkpoint,
            given.watermark,
            max_time,
            self.plan.stream.delay_us,
            program,
        ).encode()
        rows, barrier = [], encode_barrier(given.cut)
        ending = end.encode() if end is not None and given.task == 0 else None
        for bucket in range(pipeline.buckets):
            rows.append(self._row(pipeline.lane, bucket, Kind.WATERMARK, message))
            if not fault_chosen("drop-barrier-row"):
                rows.append(self._row(pipeline.lane, bucket, Kind.BARRIER, barrier))
            if ending is not None:
                rows.append(self._row(pipeline.lane, bucket, Kind.EOF, ending))
        count = pipeline.buckets
        self.sent[pipeline.instance] += Traffic(watermarks=count, barriers=count, ends=count if ending else 0)
        return rows

    def _fail(self, instance: int, problem: Exception) -> None:
        """Do without the pipeline from here on; its first failure is the one that is told."""
        if self.runners.pop(instance, None) is not None:
            self.failures[instance] = describe(problem)

    def _row(self, instance: int, bucket: int, kind: Kind, payload: bytes) -> Row:
        self.seq += 1
        return Row(instance, bucket, self.given.task, self.seq, int(kind), payload)

    def _to_driver(self, kind: Kind, value: dict[str, object]) -> Row:
        """A message on the stream's own lane."""
        return self._row(STREAM_LANE, self.given.task, kind, encode_json(value))

    def _receipt(self, instance: int, sink: str, receipt: Staged) -> Row:
        return self._row(STREAM_LANE, self.given.task, Kind.OUTPUT, encode_receipt(instance, sink, receipt))

    def _report(self) -> dict[str, object]:
        return {
            "task": self.given.task,
            "tasks": self.given.tasks,
            "epoch": self.given.epoch,
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
            "max_time": self.max_time,
            "watermark": self.given.watermark,
            "future": self.future,
            "pipelines": {
                str(i): {"late": r.late, "bad": r.bad, "ms": round(r.seconds * 1000, 3)}
                for i, r in self.runners.items()
            },
            "sent": {str(i): asdict(traffic) for i, traffic in self.sent.items()},
        }


_texts: dict[tuple[str, int], tuple[PipelineDef, str]] = {}


def _text(pipeline: PipelineDef, checkpoint: str) -> str:
    """A pipeline as its lanes get it; written once per worker. A worker may serve several hubs, whose instances are
    numbered alike: the checkpoint tells them apart."""
    key = (checkpoint, pipeline.instance)
    held = _texts.get(key)
    if held is None or held[0] != pipeline:
        if len(_texts) > 4096:
            _texts.clear()
        held = _texts[key] = (pipeline, dump(pipeline))
    return held[1]
