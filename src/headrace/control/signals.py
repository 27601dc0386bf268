"""The signals of a stream: one table of kinds, each in exactly one channel.

The receiver acts on an `Instant` when it arrives. A `Barrier` is a synchronization point: a fan-in passes it on when
every input has delivered it (`headrace.control.barrier`). Callers choose a kind, and the stream's counter
(`headrace.control.log`) assigns the id. Both channels share that counter. The exception is `epoch`, the barrier that
ends every epoch: its id is the number of the epoch. docs/design/2026-11-16-control.md explains the two channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from headrace.errors import InternalError, WrongChannel


class Channel(StrEnum):
    """Where a signal travels. A signal never changes its channel."""

    DATA = "data"  # in band: after the rows of the epoch that it ends
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
        """The signal of this kind with an id."""
        return Barrier(self.name, id) if self.form == "barrier" else Instant(self.name, id)


EPOCH = SignalKind(
    name="epoch",
    form="barrier",
    channel=Channel.DATA,
    terminal=False,
    meaning="an epoch is over; its id is the epoch's number",
)
SYNC_TEST = SignalKind(
    name="sync_test",
    form="barrier",
    channel=Channel.DATA,
    terminal=False,
    meaning="no effect; proves that all tasks and lanes got this far",
)
SAVEPOINT = SignalKind(
    name="savepoint",
    form="barrier",
    channel=Channel.DATA,
    terminal=False,
    meaning="the stream pauses here while it is copied",
)
GRACEFUL_END = SignalKind(
    name="graceful_end",
    form="barrier",
    channel=Channel.DATA,
    terminal=True,
    meaning="a pipeline ends after the rows before this barrier",
)
FLUSH = SignalKind(
    name="flush",
    form="barrier",
    channel=Channel.CONTROL,
    terminal=False,
    meaning="all data given to sinks and gateway is durable",
)
QUICK_END = SignalKind(
    name="quick_end",
    form="instant",
    channel=Channel.CONTROL,
    terminal=True,
    meaning="a pipeline ends now; its uncommitted epoch is discarded",
)
PING = SignalKind(
    name="ping", form="instant", channel=Channel.CONTROL, terminal=False, meaning="requests an acknowledgement"
)

KINDS = {kind.name: kind for kind in (EPOCH, SYNC_TEST, SAVEPOINT, GRACEFUL_END, FLUSH, QUICK_END, PING)}


@dataclass(frozen=True, slots=True)
class _SignalBase:
    kind: str
    id: int

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InternalError(f"there is no kind of signal {self.kind}")
        if KINDS[self.kind].form != type(self).__name__.lower():
            raise InternalError(f"{self.kind} is no {type(self).__name__.lower()}")

    @property
    def channel(self) -> Channel:
        """The channel of this kind of signal."""
        return KINDS[self.kind].channel

    @property
    def is_terminal(self) -> bool:
        """True if the receiver stops after this signal."""
        return KINDS[self.kind].terminal

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


@dataclass(frozen=True, slots=True)
class Instant(_SignalBase):
    """A signal that takes effect where it arrives, without alignment."""


@dataclass(frozen=True, slots=True)
class Barrier(_SignalBase):
    """A signal that a fan-in passes on when all its inputs have delivered it."""


Signal = Barrier | Instant


def require_channel(signal: Signal | SignalKind, channel: Channel) -> None:
    """Raise WrongChannel unless the signal travels in `channel`."""
    if signal.channel is not channel:
        raise WrongChannel(
            f"{signal.name if isinstance(signal, SignalKind) else signal} belongs in the {signal.channel} channel, "
            f"not in the {channel} channel",
            advice="This is a bug in headrace: please report it.",
            channel=channel.value,
        )
