"""The stream's signals on disk: the counter that gives ids, and the barriers that no epoch has carried yet.

Written by the hub, read by the process that plans epochs. One counter for both channels, durable before an id is used,
so an id is never given twice, whatever dies. A barrier may ask for a plan version: then the first epoch with that plan
is the one that carries it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.base.durable import private_directory, state_errors
from headrace.control.signals import Barrier, Channel, Signal, SignalKind, require_channel
from headrace.model.stored import damaged, store, stored


@dataclass(frozen=True, slots=True)
class Emitted:
    """A barrier on its way into the data channel. `plan` is the first plan version whose epoch may carry it."""

    kind: str
    id: int
    plan: int = 0

    @property
    def barrier(self) -> Barrier:
        return Barrier(self.kind, self.id)


@dataclass(frozen=True, slots=True)
class _Stored:
    last: int = 0
    pending: tuple[Emitted, ...] = ()


class SignalLog:
    """One stream's signals. The hub's threads may all emit; any process may read."""

    def __init__(self, stream_dir: Path) -> None:
        self._path = stream_dir / "signals.json"
        self._lock = threading.Lock()

    def emit_data(self, kind: SignalKind, plan: int = 0, prepare: Callable[[int], None] = lambda id: None) -> Barrier:
        """A new barrier in the data channel: the next epoch that may carry it does, one barrier per epoch. `prepare`
        is called with its id before any epoch can carry it."""
        require_channel(kind, Channel.DATA)
        with self._lock:
            held = self._read()
            emitted = Emitted(kind.name, held.last + 1, plan)
            prepare(emitted.id)
            self._write(_Stored(emitted.id, (*held.pending, emitted)))
        return emitted.barrier

    def emit_control(self, kind: SignalKind) -> Signal:
        """A new signal for the control channel; the caller delivers it."""
        require_channel(kind, Channel.CONTROL)
        with self._lock:
            held = self._read()
            self._write(replace(held, last=held.last + 1))
        return kind.with_id(held.last + 1)

    def carried(self, id: int) -> None:
        """An epoch with barrier `id` is committed: forget it and those before it."""
        with self._lock:
            held = self._read()
            left = tuple(e for e in held.pending if e.id > id)
            if left != held.pending:
                self._write(replace(held, pending=left))

    def pending(self, after: int) -> tuple[Emitted, ...]:
        """The barriers with a higher id than `after`, in order. Raises StateDamaged when that id was never given: new
        signals would have ids that no epoch waits for."""
        held = self._read()
        if held.last < after:
            raise damaged(self._path, f"is missing or old: it knows ids up to {held.last}, and {after} was used")
        return tuple(e for e in held.pending if e.id > after)

    def _read(self) -> _Stored:
        return stored(_Stored, self._path) or _Stored()

    def _write(self, signals: _Stored) -> None:
        with state_errors(self._path):
            private_directory(self._path.parent)
        store(self._path, signals)


def next_cut(pending: tuple[Emitted, ...], plan: int) -> tuple[int, Emitted | None]:
    """The plan version and the barrier of the next epoch, when `plan` is the newest version.

    An epoch carries at most one barrier, the oldest that its plan allows. A plan that a later barrier waits for is left
    to that barrier's epoch: what ends with the barrier must not get rows that come behind it, nor lose any before.
    """
    due = [e for e in pending if e.plan <= plan]
    later = [e.plan - 1 for e in due[1:] if e.plan]
    return min([plan, *later]), due[0] if due else None
