"""What a stream's progress is after an epoch: pure arithmetic on what the tasks, lanes and sinks have said."""

from __future__ import annotations

from dataclasses import replace

from headrace.program import PlanVersion
from headrace.sinks.delivery import Delivered
from headrace.spark.collected import Collected, Members
from headrace.status import Traffic
from headrace.streams.progress import Debt, PipelineProgress, Progress


def progress_after(
    plan: PlanVersion,
    members: Members,
    epoch: int,
    found: Collected,
    delivered: dict[int, Delivered],
    old: Progress,
    *,
    quit_at_once: set[int],
    debts: tuple[Debt, ...],
    letters: int,
    declared: set[int],
) -> Progress:
    """The progress of the stream after an epoch that is counted for the first time. The failures of instances that
    `quit_at_once` are none; only those that are `declared` or were in the epoch keep their counters."""
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
        failures={members[i].run: d.failure for i, d in delivered.items() if d.failure and i not in quit_at_once},
        detached=_detached(plan, delivered, old),
        debts=debts,
        dead_letters=old.dead_letters + letters,
        closed=sum(lane["closed"] for lanes in found.lanes.values() for lane in lanes.values()),
        future=old.future + sum(r["future"] for r in reports),
        rejected=old.rejected + sum(r["rejected"] for r in reports),
        nulled=old.nulled + sum(r["nulled"] for r in reports),
        end=next(iter(reports))["end"],
    )
    return replace(stream, pipelines=_counted(plan, members, found, delivered, old, stream, declared))


def _counted(
    plan: PlanVersion,
    members: Members,
    found: Collected,
    delivered: dict[int, Delivered],
    old: Progress,
    new: Progress,
    declared: set[int],
) -> dict[str, PipelineProgress]:
    """The counters of every instance that is declared or was in this epoch."""
    kept = declared | {p.instance for p in plan.pipelines}
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
            rows_in=before.rows_in + new.rows - old.rows,
            epoch=new.epoch,
            seen_rows=new.rows,
            seen_bytes=new.bytes,
        )
    return pipelines


def _detached(plan: PlanVersion, delivered: dict[int, Delivered], old: Progress) -> dict[str, dict[str, str]]:
    """The sinks that are in the plan and are not written to."""
    found: dict[str, dict[str, str]] = {}
    for p in plan.pipelines:
        key, names = p.run, {s.name for s, _ in p.outlets}
        gone = {k: v for k, v in old.detached.get(key, {}).items() if k in names} | delivered[p.instance].detached
        found |= {key: gone} if gone else {}
    return found
