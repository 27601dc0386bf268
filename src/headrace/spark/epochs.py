"""Planning epochs, and running one task of one: what the thin data source of `headrace.spark.source` calls.

An offset is {"source", "plan", "barrier", "watermark", "now", "epoch"}: Spark logs it before the epoch runs, so a
re-run after a crash has the same input, plan, barrier, watermark and clock. A new offset is only made when the plan,
the barrier or the watermark of a silent stream has moved, or when the batch policy says that the rows which wait are
worth an epoch. `barrier` is the newest that was carried: the epoch whose offset brings it ends with it.
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

from headrace.bridge.messages import STREAM_LANE, Kind, Row, batches, encode_json
from headrace.bridge.policy import Batcher, BatchPolicy, IdleAdvance
from headrace.codec import dump
from headrace.control.log import SignalLog, next_cut
from headrace.control.signals import EPOCH, Barrier
from headrace.faults import fault_point
from headrace.memory import keep_freed_memory
from headrace.program import Left, StreamDef
from headrace.ring0.task import run_task
from headrace.ring0.task_input import TaskInput
from headrace.sources import SOURCES
from headrace.sources.base import Source, Split
from headrace.streams import stream_values
from headrace.streams.checkpoint import CHECKPOINT
from headrace.streams.notices import send_notice
from headrace.streams.plans import PlanStore, parse_plan
from headrace.streams.progress import (
    HOLD,
    Applied,
    Progress,
    lost_progress,
    mismatch,
    read_progress,
    write_applied,
)
from headrace.streams.quarantine import read_quarantine
from headrace.streams.spark_log import sync_commit


@dataclass(frozen=True)
class EpochPartition(InputPartition):
    """One task's share of an epoch; everything it needs, by value."""

    plan: str
    split: Split | None
    task: int
    tasks: int
    epoch: int
    checkpoint: str
    watermark: int | None
    leaving: tuple[Left, ...]
    out: tuple[int, ...]
    probing: bool
    now: int | None = None
    barrier: Barrier | None = None
    end: dict[str, Any] | None = None


@dataclass(frozen=True)
class NothingPlanned(InputPartition):
    """There is no epoch. Its task says so: an epoch of which no task reports is an error."""

    task: int = 0


