"""What a stream's ingress and its connections know of each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

# Why the rest of a record is thrown away: not at all, because it is too long, because it was dropped under overload.
KEEP, LONG, DROPPED = 0, 1, 2


class Peer(Protocol):
    """A connection, as the stream sees it."""

    origin: Origin

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def expire(self, now: float) -> None:
        """Close if idle."""
        ...

    def abort(self) -> None:
        """Close: the gateway stops."""
        ...


class Origin:
    """The bytes of one connection. `open` counts those of the record that has not ended; `skip` says why the rest of a
    record is thrown away."""

    __slots__ = ("counters", "number", "open", "sequence", "skip", "state", "total")

    def __init__(self, number: int, counters: dict[str, int]) -> None:
        self.number, self.counters = number, counters
        self.sequence = self.state = self.open = self.total = 0
        self.skip = KEEP


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of a pushed stream that concern the journal."""

    strategy: Literal["pause", "drop", "spill"]
    max_journal_bytes: int
    max_spill_bytes: int
    fsync: Literal["always", "second", "never"]
    max_connections: int
    keep_last: bool

    @staticmethod
    def of(values: dict[str, Any]) -> Settings:
        spills = values["backpressure"] == "spill"
        return Settings(
            values["backpressure"], values["max_journal_bytes"], values["max_spill_bytes"] if spills else 0,
            values["fsync"], values["max_connections"], values.get("last_record", "drop") == "keep",
        )  # fmt: skip
