"""One pushed stream inside the gateway: its journal, its connections, and backpressure when its readers are too slow.

Protocols (`headrace.ingress.tcp`, `headrace.ingress.http`) only do I/O: they read into the memory of `Journal.room` and
report how many bytes arrived. This module turns the bytes into buffers of an origin. It removes records that are too
long, or that overload drops, at record boundaries. So all other records stay complete, and every lost one is
counted. `headrace.ingress.flusher` writes the buffers and sends the acknowledgements."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from headrace.formats import FORMATS
from headrace.ingress.backpressure import Admission, Backpressure, Limits
from headrace.ingress.delimiting import Delimiting, Found, finder_of
from headrace.ingress.flusher import JournalFlusher
from headrace.ingress.journal import Journal
from headrace.ingress.peers import DROPPED, KEEP, LONG, Origin, Peer
from headrace.ingress.pending_acks import Settle
from headrace.ingress.senders import Senders
from headrace.ingress.settings import JournalSettings, PushSettings
from headrace.model.definitions import StreamDef


class StreamIngress:
    """The ingress of one stream; see the module. Runs in the event loop's thread. Another thread opened the journal."""

    def __init__(
        self, stream: StreamDef, journal: Journal, settings: JournalSettings, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.stream, self.settings, self.loop = stream, settings, loop
        fmt = FORMATS[stream.format].make(stream.record_schema, stream.options)
        # Messages have their own boundaries, so this finder is never used for them.
        finder = Delimiting.of_token(b"\n") if not isinstance(settings, PushSettings) else finder_of(fmt)
        assert finder is not None, "the source's check refuses such formats"
        self.finder: Delimiting = finder
        # A longer record is bad in any case. Of an endless one, just enough is kept for the format to reject it.
        self.longest = fmt.max_record_bytes + len(finder.delimiter) + 1
        limit = settings.max_journal_bytes
        self.journal = journal
        if stream.metadata and isinstance(settings, PushSettings):
            journal.peers = {}
        self.counters = self.journal.counters
        self.pressure = Backpressure(Limits(settings.backpressure, limit, settings.spill_bytes), size=self.journal.held)
        self._senders = Senders(loop)
        self.flusher = JournalFlusher(
            journal=journal, fsync=settings.fsync, pressure=self.pressure, senders=self._senders, loop=loop
        )
        self._next, self._first = 0, self.journal.number  # a journal gets a new number each time it is opened

    # --- connections ------------------------------------------------------------------------------

    @property
    def peers(self) -> set[Peer]:
        """The connections."""
        return self._senders.peers

    @property
    def paused(self) -> bool:
        """True while nothing is read from the connections."""
        return self._senders.paused

    @property
    def max_connections(self) -> int:
        """How many connections may send to the stream. A stream that connects by itself has no limit."""
        return self.settings.max_connections if isinstance(self.settings, PushSettings) else 1 << 20

    def admit(self, peer: Peer, kind: str, name: str = "") -> bool:
        """Register a new connection. `name` is the address of its other side. False if there are too many."""
        counters = self.counters.of(kind)
        if len(self.peers) >= self.max_connections:
            counters["refused"] += 1
            return False
        peer.origin = self.begin_origin(kind, name)
        counters["opened"] += 1
        self._senders.add(peer)
        return True

    def leave(self, peer: Peer, clean: bool) -> None:
        """Remove a connection. Its last record without a delimiter is kept if the stream is configured so and the peer
        closed cleanly."""
        if peer not in self.peers:
            return
        self.peers.remove(peer)
        origin = peer.origin
        origin.counters["closed"] += 1
        if origin.open and clean and self.settings.keep_last:
            self._end_record(origin)
        elif origin.open or origin.skip == DROPPED:
            origin.counters["cut_records"] += 1
            origin.counters["cut_bytes"] += origin.open
        self.end_origin(origin)

    def begin_origin(self, kind: str, name: str = "") -> Origin:
        """A new origin. Its number is never used again in this journal. `name` is the address of its other side."""
        self._next += 1
        number = (self._first << 32) + self._next
        if self.journal.peers is not None and name:
            self.journal.peers[number] = name
        return Origin(number, self.counters.of(kind))

    def end_origin(self, origin: Origin) -> None:
        """End an origin: it sends no more bytes."""
        self.flusher.end_origin(origin.number)

    @property
    def open(self) -> bool:
        """True if the stream accepts more bytes."""
        return self.pressure.open and not (self.paused or self.flusher.closed or self.journal.problem)

    # --- bytes ------------------------------------------------------------------------------------

    def received(self, origin: Origin, count: int) -> None:
        """Process `count` bytes of `origin`, which are in the memory that `journal.room` returned."""
        self.flusher.arrived()
        origin.total += count
        if origin.skip != KEEP:
            count = self._skip(origin, count)
        if count:
            arena, start = self.journal.incoming
            found = self.finder.search(arena, start, start + count, origin.state)
            if self.pressure.offer(count) is Admission.DROP:
                self._drop(origin, count, found)
            else:
                self._take(origin, count, found)
        self.flusher.schedule()

    def _take(self, origin: Origin, count: int, found: Found) -> None:
        if not self.pressure.open:  # refused, but already read from the socket: take it and stop reading
            self.pressure.offer(count, control=True)
            self._senders.pause()
        origin.sequence += 1
        self.journal.append(
            origin=origin.number, sequence=origin.sequence, length=count, first=found.first, last=found.last
        )
        origin.counters["buffers"] += 1
        origin.counters["bytes"] += count
        origin.state = found.state
        origin.open = count - found.last if found.last >= 0 else origin.open + count
        if origin.open > self.longest:
            self._end_record(origin)
            origin.skip = LONG
            origin.counters["long"] += 1
        if self.journal.problem:
            self._senders.pause()

    def _skip(self, origin: Origin, count: int) -> int:
        """Discard the rest of a record. Returns the number of bytes after it, which move to the start of the room."""
        arena, start = self.journal.incoming
        found = self.finder.search(arena, start, start + count, origin.state)
        gone = count if found.first < 0 else found.first
        if origin.skip == DROPPED:
            origin.counters["dropped_bytes"] += gone
            origin.counters["dropped_records"] += found.first >= 0
            if found.first >= 0:
                origin.finish_drop(origin.total - count + gone)
        if found.first < 0:
            origin.state = found.state
            return 0
        origin.state, origin.skip = 0, KEEP
        arena[start : start + count - gone] = arena[start + gone : start + count]
        return count - gone

    def _drop(self, origin: Origin, count: int, found: Found) -> None:
        """Keep the bytes that complete the unfinished record. Drop the others: complete records, and the beginning of
        the next one."""
        arena, start = self.journal.incoming
        kept = 0
        if origin.open:
            kept = found.first if found.first >= 0 else count
        dropped = self.finder.count(arena, start + kept, start + count, 0 if kept else origin.state)
        origin.counters["dropped_records"] += dropped
        origin.counters["dropped_bytes"] += count - kept
        if kept:
            self.pressure.offer(kept, control=True)
            ended = found.first >= 0
            self._take(origin, kept, Found(kept, kept, 1, 0) if ended else Found(-1, -1, 0, found.state))
        if kept < count:
            begin, end = origin.total - count + kept, origin.total - count + max(found.last, kept)
            open_end = max(found.last, 0) < count
            origin.drop(begin, end, dropped, open_end)
            origin.skip, origin.state = (DROPPED, found.state) if open_end else (KEEP, 0)

    def _end_record(self, origin: Origin) -> None:
        """Append an empty buffer that ends the unfinished record."""
        origin.sequence += 1
        self.journal.put(origin=origin.number, sequence=origin.sequence, data=b"", first=0, last=0, ends=True)
        origin.open = origin.state = 0

    def take_body(self, origin: Origin, body: bytes | bytearray, done: Callable[[], None]) -> bool:
        """Take a complete request, whose end ends its last record. Calls `done` when it is safe in the journal. Returns
        False, without effect, if there is no space."""
        if not self.open or self.pressure.offer(len(body)) in (Admission.DROP, Admission.PAUSE):
            return False
        self.flusher.arrived()
        self.whole(origin, body)
        self.flusher.acknowledge(lambda: done)
        return True

    def take_messages(self, origin: Origin, frames: bytes, count: int, settle: Settle) -> None:
        """Take messages, as `headrace.ingress.frames` makes them. Calls `settle` when they are in the journal or
        dropped, and what it returns when that is safe. They are taken even when there is no space and senders should
        pause: the peer has them already, and is paused."""
        self.flusher.arrived()
        admission = self.pressure.offer(len(frames))
        if admission is Admission.DROP:
            origin.counters["dropped_records"] += count
            origin.counters["dropped_bytes"] += len(frames)
        else:
            if admission is Admission.PAUSE:
                self.pressure.offer(len(frames), control=True)
                self._senders.pause()
            origin.sequence += 1
            end = len(frames)
            self.journal.put(origin=origin.number, sequence=origin.sequence, data=frames, first=end, last=end)
            origin.counters["buffers"] += 1
            origin.counters["bytes"] += end
            origin.counters["requests"] += count
            if self.journal.problem:
                self._senders.pause()
        self.flusher.acknowledge(settle)

    def whole(self, origin: Origin, body: bytes | bytearray) -> None:
        """Append bytes that are complete records."""
        plain = self.finder.states == len(self.finder.delimiter)
        if plain and not body.endswith(self.finder.delimiter):
            body += self.finder.delimiter
            self.pressure.offer(len(self.finder.delimiter), control=True)
        found = self.finder.search(body, 0, len(body), 0)
        first = found.first if found.first >= 0 else len(body)
        origin.sequence += 1
        self.journal.put(
            origin=origin.number,
            sequence=origin.sequence,
            data=body,
            first=first,
            last=len(body),
            ends=found.last != len(body),
        )
        origin.counters["buffers"] += 1
        origin.counters["bytes"] += len(body)

    # --- the end ----------------------------------------------------------------------------------

    def metrics(self) -> dict[str, Any]:
        """The facts that DESCRIBE STREAM shows."""
        return {
            "classes": self.counters.used(),
            "state": "paused" if self.paused else self.pressure.state,
            "journal_bytes": self.journal.held,
            "journal_limit": self.pressure.limits.total,
            "spill_bytes": self.pressure.spilled,
            "disk_bytes": self.journal.disk_bytes,
            "pauses": self.pressure.pauses,
            "lost_bytes": self.journal.lost_bytes,
            "problem": self.journal.problem,
        }

    async def close(self) -> None:
        """Flush and close the journal. Called after all connections are gone."""
        self._senders.close()
        await self.flusher.close()
