"""One shared stream while the hub is open: publishes plans, runs the query, knows what really happened.

The hub decides which pipelines should run; this class makes it so. Threads: the hub's callers, Spark's streaming
thread (`_epoch_done`) and the notice thread (`on_notice`) meet under one condition variable; nobody holds it while
waiting for Spark.
"""

from __future__ import annotations

import shutil
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.budget import Accounts, Budget, Verdict
from headrace.control.acks import Ack, Acks
from headrace.control.log import SignalLog
from headrace.control.signals import EPOCH, FLUSH, SAVEPOINT, Instant, SignalKind
from headrace.durable import write_atomic
from headrace.errors import HeadraceError, StartTimeout, StateDamaged, StreamFailed
from headrace.ingress.service import GatewayService
from headrace.keeper import OnEnd, QueryKeeper
from headrace.program import Left, PipelineDef, PlanVersion, StreamDef
from headrace.ring0.families import families
from headrace.sources import SOURCES
from headrace.sources.journal import JOURNAL
from headrace.status import StreamStatus, to_datetime
from headrace.streams import stream_values
from headrace.streams.notices import NoticeBoard
from headrace.streams.plans import PlanStore, parse_plan
from headrace.streams.progress import HOLD, Applied, Progress, read_applied, read_progress
from headrace.streams.quarantine import Quarantine, change_quarantine

if TYPE_CHECKING:
    from headrace.spark.committer import EpochCommitter
    from headrace.spark.query import StreamQuery
    from headrace.spark.session import Engine
    from headrace.spark.summary import EpochSummary

# The first epoch pays for Python workers, imports and kernels: 7 to 9 s cold on two cores, several times that when
# busy.
START_LIMIT_SECONDS = 120.0
_RATE_EPOCHS = 20


