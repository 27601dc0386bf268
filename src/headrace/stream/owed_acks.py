"""Acknowledges barriers when the epochs before them are visible in every sink.

A sink owes an epoch that it has promised but not yet made visible (`headrace.sinks.delivery`). An acknowledged barrier
means that all rows before it are in the sinks, so the acknowledgement waits until nothing is owed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from headrace.control.acks import Acks
from headrace.control.signals import SAVEPOINT, Barrier
from headrace.state.progress import Debt

AGAIN_SECONDS = 1.0
_log = logging.getLogger(__name__)


class OwedBarriers:
    """The barriers of one stream that were committed while a sink owed an epoch. `settle` asks the sinks again and
    returns the debts that remain. Any thread may call."""

    def __init__(self, acks: Acks, settle: Callable[[], Sequence[Debt]]) -> None:
        self._acks, self._settle = acks, settle
        self._lock = threading.Lock()
        self._waiting: list[tuple[Barrier, int]] = []
        self._asking = False

    def seen(self, barrier: Barrier, epoch: int, debts: Sequence[Debt]) -> None:
        """The epoch that carried this barrier is committed, and leaves these debts. A savepoint copies the debts with
        everything else, so its barrier does not wait for them."""
        if barrier.kind == SAVEPOINT.name:
            self._acks.seen(barrier, epoch)
        else:
            with self._lock:
                self._waiting.append((barrier, epoch))
        self._pass_on(debts)

    def _pass_on(self, debts: Sequence[Debt]) -> None:
        oldest = min((debt.epoch for debt in debts), default=None)
        with self._lock:
            ready = [(b, e) for b, e in self._waiting if oldest is None or e < oldest]
            self._waiting = [entry for entry in self._waiting if entry not in ready]
            # No caller waits for the barrier of a plain epoch. Only for other barriers are sinks asked between epochs.
            ask = not self._asking and any(self._acks.awaits(barrier) for barrier, _ in self._waiting)
            self._asking = self._asking or ask
            self._waiting = [(b, e) for b, e in self._waiting if self._acks.awaits(b)]
        for barrier, epoch in ready:
            self._acks.seen(barrier, epoch)
        if ask:
            self._ask_later()

    def _ask_later(self) -> None:
        timer = threading.Timer(AGAIN_SECONDS, self._ask)
        timer.daemon = True
        timer.start()

    def _ask(self) -> None:
        try:
            debts = self._settle()
        except Exception as problem:  # the disk may be full; an idle stream has no next epoch that would ask again
            _log.warning("cannot ask sinks for the epochs that they owe: %s", problem)
            with self._lock:
                self._asking = any(self._acks.awaits(barrier) for barrier, _ in self._waiting)
                again = self._asking
            if again:
                self._ask_later()
            return
        with self._lock:
            self._asking = False
        self._pass_on(debts)
