"""Alignment at a fan-in: a barrier goes on when every input has brought it, exactly once.

`BarrierAligner` is a pure state machine: no I/O, no threads, no clock but the one it is given. It knows its inputs by
name, so everything that can be wrong with them is an error that names them. A fan-in point of two channels has one
aligner for each, which share nothing.

Rows pass unchanged. By default they pass at once; with `blocking`, what comes from an input behind a barrier waits
until the others have brought it too, so that everything before the barrier has passed before anything behind it: a
consistent cut. Signals that are instant pass at once in any case.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from headrace.control.signals import EPOCH, Barrier, Channel, Instant, Signal, require_channel
from headrace.errors import (
    BarrierOverlap,
    DuplicateBarrier,
    InternalError,
    MissingInput,
    SurplusBarrier,
    UnknownInput,
)

T = TypeVar("T")
_DEFECT = "This is a defect of headrace; the epoch is not committed and will be run again."


class BarrierAligner(Generic[T]):
    """The alignment of one channel at one fan-in. `where` names it in errors; `limit` is how long, in seconds of
    `clock`, a barrier may wait for its last input before `check_time` calls it missing: from its first arrival on, or
    from when it is expected."""

    def __init__(
        self,
        where: str,
        inputs: Iterable[str],
        channel: Channel = Channel.DATA,
        *,
        blocking: bool = False,
        limit: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.where, self.channel, self.blocking = where, channel, blocking
        self.inputs = tuple(inputs)
        if not self.inputs or len(set(self.inputs)) != len(self.inputs):
            raise InternalError(f"{where} has no inputs, or two of one name: {self.inputs}")
        self._limit, self._clock = limit, clock
        self._pending: Barrier | None = None
        self._since = 0.0
        self._arrived: set[str] = set()
        self._done: Barrier | None = None
        self._held: dict[str, deque[T | Signal]] = {name: deque() for name in self.inputs}

    @property
    def pending(self) -> Barrier | None:
        """The barrier that some inputs have brought and others have not."""
        return self._pending

    @property
    def missing(self) -> tuple[str, ...]:
        """The inputs that the pending barrier waits for."""
        return tuple(n for n in self.inputs if n not in self._arrived) if self._pending else ()

    @property
    def ended(self) -> bool:
        """Whether a terminal barrier is complete."""
        return self._done is not None and self._done.is_terminal

    def offer(self, name: str, item: T | Signal) -> list[T | Signal]:
        """Take what input `name` brings next; what goes on because of it, in order."""
        if name not in self._held:
            raise UnknownInput(f"{self.where} has no input {name}", **self._about(input=name))
        if isinstance(item, Barrier | Instant):
            require_channel(item, self.channel)
            if isinstance(item, Instant):
                return [item]
        if self.ended:
            raise SurplusBarrier(
                f"{name} brings {_show(item)} after {self._done} ended {self.where}", **self._about(input=name)
            )
        if name in self._arrived and item == self._pending:
            raise DuplicateBarrier(f"{name} brought {item} to {self.where} twice", **self._about(input=name))
        if self.blocking and name in self._arrived:
            self._held[name].append(item)
            return []
        return self._barrier(name, item) if isinstance(item, Barrier) else [item]

    def _barrier(self, name: str, barrier: Barrier) -> list[T | Signal]:
        if self._pending is None:
            if self._done is not None and _not_after(barrier, self._done):
                raise SurplusBarrier(
                    f"{name} brings {barrier} to {self.where} when all {len(self.inputs)} inputs have brought "
                    f"{self._done}",
                    **self._about(input=name),
                )
            self._pending, self._since = barrier, self._clock()
        elif barrier != self._pending:
            raise BarrierOverlap(
                f"{name} brings {barrier} to {self.where} while {self._pending} waits for {', '.join(self.missing)}",
                **self._about(input=name, missing=list(self.missing)),
            )
        self._arrived.add(name)
        return [] if self.missing else self._complete(barrier)

    def _complete(self, barrier: Barrier) -> list[T | Signal]:
        self._pending, self._done = None, barrier
        self._arrived.clear()
        passed: list[T | Signal] = [barrier]
        for name in self.inputs:
            waiting, self._held[name] = self._held[name], deque()
            for item in waiting:
                passed += self.offer(name, item)
        return passed

    def expect(self, barrier: Barrier) -> None:
        """Begin to wait for a barrier that nobody has brought yet."""
        if self._pending is not None or self.ended:
            raise InternalError(f"{self.where} cannot expect {barrier} while {self._pending or self._done} is there")
        self._pending, self._since = barrier, self._clock()

    def time_left(self) -> float:
        """How long the pending barrier may still wait, never less than 0; without one, or a limit, for ever."""
        if self._pending is None or self._limit is None:
            return math.inf
        return max(0.0, self._since + self._limit - self._clock())

    def check_time(self) -> None:
        """Raise MissingInput when the pending barrier has waited longer than the limit."""
        if self._pending and self._limit is not None and self._clock() - self._since > self._limit:
            raise self._missing(self._pending, self.missing)

    def require(self, barrier: Barrier) -> None:
        """Raise MissingInput unless `barrier` is complete. For a fan-in that has read all its inputs to their end."""
        if self._done != barrier:
            raise self._missing(barrier, self.missing if self._pending == barrier else self.inputs)

    def _missing(self, barrier: Barrier, names: tuple[str, ...]) -> MissingInput:
        said = f"{self.where} did not get {barrier} from {', '.join(names)}"
        return MissingInput(said, **self._about(missing=list(names)))

    def _about(self, **more: object) -> dict[str, Any]:
        return {"advice": _DEFECT, "where": self.where, "channel": self.channel.value, **more}


def align(where: str, what: str, count: int, arrived: Iterable[tuple[int, Barrier]], wanted: Barrier) -> None:
    """Align numbered inputs that have been read to their end. Raises what is wrong, with names such as "task 3"."""
    aligner: BarrierAligner[None] = BarrierAligner(where, [f"{what} {i}" for i in range(count)])
    for number, barrier in arrived:
        aligner.offer(f"{what} {number}", barrier)
    aligner.require(wanted)


def _show(item: object) -> str:
    return str(item) if isinstance(item, Barrier) else "rows"


def _not_after(barrier: Barrier, done: Barrier) -> bool:
    """Whether ids say that `barrier` is not newer than `done`. Epochs count by themselves, all others together."""
    return (barrier.kind == EPOCH.name) == (done.kind == EPOCH.name) and barrier.id <= done.id
