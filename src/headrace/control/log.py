"""The stream's signals on disk: the counter for their ids, and the barriers that no epoch has carried yet.

The hub writes this log, and the planning process reads it. Both channels share one counter. It is durable before an id
is used, so no id is used twice, even after a crash. A barrier may name a plan version: the first epoch with that plan
then carries it.
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
    """A barrier that waits for an epoch. `plan` is the first plan version whose epoch may carry it."""

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
    """The signals of one stream. Any thread of the hub may emit; any process may read."""

    def __init__(self, stream_dir: Path) -> None:
        self._path = stream_dir / "signals.json"
        self._lock = threading.Lock()

    def emit_data(self, kind: SignalKind, plan: int = 0, prepare: Callable[[int], None] = lambda id: None) -> Barrier:
        """Emit a barrier into the data channel. The next epoch that may carry it does; an epoch carries one barrier.
        `prepare` is called with the id before any epoch can carry the barrier."""
        require_channel(kind, Channel.DATA)
        with self._lock:
            held = self._read()
            emitted = Emitted(kind.name, held.last + 1, plan)
            prepare(emitted.id)
            self._write(_Stored(emitted.id, (*held.pending, emitted)))
        return emitted.barrier

    def emit_control(self, kind: SignalKind) -> Signal:
        """Make a signal for the control channel. The caller delivers it."""
        require_channel(kind, Channel.CONTROL)
        with self._lock:
            held = self._read()
            self._write(replace(held, last=held.last + 1))
        return kind.with_id(held.last + 1)

    def carried(self, id: int) -> None:
        """Forget barrier `id` and all earlier ones: an epoch with it is committed."""
        with self._lock:
            held = self._read()
            left = tuple(e for e in held.pending if e.id > id)
            if left != held.pending:
                self._write(replace(held, pending=left))

    def pending(self, after: int) -> tuple[Emitted, ...]:
        """The barriers with a higher id than `after`, in order. Raises StateDamaged if `after` was never assigned: new
        signals would then get ids that committed epochs have used."""
        held = self._read()
        if held.last < after:
            raise damaged(self._path, f"is missing or old: it has ids up to {held.last}, but {after} was used")
        return tuple(e for e in held.pending if e.id > after)

    def _read(self) -> _Stored:
        return stored(_Stored, self._path) or _Stored()

    def _write(self, signals: _Stored) -> None:
        with state_errors(self._path):
            private_directory(self._path.parent)
        store(self._path, signals)


def next_cut(pending: tuple[Emitted, ...], plan: int) -> tuple[int, Emitted | None]:
    """The plan version and the barrier of the next epoch, when `plan` is the newest version.

    An epoch carries at most one barrier, the oldest that its plan allows. A plan version that a later barrier names
    starts with that barrier's epoch: a pipeline that ends with the barrier must get every row before it and none after.
    """
    due = [e for e in pending if e.plan <= plan]
    later = [e.plan - 1 for e in due[1:] if e.plan]
    return min([plan, *later]), due[0] if due else None
