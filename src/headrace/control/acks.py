"""Acknowledgements of signals. The sender of a signal gets a future that completes when the committer has seen it."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass

from headrace.control.signals import Signal


@dataclass(frozen=True, slots=True)
class Ack:
    """The committer has seen `signal`. `epoch` carried it; for a signal of the control channel it is the newest
    epoch."""

    signal: Signal
    epoch: int


class Acks:
    """The unacknowledged signals of one stream. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[int, tuple[Signal, Future[Ack]]] = {}

    def expect(self, signal: Signal) -> Future[Ack]:
        """The future for a signal that was just emitted."""
        future: Future[Ack] = Future()
        with self._lock:
            self._open[signal.id] = (signal, future)
        return future

    def seen(self, signal: Signal, epoch: int) -> None:
        """Complete the future of `signal`, if it has one."""
        with self._lock:
            found = self._open.get(signal.id)
            if found is None or found[0] != signal:
                return
            del self._open[signal.id]
        found[1].set_result(Ack(signal, epoch))

    def awaits(self, signal: Signal) -> bool:
        """True if the future of `signal` is not complete yet."""
        with self._lock:
            found = self._open.get(signal.id)
            return found is not None and found[0] == signal

    def refused(self, signal: Signal, problem: Exception) -> None:
        """Fail the future of `signal`: the committer could not act on it."""
        with self._lock:
            found = self._open.pop(signal.id, None)
        if found is not None:
            found[1].set_exception(problem)

    def fail(self, problem: Exception) -> None:
        """Fail all open futures: none of these signals will be seen."""
        with self._lock:
            failed, self._open = list(self._open.values()), {}
        for _, future in failed:
            future.set_exception(problem)
