"""What a control signal is: one table of kinds, each in exactly one channel.

An `Instant` is acted on where it arrives. A `Barrier` is a synchronisation point: a fan-in passes it on only when every
input has brought it (`headrace.control.barrier`). Callers name a kind; the stream's counter (`headrace.control.log`)
gives it an id, one counter for both channels. The exception is `epoch`, the barrier that ends every epoch: its id is
the epoch's own number.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from headrace.errors import InternalError, WrongChannel


class Channel(StrEnum):
    """Where a signal travels. Nothing ever changes over from one to the other."""

    DATA = "data"  # in band: behind the rows of the epoch that it ends
    CONTROL = "control"  # out of band: from the hub to the committers


@dataclass(frozen=True, slots=True)
class SignalKind:
    """A kind of signal, before it has an id."""

    name: str
    form: Literal["barrier", "instant"]
    channel: Channel
    terminal: bool
    meaning: str

    def with_id(self, id: int) -> Signal:
        """The signal itself."""
        return Barrier(self.name, id) if self.form == "barrier" else Instant(self.name, id)


EPOCH = SignalKind("epoch", "barrier", Channel.DATA, False, "an epoch is over; its id is the epoch's number")
SYNC_TEST = SignalKind("sync_test", "barrier", Channel.DATA, False, "does nothing; shows that all have come this far")
SAVEPOINT = SignalKind("savepoint", "barrier", Channel.DATA, False, "the stream stands still here to be copied")
GRACEFUL_END = SignalKind("graceful_end", "barrier", Channel.DATA, True, "a pipeline ends after all rows before it")
FLUSH = SignalKind("flush", "barrier", Channel.CONTROL, False, "all that sinks and gateway were given is durable")
QUICK_END = SignalKind(
    "quick_end", "instant", Channel.CONTROL, True, "a pipeline ends now; its epoch in flight is lost"
)
PING = SignalKind("ping", "instant", Channel.CONTROL, False, "asks for an answer")

KINDS = {kind.name: kind for kind in (EPOCH, SYNC_TEST, SAVEPOINT, GRACEFUL_END, FLUSH, QUICK_END, PING)}


@dataclass(frozen=True, slots=True)
class _Signal:
    kind: str
    id: int

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InternalError(f"there is no kind of signal {self.kind}")
        if KINDS[self.kind].form != type(self).__name__.lower():
            raise InternalError(f"{self.kind} is no {type(self).__name__.lower()}")

    @property
    def channel(self) -> Channel:
        """The one channel that signals of this kind travel in."""
        return KINDS[self.kind].channel

    @property
    def is_terminal(self) -> bool:
        """Whether who sees it stops."""
        return KINDS[self.kind].terminal

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


@dataclass(frozen=True, slots=True)
class Instant(_Signal):
    """A signal that is acted on at once, without waiting for anybody."""


@dataclass(frozen=True, slots=True)
class Barrier(_Signal):
    """A signal that a fan-in passes on when all its inputs have brought it."""


Signal = Barrier | Instant


def require_channel(signal: Signal | SignalKind, channel: Channel) -> None:
    """Raise WrongChannel unless the signal travels in `channel`."""
    if signal.channel is not channel:
        raise WrongChannel(
            f"{signal.name if isinstance(signal, SignalKind) else signal} belongs in the {signal.channel} channel, "
            f"not in the {channel} channel",
            advice="This is a defect of headrace: please report it.",
            channel=channel.value,
        )
