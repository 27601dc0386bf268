"""Plans epochs, and runs one task of an epoch. The data source of `headrace.spark.source` calls it.

Every epoch ends at a `headrace.spark.offset.Offset`, which Spark logs before the epoch runs. A re-run after a crash
therefore has the same input, plan, barrier, watermark and clock. The planner makes a new offset only when there is a
reason for an epoch: a new plan version, a barrier, the moved watermark of an idle stream, or enough waiting rows for
the batch policy (`headrace.bridge.policy`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headrace.base.collecting import collection_paused
from headrace.base.faults import fault_point
from headrace.bridge.messages import STREAM_LANE, MessageKind, Row, batches
from headrace.bridge.policy import Batcher, BatchPolicy, IdleAdvance
from headrace.bridge.reports import PlannedEpoch
from headrace.bridge.spark_rows import STAGING
from headrace.control.log import SignalLog, next_cut
from headrace.model.codec import dump, pack
from headrace.model.definitions import PipelineDef, StreamDef
from headrace.model.plan_version import PipelineExit, PlanVersion
from headrace.model.stream_options import StreamSettings, stream_settings
from headrace.ring0.task import run_task
from headrace.ring0.task_input import TaskInput
from headrace.sinks.feed_sink import FeedWatch
from headrace.sinks.secret_options import pipeline_for_tasks, secrets_for_tasks
from headrace.sinks.staging import pipeline_staged_in, plan_staged_in
from headrace.sources import SOURCES
from headrace.sources.source_kind import InputSplit, StreamSource
from headrace.spark.offset import Offset
from headrace.spark.worker_memory import keep_freed_memory
from headrace.state.checkpoint import CHECKPOINT
from headrace.state.checkpoint_sync import CheckpointSync
from headrace.state.notices import (
    EpochPlanned,
    Notice,
    PlanningHeld,
    PlanningPaused,
    ProbePlanned,
    SourceIdle,
    send_notice,
)
from headrace.state.plans import PlanStore, unpack_plan
from headrace.state.progress import (
    HOLD,
    Applied,
    PlannerProgress,
    lost_progress,
    mismatch,
    read_planner_progress,
    write_applied,
)
from headrace.state.quarantine import Quarantine, read_quarantine
from headrace.state.secrets import read_vault, secrets_of, unseal_stream

MOST_NAMED = 100  # pipelines in a notice, which is one datagram
KNOWN_PLANS = 4  # an epoch is planned with the one before it, its own, and the newest


@dataclass(frozen=True)
class EpochPartition(InputPartition):
    """One task's share of an epoch: everything it needs, by value. `plan` is packed, and a worker parses each plan
    version once (`unpack_plan`)."""

    plan: bytes
    split: InputSplit | None
    task: int
    planned: PlannedEpoch
    leaving: tuple[PipelineExit, ...] = ()


@dataclass(frozen=True)
class NothingPlanned(InputPartition):
    """No epoch was planned. Its task says so, because an epoch without any task report is an error."""

    task: int = 0


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """The plan of one epoch after quarantine. The instances in `out` are in the plan version but do not run."""

    plan: PlanVersion
    packed: bytes
    leaving: tuple[PipelineExit, ...]
    out: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KnownPlan:
    """A plan version as the planner has read it, and as tasks get it."""

    plan: PlanVersion
    packed: bytes


class EpochPlanner:
    """Plans the epochs of one stream. One process and one thread use it for as long as the query runs."""

    def __init__(self, options: dict[str, str]) -> None:
        self.directory = Path(options["directory"])
        self.checkpoint = options["checkpoint"]
        self.port = int(options["port"])
        self.token = options["token"]
        self.parallelism = int(options["parallelism"])
        self.one_machine = options.get("one_machine") == "true"
        self._known: tuple[int, PlannerProgress] | None = None
        self._newest = 0
        self._released: int | None = None
        self._began: float | None = None  # when the planning of the newest epoch began
        self._plans: dict[int, KnownPlan] = {}  # the newest that were used

    @cached_property
    def plans(self) -> PlanStore:
        return PlanStore(self.directory)

    @cached_property
    def signals(self) -> SignalLog:
        return SignalLog(self.directory)

    @cached_property
    def checkpoint_sync(self) -> CheckpointSync:
        return CheckpointSync(self.directory / CHECKPOINT)

    @cached_property
    def feeds(self) -> FeedWatch:
        return FeedWatch(self.directory)

    @cached_property
    def stream(self) -> StreamDef:
        return self._plan(self.plans.current()).plan.stream

    @cached_property
    def source(self) -> StreamSource:
        stream = self.stream
        if not SOURCES[stream.source].pushed and secrets_of(stream):  # they are two levels up, in the hub's state
            stream = unseal_stream(stream, read_vault(self.directory.parent.parent))
        return SOURCES[stream.source].make(stream, self.directory / "source", time.time)

    @cached_property
    def settings(self) -> StreamSettings:
        return stream_settings(self.stream)

    @cached_property
    def batcher(self) -> Batcher:
        settings = self.settings
        policy = BatchPolicy(settings.max_rows, settings.max_latency, settings.flush_on_watermark)
        return Batcher(policy, time.monotonic)

    @cached_property
    def idle(self) -> IdleAdvance:
        return IdleAdvance(self.settings.idle_advance, time.monotonic)

    def initial(self) -> dict[str, Any]:
        return Offset(self.source.initial()).stored()

    @collection_paused()
    def latest(self, start: dict[str, Any]) -> dict[str, Any]:
        """The offset at which the next epoch ends, or `start` when there is no reason for an epoch."""
        self._began = time.monotonic()
        at = Offset.parse(start)
        if self._held(at):
            self._notify(PlanningHeld(stream=self.stream.name, pid=os.getpid()))
            return start
        progress = self._progress(at.epoch)
        if progress.epoch != at.epoch:
            return self._repeated(at, progress)
        self._release(at)
        # The hub logs a barrier before it publishes the plan that the barrier asks for: read in the other order.
        newest = self.plans.current()
        self._follow(newest)
        plan, cut = next_cut(self.signals.pending(at.barrier_id), newest)
        # A full feed pauses the source. Plans and barriers go on. The watermark does not: rows may wait, and an idle
        # stream that advanced it meanwhile would make them late.
        full = self.feeds.full(self._plan(newest).plan.pipelines) if newest else []
        source = at.source if full else self.source.latest(at.source, self.settings.max_epoch_bytes)
        if full or source != at.source:
            self.idle.rows_came()
        watermark = self.idle.watermark(progress.watermark)
        urgent = plan != at.plan or watermark != progress.watermark or cut is not None
        waiting = self._waiting(at.source, progress) if source != at.source else 0
        if self.batcher.cut(waiting, closed=progress.closed > 0, urgent=urgent) is None:
            if full:
                names = "\n".join(full[:MOST_NAMED])
                self._notify(PlanningPaused(stream=self.stream.name, pid=os.getpid(), plan=plan, pipelines=names))
            elif waiting == 0:
                exhausted = self.source.exhausted(source)
                self._notify(SourceIdle(stream=self.stream.name, pid=os.getpid(), plan=plan, exhausted=exhausted))
            return start
        return Offset(
            source=source,
            plan=plan,
            barrier_id=at.barrier_id if cut is None else cut.id,
            barrier_kind=at.barrier_kind if cut is None else cut.kind,
            watermark=watermark,
            now=max(at.now, time.time_ns() // 1000),  # it never goes back, even when the machine's clock does
            epoch=at.epoch + 1,
        ).stored()

    def _release(self, at: Offset) -> None:
        """Let a feed forget what was read. Spark says that an epoch is done when it plans the next one. A pipeline that
        waits for room in the feed would wait for ever, because then there is no next one."""
        if self.stream.fed_by is not None and at.epoch != self._released:
            self.source.commit(at.source)
            self._released = at.epoch

    def _follow(self, newest: int) -> None:
        """Create the source again when a new plan version changes its options (`SourceKind.changeable`)."""
        if newest not in (0, self._newest):
            self._newest, stream = newest, self._plan(newest).plan.stream
            if stream != self.stream:
                for made in ("stream", "source", "settings"):
                    self.__dict__.pop(made, None)

    def _progress(self, epoch: int) -> PlannerProgress:
        """The stream's progress after `epoch`. It is read once per epoch, because polls are frequent and it does not
        change until the next epoch is done. Makes Spark's state and commit log durable first: after that the source may
        delete the input of the epoch."""
        if self._known is None or self._known[0] != epoch:
            self.checkpoint_sync.sync()
            self._known = (epoch, read_planner_progress(self.directory))
        return self._known[1]

    def _repeated(self, start: Offset, progress: PlannerProgress) -> dict[str, Any]:
        """Spark asks for an epoch that is already committed, because it has lost its log of it. Plans the same epoch
        again, which the sinks recognise. Never plans another epoch under the same number."""
        if progress.epoch < start.epoch:
            raise lost_progress(progress, start.epoch, self.directory)
        if progress.epoch == start.epoch + 1 and progress.end is not None:
            return progress.end
        raise mismatch(
            f"Spark's checkpoint of stream {self.stream.name} ends with epoch {start.epoch}, but epoch "
            f"{progress.epoch} is committed",
            progress.epoch,
        )

    def _waiting(self, at: dict[str, Any], progress: PlannerProgress) -> int | None:
        """An estimate of how many rows wait, from the average size of the rows so far; None before the first row."""
        if not progress.rows:
            return None
        return max(1, int(self.source.backlog(at) * progress.rows / max(1, progress.bytes)))

    @collection_paused()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of the epoch from `start` to `end`."""
        began, self._began = self._began or time.monotonic(), None
        if start == end:
            return [NothingPlanned()]
        fault_point("after-offset-log")
        begin, until = Offset.parse(start), Offset.parse(end)
        progress = self._progress(begin.epoch)
        if progress.epoch < begin.epoch:
            raise lost_progress(progress, begin.epoch, self.directory)
        quarantine = read_quarantine(self.directory)
        probing = quarantine.probe is not None
        chosen = self._plan_of(begin, until, quarantine)
        found = self.source.splits(begin.source, until.source, self.parallelism)
        splits: list[InputSplit | None] = [*found] or [None]
        if probing:
            self._notify(ProbePlanned(stream=self.stream.name, pid=os.getpid(), epoch=until.epoch))
        else:
            self._write_applied(until, chosen)
            self._notify(self._epoch_planned(until, chosen, began))
        staging = str(self.directory / STAGING)
        planned = PlannedEpoch(
            epoch=until.epoch,
            tasks=len(splits),
            checkpoint=self.checkpoint,
            watermark=until.watermark,
            now=until.now,
            requested=until.barrier_since(begin),
            out=chosen.out,
            probing=probing,
            end=end,
            staging=staging,
            packs=staging if self.one_machine else "",
        )
        return [
            EpochPartition(chosen.packed, split, i, planned, leaving=chosen.leaving) for i, split in enumerate(splits)
        ]

    def _epoch_planned(self, until: Offset, chosen: EpochPlan, began: float) -> EpochPlanned:
        """The notice of a planned epoch. Planning it began at `began`, on the monotonic clock."""
        backlog = self.source.backlog(until.source)
        return EpochPlanned(
            stream=self.stream.name,
            pid=os.getpid(),
            plan=chosen.plan.version,
            epoch=until.epoch,
            backlog=backlog,
            planning_ms=round((time.monotonic() - began) * 1000, 3),
        )

    def _plan_of(self, begin: Offset, until: Offset, quarantine: Quarantine) -> EpochPlan:
        """The plan that the tasks of an epoch get, without the instances that are in quarantine."""
        stored = self._plan(until.plan)
        declared = stored.plan
        if declared.ending and begin.plan == until.plan:  # it has closed its windows already, and more input came
            declared = replace(declared, ending=False)
        allowed = quarantine.apply(declared)
        forbidden = {p.instance for p in declared.pipelines} - {p.instance for p in allowed.pipelines}
        known = self._plan(begin.plan).plan.left if begin.plan else ()
        ended = {left.key for left in known}
        leaving = tuple({left.pipeline.instance: left for left in allowed.left if left.key not in ended}.values())
        muted = {left.pipeline.instance for left in leaving if left not in declared.left}
        # Tasks get the instances that leave in this epoch beside the plan, so the plan itself need not list them.
        sent = plan_staged_in(replace(allowed, left=()) if allowed.left else allowed, self.directory)
        sent = secrets_for_tasks(sent, self._reveal)
        packed = stored.packed if sent is stored.plan else pack(dump(sent))
        leaving = tuple(replace(e, pipeline=self._for_tasks(e.pipeline)) for e in leaving)
        return EpochPlan(allowed, packed, leaving, out=tuple(sorted(forbidden | muted)))

    def _plan(self, version: int) -> KnownPlan:
        """A plan version, which is read once, because it does not change and every poll asks for it. Raises
        StateDamaged."""
        found = self._plans.get(version)
        if found is None:
            while len(self._plans) >= KNOWN_PLANS:
                del self._plans[next(iter(self._plans))]
            found = self._plans[version] = KnownPlan(self.plans.load(version), pack(self.plans.text(version)))
        return found

    def _for_tasks(self, pipeline: PipelineDef) -> PipelineDef:
        return pipeline_for_tasks(pipeline_staged_in(pipeline, self.directory), self._reveal)

    def _reveal(self, name: str) -> str:
        return read_vault(self.directory.parent.parent).reveal(name)  # two levels up, in the hub's state

    def _write_applied(self, until: Offset, chosen: EpochPlan) -> None:
        """Record what the epoch decodes and which instances it runs, for status, EXPLAIN, and the search for a pipeline
        that kills workers."""
        plan = chosen.plan
        columns = plan.view.indexes(len(plan.stream.schema))
        read = tuple(left.pipeline.instance for left in chosen.leaving if left.flush or not left.drop)
        write_applied(self.directory, Applied(plan.version, until.epoch, columns, out=chosen.out, leaving=read))

    def _held(self, start: Offset) -> bool:
        """True if no epoch may be planned now: at all, or after the barrier whose id the file holds."""
        try:
            wanted = (self.directory / HOLD).read_text(errors="replace")
        except FileNotFoundError:
            return False
        # Text that is not an id is damaged. Hold, until the hub's request times out and the hub removes the file.
        return not wanted.isdigit() or start.barrier_id >= int(wanted)

    def commit(self, end: dict[str, Any]) -> None:
        self.source.commit(end["source"])

    def _notify(self, notice: Notice) -> None:
        send_notice(self.port, self.token, notice)


def read_partition(partition: EpochPartition | NothingPlanned) -> Iterator[pa.RecordBatch]:
    """Ring 0 for one task: its bridge messages."""
    if isinstance(partition, NothingPlanned):
        yield from batches(iter([[Row(STREAM_LANE, 0, task=0, seq=1, kind=int(MessageKind.NO_EPOCH), payload=b"")]]))
        return
    plan = unpack_plan(partition.plan)
    given = TaskInput(plan, partition.split, partition.task, partition.planned, leaving=partition.leaving)
    keep_freed_memory()
    with collection_paused():
        yield from batches(run_task(given))
