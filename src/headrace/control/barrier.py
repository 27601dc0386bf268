"""Barrier alignment at a fan-in: a barrier passes when every input has delivered it, exactly once.

`BarrierAligner` is a pure state machine: no I/O, no threads, no clock but the one it is given. It knows its inputs by
name, and every protocol error names the input. A fan-in for both channels has one aligner per channel.

Rows pass unchanged. By default they pass at once. With `blocking`, rows that an input delivers after a barrier wait
until all other inputs have delivered that barrier. All rows before the barrier then pass before any row after it: a
consistent cut. Instants always pass at once.
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
_DEFECT = "This is a bug in headrace. The epoch is not committed and will run again."


class BarrierAligner(Generic[T]):
    """Aligns the barriers of one channel at one fan-in. Errors name the fan-in as `where`.

    `limit` is how many seconds of `clock` a barrier may wait for its last input. The time starts with the barrier's
    first arrival or with `expect`. `check_time` raises when it is over."""

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
            raise InternalError(f"{where} needs inputs with different names, got {self.inputs}")
        self._limit, self._clock = limit, clock
        self._pending: Barrier | None = None
        self._since = 0.0
        self._arrived: set[str] = set()
        self._done: Barrier | None = None
        self._held: dict[str, deque[T | Signal]] = {name: deque() for name in self.inputs}

    @property
    def pending(self) -> Barrier | None:
        """The barrier that some inputs, but not all, have delivered."""
        return self._pending

    @property
    def missing(self) -> tuple[str, ...]:
        """The inputs that have not delivered the pending barrier."""
        return tuple(n for n in self.inputs if n not in self._arrived) if self._pending else ()

    @property
    def ended(self) -> bool:
        """True after a terminal barrier has passed."""
        return self._done is not None and self._done.is_terminal

    def offer(self, name: str, item: T | Signal) -> list[T | Signal]:
        """Take the next item of input `name`. Returns the items that pass now, in order."""
        if name not in self._held:
            raise UnknownInput(f"{self.where} has no input {name}", **self._about(input=name))
        if isinstance(item, Barrier | Instant):
            require_channel(item, self.channel)
            if isinstance(item, Instant):
                return [item]
        if self.ended:
            raise SurplusBarrier(
                f"{name} delivered {_show(item)} after {self._done} ended {self.where}", **self._about(input=name)
            )
        if name in self._arrived and item == self._pending:
            raise DuplicateBarrier(f"{name} delivered {item} to {self.where} twice", **self._about(input=name))
        if self.blocking and name in self._arrived:
            self._held[name].append(item)
            return []
        return self._barrier(name, item) if isinstance(item, Barrier) else [item]

    def _barrier(self, name: str, barrier: Barrier) -> list[T | Signal]:
        if self._pending is None:
            if self._done is not None and _not_after(barrier, self._done):
                raise SurplusBarrier(
                    f"{name} delivered {barrier} to {self.where} after all {len(self.inputs)} inputs delivered "
                    f"{self._done}",
                    **self._about(input=name),
                )
            self._pending, self._since = barrier, self._clock()
        elif barrier != self._pending:
            raise BarrierOverlap(
                f"{name} delivered {barrier} to {self.where} while {self._pending} waits for {', '.join(self.missing)}",
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
        """Start waiting for a barrier that no input has delivered yet."""
        if self._pending is not None or self.ended:
            raise InternalError(
                f"{self.where} cannot expect {barrier}: {self._pending or self._done} is pending or final"
            )
        self._pending, self._since = barrier, self._clock()

    def time_left(self) -> float:
        """Seconds that the pending barrier may still wait, at least 0. Infinite without a barrier or a limit."""
        if self._pending is None or self._limit is None:
            return math.inf
        return max(0.0, self._since + self._limit - self._clock())

    def check_time(self) -> None:
        """Raise MissingInput if the pending barrier has waited longer than the limit."""
        if self._pending and self._limit is not None and self._clock() - self._since > self._limit:
            raise self._missing(self._pending, self.missing)

    def require(self, barrier: Barrier) -> None:
        """Raise MissingInput unless `barrier` has passed. For a fan-in that has read all its inputs to the end."""
        if self._done != barrier:
            raise self._missing(barrier, self.missing if self._pending == barrier else self.inputs)

    def _missing(self, barrier: Barrier, names: tuple[str, ...]) -> MissingInput:
        said = f"{self.where} did not get {barrier} from {', '.join(names)}"
        return MissingInput(said, **self._about(missing=list(names)))

    def _about(self, **more: object) -> dict[str, Any]:
        return {"advice": _DEFECT, "where": self.where, "channel": self.channel.value, **more}


def align(where: str, what: str, count: int, arrived: Iterable[tuple[int, Barrier]], wanted: Barrier) -> None:
    """Align numbered inputs that were read to the end. Errors name an input as in "task 3"."""
    arrived = list(arrived)
    # Nearly always each has delivered the wanted barrier once. Hundreds of pipelines are aligned in every epoch.
    if sorted(number for number, _ in arrived) == list(range(count)) and all(b == wanted for _, b in arrived):
        return
    aligner: BarrierAligner[None] = BarrierAligner(where, [f"{what} {i}" for i in range(count)])
    for number, barrier in arrived:
        aligner.offer(f"{what} {number}", barrier)
    aligner.require(wanted)


def _show(item: object) -> str:
    return str(item) if isinstance(item, Barrier) else "rows"


def _not_after(barrier: Barrier, done: Barrier) -> bool:
    """True if `barrier` is not newer than `done`. Epoch barriers have their own ids; all other kinds share a
    counter."""
    return (barrier.kind == EPOCH.name) == (done.kind == EPOCH.name) and barrier.id <= done.id
