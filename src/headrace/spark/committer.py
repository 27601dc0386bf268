"""The end of an epoch, on the driver: check that all have spoken, commit the sinks, remember what happened.

Spark calls it inside foreachBatch. When it returns, Spark logs the epoch as done; when it raises, or the process dies
anywhere in here, Spark runs the same epoch again, and every step below is idempotent under the epoch's key.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from headrace.bridge.messages import STREAM_LANE, Row
from headrace.control.barrier import FanIn, align
from headrace.control.signals import QUICK_END, Barrier, Signal
from headrace.errors import DiskFull, HeadraceError, MissingInput, SinkFailed, SinkUnavailable, TooManyGroups
from headrace.failures import describe
from headrace.faults import fault_point
from headrace.program import DEAD_LETTER, PipelineDef, PlanVersion, SinkDef
from headrace.ring0.letters import for_stream
from headrace.ring1.state import require_room
from headrace.sinks import SINKS
from headrace.sinks.base import DriverSink, SinkKey
from headrace.sinks.delivery import Delivered, Delivery
from headrace.sources.badfiles import BadRange, hand_over
from headrace.spark.collected import Collected, Failures, Members, members_of
from headrace.spark.counting import progress_after
from headrace.spark.summary import EpochSummary, summarise
from headrace.streams.plans import PlanStore
from headrace.streams.progress import Debt, Progress, digest_of, read_progress, require_same_epoch, write_progress
from headrace.streams.quarantine import change_quarantine, read_quarantine

# How long a stream that is dropped waits for a commit that may be under way.
FORGET_SECONDS = 5.0


class ProbeLived(Exception):
    """Ends the query of an epoch that was run only to see whether it dies."""


class FilesLeftOut(Exception):
    """Ends the query of an epoch in which tasks found files that are left out: it is run again without them."""


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
        run_again: Callable[[], None] = lambda: None,
    ) -> None:
        """`known` are the declared instances: the counters of others are forgotten when their last epoch is over.
        `probe_lived` and `run_again` are called for epochs that are not to be committed, before their query ends."""
        self._known, self._probe_lived, self._run_again = known, probe_lived, run_again
        self._directory, self._checkpoint, self._plans, self._done = directory, checkpoint, plans, done
        self._sinks: dict[tuple[int, str], DriverSink] = {}
        self._busy = threading.Lock()  # held while an epoch is committed
        self._forgotten: set[int] = set()
        self.doing = ""  # what the commit waits for; empty when there is none
        self._quit: set[tuple[int, int]] = set()  # instances that ended at once, with the life that did

    def control(self, signal: Signal, pipelines: Sequence[PipelineDef]) -> None:
        """Act on a signal of the control channel, in the caller's thread. `quick_end`: from now on nothing of these
        pipelines is committed. `flush`: returns when no sink is being written to and none owes an epoch."""
        if signal.kind == QUICK_END.name:
            self._quit |= {(p.instance, p.life) for p in pipelines}
        elif isinstance(signal, Barrier):
            with self._busy:
                self._flush(signal)

    def _flush(self, signal: Barrier) -> None:
        """A sink brings the flush when it owes nothing, and it passes when all have. Raises SinkFailed otherwise."""
        owed: dict[str, list[Debt]] = {_input(instance, name): [] for instance, name in self._sinks}
        for debt in read_progress(self._directory).debts:
            owed.setdefault(_input(debt.pipeline.instance, debt.sink), []).append(debt)
        if not owed:
            return
        point: FanIn[None] = FanIn("the committer", owed)
        point.control.expect(signal)
        reasons = []
        for name, debts in owed.items():
            try:
                for debt in debts:
                    self._settle(debt)
                point.control.offer(name, signal)
            except HeadraceError as problem:
                reasons.append(problem.message)
        if late := point.control.missing:
            raise SinkFailed(
                f"{', '.join(late)} cannot write what is owed: {'; '.join(reasons)}",
                advice="Nothing is lost: it is tried again in every epoch, and by the next flush.",
                sinks=list(late),
            )

    def sink(self, pipeline: PipelineDef, name: str) -> DriverSink:
        """The driver side of one of a pipeline's sinks; one object for as long as the stream is open."""
        key = (pipeline.instance, name)
        if key not in self._sinks:
            sink, columns = next((s, columns) for s, columns in pipeline.outlets if s.name == name)
            # setdefault: a reader of results and the streaming thread may both be first, and must get the same one
            self._sinks.setdefault(key, SINKS[sink.kind].driver(sink, columns))
        return self._sinks[key]

    def _opened(self, pipeline: PipelineDef, name: str) -> DriverSink:
        """A sink that the commit is about to use: if it hangs, this is what the epoch waits for."""
        self.doing = f"the commit of sink {name} of pipeline {pipeline.name}"
        return self.sink(pipeline, name)

    def letters(self, sink: SinkDef) -> DriverSink:
        """The driver side of the sink of the stream's dead letters."""
        made = self._sinks.get((STREAM_LANE, sink.name))
        return made or self._sinks.setdefault((STREAM_LANE, sink.name), SINKS[sink.kind].driver(sink, DEAD_LETTER))

    def commit(self, rows: Iterable[Row], require_current: Callable[[], None] = lambda: None) -> None:
        """Commit one epoch. `require_current` raises when the epoch's query was stopped while its commit hung in a
        sink: then nothing more of it may be stored. Raises MissingInput when no task has reported."""
        with self._busy:
            try:
                self.doing = "the commit"
                self._commit(rows, require_current)
            finally:
                self.doing = ""

    def _commit(self, rows: Iterable[Row], require_current: Callable[[], None]) -> None:
        began = time.perf_counter()
        require_current()
        found = Collected()
        for row in sorted(rows, key=lambda r: (r.instance, r.bucket, r.task, r.seq)):
            found.add(row)
        if not found.reports:
            raise MissingInput(
                "an epoch came to its commit, and no task has reported",
                advice="Nothing of it is committed; it is run again.",
            )
        first = next(iter(found.reports.values()))
        if first.get("nothing"):  # the planner said so: there is no epoch
            return
        barrier = Barrier(*first["barrier"])
        align(f"epoch {first['epoch']}", "task", first["tasks"], found.heard[STREAM_LANE], barrier)
        if first["probing"]:
            self._probe_lived()
            raise ProbeLived(f"epoch {first['epoch']} lived without the guilty one")
        before = read_progress(self._directory)
        digest = digest_of(first["end"]) if first["end"] else ""
        require_same_epoch(before, first["epoch"], digest)
        self._require_readable(first["epoch"], found)
        plan = self._plans.load(first["plan"])
        members = members_of(plan, first["leaving"])
        self._verify(plan, members, first["epoch"], digest)
        self._align_lanes({i: p for i, p in members.items() if i not in first["out"]}, first["epoch"], barrier, found)
        self._limit_groups(plan, found)
        quarantine = read_quarantine(self._directory)
        reasons, ended = quarantine.reasons(plan.version), quarantine.ended(plan.version)
        known = self._still_failed(plan, before) | {
            i: reasons.get(i) or "it is on the quarantine list" for i in first["out"]
        }
        found.failures |= known
        quit_now = {i for i, p in members.items() if self._has_quit(p) or p.run in ended}
        found.failures |= dict.fromkeys(quit_now - known.keys(), "it was stopped at once")
        delivered = self._deliver(members, first["epoch"], digest, found, before, quit_now)
        require_current()
        letters = self._commit_letters(plan, first["epoch"], digest, found)
        progress = self._progress(plan, members, first["epoch"], found, delivered, letters, before, quit_now)
        write_progress(self._directory, progress)
        if progress is not before:  # a re-run of this epoch, should it come, names the plan of the epoch before it too
            self._forget(before, progress)
            self._plans.prune(before.plan)
        fault_point("after-manifests")
        failures = {i: d.failure for i, d in delivered.items() if d.failure and i not in quit_now | known.keys()}
        detached = {i: d.detached for i, d in delivered.items() if d.detached}
        took = (time.perf_counter() - began) * 1000
        self._done(summarise(plan, found, progress, failures, detached, took, _by_sink(delivered)))

    def _require_readable(self, epoch: int, found: Collected) -> None:
        """Commit nothing of an epoch in which tasks met files that they could not read. Which ones must be durable
        before the first commit, and the same for all tasks: the planner leaves them out when the epoch is run again."""
        unreadable = [BadRange.parse(bad) for report in found.reports.values() for bad in report["unreadable"]]
        if unreadable:
            hand_over(self._directory / "source", unreadable)
            self._run_again()
            raise FilesLeftOut(f"epoch {epoch} is run again without {', '.join(sorted({b.path for b in unreadable}))}")

    def _forget(self, before: Progress, now: Progress) -> None:
        """Forget pipelines that are not declared, owe nothing, and that no epoch can name: their sinks, with the rows
        or manifests that those hold, and their entries in the quarantine. Done before the plan versions go that name
        them, so a crash only delays it."""
        owing = {debt.pipeline.instance for debt in now.debts}
        found = self._plans.forgettable(before.plan, now.plan)
        found |= {d.pipeline.instance: d.pipeline for d in before.debts if not self._plans.names(d.pipeline.instance)}
        declared = self._known()
        gone = {i: p for i, p in found.items() if i not in owing and i not in declared}
        new = {i: p for i, p in gone.items() if i not in self._forgotten}
        self._forgotten = set(gone)  # a plan version may name them for long
        if not new:
            return
        for p in new.values():
            for outlet, _ in p.outlets:
                with contextlib.suppress(HeadraceError):  # what stays is small, and invisible to readers
                    self.sink(p, outlet.name).forget(self._key(p, now.epoch))
        for key in [key for key in list(self._sinks) if key[0] in new]:
            self._sinks.pop(key).close()
        self._quit = {ended for ended in self._quit if ended[0] not in new}
        change_quarantine(self._directory, lambda found: found.forgetting(new))

    def forget_stream(self, letters: SinkDef | None) -> None:
        """The stream is dropped: remove what its sinks keep beside their output, but no epoch that one still owes. An
        epoch that a sink has committed is shown first. Does nothing while a commit hangs."""
        if not self._busy.acquire(timeout=FORGET_SECONDS):
            return
        try:
            progress = read_progress(self._directory)
            owing = {(d.pipeline.instance, d.sink) for d in progress.debts if not self._settled(d)}
            used = [
                (p.instance, s.name, partial(self.sink, p, s.name)) for p in self._plans.all() for s, _ in p.outlets
            ]
            if letters is not None:
                used.append((STREAM_LANE, letters.name, partial(self.letters, letters)))
            for instance, name, sink in used:
                if (instance, name) not in owing:
                    with contextlib.suppress(HeadraceError):
                        for epoch in (progress.epoch, progress.epoch + 1):
                            sink().discard(SinkKey(self._checkpoint, instance, epoch))
                        sink().forget(SinkKey(self._checkpoint, instance, progress.epoch + 1))
        finally:
            self._busy.release()

    def notes(self, pipeline: PipelineDef) -> dict[str, str]:
        """What sinks say of themselves that fails no epoch, by their names."""
        found = {s.name: self._sinks.get((pipeline.instance, s.name)) for s in pipeline.sinks}
        said = {name: getattr(sink, "note", "") for name, sink in found.items()}
        return {name: note for name, note in said.items() if note}

    def settle(self) -> tuple[Debt, ...]:
        """Ask sinks once more for the epochs that they owe; what is still owed."""
        with self._busy:
            before = read_progress(self._directory)
            left = tuple(debt for debt in before.debts if not self._settled(debt))
            if left != before.debts:
                write_progress(self._directory, replace(before, debts=left))
            return left

    def close(self) -> None:
        for sink in self._sinks.values():
            sink.close()

    def _still_failed(self, plan: PlanVersion, before: Progress) -> Failures:
        """The instances that failed in an earlier epoch, while this one was already planned with them: what they say
        now is not wanted. One that was started again has another life."""
        return {p.instance: before.failures[p.run] for p in plan.pipelines if p.run in before.failures}

    def _align_lanes(self, members: Members, epoch: int, barrier: Barrier, found: Collected) -> None:
        """Every bucket of every pipeline that had rows or ended in this epoch has come to its barrier."""
        for p in members.values():
            if p.program.ring1 is not None:
                where = f"the sinks of pipeline {p.name} in epoch {epoch}"
                align(where, "bucket", p.buckets, found.heard[p.instance], barrier)

    def _limit_groups(self, plan: PlanVersion, found: Collected) -> None:
        """A lane knows its own groups; those of all lanes of a pipeline are counted here."""
        for p in plan.pipelines:
            try:
                require_room(sum(lane["groups"] for lane in found.lanes.get(p.instance, {}).values()), p.max_groups)
            except TooManyGroups as problem:
                found.failures.setdefault(p.instance, describe(problem))

    def _verify(self, plan: PlanVersion, members: Members, epoch: int, digest: str) -> None:
        """No sink has anything of another epoch under this epoch's number. Before any of them commits."""
        for p in members.values():
            for sink, _ in p.outlets:
                self.sink(p, sink.name).verify(self._key(p, epoch, digest))
        if plan.stream.dead_letters is not None:
            self.letters(plan.stream.dead_letters).verify(SinkKey(self._checkpoint, STREAM_LANE, epoch, digest))

    def _deliver(
        self, members: Members, epoch: int, digest: str, found: Collected, before: Progress, quit_now: set[int]
    ) -> dict[int, Delivered]:
        """Bring the epoch to the sinks of every pipeline. Raises SinkUnavailable and DiskFull, for which the stream
        waits: the others have the epoch then, and get it once although it is run again."""
        delivered: dict[int, Delivered] = {}
        waiting: HeadraceError | None = None
        for p in members.values():
            debts: dict[str, list[SinkKey]] = defaultdict(list)
            for debt in before.debts:
                if debt.pipeline.instance == p.instance:
                    debts[debt.sink].append(self._key(debt.pipeline, debt.epoch))
            delivery = Delivery(p, partial(self._opened, p), self._key(p, epoch, digest), debts)
            gone = before.detached.get(p.run, {})
            try:
                delivered[p.instance] = delivery.deliver(
                    found.receipts.get(p.instance, {}),
                    found.failures.get(p.instance, ""),
                    found.lost.get(p.instance, {}),
                    {sink: reason for sink, reason in gone.items() if any(s.name == sink for s, _ in p.outlets)},
                )
            except (SinkUnavailable, DiskFull) as problem:
                if p.instance in quit_now:  # nobody waits for one that was stopped at once
                    delivered[p.instance] = Delivered(failure=found.failures[p.instance])
                else:
                    waiting = waiting or problem
        if waiting is not None:
            raise waiting
        return delivered

    def _has_quit(self, pipeline: PipelineDef) -> bool:
        return (pipeline.instance, pipeline.life) in self._quit

    def _key(self, pipeline: PipelineDef, epoch: int, digest: str = "") -> SinkKey:
        return SinkKey(self._checkpoint, pipeline.instance, epoch, digest)

    def _debts(self, members: Members, epoch: int, delivered: dict[int, Delivered], old: Progress) -> tuple[Debt, ...]:
        """What is owed after this epoch. Sinks of pipelines that have left are asked here for what they owe."""
        new = [Debt(members[i], sink, epoch) for i, d in delivered.items() for sink in d.owed]
        return (*(d for d in old.debts if not self._settled(d)), *new)

    def _settled(self, debt: Debt) -> bool:
        with contextlib.suppress(HeadraceError):  # then it stays owed
            self._settle(debt)
            return True
        return False

    def _settle(self, debt: Debt) -> None:
        self.sink(debt.pipeline, debt.sink).commit(self._key(debt.pipeline, debt.epoch), [])

    def _commit_letters(self, plan: PlanVersion, epoch: int, digest: str, found: Collected) -> int:
        """Commit the dead letters; how many there are. What fails here holds up the stream: the epoch is not done
        before they are safe."""
        sink = plan.stream.dead_letters
        staged = found.receipts[STREAM_LANE].get(sink.name, []) if sink is not None else []
        if sink is None or not staged:
            return 0
        self.doing = f"the commit of sink {sink.name} with the dead letters"
        try:
            return self.letters(sink).commit(SinkKey(self._checkpoint, STREAM_LANE, epoch, digest), staged)
        except SinkFailed as problem:
            raise for_stream(problem) from problem

    def _progress(
        self,
        plan: PlanVersion,
        members: Members,
        epoch: int,
        found: Collected,
        delivered: dict[int, Delivered],
        letters: int,
        old: Progress,
        quit_now: set[int],
    ) -> Progress:
        if old.epoch >= epoch:  # the epoch was committed before and is run again: it must not be counted twice
            return old
        return progress_after(
            plan,
            members,
            epoch,
            found,
            delivered,
            old,
            quit_at_once=quit_now,
            debts=self._debts(members, epoch, delivered, old),
            letters=letters,
            declared=self._known(),
        )


def _input(instance: int, sink: str) -> str:
    return f"sink {sink} of instance {instance}"


def _by_sink(delivered: dict[int, Delivered]) -> dict[str, tuple[int, float]]:
    """The rows that each sink got from all pipelines, and the milliseconds that it took."""
    found: dict[str, tuple[int, float]] = {}
    for one in delivered.values():
        for sink, (rows, took) in one.committed.items():
            before = found.get(sink, (0, 0.0))
            found[sink] = (before[0] + rows, before[1] + took)
    return found
