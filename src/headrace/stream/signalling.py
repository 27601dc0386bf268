"""Sends the signals of one stream, and acknowledges them.

Barriers go through the data channel, after the rows that were read before them. Control signals go past the rows, to
the committer.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.control.acks import Ack, Acks
from headrace.control.log import SignalLog
from headrace.control.sending import send_control
from headrace.control.signals import EPOCH, FLUSH, SAVEPOINT, Signal, SignalKind
from headrace.model.definitions import PipelineDef
from headrace.state.progress import Debt, ProgressView
from headrace.stream.managed_query import ManagedQuery
from headrace.stream.owed_acks import OwedBarriers

if TYPE_CHECKING:
    from headrace.spark.summary import EpochSummary


class Signalling:
    """The signals of one stream. Any thread may call."""

    def __init__(self, directory: Path, acks: Acks, query: ManagedQuery, progress: ProgressView) -> None:
        self._log, self._acks, self._query, self._progress = SignalLog(directory), acks, query, progress
        self._owed = OwedBarriers(acks, self._settle_debts)

    def barrier(self, kind: SignalKind, plan: int = 0) -> Future[Ack]:
        """Send a barrier. It ends the next epoch, or the first one with plan version `plan`. The future completes when
        that epoch is committed. It fails with StreamFailed if the query ends first."""
        ack = self._acks.expect(self._log.emit_data(kind, plan))
        if not self._query.supervisor.running:
            self._acks.fail(self._query.error("does not run"))
        return ack

    def cut(self) -> Future[Ack]:
        """Send a savepoint barrier, and plan no epoch after the one that carries it."""
        return self._acks.expect(self._log.emit_data(SAVEPOINT, prepare=self._query.planning_hold.request))

    def control(self, kind: SignalKind, pipelines: Sequence[PipelineDef] = ()) -> Future[Ack]:
        """Send a control signal. An instant is acknowledged at once, a barrier when every sink has reached it."""
        act = partial(self._act, pipelines)
        return send_control(self._log, self._acks, kind, act=act, epoch=self._committed_epoch)

    def carried(self, summary: EpochSummary) -> None:
        """This epoch carried its barrier, so no other epoch has to."""
        if summary.barrier.kind != EPOCH.name:
            self._log.carried(summary.barrier.id)

    def committed(self, summary: EpochSummary) -> None:
        """Acknowledge the barrier of a committed epoch, now or when the sinks no longer owe an epoch before it."""
        self._owed.seen(summary.barrier, summary.epoch, summary.progress.debts)

    def _act(self, pipelines: Sequence[PipelineDef], signal: Signal) -> None:
        if signal.kind == FLUSH.name:
            self._query.intake.sync()
        self._query.committer.control(signal, pipelines)

    def _committed_epoch(self) -> int:
        return self._progress.read().epoch

    def _settle_debts(self) -> Sequence[Debt]:
        return self._query.committer.settle()
