"""The end of an epoch, on the driver: check that all have spoken, commit the sinks, remember what happened.

Spark calls it inside foreachBatch. When it returns, Spark logs the epoch as done; when it raises, or the process dies
anywhere in here, Spark runs the same epoch again, and every step below is idempotent under the epoch's key.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from headrace.bridge.messages import STREAM_LANE, Kind, Row, decode_json, decode_receipt
from headrace.control.barrier import BarrierAligner, FanIn, align
from headrace.control.signals import FLUSH, QUICK_END, Barrier, Signal
from headrace.errors import HeadraceError, InternalError, SinkFailed, TooManyGroups
from headrace.failures import describe
from headrace.faults import fault_point
from headrace.program import DEAD_LETTER, PipelineDef, PlanVersion, SinkDef
from headrace.ring0.letters import for_stream
from headrace.ring1.state import require_room
from headrace.sinks import SINKS
from headrace.sinks.base import DriverSink, SinkKey, Staged
from headrace.sinks.delivery import Delivered, Delivery
from headrace.status import Traffic
from headrace.streams.plans import PlanStore
from headrace.streams.progress import Debt, PipelineProgress, Progress, read_progress, write_progress
from headrace.streams.quarantine import read_quarantine

Failures = dict[int, str]
Detached = dict[int, dict[str, str]]
Members = dict[int, PipelineDef]  # the instances that an epoch is about: those in its plan and those that leave in it


class ProbeLived(Exception):
    """Ends the query of an epoch that was run only to see whether it dies."""


@dataclass(frozen=True, slots=True)
class EpochSummary:
    """What one epoch did. `failures` and `detached` sinks are new ones; `pipeline_ms` is the time each instance took in
    both rings, over all tasks."""

    epoch: int
    plan: int
    barrier: Barrier
    ending: bool
    rows: int
    bytes: int
    values: int
    tasks: int
    progress: Progress
    failures: Failures
    detached: Detached
    pipeline_ms: dict[int, float]
    state_bytes: dict[int, int]


@dataclass(slots=True)
class _Collected:
    """The messages of an epoch, sorted by what they are. `heard` has the barriers of every instance's buckets, and of
    the stream's tasks under `STREAM_LANE`."""

    reports: dict[int, dict[str, Any]] = field(default_factory=dict)
    heard: dict[int, list[tuple[int, Barrier]]] = field(default_factory=lambda: defaultdict(list))
    lanes: dict[int, dict[int, dict[str, Any]]] = field(default_factory=lambda: defaultdict(dict))
    receipts: dict[int, dict[str, list[Staged]]] = field(default_factory=lambda: defaultdict(dict))
    failures: Failures = field(default_factory=dict)
    lost: Detached = field(default_factory=lambda: defaultdict(dict))

    def add(self, row: Row) -> None:
        if row.kind == Kind.OUTPUT:
            instance, sink, staged = decode_receipt(row.payload)
            self.receipts[instance].setdefault(sink, []).append(staged)
            return
        value = decode_json(row.payload)
        if row.kind == Kind.ERROR and "sink" in value:
            self.lost[value["instance"]].setdefault(value["sink"], value["reason"])
        elif row.kind == Kind.ERROR:
            self.failures.setdefault(value["instance"], value["reason"])
        elif row.instance == STREAM_LANE:
            self.reports[value["task"]] = value
            self.heard[STREAM_LANE].append((value["task"], Barrier(*value["barrier"])))
        else:
            self.lanes[row.instance][row.bucket] = value
            self.heard[row.instance].append((row.bucket, Barrier(*value["barrier"])))


