"""The end of an epoch, on the driver: check that all have spoken, commit the sinks, remember what happened.

Spark calls it inside foreachBatch. When it returns, Spark logs the epoch as done; when it raises, or the process dies
anywhere in here, Spark runs the same epoch again, and every step below is idempotent under the epoch's key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headrace.bridge.messages import STREAM_LANE, Kind, Row, decode_json, decode_receipt
from headrace.control.alignment import require_all
from headrace.errors import HeadraceError, SinkFailed, TooManyGroups
from headrace.failures import describe
from headrace.faults import fault_point
from headrace.program import DEAD_LETTER, PipelineDef, PlanVersion, SinkDef
from headrace.ring0.letters import for_stream
from headrace.ring1.state import require_room
from headrace.sinks import SINKS
from headrace.sinks.base import DriverSink, SinkKey, Staged
from headrace.status import Traffic
from headrace.streams.plans import PlanStore
from headrace.streams.progress import PipelineProgress, Progress, read_progress, write_progress
from headrace.streams.quarantine import read_quarantine

Failures = dict[int, str]


class ProbeLived(Exception):
    """Ends the query of an epoch that was run only to see whether it dies."""


@dataclass(frozen=True, slots=True)
class EpochSummary:
    """What one epoch did. `failures` are new ones; `pipeline_ms` is the time each instance took in both rings, over all
    tasks."""

    epoch: int
    plan: int
    ending: bool
    rows: int
    bytes: int
    values: int
    tasks: int
    progress: Progress
    failures: Failures
    pipeline_ms: dict[int, float]
    state_bytes: dict[int, int]


@dataclass(slots=True)
class _Collected:
    """The messages of an epoch, sorted by what they are."""

    reports: dict[int, dict[str, Any]] = field(default_factory=dict)
    lanes: dict[int, dict[int, dict[str, Any]]] = field(default_factory=lambda: defaultdict(dict))
    receipts: dict[tuple[int, str], list[Staged]] = field(default_factory=lambda: defaultdict(list))
    failures: Failures = field(default_factory=dict)

    def add(self, row: Row) -> None:
        if row.kind == Kind.OUTPUT:
            instance, sink, staged = decode_receipt(row.payload)
            self.receipts[instance, sink].append(staged)
            return
        value = decode_json(row.payload)
        if row.kind == Kind.ERROR:
            self.failures.setdefault(value["instance"], value["reason"])
        elif row.instance == STREAM_LANE:
            self.reports[value["task"]] = value
        else:
            self.lanes[row.instance][row.bucket] = value


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
        found = _Collected()
        for row in sorted(rows, key=lambda r: (r.instance, r.bucket, r.task, r.seq)):
            found.add(row)
        if not found.reports:
            return
        first = next(iter(found.reports.values()))
        require_all(f"epoch {first['epoch']}", "task", range(first["tasks"]), found.reports)
        if first["probing"]:
            self._probe_lived()
            raise ProbeLived(f"epoch {first['epoch']} lived without the guilty one")
        plan = self._plans.load(first["plan"])
        self._check_lanes(plan, found, first["out"])
        self._limit_groups(plan, found)
        before = read_progress(self._directory)
        reasons = read_quarantine(self._directory).reasons(plan.version)
        known = self._still_failed(plan, before) | {i: reasons.get(i, "") for i in first["out"]}
        found.failures |= known
        visible = self._commit_sinks(plan, first["epoch"], found)
        letters = self._commit_letters(plan, first["epoch"], found)
        progress = self._progress(plan, first["epoch"], found, visible, letters, before)
        write_progress(self._directory, progress)
        if progress is not before:  # a re-run of this epoch, should it come, names the plan of the epoch before it too
            self._plans.prune(before.plan)
        fault_point("after-manifests")
        self._done(self._summary(plan, found, progress, {i: r for i, r in found.failures.items() if i not in known}))

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

    def _check_lanes(self, plan: PlanVersion, found: _Collected, out: list[int]) -> None:
        for p in plan.pipelines:
            if p.program.ring1 is not None and p.instance not in out:
                where = f"the sinks of pipeline {p.name} in epoch {next(iter(found.reports.values()))['epoch']}"
                require_all(where, "bucket", range(p.buckets), found.lanes.get(p.instance, {}))

    def _limit_groups(self, plan: PlanVersion, found: _Collected) -> None:
        """A lane knows its own groups; those of all lanes of a pipeline are counted here."""
        for p in plan.pipelines:
            try:
                require_room(sum(lane["groups"] for lane in found.lanes.get(p.instance, {}).values()), p.max_groups)
            except TooManyGroups as problem:
                found.failures.setdefault(p.instance, describe(problem))

    def _commit_sinks(self, plan: PlanVersion, epoch: int, found: _Collected) -> dict[int, int]:
        """Commit every sink of every healthy pipeline; the rows each instance brought to its first sink.

        The sinks of a pipeline that failed commit nothing, which removes what its tasks had staged.
        """
        visible: dict[int, int] = {}
        for p in [*plan.pipelines, *(left.pipeline for left in plan.left)]:
            for sink, _ in p.outlets:
                failed = p.instance in found.failures
                staged = [] if failed else found.receipts.get((p.instance, sink.name), [])
                if not staged and not failed:
                    continue
                try:
                    count = self.sink(p, sink.name).commit(SinkKey(self._checkpoint, p.instance, epoch), staged)
                except HeadraceError as problem:  # a sink's trouble is its pipeline's, not the stream's
                    found.failures.setdefault(p.instance, describe(problem))
                    continue
                if sink in p.sinks:
                    visible.setdefault(p.instance, count)
                fault_point("between-sinks")
        return visible

    def _commit_letters(self, plan: PlanVersion, epoch: int, found: _Collected) -> int:
        """Commit the dead letters; how many there are. What fails here holds up the stream: the epoch is not done
        before they are safe."""
        sink = plan.stream.dead_letters
        staged = found.receipts.get((STREAM_LANE, sink.name), []) if sink is not None else []
        if sink is None or not staged:
            return 0
        try:
            return self.letters(sink).commit(SinkKey(self._checkpoint, STREAM_LANE, epoch), staged)
        except SinkFailed as problem:
            raise for_stream(problem) from problem

    def _progress(
        self,
        plan: PlanVersion,
        epoch: int,
        found: _Collected,
        visible: dict[int, int],
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
            failures={str(instance): reason for instance, reason in found.failures.items()},
            dead_letters=old.dead_letters + letters,
            closed=sum(lane["closed"] for lanes in found.lanes.values() for lane in lanes.values()),
            future=old.future + sum(r["future"] for r in reports),
        )
        return replace(stream, pipelines=self._counted(plan, found, visible, old, stream))

    def _counted(
        self, plan: PlanVersion, found: _Collected, visible: dict[int, int], old: Progress, new: Progress
    ) -> dict[str, PipelineProgress]:
        """The counters of every instance that is declared or was in this epoch."""
        kept = self._known() | {p.instance for p in plan.pipelines}
        pipelines = {i: counters for i, counters in old.pipelines.items() if int(i) in kept}
        for p in plan.pipelines:
            before = pipelines.get(str(p.instance), PipelineProgress()).back(old, new.epoch)
            if p.instance in found.failures:  # nothing of this epoch is its: the gap, should it come back, begins here
                pipelines.setdefault(str(p.instance), before)
                continue
            tasks = [r["pipelines"].get(str(p.instance), {}) for r in found.reports.values()]
            lanes = found.lanes.get(p.instance, {}).values()
            pipelines[str(p.instance)] = replace(
                before,
                rows_out=before.rows_out + visible.get(p.instance, 0),
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

    def _summary(self, plan: PlanVersion, found: _Collected, progress: Progress, failures: Failures) -> EpochSummary:
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
            ending=reports[0]["ending"],
            rows=sum(r["rows"] for r in reports),
            bytes=sum(r["bytes"] for r in reports),
            values=sum(r["values"] for r in reports),
            tasks=len(reports),
            progress=progress,
            failures=failures,
            pipeline_ms=dict(spent),
            state_bytes={i: sum(lane["bytes"] for lane in lanes.values()) for i, lanes in found.lanes.items()},
        )