class StreamRuntime:
    """The running side of one stream. `failed` is called, outside the lock, with instances that failed in an epoch;
    `known` says which instances are still declared."""

    def __init__(
        self,
        stream: StreamDef,
        directory: Path,
        board: NoticeBoard,
        engine: Callable[[], Engine],
        failed: Callable[[str, dict[int, str], dict[int, dict[str, str]]], None],
        known: Callable[[], set[int]],
        gateway: GatewayService,
    ) -> None:
        self.stream, self.directory = stream, directory
        self._gateway = gateway
        self.plans = PlanStore(directory)
        self._board, self._engine, self._failed, self._known = board, engine, failed, known
        self._changed = threading.Condition()
        self.keeper = QueryKeeper(
            directory, self.plans, self._launch, lambda guilty: failed(stream.name, guilty, {}), self._wake
        )
        self._committer: EpochCommitter | None = None
        self._planned = 0
        self._planned_epoch = -1
        self._planned_at: float | None = None
        self._idle: dict[str, Any] | None = None
        self._held = False
        self._backlog = 0
        self._ended = 0  # the plan version that last closed all windows, and whether rows came since
        self._fed = False
        values = stream_values(stream)
        time_budget = values["pipeline_time_budget"]
        budget = Budget(None if time_budget is None else time_budget / 1000, values["pipeline_state_budget"])
        self._accounts = Accounts(budget)
        self._alone: frozenset[int] = frozenset()
        self._recent: deque[tuple[float, EpochSummary]] = deque(maxlen=_RATE_EPOCHS)
        self.signals = SignalLog(directory)
        self.acks = Acks()

    # --- signals ----------------------------------------------------------------------------------

    def barrier(self, kind: SignalKind, plan: int = 0) -> Future[Ack]:
        """Send a barrier through the data channel: it ends the next epoch (the first with plan version `plan`). The
        future ends when that epoch is committed, or with StreamFailed when the query ends before."""
        ack = self.acks.expect(self.signals.emit_data(kind, plan))
        if not self.running:
            self.acks.fail(self._gone("does not run"))
        return ack

    def stand_still(self, timeout: float) -> int | None:
        """Cut the stream with a savepoint barrier, and plan no epoch behind it until `release`. The epoch that carried
        it, which is committed; None when that took too long."""

        def hold_behind(id: int) -> None:
            write_atomic(self.directory / HOLD, str(id).encode())

        deadline = time.monotonic() + timeout
        with self._changed:
            self._held = False
        ack = self.acks.expect(self.signals.emit_data(SAVEPOINT, prepare=hold_behind))
        # Spark asks for the next epoch only when it has logged this one as done.
        calm = self._await(lambda: ack.done() and (self._held or not self.started), timeout)
        return ack.result(0).epoch if calm and time.monotonic() <= deadline else None

    def control(self, kind: SignalKind, pipelines: Sequence[PipelineDef] = ()) -> Future[Ack]:
        """Send a signal through the control channel, past the rows, to the committer. An instant is answered at once,
        a barrier when every sink has come to it."""
        signal = self.signals.emit_control(kind)
        ack = self.acks.expect(signal)

        def deliver() -> None:
            try:
                if kind is FLUSH:
                    self._gateway.sync(self.stream.name)
                self.committer.control(signal, pipelines)
            except Exception as problem:
                self.acks.refused(signal, problem)
            else:
                self.acks.seen(signal, self.progress.epoch)

        if isinstance(signal, Instant):
            deliver()
        else:
            threading.Thread(target=deliver, name="headrace-control", daemon=True).start()
        return ack

    # --- plans ------------------------------------------------------------------------------------

    def publish(
        self,
        pipelines: tuple[PipelineDef, ...],
        left: tuple[Left, ...] = (),
        ending: bool = False,
        cancelled: tuple[Left, ...] = (),
    ) -> int:
        """Put a new plan version in force from the next epoch on; returns its number. `cancelled` ends that no epoch
        has told of yet are forgotten: a script is taken back."""
        current = self.plans.current()
        version = current + 1
        pending: tuple[Left, ...] = ()
        if current:
            old = self.plans.load(current).left
            # An eof that no committed epoch has carried yet must not be forgotten by skipping a version.
            pending = old if current > read_progress(self.directory).plan else ()
            # After a crash between publishing and saving, the catalog tells of ends that the plan knows already.
            left = tuple(ended for ended in left if ended not in old)
            if current > self._planned:
                pending = tuple(ended for ended in pending if ended not in cancelled)
        with self._changed:
            self._idle = None
        self.directory.mkdir(parents=True, exist_ok=True)
        self._let_out(current, pipelines, left)
        alone = tuple(p.instance for p in pipelines if p.instance in self._alone)
        self.plans.publish(PlanVersion(version, self.stream, pipelines, ending, (*pending, *left), alone))
        return version

    def _let_out(self, current: int, pipelines: tuple[PipelineDef, ...], left: tuple[Left, ...]) -> None:
        """Those who killed a worker and are started again may run from the next plan version on; forget those that no
        epoch can name any more."""
        back = {ended.pipeline.instance for ended in left} & {p.instance for p in pipelines}
        committed = read_progress(self.directory).plan

        def change(old: Quarantine) -> Quarantine:
            new = old.without(back, current)
            return replace(new, out=tuple(q for q in new.out if q.until is None or q.until >= committed))

        change_quarantine(self.directory, change)

    def end(self, pipelines: tuple[PipelineDef, ...]) -> int:
        """The version of a plan that closes every window in its first epoch: a new one, unless that is in force and no
        row has come since."""
        current = self.plans.current()
        plan = self.plans.load(current) if current else None
        fed = self._ended == current and self._fed
        if plan is not None and plan.ending and plan.pipelines == pipelines and not fed:
            return current
        return self.publish(pipelines, ending=stream_values(self.stream)["close_at_end"])

    # --- the query --------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether epochs are planned and run, or soon will be: the query may just be mended."""
        return self.keeper.running

    @property
    def started(self) -> bool:
        """Whether there is a query that was not stopped; it may have died."""
        return self.keeper.query is not None

    def start(self) -> None:
        """Start the query unless it runs; continues from the checkpoint if there is one."""
        if self.running:
            return
        (self.directory / HOLD).unlink(missing_ok=True)
        with self._changed:
            self._idle, self._held, self._planned_at = None, False, None
        self._open_gateway()
        try:
            self.keeper.start()
        except HeadraceError:
            raise
        except Exception as problem:
            raise self._stream_failed(f"{type(problem).__name__}: {problem}") from problem

    def _open_gateway(self) -> None:
        """A pushed stream takes bytes as long as its query is meant to run."""
        kind = SOURCES[self.stream.source]
        if kind.pushed:
            self._gateway.open(self.stream, self.directory / "source" / JOURNAL, kind.values(self.stream))

    def ingress(self) -> dict[str, Any]:
        """What the gateway says of this stream: addresses and metrics; empty when it takes no bytes."""
        if not SOURCES[self.stream.source].pushed:
            return {}
        metrics = self._gateway.metrics(self.stream.name)
        return {} if metrics is None else {"addresses": self._gateway.addresses(self.stream.name), **metrics}

    def _launch(self, ended: OnEnd) -> StreamQuery:
        from headrace.spark.query import StreamQuery

        engine = self._engine()
        options = {
            "directory": str(self.directory),
            "checkpoint": self.checkpoint_id(),
            "port": str(self._board.port),
            "token": self._board.token,
        }
        return StreamQuery(engine, self.stream.name, self.directory, self.committer, options, ended)

    def _wake(self) -> None:
        problem = self.keeper.problem
        if problem is not None:
            self.acks.fail(self._stream_failed(problem))
        with self._changed:
            self._changed.notify_all()

    @property
    def committer(self) -> EpochCommitter:
        if self._committer is None:
            from headrace.spark.committer import EpochCommitter

            self._committer = EpochCommitter(
                self.directory,
                self.checkpoint_id(),
                self.plans,
                self._epoch_done,
                self._known,
                self.keeper.probe_lived,
            )
        return self._committer

    def checkpoint_id(self) -> str:
        """Names this checkpoint among all that ever were: a fresh one restarts epochs, and sinks must not mix them
        up."""
        file, checkpoint = self.directory / "checkpoint.id", self.directory / "checkpoint"
        if file.exists() != checkpoint.exists() and self.progress.epoch >= 0:
            kept, gone = (file, checkpoint) if file.exists() else (checkpoint, file)
            raise StateDamaged(
                f"stream {self.stream.name} has committed epochs, but {gone} is missing beside {kept}",
                advice="Restore it from a backup or a savepoint, or drop the stream and create it anew.",
                path=str(gone),
            )
        if not file.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            write_atomic(file, uuid.uuid4().hex.encode())
        return file.read_text()

    def hold(self, timeout: float) -> bool:
        """Let the epoch in flight finish and plan no other; whether that happened in time. The query stays up."""
        if not self.running:
            return True
        self.ask_to_hold()
        return self._await(lambda: self._held or not self.started, timeout)

    def ask_to_hold(self) -> None:
        """Plan no epoch from now on; the one in flight goes on."""
        if self.running and not (self.directory / HOLD).exists():
            write_atomic(self.directory / HOLD, b"")

    @property
    def newest_epoch(self) -> int:
        """The newest epoch that was planned; -1 before the first."""
        applied = read_applied(self.directory)
        return -1 if applied is None else applied.epoch

    def release(self) -> None:
        """Undo `hold`: somebody needs the query after all."""
        with self._changed:
            self._held = False
        (self.directory / HOLD).unlink(missing_ok=True)

    def stop(self) -> None:
        """End the query at once; an epoch in flight will be run again by the next start. What a pushed stream has taken
        and nobody has read waits in its journal."""
        self._gateway.close(self.stream.name)
        self.keeper.stop()
        self._wake()
        self.acks.fail(self._gone("was stopped"))
        (self.directory / HOLD).unlink(missing_ok=True)

    def close(self) -> None:
        """End the query and release the sinks."""
        self.stop()
        if self._committer is not None:
            self._committer.close()

    def forget(self) -> None:
        """Remove everything the stream keeps on disk. A new stream of the same name never finds any of it: it is out
        of the way at once, and what cannot be deleted now is when the state directory is opened again."""
        self.close()
        if self.directory.exists():
            gone = self.directory.with_name(f".gone-{uuid.uuid4().hex}")
            self.directory.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    # --- waiting ----------------------------------------------------------------------------------

    def wait_planned(self, version: int, timeout: float = START_LIMIT_SECONDS) -> None:
        """Wait until an epoch with this plan version, or a later one, has really been planned, or the query is stopped
        on purpose."""
        if not self._await(lambda: self._planned >= version or not self.started, timeout):
            raise self._start_timeout(version, timeout)

    def _start_timeout(self, version: int, timeout: float) -> StartTimeout:
        """Says who waited for what, and what the stream did instead."""
        schema, applied, plan = self.stream.schema, read_applied(self.directory), self.plans.load(version)
        decoded = applied.columns if applied else ()
        columns = [schema[i].name for i in plan.view.indexes(len(schema)) if i not in decoded]
        here = set(self._subscribers(applied)) if applied else set()
        names = [p.name for p in plan.pipelines if p.name not in here]
        waited = f"pipeline {', '.join(names)} waited" if names else "somebody waited"
        wanted = f" that decodes {', '.join(columns)}" if columns else ""
        if self._planned_at is None:
            instead = "its query has planned none since it was started"
        else:
            spent = time.monotonic() - self._planned_at
            instead = f"epoch {self._planned_epoch}, with plan version {self._planned}, was planned {spent:.0f} s ago"
        return StartTimeout(
            f"{waited} {timeout:g} s for an epoch of stream {self.stream.name} with plan version {version}{wanted}; "
            f"{instead}",
            advice="The machine may be busy with a long epoch: try again, or make max_epoch_bytes smaller.",
            stream=self.stream.name,
            version=version,
            pipelines=names,
            columns=columns,
        )

    def wait_exhausted(self, timeout: float | None) -> bool:
        """Wait until the source has nothing more under the newest plan, or the query was stopped because nobody needs
        it; whether that happened in time."""

        def over() -> bool:
            idle = self._idle
            if not self.started:
                return True
            return idle is not None and idle["plan"] == self.plans.current() and bool(idle["exhausted"])

        return self._await(over, timeout)

    def _await(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Wait for `condition`, woken by notices; raises StreamFailed when the query dies meanwhile."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not condition():
                self.raise_failure()
                left = 0.5 if deadline is None else min(0.5, deadline - time.monotonic())
                if left <= 0:
                    return False
                self._changed.wait(left)
            return True

    def raise_failure(self) -> None:
        """Raise StreamFailed if the query has died."""
        problem = self.keeper.problem
        if self.started and problem is not None:
            raise self._stream_failed(problem)

    def _stream_failed(self, problem: str) -> StreamFailed:
        return self._gone(f"failed: {problem}")

    def _gone(self, how: str) -> StreamFailed:
        return StreamFailed(
            f"the query of stream {self.stream.name} {how}",
            advice="Nothing committed is lost; starting again continues from the last epoch.",
            stream=self.stream.name,
        )

    # --- what happens -----------------------------------------------------------------------------

    def on_notice(self, notice: dict[str, Any]) -> None:
        """A word from the planning process."""
        with self._changed:
            if notice["kind"] == "planned":
                self._planned = max(self._planned, int(notice["plan"]))
                self._planned_epoch, self._planned_at = int(notice["epoch"]), time.monotonic()
                self._backlog = int(notice["backlog"])
                self._idle = None
            elif notice["kind"] == "idle":
                self._planned = max(self._planned, int(notice["plan"]))
                self._backlog = 0
                self._idle = notice
            else:
                self._held = True
            self._changed.notify_all()

    def _epoch_done(self, summary: EpochSummary) -> None:
        if summary.barrier.kind != EPOCH.name:
            self.signals.carried(summary.barrier.id)
        with self._changed:
            self._recent.append((time.monotonic(), summary))
            if summary.ending:
                self._ended, self._fed = summary.plan, False
            elif summary.rows:
                self._fed = True
            self._changed.notify_all()
        self.acks.seen(summary.barrier, summary.epoch)
        verdict = self._judge(summary)
        failures = verdict.over | summary.failures
        # With nobody to drop, the hub only publishes the plan again: those to be measured alone have changed.
        if failures or summary.detached or verdict.alone != self._alone:
            self._alone = verdict.alone
            self._failed(self.stream.name, failures, summary.detached)

    def _judge(self, summary: EpochSummary) -> Verdict:
        """Who costs too much. An epoch without rows tells nothing about it."""
        if not summary.rows or self._accounts.budget == Budget():
            return Verdict({}, self._alone)
        shared = families(parse_plan(self.plans.text(summary.plan)))
        return self._accounts.charge(summary.pipeline_ms, summary.state_bytes, shared)

    # --- status -----------------------------------------------------------------------------------

    @property
    def progress(self) -> Progress:
        return read_progress(self.directory)

    @property
    def recent(self) -> list[EpochSummary]:
        """The newest epochs since the hub was opened, oldest first."""
        return [summary for _, summary in list(self._recent)]

    def spent_ms(self, instance: int) -> float | None:
        """Time that an instance took in the newest epoch, over all tasks."""
        return self._recent[-1][1].pipeline_ms.get(instance) if self._recent else None

    def _subscribers(self, applied: Applied) -> dict[str, list[str]]:
        """Who was in the newest planned epoch, with the columns that each needs."""
        schema = self.stream.schema
        plan = parse_plan(self.plans.text(applied.version))
        present = [p for p in plan.pipelines if p.instance not in applied.out]
        views = {p.name: p.program.view for p in present}
        return {
            name: ["*"] if view.kind == "ALL" else [schema[i].name for i in view.indexes(len(schema))]
            for name, view in views.items()
        }

    def status(self) -> StreamStatus:
        """What really happened, as far as it is known."""
        progress, applied = self.progress, read_applied(self.directory)
        recent = list(self._recent)
        query: Any = self.keeper.query
        last = query.last_epoch() if query is not None else None
        seconds = recent[-1][0] - recent[0][0] if len(recent) > 1 else 0.0
        rows = sum(s.rows for _, s in recent[1:])
        size = sum(s.bytes for _, s in recent[1:])
        return StreamStatus(
            name=self.stream.name,
            running=self.running,
            epoch=progress.epoch,
            projection_version=applied.version if applied else 0,
            decoding_columns=[self.stream.schema[i].name for i in applied.columns] if applied and self.running else [],
            columns_declared=len(self.stream.schema),
            subscribers=self._subscribers(applied) if applied and self.running else {},
            rows=progress.rows,
            bytes=progress.bytes,
            bad=dict(progress.bad),
            dead_letters=progress.dead_letters,
            watermark=to_datetime(progress.watermark),
            far_future=progress.future,
            lag_bytes=self._backlog,
            epoch_ms=last[1] if last else None,
            rows_per_s=rows / seconds if seconds else 0.0,
            mb_per_s=size / seconds / 1e6 if seconds else 0.0,
        )
