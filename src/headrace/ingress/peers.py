"""The interface between a stream's ingress and its connections."""

from __future__ import annotations

from typing import Protocol

# Why the rest of a record is discarded: it is not; the record is too long; the record was dropped under overload.
KEEP, LONG, DROPPED = 0, 1, 2


class Peer(Protocol):
    """The part of a connection that the stream uses."""

    origin: Origin

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def expire(self, now: float) -> None:
        """Close if idle."""
        ...

    def abort(self) -> None:
        """Close, because the gateway stops."""
        ...


class Origin:
    """The bytes of one connection. `open` counts the bytes of the unfinished record, `total` all received bytes. `skip`
    says why the rest of a record is discarded."""

    __slots__ = ("_from", "counters", "dropped", "number", "open", "sequence", "skip", "state", "stretches", "total")

    def __init__(self, number: int, counters: dict[str, int]) -> None:
        self.number, self.counters = number, counters
        self.sequence = self.state = self.open = self.total = 0
        self.skip = KEEP
        self.dropped = 0  # records
        # Dropped stretches that are not acknowledged yet, as [begin, end, records]; None without acknowledgements.
        self.stretches: list[list[int]] | None = None
        self._from = 0  # with skip DROPPED: the beginning of the record that is being dropped

    def drop(self, begin: int, end: int, records: int, open_end: bool) -> None:
        """Record that bytes [begin, end) of the connection are dropped, in which `records` records end. With `open_end`
        the record that begins at `end` is dropped too, including its bytes that arrive later."""
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
        """Record that the record being dropped ends at `end`."""
        self.drop(self._from, end, 1, open_end=False)

    @property
    def settled(self) -> int:
        """Bytes of the connection that were taken or dropped for good. A record that is still being dropped does not
        count."""
        return self._from if self.skip == DROPPED else self.total
