"""What a stream's ingress and its connections know of each other."""

from __future__ import annotations

from typing import Protocol

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
    record is thrown away. `total` is how many bytes came."""

    __slots__ = ("_from", "counters", "dropped", "number", "open", "sequence", "skip", "state", "stretches", "total")

    def __init__(self, number: int, counters: dict[str, int]) -> None:
        self.number, self.counters = number, counters
        self.sequence = self.state = self.open = self.total = 0
        self.skip = KEEP
        self.dropped = 0  # records
        # What was dropped and not reported yet, as [begin, end, records]; None if nobody will be told.
        self.stretches: list[list[int]] | None = None
        self._from = 0  # with skip DROPPED: where the record begins that is being dropped

    def drop(self, begin: int, end: int, records: int, open_end: bool) -> None:
        """The bytes from `begin` to `end` of the connection are dropped, and with them the end of so many records. With
        `open_end` the next record is dropped too, as far as it is not here."""
        if records:
            self.dropped += records
            if self.stretches and self.stretches[-1][1] == begin:
                self.stretches[-1][1] = end
                self.stretches[-1][2] += records
            elif self.stretches is not None:
                self.stretches.append([begin, end, records])
        if open_end:
            self._from = end

    def finish_drop(self, end: int) -> None:
        """The record that is being dropped ends at `end`."""
        self.drop(self._from, end, 1, open_end=False)

    @property
    def settled(self) -> int:
        """How many bytes of the connection were taken or dropped for good: of a record that is being dropped, none."""
        return self._from if self.skip == DROPPED else self.total
