"""One pushed stream inside the gateway: its journal, its connections, and backpressure when its readers are too slow.

Protocols (`headrace.ingress.tcp`, `headrace.ingress.http`) only do I/O: they read into the memory of `Journal.room` and
report how many bytes arrived. This module turns the bytes into buffers of an origin. It removes records that are too
long, or that overload drops, at record boundaries. So all other records stay complete, and every lost one is
counted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from headrace.formats import FORMATS
from headrace.ingress.backpressure import Admission, Backpressure, Limits
from headrace.ingress.delimiting import Delimiting, Found, finder_of
from headrace.ingress.journal import Journal
from headrace.ingress.journal_sync import Sync
from headrace.ingress.peers import DROPPED, KEEP, LONG, Origin, Peer
from headrace.ingress.pending_acks import PendingAcks, SendAck, Settle, send
from headrace.ingress.settings import JournalSettings, PushSettings
from headrace.model.program import StreamDef

# How long a byte waits for others before it is written. At 150 MB/s, 5 ms are blocks of 750 KB, close to the maximum.
# When a sender waits for a response, a flush follows as soon as an iteration of the event loop brings no more bytes. So
# a single client is answered at once, and one flush answers many waiting clients.
FLUSH_SECONDS = 0.005
POLL_SECONDS = 0.05  # how often the consumers' progress is read
SWEEP_SECONDS = 1.0
SYNC_SECONDS = 1.0
RETRY_SECONDS = 1.0  # after a flush that failed


class StreamIngress:
    """The ingress of one stream; see the module. Runs in the event loop's thread. Another thread opened the journal."""

    def __init__(
        self, stream: StreamDef, journal: Journal, settings: JournalSettings, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.stream, self.settings, self.loop = stream, settings, loop
        fmt = FORMATS[stream.format].make(stream.record_schema, stream.options)
        # Messages have their own boundaries: nobody looks for delimiters in them.
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
        self.peers: set[Peer] = set()
        self._acks = PendingAcks()
        self._closing: list[int] = []
        self._next, self._first = 0, self.journal.number  # a journal gets a new number each time it is opened
        self.paused = self._scheduled = self._closed = False
        self._arrived = 0  # buffers and bodies so far
        self._watching = False  # true while waiting for a loop iteration without new bytes
        self._syncing: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._every(POLL_SECONDS, self._poll)
        self._every(SWEEP_SECONDS, self._sweep)
        self._every(SYNC_SECONDS, self._sync)

    # --- connections ------------------------------------------------------------------------------

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
        self.peers.add(peer)
        if self.paused:
            self.loop.call_soon(
                self._pause_new, peer
            )  # uvloop starts reading after this call, even if it is paused now
        return True

    def _pause_new(self, peer: Peer) -> None:
        if self.paused:
            peer.pause()

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
        self._closing.append(origin.number)
        self.schedule()

    @property
    def open(self) -> bool:
        """True if the stream accepts more bytes."""
        return self.pressure.open and not (self.paused or self._closed or self.journal.problem)

    # --- bytes ------------------------------------------------------------------------------------

    def received(self, origin: Origin, count: int) -> None:
        """Process `count` bytes of `origin`, which are in the memory that `journal.room` returned."""
        self._arrived += 1
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
        self.schedule()

    def _take(self, origin: Origin, count: int, found: Found) -> None:
        if not self.pressure.open:  # refused, but already read from the socket: take it and stop reading
            self.pressure.offer(count, control=True)
            self._pause()
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
            self._pause()

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
        self._arrived += 1
        self.whole(origin, body)
        self.acknowledge(lambda: done)
        return True

    def take_messages(self, origin: Origin, frames: bytes, count: int, settle: Settle) -> None:
        """Take messages, as `headrace.ingress.frames` makes them. Calls `settle` when they are in the journal or
        dropped, and what it returns when that is safe. They are taken even when there is no space and senders should
        pause: the peer has them already, and is paused."""
        self._arrived += 1
        admission = self.pressure.offer(len(frames))
        if admission is Admission.DROP:
            origin.counters["dropped_records"] += count
            origin.counters["dropped_bytes"] += len(frames)
        else:
            if admission is Admission.PAUSE:
                self.pressure.offer(len(frames), control=True)
                self._pause()
            origin.sequence += 1
            end = len(frames)
            self.journal.put(origin=origin.number, sequence=origin.sequence, data=frames, first=end, last=end)
            origin.counters["buffers"] += 1
            origin.counters["bytes"] += end
            origin.counters["requests"] += count
            if self.journal.problem:
                self._pause()
        self.acknowledge(settle)

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

    # --- time -------------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Schedule a flush."""
        if not self._scheduled:
            self._scheduled = True
            self._timer = self.loop.call_later(FLUSH_SECONDS, self._flush)

    def acknowledge(self, settle: Settle) -> None:
        """Call `settle` when everything received so far is in the journal, and what it returns when that is safe. A
        client waits for that, so flush as soon as no more bytes arrive."""
        self._acks.ask(settle)
        self.schedule()
        if not self._watching and not self.journal.problem:
            self._watching = True
            self.loop.call_soon(self._flush_when_quiet, self._arrived)

    def _flush_when_quiet(self, arrived: int) -> None:
        """Flush if the last iteration of the loop brought no bytes. The timer of `schedule` limits the wait."""
        self._watching = False
        if not self._acks.asked or self._closed:
            return
        if self._arrived == arrived:
            self._flush()
        else:
            self._watching = True
            self.loop.call_soon(self._flush_when_quiet, self._arrived)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._scheduled = False
        if self._closed:
            return
        if not self.journal.flush():  # acknowledge nothing
            self._flush_later()
            return
        closing, self._closing = self._closing, []
        lost = sum(map(self.journal.close_origin, closing))
        if lost:
            self.pressure.release(lost)
        self._acks.written()
        if self.settings.fsync == "always":
            self._sync_for_acks()
        else:
            send(self._acks.take())
            self._go_on()

    def _sync_for_acks(self) -> None:
        """Sync what clients wait for, in another thread. What is written meanwhile waits for the next sync, which
        begins when this one ends: so one sync serves many clients when there are many."""
        if self._syncing is not None:
            return
        if self.journal.suspect:
            self._flush_later()
            return
        try:
            sync = self.journal.unsynced()
        except OSError as problem:  # no file handle was left
            self.journal.not_synced(problem)
            self._flush_later()
            return
        # A full disk is no reason to stop here: what was written before can be synced, and the journal forgets the
        # files of a prepared sync.
        taken = self._acks.take()
        if sync is None:  # another sync has covered them
            self._safe(taken)
        else:
            mark = self.journal.mark_is_due()
            self._begin_sync(sync.run, lambda: self._synced_for_acks(sync, taken), True, mark)

    def _synced_for_acks(self, sync: Sync, taken: list[SendAck]) -> None:
        self.journal.synced(sync)
        if sync.problem is not None:
            self._acks.put_back(taken)
            self._flush_later()
        else:
            self._safe(taken)

    def _safe(self, acks: list[SendAck]) -> None:
        send(acks)
        self._go_on()

    def _flush_later(self) -> None:
        """Pause all senders after a problem of the journal, and retry soon: only a flush shows whether the disk works
        again."""
        self._pause()
        if self._retry is None:
            self._retry = self.loop.call_later(RETRY_SECONDS, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self.schedule()

    def _poll(self) -> None:
        held = self.journal.held
        try:
            self.journal.poll()
        finally:
            self.pressure.release(held - self.journal.held)
        if self.journal.problem:
            self._flush_later()
        self._go_on()

    def _go_on(self) -> None:
        if self.paused and self.pressure.open and not self.journal.problem:
            self.paused = False
            for peer in list(self.peers):
                peer.resume()

    def _pause(self) -> None:
        if not self.paused:
            self.paused = True
            for peer in self.peers:
                peer.pause()

    def _sweep(self) -> None:
        now = self.loop.time()
        for peer in [] if self.paused else list(self.peers):
            peer.expire(now)

    async def sync(self) -> None:
        """Write and sync everything received so far. Raises OSError if the disk fails, and JournalDamaged if files of
        the journal were removed."""
        await self._wait_for_sync()
        if not self.journal.flush():
            raise self.journal.damage or OSError(self.journal.problem)
        self._sync(really=True)
        await self._wait_for_sync()
        if self.journal.problem:
            raise OSError(self.journal.problem)

    async def _wait_for_sync(self) -> None:
        while self._syncing is not None:
            await asyncio.wait([self._syncing])

    def _sync(self, really: bool | None = None) -> None:
        """Sync in another thread, so that a slow disk does not delay connections. With fsync = 'never' the files are
        only closed, unless `really` is true."""
        if self._syncing is not None:
            return
        try:
            sync = None if self.journal.suspect else self.journal.unsynced()
        except OSError as problem:
            self._failed_to_sync(problem)
            return
        if sync is not None:
            wanted = self.settings.fsync != "never" if really is None else really
            self._begin_sync(sync.run, lambda: self._synced(sync), wanted)
        elif self.journal.suspect:
            self._begin_sync(self.journal.rewrite, self._go_on)

    def _begin_sync(self, work: Callable[..., None], done: Callable[[], None], *given: bool) -> None:
        def ended(future: asyncio.Future[None]) -> None:
            self._syncing = None
            if future.exception() is None:  # otherwise the journal keeps its problem, and the next turn retries
                done()
            if self._acks.unsafe:
                self._sync_for_acks()

        self._syncing = self.loop.run_in_executor(None, work, *given)
        self._syncing.add_done_callback(ended)

    def _synced(self, sync: Sync) -> None:
        self.journal.synced(sync)
        if self.journal.problem:
            self._pause()

    def _failed_to_sync(self, problem: OSError) -> None:
        """Handle a lack of file handles: nothing is lost, and the next turn retries."""
        self.journal.not_synced(problem)
        self._pause()

    def _every(self, seconds: float, act: Callable[[], None]) -> None:
        def again() -> None:
            self._timers.remove(handle[0])
            turn()
            act()

        def turn() -> None:
            handle[:] = [self.loop.call_later(seconds, again)]
            self._timers.append(handle[0])

        handle: list[asyncio.TimerHandle] = []
        turn()

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
        for timer in self._timers:
            timer.cancel()
        await self._wait_for_sync()
        self._flush()
        await self._wait_for_sync()
        self._closed = True
        with contextlib.suppress(OSError):  # data that the disk refused was never acknowledged
            await self.loop.run_in_executor(None, self.journal.close)