class EpochPlanner:
    """Plans the epochs of one stream. One process, one thread, for as long as the query runs."""

    def __init__(self, options: dict[str, str]) -> None:
        self.directory = Path(options["directory"])
        self.checkpoint = options["checkpoint"]
        self.port = int(options["port"])
        self.token = options["token"]
        self.parallelism = int(options["parallelism"])
        self._known: tuple[int, Progress] | None = None
        self._newest = 0
        self._began: float | None = None  # when the planning of the newest epoch began

    @cached_property
    def plans(self) -> PlanStore:
        return PlanStore(self.directory)

    @cached_property
    def signals(self) -> SignalLog:
        return SignalLog(self.directory)

    @cached_property
    def stream(self) -> StreamDef:
        return self.plans.load(self.plans.current()).stream

    @cached_property
    def source(self) -> Source:
        return SOURCES[self.stream.source].make(self.stream, self.directory / "source", time.time)

    @cached_property
    def values(self) -> dict[str, Any]:
        return stream_values(self.stream)

    @cached_property
    def batcher(self) -> Batcher:
        values = self.values
        policy = BatchPolicy(values["max_rows"], values["max_latency"], values["flush_on_watermark"])
        return Batcher(policy, time.monotonic)

    @cached_property
    def idle(self) -> IdleAdvance:
        return IdleAdvance(self.values["idle_advance"], time.monotonic)

    def initial(self) -> dict[str, Any]:
        barrier: list[Any] = [0, ""]
        return {
            "source": self.source.initial(),
            "plan": 0,
            "barrier": barrier,
            "watermark": None,
            "now": 0,
            "epoch": -1,
        }

    def latest(self, start: dict[str, Any]) -> dict[str, Any]:
        self._began = time.monotonic()
        if self._held(start):
            self._notify("held", epoch=start["epoch"])
            return start
        progress = self._progress(start["epoch"])
        if progress.epoch != start["epoch"]:
            return self._repeated(start, progress)
        # The hub logs a barrier before it publishes the plan that the barrier asks for: read in the other order.
        newest = self.plans.current()
        self._follow(newest)
        plan, cut = next_cut(self.signals.pending(start["barrier"][0]), newest)
        source = self.source.latest(start["source"], self.values["max_epoch_bytes"])
        if source != start["source"]:
            self.idle.rows_came()
        watermark = self.idle.watermark(progress.watermark)
        urgent = plan != start["plan"] or watermark != progress.watermark or cut is not None
        waiting = self._waiting(start["source"], progress) if source != start["source"] else 0
        if self.batcher.cut(waiting, closed=progress.closed > 0, urgent=urgent) is None:
            if waiting == 0:
                self._notify("idle", plan=plan, epoch=start["epoch"], exhausted=self.source.exhausted(source))
            return start
        return {
            "source": source,
            "plan": plan,
            "barrier": [cut.id, cut.kind] if cut is not None else start["barrier"],
            "watermark": watermark,
            "now": max(start["now"], time.time_ns() // 1000),  # logged, so that a re-run has the same clock
            "epoch": start["epoch"] + 1,
        }

    def _follow(self, newest: int) -> None:
        """Make the source again when a new plan version has other options for it (`SourceKind.changeable`)."""
        if newest not in (0, self._newest):
            self._newest, stream = newest, self.plans.load(newest).stream
            if stream != self.stream:
                for made in ("stream", "source", "values"):
                    self.__dict__.pop(made, None)

    def _progress(self, epoch: int) -> Progress:
        """The stream after `epoch`, read once: polls are many, and nothing changes until the next epoch is done. That
        Spark has logged it as done is durable then: the source may delete what the epoch has read."""
        if self._known is None or self._known[0] != epoch:
            sync_commit(self.directory / CHECKPOINT, epoch)
            self._known = (epoch, read_progress(self.directory))
        return self._known[1]

    def _repeated(self, start: dict[str, Any], progress: Progress) -> dict[str, Any]:
        """Spark asks for an epoch that is committed: it has lost its log of it. The same epoch again, which the sinks
        know; never another one under its number."""
        if progress.epoch < start["epoch"]:
            raise lost_progress(progress, start["epoch"], self.directory)
        if progress.epoch == start["epoch"] + 1 and progress.end is not None:
            return progress.end
        raise mismatch(
            f"Spark's checkpoint of stream {self.stream.name} ends with epoch {start['epoch']}, but epoch "
            f"{progress.epoch} is committed",
            progress.epoch,
        )

    def _waiting(self, at: dict[str, Any], progress: Progress) -> int | None:
        """About how many rows wait, by the size that rows have had so far; None when there was none yet."""
        if not progress.rows:
            return None
        return max(1, int(self.source.backlog(at) * progress.rows / max(1, progress.bytes)))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        began, self._began = self._began or time.monotonic(), None
        if start == end:
            return [NothingPlanned()]
        fault_point("after-offset-log")
        progress = self._progress(start["epoch"])
        if progress.epoch < start["epoch"]:
            raise lost_progress(progress, start["epoch"], self.directory)
        text = self.plans.text(end["plan"])
        plan = parse_plan(text)
        if plan.ending and start["plan"] == end["plan"]:  # it has closed its windows; more input came
            plan = replace(plan, ending=False)
        quarantine = read_quarantine(self.directory)
        probing = quarantine.probe is not None
        allowed = quarantine.apply(plan)
        forbidden = {p.instance for p in plan.pipelines if p not in allowed.pipelines}
        plan, asked = allowed, plan.left
        sent = replace(plan, left=()) if plan.left else plan  # tasks get those who leave in this epoch beside it
        if sent is not parse_plan(text):
            text = dump(sent)
        known = self.plans.load(start["plan"]).left if start["plan"] else ()
        ended = {left.key for left in known}
        leaving = tuple({left.pipeline.instance: left for left in plan.left if left.key not in ended}.values())
        muted = {left.pipeline.instance for left in leaving if left not in asked}
        out = tuple(sorted(forbidden | muted))
        looked_at = tuple(left.pipeline.instance for left in leaving if left.flush or not left.drop)
        splits: list[Split | None] = list(self.source.splits(start["source"], end["source"], self.parallelism)) or [
            None
        ]
        barrier = Barrier(end["barrier"][1], end["barrier"][0]) if end["barrier"] != start["barrier"] else None
        columns = plan.view.indexes(len(plan.stream.schema))
        if not probing:
            write_applied(self.directory, Applied(plan.version, end["epoch"], columns, out, looked_at))
            backlog = self.source.backlog(end["source"])
            took = round((time.monotonic() - began) * 1000, 3)
            self._notify("planned", plan=plan.version, epoch=end["epoch"], backlog=backlog, ms=took)
        else:
            self._notify("probing", epoch=end["epoch"])
        return [
            EpochPartition(
                text,
                split,
                task,
                len(splits),
                end["epoch"],
                self.checkpoint,
                end["watermark"],
                leaving,
                out,
                probing,
                end["now"],
                barrier,
                end,
            )
            for task, split in enumerate(splits)
        ]

    def _held(self, start: dict[str, Any]) -> bool:
        """Whether no epoch may be planned now: at once, or behind the barrier whose id the file holds."""
        try:
            wanted = (self.directory / HOLD).read_text(errors="replace")
        except FileNotFoundError:
            return False
        # What is no id was damaged: whoever asked for it gets a time-out, and takes the file away.
        return not wanted.isdigit() or int(start["barrier"][0]) >= int(wanted)

    def commit(self, end: dict[str, Any]) -> None:
        self.source.commit(end["source"])

    def _notify(self, kind: Any, **facts: Any) -> None:
        send_notice(self.port, self.token, self.stream.name, kind, pid=os.getpid(), **facts)


def read_partition(partition: EpochPartition | NothingPlanned) -> Iterator[pa.RecordBatch]:
    """Ring 0 for one task: its bridge messages."""
    if isinstance(partition, NothingPlanned):
        nothing = {"task": 0, "barrier": [EPOCH.name, 0], "nothing": True}
        yield from batches(iter([[Row(STREAM_LANE, 0, 0, 1, int(Kind.REPORT), encode_json(nothing))]]))
        return
    given = TaskInput(
        parse_plan(partition.plan),
        partition.split,
        partition.task,
        partition.tasks,
        partition.epoch,
        partition.checkpoint,
        partition.watermark,
        partition.leaving,
        partition.out,
        partition.probing,
        partition.now,
        partition.barrier,
        partition.end,
    )
    keep_freed_memory()
    yield from batches(run_task(given))
