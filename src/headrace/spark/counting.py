"""The arithmetic of an epoch: the stream's progress after it, from the reports of tasks, lanes and sinks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.bridge.reports import TrafficCounts
from headrace.model.definitions import PipelineDef
from headrace.model.plan_version import PlanVersion
from headrace.model.status import Traffic
from headrace.sinks.delivery import Delivered
from headrace.spark.epoch_reports import EpochReports, Members
from headrace.state.progress import Debt, PipelineProgress, Progress


@dataclass(frozen=True, slots=True)
class FinishedEpoch:
    """An epoch that is in its sinks and is not counted yet.

    `delivered` is the outcome for each instance. The instances in `quit_at_once` were stopped without waiting for the
    epoch. `debts` are the epochs that sinks owe after it, and `letters` is the number of dead letters in it.
    """

    plan: PlanVersion
    members: Members
    found: EpochReports
    delivered: dict[int, Delivered]
    quit_at_once: set[int]
    debts: tuple[Debt, ...]
    letters: int

    def progress(self, old: Progress, declared: set[int]) -> Progress:
        """The progress of the stream after this epoch, when it was `old` before. Instances that were stopped at once
        have not failed. Only instances that are `declared` or in the plan keep their counters."""
        reports, first = self.found.tasks.values(), self.found.first
        new = Progress(
            epoch=first.planned.epoch,
            plan=self.plan.version,
            watermark=watermark_after(self.plan, self.found, old),
            rows=old.rows + sum(r.rows for r in reports),
            bytes=old.bytes + sum(r.bytes for r in reports),
            bad=self._bad(old),
            failures={
                self.members[i].run: d.failure
                for i, d in self.delivered.items()
                if d.failure and i not in self.quit_at_once
            },
            detached=self._detached(old),
            debts=self.debts,
            dead_letters=old.dead_letters + self.letters,
            closed=sum(lane.closed for lanes in self.found.lanes.values() for lane in lanes.values()),
            future=old.future + sum(r.future for r in reports),
            rejected=old.rejected + sum(r.rejected for r in reports),
            nulled=old.nulled + sum(r.nulled for r in reports),
            end=first.planned.end,
        )
        return replace(new, pipelines=self._pipelines(old, new, declared))

    def _bad(self, old: Progress) -> dict[str, int]:
        bad = dict(old.bad)
        for report in self.found.tasks.values():
            for reason, count in report.bad.items():
                bad[reason] = bad.get(reason, 0) + count
        return bad

    def _detached(self, old: Progress) -> dict[str, dict[str, str]]:
        """The sinks in the plan that are no longer written to."""
        found: dict[str, dict[str, str]] = {}
        for p in self.plan.pipelines:
            names = {s.name for s, _ in p.outlets}
            gone = {name: reason for name, reason in old.detached.get(p.run, {}).items() if name in names}
            gone |= self.delivered[p.instance].detached
            found |= {p.run: gone} if gone else {}
        return found

    def _pipelines(self, old: Progress, new: Progress, declared: set[int]) -> dict[str, PipelineProgress]:
        """The counters of every instance that is declared or in the plan."""
        running = {p.instance for p in self.plan.pipelines}
        kept = declared | running
        pipelines = {i: counters for i, counters in old.pipelines.items() if int(i) in kept}
        for instance in self.members.keys() - running:  # they left in this epoch, and their last rows count
            if str(instance) in pipelines:
                before = pipelines[str(instance)]
                rows_out = before.rows_out + (self.delivered[instance].rows or 0)
                pipelines[str(instance)] = replace(before, rows_out=rows_out)
        for p in self.plan.pipelines:
            name = str(p.instance)
            before = (pipelines.get(name) or PipelineProgress()).back(old, new.epoch)
            if not self.delivered[p.instance].failure:
                pipelines[name] = self._counted(p, before, old, new)
            else:  # it has nothing of this epoch. If it is started again, its gap begins here
                pipelines.setdefault(name, before)
        return pipelines

    def _counted(self, p: PipelineDef, before: PipelineProgress, old: Progress, new: Progress) -> PipelineProgress:
        """The counters of an instance that took part in the epoch."""
        tasks = self.found.counts.by_instance().get(p.instance)
        lanes = self.found.lanes.get(p.instance, {}).values()
        late, bad, groups, size = before.late, before.bad, 0, 0
        if tasks is not None:
            late += tasks.late
            bad += tasks.bad
        for lane in lanes:
            late += lane.late
            groups += lane.rows
            size += lane.bytes
        return PipelineProgress(
            rows_out=before.rows_out + (self.delivered[p.instance].rows or 0),
            late=late,
            bad=bad,
            epoch=new.epoch,
            seen_rows=new.rows,
            seen_bytes=new.bytes,
            missed_rows=before.missed_rows,
            missed_bytes=before.missed_bytes,
            gaps=before.gaps,
            sent=_more(before.sent, [] if tasks is None else [tasks.sent]),
            received=_more(before.received, [lane.received for lane in lanes]),
            groups=groups,
            bytes=size,
            rows_in=before.rows_in + new.rows - old.rows,
        )


def _more(before: Traffic, counted: Sequence[TrafficCounts]) -> Traffic:
    """`before` and what was counted since."""
    if not counted:
        return before
    old = (before.batches, before.rows, before.watermarks, before.barriers, before.ends, before.dropped)
    return Traffic(*map(sum, zip(old, *counted, strict=True)))


def watermark_after(plan: PlanVersion, found: EpochReports, old: Progress) -> int | None:
    """The stream's watermark after an epoch. It never goes back. The planned one may be ahead of the rows: an idle
    stream's watermark follows the clock."""
    tops = [r.max_time - plan.stream.delay_us for r in found.tasks.values() if r.max_time is not None]
    return max((*tops, *(w for w in (old.watermark, found.first.planned.watermark) if w is not None)), default=None)