class EpochCommitter:
    """Commits the epochs of one stream, one at a time, in Spark's streaming thread."""

    def __init__(
        self,
        directory: Path,
        checkpoint: str,
        plans: PlanStore,
        done: Callable[[EpochSummary], None],
        known: Callable[[], set[int]],
        probe_lived: Callable[[], None],
    ) -> None:
        """`known` are the declared instances: the counters of others are forgotten when their last epoch is over.
        `probe_lived` hears of epochs that are not to be committed."""
        self._known, self._probe_lived = known, probe_lived
        self._directory, self._checkpoint, self._plans, self._done = directory, checkpoint, plans, done
        self._sinks: dict[tuple[int, str], DriverSink] = {}
        self._busy = threading.Lock()  # held while an epoch is committed
        self._quit: set[tuple[int, int]] = set()  # instances that ended at once, with the life that did

    def control(self, signal: Signal, pipelines: Sequence[PipelineDef]) -> None:
        """Act on a signal of the control channel, in the caller's thread. `quick_end`: from now on nothing of these
        pipelines is committed. `flush`: returns when no sink is being written to and none owes an epoch."""
        if signal.kind == QUICK_END.name:
            self._quit |= {(p.instance, p.life) for p in pipelines}
        elif signal.kind == FLUSH.name:
            with self._busy:
                self._flush(signal)

    def _flush(self, signal: Signal) -> None:
        sinks = {f"{name} of instance {instance}": sink for (instance, name), sink in self._sinks.items()}
        owed = read_progress(self._directory).debts
        for debt in owed:
            self.sink(debt.pipeline, debt.sink).commit(self._key(debt.pipeline, debt.epoch), [])
        if sinks:
            point: FanIn[None] = FanIn("the committer", sinks)
            passed = [forwarded for name in sinks for forwarded in point.control.offer(name, signal)]
            if passed != [signal]:
                raise InternalError(f"the committer passed {signal} on {len(passed)} times")

    def sink(self, pipeline: PipelineDef, name: str) -> DriverSink:
        """The driver side of one of a pipeline's sinks; one object for as long as the stream is open."""
        key = (pipeline.instance, name)
        if key not in self._sinks:
            sink, columns = next((s, columns) for s, columns in pipeline.outlets if s.name == name)
            # setdefault: a reader of results and the streaming thread may both be first, and must get the same one
            self._sinks.setdefault(key, SINKS[sink.kind].driver(sink, columns))
        return self._sinks[key]

    def letters(self, sink: SinkDef) -> DriverSink:
        """The driver side of the sink of the stream's dead letters."""
        made = self._sinks.get((STREAM_LANE, sink.name))
        return made or self._sinks.setdefault((STREAM_LANE, sink.name), SINKS[sink.kind].driver(sink, DEAD_LETTER))

    def commit(self, rows: Iterable[Row]) -> None:
        """Commit one epoch. An epoch without messages (nothing was planned) commits nothing."""
        with self._busy:
            self._commit(rows)

    def _commit(self, rows: Iterable[Row]) -> None:
        found = _Collected()
        for row in sorted(rows, key=lambda r: (r.instance, r.bucket, r.task, r.seq)):
            found.add(row)
        if not found.reports:
            return
        first = next(iter(found.reports.values()))
        barrier = Barrier(*first["barrier"])
        align(f"epoch {first['epoch']}", "task", first["tasks"], found.heard[STREAM_LANE], barrier)
        if first["probing"]:
            self._probe_lived()
            raise ProbeLived(f"epoch {first['epoch']} lived without the guilty one")
        plan = self._plans.load(first["plan"])
        members = _members(plan, first["leaving"])
        self._align_lanes({i: p for i, p in members.items() if i not in first["out"]}, first["epoch"], barrier, found)
        self._limit_groups(plan, found)
        before = read_progress(self._directory)
        reasons = read_quarantine(self._directory).reasons(plan.version)
        known = self._still_failed(plan, before) | {
            i: reasons.get(i) or "it is on the quarantine list" for i in first["out"]
        }
        found.failures |= known
        quit_now = {i for i, p in members.items() if self._has_quit(p)}
        found.failures |= dict.fromkeys(quit_now - found.failures.keys(), "it was stopped at once")
        delivered = self._deliver(members, first["epoch"], barrier, found, before)
        letters = self._commit_letters(plan, first["epoch"], found)
        progress = self._progress(plan, members, first["epoch"], found, delivered, letters, before)
        write_progress(self._directory, progress)
        if progress is not before:  # a re-run of this epoch, should it come, names the plan of the epoch before it too
            self._plans.prune(before.plan)
        fault_point("after-manifests")
        failures = {i: d.failure for i, d in delivered.items() if d.failure and i not in quit_now | known.keys()}
        detached = {i: d.detached for i, d in delivered.items() if d.detached}
        self._done(self._summary(plan, found, progress, failures, detached))

    def close(self) -> None:
        for sink in self._sinks.values():
            sink.close()

    def _still_failed(self, plan: PlanVersion, before: Progress) -> Failures:
        """The instances that failed in an earlier epoch, while this one was already planned with them: what they say
        now is not wanted. One that leaves in this very epoch, perhaps to come back, begins anew."""
        if not before.failures:
            return {}
        told = self._plans.load(before.plan).left if before.plan else ()
        anew = {instance for instance, _ in {left.key for left in plan.left} - {left.key for left in told}}
        present = {p.instance for p in plan.pipelines} - anew
        return {int(i): reason for i, reason in before.failures.items() if int(i) in present}

    def _align_lanes(self, members: Members, epoch: int, barrier: Barrier, found: _Collected) -> None:
        """Every bucket of every pipeline that had rows or ended in this epoch has come to its barrier."""
        for p in members.values():
            if p.program.ring1 is not None:
                where = f"the sinks of pipeline {p.name} in epoch {epoch}"
                align(where, "bucket", p.buckets, found.heard[p.instance], barrier)

    def _limit_groups(self, plan: PlanVersion, found: _Collected) -> None:
        """A lane knows its own groups; those of all lanes of a pipeline are counted here."""
        for p in plan.pipelines:
            try:
                require_room(sum(lane["groups"] for lane in found.lanes.get(p.instance, {}).values()), p.max_groups)
            except TooManyGroups as problem:
                found.failures.setdefault(p.instance, describe(problem))

    def _deliver(
        self, members: Members, epoch: int, barrier: Barrier, found: _Collected, before: Progress
    ) -> dict[int, Delivered]:
        """Bring the epoch to the sinks of every pipeline, and let every pipeline that could do so come to the tail."""
        delivered: dict[int, Delivered] = {}
        for p in members.values():
            debts: dict[str, list[SinkKey]] = defaultdict(list)
            for debt in before.debts:
                if debt.pipeline.instance == p.instance:
                    debts[debt.sink].append(self._key(debt.pipeline, debt.epoch))
            delivery = Delivery(p, partial(self.sink, p), self._key(p, epoch), barrier, debts)
            gone = before.detached.get(f"{p.instance}/{p.life}", {})
            delivered[p.instance] = delivery.deliver(
                found.receipts.get(p.instance, {}),
                found.failures.get(p.instance, ""),
                found.lost.get(p.instance, {}),
                {sink: reason for sink, reason in gone.items() if any(s.name == sink for s, _ in p.outlets)},
            )
        whole = [f"pipeline {i}" for i, d in delivered.items() if not d.failure]
        if whole:
            tail: BarrierAligner[None] = BarrierAligner("the tail of the stream", whole)
            for name in whole:
                tail.offer(name, barrier)
            tail.require(barrier)
        return delivered

    def _has_quit(self, pipeline: PipelineDef) -> bool:
        return (pipeline.instance, pipeline.life) in self._quit

    def _key(self, pipeline: PipelineDef, epoch: int) -> SinkKey:
        return SinkKey(self._checkpoint, pipeline.instance, epoch)

    def _debts(self, members: Members, epoch: int, delivered: dict[int, Delivered], old: Progress) -> tuple[Debt, ...]:
        """What is owed after this epoch. Sinks of pipelines that have left are asked here for what they owe."""
        new = [Debt(members[i], sink, epoch) for i, d in delivered.items() for sink in d.owed]
        return (*(d for d in old.debts if not self._settled(d)), *new)

    def _settled(self, debt: Debt) -> bool:
        with contextlib.suppress(HeadraceError):  # then it stays owed
            self.sink(debt.pipeline, debt.sink).commit(self._key(debt.pipeline, debt.epoch), [])
            return True
        return False

    def _commit_letters(self, plan: PlanVersion, epoch: int, found: _Collected) -> int:
        """Commit the dead letters; how many there are. What fails here holds up the stream: the epoch is not done
        before they are safe."""
        sink = plan.stream.dead_letters
        staged = found.receipts[STREAM_LANE].get(sink.name, []) if sink is not None else []
        if sink is None or not staged:
            return 0
        try:
            return self.letters(sink).commit(SinkKey(self._checkpoint, STREAM_LANE, epoch), staged)
        except SinkFailed as problem:
            raise for_stream(problem) from problem

    def _progress(
        self,
        plan: PlanVersion,
        members: Members,
        epoch: int,
        found: _Collected,
        delivered: dict[int, Delivered],
        letters: int,
        old: Progress,
    ) -> Progress:
        if old.epoch >= epoch:  # the epoch was committed before and is run again: it must not be counted twice
            return old
        reports = found.reports.values()
        tops = [r["max_time"] - plan.stream.delay_us for r in reports if r["max_time"] is not None]
        planned = next(iter(reports))["watermark"]  # of a silent stream it may have gone on
        known = [*tops, *(w for w in (old.watermark, planned) if w is not None)]
        bad = dict(old.bad)
        for report in reports:
            for reason, count in report["bad"].items():
                bad[reason] = bad.get(reason, 0) + count
        stream = Progress(
            epoch,
            plan.version,
            max(known) if known else None,
            old.rows + sum(r["rows"] for r in reports),
            old.bytes + sum(r["bytes"] for r in reports),
            bad,
            failures={str(i): d.failure for i, d in delivered.items() if d.failure and not self._has_quit(members[i])},
            detached=_detached(plan, delivered, old),
            debts=self._debts(members, epoch, delivered, old),
            dead_letters=old.dead_letters + letters,
            closed=sum(lane["closed"] for lanes in found.lanes.values() for lane in lanes.values()),
            future=old.future + sum(r["future"] for r in reports),
        )
        return replace(stream, pipelines=self._counted(plan, members, found, delivered, old, stream))

    def _counted(
        self,
        plan: PlanVersion,
        members: Members,
        found: _Collected,
        delivered: dict[int, Delivered],
        old: Progress,
        new: Progress,
    ) -> dict[str, PipelineProgress]:
        """The counters of every instance that is declared or was in this epoch."""
        kept = self._known() | {p.instance for p in plan.pipelines}
        pipelines = {i: counters for i, counters in old.pipelines.items() if int(i) in kept}
        for instance in members.keys() - {p.instance for p in plan.pipelines}:  # they left; their last rows count
            if str(instance) in pipelines:
                before = pipelines[str(instance)]
                rows_out = before.rows_out + (delivered[instance].rows or 0)
                pipelines[str(instance)] = replace(before, rows_out=rows_out)
        for p in plan.pipelines:
            before = pipelines.get(str(p.instance), PipelineProgress()).back(old, new.epoch)
            if delivered[p.instance].failure:  # nothing of this epoch is its: the gap, should it come back, begins here
                pipelines.setdefault(str(p.instance), before)
                continue
            tasks = [r["pipelines"].get(str(p.instance), {}) for r in found.reports.values()]
            lanes = found.lanes.get(p.instance, {}).values()
            pipelines[str(p.instance)] = replace(
                before,
                rows_out=before.rows_out + (delivered[p.instance].rows or 0),
                late=before.late + sum(t.get("late", 0) for t in tasks) + sum(lane["late"] for lane in lanes),
                bad=before.bad + sum(t.get("bad", 0) for t in tasks),
                sent=sum((Traffic(**r["sent"].get(str(p.instance), {})) for r in found.reports.values()), before.sent),
                received=sum((Traffic(**lane["received"]) for lane in lanes), before.received),
                groups=sum(lane["rows"] for lane in lanes),
                bytes=sum(lane["bytes"] for lane in lanes),
                epoch=new.epoch,
                seen_rows=new.rows,
                seen_bytes=new.bytes,
            )
        return pipelines

    def _summary(
        self, plan: PlanVersion, found: _Collected, progress: Progress, failures: Failures, detached: Detached
    ) -> EpochSummary:
        reports = list(found.reports.values())
        spent: dict[int, float] = defaultdict(float)
        for report in reports:
            for instance, facts in report["pipelines"].items():
                spent[int(instance)] += facts["ms"]
        for instance, lanes in found.lanes.items():
            spent[instance] += sum(lane["ms"] for lane in lanes.values())
        return EpochSummary(
            epoch=reports[0]["epoch"],
            plan=plan.version,
            barrier=Barrier(*reports[0]["barrier"]),
            ending=reports[0]["ending"],
            rows=sum(r["rows"] for r in reports),
            bytes=sum(r["bytes"] for r in reports),
            values=sum(r["values"] for r in reports),
            tasks=len(reports),
            progress=progress,
            failures=failures,
            detached=detached,
            pipeline_ms=dict(spent),
            state_bytes={i: sum(lane["bytes"] for lane in lanes.values()) for i, lanes in found.lanes.items()},
        )


def _members(plan: PlanVersion, leaving: list[int]) -> Members:
    ended = {left.pipeline.instance: left.pipeline for left in plan.left if left.pipeline.instance in leaving}
    return ended | {p.instance: p for p in plan.pipelines}


def _detached(plan: PlanVersion, delivered: dict[int, Delivered], old: Progress) -> dict[str, dict[str, str]]:
    """The sinks that are in the plan and are not written to."""
    found: dict[str, dict[str, str]] = {}
    for p in plan.pipelines:
        key, names = f"{p.instance}/{p.life}", {s.name for s, _ in p.outlets}
        gone = {k: v for k, v in old.detached.get(key, {}).items() if k in names} | delivered[p.instance].detached
        found |= {key: gone} if gone else {}
    return found
