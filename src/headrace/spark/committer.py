"""Commits epochs on the driver: checks that every task has reported, commits the sinks, stores the progress.

Spark calls it inside foreachBatch. When it returns, Spark logs the epoch as done. When it raises, or the process dies
anywhere in here, Spark runs the same epoch again. Every step is idempotent under the epoch's key, so that is safe.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from pathlib import Path

from headrace.base.collecting import collection_paused
from headrace.base.faults import fault_point
from headrace.bridge.messages import STREAM_LANE, Row
from headrace.bridge.spark_rows import clear_staging
from headrace.control.barrier import BarrierAligner, align
from headrace.control.signals import QUICK_END, Barrier, Channel, Signal
from headrace.errors import HeadraceError, MissingInput, SinkFailed
from headrace.model.definitions import PipelineDef, SinkDef
from headrace.sinks.sink_kind import DriverSink
from headrace.sources.badfiles import hand_over
from headrace.spark.broken_off import BrokenOff
from headrace.spark.driver_sinks import DriverSinks, still_owed
from headrace.spark.epoch_commit import EpochCommit
from headrace.spark.epoch_query import QueryRunner
from headrace.spark.epoch_reports import EpochReports, Members
from headrace.spark.summary import EpochSummary
from headrace.state.plans import PlanStore
from headrace.state.progress import Debt, Progress, ProgressView, read_progress, write_progress
from headrace.state.quarantine import change_quarantine, read_quarantine

# How long dropping a stream waits for a commit that may be running.
FORGET_SECONDS = 5.0
LOOK_SECONDS = 1.0  # how often a commit that waits for another one looks whether it still has to
_log = logging.getLogger(__name__)


class ProbeLived(Exception):
    """Ends the query of an epoch that was run only to see whether a worker dies. None did."""


class CommitGivenUp(Exception):
    """Ends a commit that hung in a sink. The stream has gone on without the pipeline of that sink."""


class FilesLeftOut(Exception):
    """Ends the query of an epoch in which tasks found unreadable files. The epoch is run again without them."""


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
        reveal: Callable[[str], str] = str,
    ) -> None:
        """`done` gets the summary of every committed epoch. `known` returns the declared instances; the counters of
        others are deleted after their last epoch. `probe_lived` and `run_again` are called for epochs that must not be
        committed, before their query ends. `reveal` returns the value of a secret in a sink's options."""
        self._known, self._probe_lived, self._run_again = known, probe_lived, run_again
        self._directory, self._plans, self._done = directory, plans, done
        self._progress = ProgressView(directory)
        self.sinks = DriverSinks(checkpoint, directory, reveal)
        self._busy = threading.Lock()  # held while an epoch is committed; replaced when such a commit is given up
        self._committing: threading.Lock | None = None  # the lock of the commit that runs
        self._epoch: EpochCommit | None = None  # the epoch of that commit
        self._broken_off: dict[int, BrokenOff] = {}  # how far commits came that were given up, by instance
        self._passing = self.sinks.turn  # held while a commit takes a sink, ends or is given up
        self._forgotten: set[int] = set()
        self._quit: set[tuple[int, int]] = set()  # instances that were stopped at once, with their generation

    @property
    def doing(self) -> str:
        """What the commit that runs now waits for. Empty when none runs."""
        if not self._committing:
            return ""
        used = self.sinks.in_use
        return f"the commit of {used}" if used else "the commit"

    def control(self, signal: Signal, pipelines: Sequence[PipelineDef]) -> None:
        """Act on a signal of the control channel, in the caller's thread. After `quick_end` nothing more of these
        pipelines is committed. `flush` returns when no sink is being written to and none owes an epoch."""
        if signal.kind == QUICK_END.name:
            self._quit.update((p.instance, p.generation) for p in pipelines)
        elif isinstance(signal, Barrier):
            with self._alone():
                self._flush(signal)

    def readmit(self, pipelines: Sequence[PipelineDef]) -> None:
        """Undo `quick_end` for these pipelines: the script that stopped them is rolled back."""
        self._quit.difference_update((p.instance, p.generation) for p in pipelines)

    def _flush(self, signal: Barrier) -> None:
        """Align the flush over all sinks: a sink delivers it once it owes nothing. Raises SinkFailed when one cannot
        write the epochs that it owes."""
        owed: dict[str, list[Debt]] = {_input(instance, name): [] for instance, name in self.sinks.opened}
        for debt in read_progress(self._directory).debts:
            owed.setdefault(_input(debt.pipeline.instance, debt.sink), []).append(debt)
        if not owed:
            return
        aligner: BarrierAligner[None] = BarrierAligner("the committer", owed, Channel.CONTROL)
        aligner.expect(signal)
        reasons = []
        for name, debts in owed.items():
            try:
                for debt in sorted(debts, key=lambda debt: debt.epoch):
                    self.sinks.settle(debt)
                aligner.offer(name, signal)
            except HeadraceError as problem:
                reasons.append(problem.message)
        if late := aligner.missing:
            raise SinkFailed(
                f"{', '.join(late)} cannot write the epochs that are owed: {'; '.join(reasons)}",
                advice="Nothing is lost. Every epoch tries again, and so does the next flush.",
                sinks=list(late),
            )

    def sink(self, pipeline: PipelineDef, name: str) -> DriverSink:
        """The driver side of one of a pipeline's sinks. One object for as long as the stream is open."""
        return self.sinks.of(pipeline, name)

    def letters(self, sink: SinkDef) -> DriverSink:
        """The driver side of the sink of the stream's dead letters."""
        return self.sinks.letters(sink)

    def notes(self, pipeline: PipelineDef) -> dict[str, str]:
        """Remarks of a pipeline's sinks that fail no epoch, by sink name."""
        return self.sinks.notes(pipeline)

    def commit(
        self,
        rows: Iterable[Row],
        require_current: Callable[[], None] = lambda: None,
        queries: QueryRunner | None = None,
    ) -> None:
        """Commit one epoch. `require_current` raises when the epoch's query was stopped while its commit hung in a
        sink; then nothing more of it may be stored. `queries` runs the pipelines on the epoch host. Raises MissingInput
        when a task has not reported."""
        busy = self._busy

        def require_own() -> None:
            if busy is not self._busy:
                raise CommitGivenUp("a commit hung in a sink, and the stream has gone on without it")

        def require() -> None:
            require_current()
            require_own()

        with self._alone(require):
            self.sinks.use("", require=require_own)  # it may have waited for a commit that was given up
            self._committing = busy
            try:
                self._commit(rows, require, queries)
            finally:
                self._ended(busy)

    @contextlib.contextmanager
    def _alone(self, require: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Wait until no commit runs, except those that were given up, and let none begin. `require` raises when the
        caller need not wait any more."""
        while True:
            busy = self._busy
            if busy.acquire(timeout=LOOK_SECONDS):
                try:
                    if busy is self._busy:  # else its commit was given up, and another one may run
                        yield
                        return
                finally:
                    busy.release()
            require()

    def _ended(self, busy: threading.Lock) -> None:
        """The commit with this lock is over. If it was given up, its sinks may be used again."""
        with self._passing:
            if self._committing is busy:
                self._committing = self._epoch = None
            self.sinks.hanging.release(busy)

    @property
    def stuck(self) -> int | None:
        """The instance whose sink the commit that runs uses now, or STREAM_LANE for the sink of the dead letters. None
        if none runs, or if it uses no sink."""
        return None if self._committing is None else self.sinks.user

    def give_up(self, left_out: Collection[int]) -> None:
        """A new query of the stream starts. If the commit of an earlier one still hangs in a sink of a pipeline that is
        `left_out` of the epoch, or not declared any more, go on without it: the other pipelines do not wait for it. If
        it returns, it uses no further sink and stores nothing. What its epoch left undone in the sinks of the pipeline
        is owed (`headrace.spark.broken_off`).

        A commit that hangs in the sink of the dead letters is given up, too. They cannot be left out, so epochs with
        dead letters raise SinkUnavailable until it returns."""
        with self._passing:
            busy, epoch, instance, sink = self._committing, self._epoch, self.sinks.user, self.sinks.used
            if busy is None or instance is None:
                return
            if instance != STREAM_LANE and instance not in left_out and instance in self._known():
                return
            _log.warning("a commit hangs in %s; the stream does not wait for it", self.sinks.in_use)
            self.sinks.hanging.hold(busy, instance, sink, whole=True)
            self._busy, self._committing, self._epoch = threading.Lock(), None, None
            # After that, the old commit begins no other step, so what it says now is final.
            broken_off = None if epoch is None else epoch.broken_off(instance)
            if broken_off is not None:
                self._broken_off[instance] = broken_off

    def _commit(self, rows: Iterable[Row], require_current: Callable[[], None], queries: QueryRunner | None) -> None:
        began = time.perf_counter()
        require_current()
        with collection_paused():
            found = self._reports(rows)
            if found.nothing:
                return
            self._require_all_tasks(found)
            self._end_probe(found)
            before = self._progress.read()
            epoch = EpochCommit(
                self.sinks,
                self._plans,
                found,
                before,
                require_current=require_current,
                broken_off=self._broken_off,
            )
            with self._passing:
                require_current()
                self._epoch = epoch
            self.sinks.settle_seconds = epoch.settle_seconds
            self._require_readable(found)
            epoch.check()
        quit_now = {i for i, p in epoch.members.items() if (i, p.generation) in self._quit}
        epoch.leave_out(read_quarantine(self._directory), quit_now)
        epoch.run_queries(queries, lambda p: (p.instance, p.generation) in self._quit)
        epoch.deliver()
        require_current()
        epoch.commit_letters()
        declared = self._known()
        debts = epoch.debts(declared)
        self.sinks.use("", require=require_current)  # one that was given up says nothing about the sink in use
        with collection_paused():
            progress = epoch.progress(declared, debts)
        self._progress.write(progress)
        self._broken_off = {i: b for i, b in self._broken_off.items() if b.epoch > progress.epoch}
        if progress is not before:  # keep the previous epoch's plan: a re-run of this epoch names it too
            all_forgotten = self._forget(before, progress, queries, require_current)
            require_current()
            if all_forgotten:
                self._plans.prune(before.plan)
            self._forget_ends(epoch.members)
        clear_staging(self._directory)
        fault_point("after-manifests")
        self._done(epoch.summary(progress, sinks_ms=(time.perf_counter() - began) * 1000))

    def _reports(self, rows: Iterable[Row]) -> EpochReports:
        found = EpochReports()
        for row in sorted(rows, key=lambda r: (r.instance, r.bucket, r.task, r.seq)):
            found.add(row)
        return found

    def _require_all_tasks(self, found: EpochReports) -> None:
        if not found.tasks:
            raise MissingInput(
                "no task of the epoch has reported", advice="Nothing of the epoch is committed, and it is run again."
            )
        planned = found.first.planned
        arrived = found.barriers[STREAM_LANE]
        align(f"epoch {planned.epoch}", "task", count=planned.tasks, arrived=arrived, wanted=planned.barrier)

    def _end_probe(self, found: EpochReports) -> None:
        """End the query of a probe. A probe that reaches its commit has not killed a worker."""
        planned = found.first.planned
        if planned.probing:
            self._probe_lived()
            raise ProbeLived(f"epoch {planned.epoch} ran without the pipelines under suspicion")

    def _require_readable(self, found: EpochReports) -> None:
        """Commit nothing of an epoch in which tasks found unreadable files. The list of them must be durable before the
        first commit and the same for all tasks: the planner leaves them out when the epoch is run again."""
        unreadable = [bad for report in found.tasks.values() for bad in report.unreadable]
        if unreadable:
            hand_over(self._directory / "source", unreadable)
            self._run_again()
            paths = ", ".join(sorted({bad.path for bad in unreadable}))
            raise FilesLeftOut(f"epoch {found.first.planned.epoch} is run again without {paths}")

    def _forget(
        self, before: Progress, now: Progress, queries: QueryRunner | None, require_current: Callable[[], None]
    ) -> bool:
        """Forget pipelines that are not declared, owe nothing, and that no epoch can name: the output that their sinks
        keep, and their entries in the quarantine. This comes before the plan versions that name them are deleted, so
        that after a crash it is only done later. False if it can only be done later, because a commit hangs in a sink
        of such a pipeline."""
        owing = {debt.pipeline.instance for debt in now.debts}
        found = self._plans.forgettable(before.plan, now.plan)
        found |= {d.pipeline.instance: d.pipeline for d in before.debts if not self._plans.names(d.pipeline.instance)}
        declared = self._known()
        gone = {i: p for i, p in found.items() if i not in owing and i not in declared}
        hanging = gone.keys() & self.sinks.hanging.instances
        new = {i: p for i, p in gone.items() if i not in self._forgotten and i not in hanging}
        if new:
            self.sinks.forget(new.values(), now.epoch, require_current)
            if queries is not None:
                queries.forget(set(new))
            self._quit.difference_update([ended for ended in tuple(self._quit) if ended[0] in new])
            change_quarantine(self._directory, lambda found: found.forgetting(new))
        self._forgotten = set(gone) - hanging  # plan versions may name them for a long time: forget each once
        return not hanging

    def _forget_ends(self, members: Members) -> None:
        """Forget that pipelines were stopped at once which were started again and are in epochs by now."""
        now = {instance: pipeline.generation for instance, pipeline in members.items()}
        self._quit.difference_update([(i, g) for i, g in tuple(self._quit) if g < now.get(i, 0)])

    def forget_stream(self, letters: SinkDef | None) -> None:
        """The stream is dropped: delete what its sinks keep beside their output, except an epoch that one still owes.
        Tries first to commit the epochs that are owed. Does nothing while a commit hangs, and takes FORGET_SECONDS at
        most for each of both."""
        busy = self._busy
        if not busy.acquire(timeout=FORGET_SECONDS):
            return
        try:  # not in the thread: if a sink hangs, that may go on when a new stream of this name has the directory
            progress, pipelines = read_progress(self._directory), self._plans.all()
        except BaseException:
            busy.release()
            raise
        self.sinks.settle_seconds = FORGET_SECONDS / 2  # the rest is for the other sinks

        def forget() -> None:
            try:
                debts = still_owed(progress.debts, self.sinks.settled)
                for debt in debts:
                    _log.warning(_never_written(debt).render())
                owing = {(debt.pipeline.instance, debt.sink) for debt in debts}
                self.sinks.forget_stream(pipelines, letters, progress.epoch, owing)
            finally:
                busy.release()

        done: Future[None] = Future()

        def run() -> None:
            try:
                forget()
                done.set_result(None)
            except BaseException as problem:
                done.set_exception(problem)

        threading.Thread(target=run, name="headrace-forget", daemon=True).start()
        wait([done], FORGET_SECONDS)
        if done.done():
            done.result()

    def settle(self) -> tuple[Debt, ...]:
        """Try once more to commit the epochs that sinks owe. Returns those that are still owed."""
        with self._alone():
            before = read_progress(self._directory)
            left = still_owed(before.debts, self.sinks.settled)
            if left != before.debts:
                write_progress(self._directory, replace(before, debts=left))
            return left

    def close(self) -> None:
        """Close the sinks, except those in which a commit hangs."""
        self.sinks.close(used=self.stuck)


def _never_written(debt: Debt) -> SinkFailed:
    return SinkFailed(
        f"the stream of pipeline {debt.pipeline.name} is dropped, and sink {debt.sink} has not written epoch "
        f"{debt.epoch}, which it owes",
        advice="Other sinks of the pipeline have that epoch.",
        sink=debt.sink,
        epoch=debt.epoch,
    )


def _input(instance: int, sink: str) -> str:
    return f"sink {sink} of instance {instance}"
