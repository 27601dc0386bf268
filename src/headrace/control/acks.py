"""Acknowledgements: who emits a signal gets a future that ends when the tail has seen it, or never will."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass

from headrace.control.signals import Signal


@dataclass(frozen=True, slots=True)
class Ack:
    """The tail has seen `signal`. `epoch` is the epoch that carried it, or the newest when it came out of band."""

    signal: Signal
    epoch: int


class Acks:
    """The signals of one stream that somebody waits for. Any thread may call any method."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[int, tuple[Signal, Future[Ack]]] = {}

    def expect(self, signal: Signal) -> Future[Ack]:
        """The future of a signal that was just emitted."""
        future: Future[Ack] = Future()
        with self._lock:
            self._open[signal.id] = (signal, future)
        return future

    def seen(self, signal: Signal, epoch: int) -> None:
        """The tail has seen `signal`; without effect when nobody waits for it."""
        with self._lock:
            found = self._open.get(signal.id)
            if found is None or found[0] != signal:
                return
            del self._open[signal.id]
        found[1].set_result(Ack(signal, epoch))

    def awaits(self, signal: Signal) -> bool:
        """Whether somebody waits for `signal`."""
        with self._lock:
            found = self._open.get(signal.id)
            return found is not None and found[0] == signal

    def refused(self, signal: Signal, problem: Exception) -> None:
        """The tail cannot do what `signal` asks for."""
        with self._lock:
            found = self._open.pop(signal.id, None)
        if found is not None:
            found[1].set_exception(problem)

    def fail(self, problem: Exception) -> None:
        """Nothing that is still open will be seen."""
        with self._lock:
            failed, self._open = list(self._open.values()), {}
        for _, future in failed:
            future.set_exception(problem)
