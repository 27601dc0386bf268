"""One pushed stream inside the gateway: its journal, its connections, and what happens when the readers are behind.

Protocols (`headrace.ingress.tcp`, `headrace.ingress.http`) only do I/O: they put bytes where `room` says and tell how
many came. Here the bytes become buffers of an origin; records that are too long or that overload drops are cut out at
record boundaries, so that everything else stays whole and the loss is counted to the record."""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import Callable
from typing import Any

from headrace.backpressure import Backpressure, Limits, Verdict
from headrace.formats import FORMATS
from headrace.ingress.delimiting import Delimiting, Found, finder_of
from headrace.ingress.journal import Journal, Sync
from headrace.ingress.peers import DROPPED, KEEP, LONG, Origin, Peer, Settings
from headrace.program import StreamDef

# How long a byte waits for others before it is written: blocks of 5 ms at 150 MB/s are 750 KB, near the largest there
# are. When a sender waits for an answer, a flush comes as soon as a round of the loop brings no more bytes: one client
# alone gets its answer at once, and those of many clients who wait are answered by one flush.
FLUSH_SECONDS = 0.005
POLL_SECONDS = 0.05  # how often the consumers' progress is read
SWEEP_SECONDS = 1.0
SYNC_SECONDS = 1.0
RETRY_SECONDS = 1.0  # after a flush that failed


class StreamIngress:
    """See the module. Lives in the event loop's thread; the journal was opened in another one."""

    def __init__(
        self, stream: StreamDef, journal: Journal, settings: Settings, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.stream, self.settings, self.loop = stream, settings, loop
        fmt = FORMATS[stream.format].make(stream.schema, stream.options)
        finder = finder_of(fmt)
        assert finder is not None, "the source's check refuses such formats"
        self.finder: Delimiting = finder
        # A longer record is bad anyhow: of one that does not end, just enough is kept for the format to say so.
        self.longest = fmt.max_record_bytes + len(finder.delimiter) + 1
        limit = settings.max_journal_bytes
        self.journal = journal
        self.counters = self.journal.counters
        self.pressure = Backpressure(Limits(settings.strategy, limit, settings.max_spill_bytes), size=self.journal.held)
        self.peers: set[Peer] = set()
        self._waiting: list[Callable[[], None]] = []
        self._closing: list[int] = []
        self._next, self._first = 0, self.journal.number  # a journal is opened with a new number each time
        self.paused = self._scheduled = self._closed = False
        self._arrived = 0  # buffers and bodies so far
        self._watching = False  # whether a quiet round of the loop is waited for
        self._syncing: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._every(POLL_SECONDS, self._poll)
        self._every(SWEEP_SECONDS, self._sweep)
        self._every(SYNC_SECONDS, self._sync)

    # --- connections ------------------------------------------------------------------------------

    def admit(self, peer: Peer, kind: str) -> bool:
        """A connection begins; False when there are too many."""
        counters = self.counters.of(kind)
        if len(self.peers) >= self.settings.max_connections:
            counters["refused"] += 1
            return False
        peer.origin = self.begin_origin(kind)
        counters["opened"] += 1
        self.peers.add(peer)
        if self.paused:
            self.loop.call_soon(self._pause_new, peer)  # uvloop begins to read after this, whatever we say now
        return True

    def _pause_new(self, peer: Peer) -> None:
        if self.paused:
            peer.pause()

    def leave(self, peer: Peer, clean: bool) -> None:
        """A connection is over. A last record without its delimiter is kept if the stream wants that and the other
        side ended on purpose."""
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

    def begin_origin(self, kind: str) -> Origin:
        """A new origin; its number is never used again in this journal."""
        self._next += 1
        return Origin((self._first << 32) + self._next, self.counters.of(kind))

    def end_origin(self, origin: Origin) -> None:
        """No more of it will come."""
        self._closing.append(origin.number)
        self.schedule()

    @property
    def open(self) -> bool:
        """Whether there is room for more."""
        return self.pressure.open and not (self.paused or self._closed or self.journal.problem)

    # --- bytes ------------------------------------------------------------------------------------

    def received(self, origin: Origin, count: int) -> None:
        """`count` bytes came for `origin` and are where `journal.room` said."""
        self._arrived += 1
        origin.total += count
        if origin.skip != KEEP:
            count = self._skip(origin, count)
        if count:
            arena, start = self.journal.incoming
            found = self.finder.search(arena, start, start + count, origin.state)
            if self.pressure.offer(0, count) is Verdict.DROP:
                self._drop(origin, count, found)
            else:
                self._take(origin, count, found)
        self.schedule()

    def _take(self, origin: Origin, count: int, found: Found) -> None:
        if not self.pressure.open:  # it was refused, but it is here: it is taken, and no more is read
            self.pressure.offer(0, count, control=True)
            self._pause()
        origin.sequence += 1
        self.journal.append(origin.number, origin.sequence, count, found.first, found.last)
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
        """Throw away the rest of a record; how many bytes are left after it, moved to where the room begins."""
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
        """Keep what completes the open record, drop the rest: whole records, and the beginning of the next."""
        arena, start = self.journal.incoming
        kept = 0
        if origin.open:
            kept = found.first if found.first >= 0 else count
        dropped = self.finder.count(arena, start + kept, start + count, 0 if kept else origin.state)
        origin.counters["dropped_records"] += dropped
        origin.counters["dropped_bytes"] += count - kept
        if kept:
            self.pressure.offer(0, kept, control=True)
            ended = found.first >= 0
            self._take(origin, kept, Found(kept, kept, 1, 0) if ended else Found(-1, -1, 0, found.state))
        if kept < count:
            begin, end = origin.total - count + kept, origin.total - count + max(found.last, kept)
            open_end = max(found.last, 0) < count
            origin.drop(begin, end, dropped, open_end)
            origin.skip, origin.state = (DROPPED, found.state) if open_end else (KEEP, 0)

    def _end_record(self, origin: Origin) -> None:
        """An empty buffer whose end ends the open record."""
        origin.sequence += 1
        self.journal.put(origin.number, origin.sequence, b"", 0, 0, ends=True)
        origin.open = origin.state = 0

    def take_body(self, origin: Origin, body: bytes | bytearray, done: Callable[[], None]) -> bool:
        """A whole request: its end ends its last record. False, and nothing happens, when there is no room; else `done`
        is called when it is in the journal."""
        if not self.open or self.pressure.offer(0, len(body)) in (Verdict.DROP, Verdict.PAUSE):
            return False
        self._arrived += 1
        self.whole(origin, body)
        self.when_flushed(done)
        return True

    def whole(self, origin: Origin, body: bytes | bytearray) -> None:
        """Journal bytes that are whole records."""
        plain = self.finder.states == len(self.finder.delimiter)
        if plain and not body.endswith(self.finder.delimiter):
            body += self.finder.delimiter
            self.pressure.offer(0, len(self.finder.delimiter), control=True)
        found = self.finder.search(body, 0, len(body), 0)
        first = found.first if found.first >= 0 else len(body)
        origin.sequence += 1
        self.journal.put(origin.number, origin.sequence, body, first, len(body), ends=found.last != len(body))
        origin.counters["buffers"] += 1
        origin.counters["bytes"] += len(body)

    # --- time -------------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Flush soon."""
        if not self._scheduled:
            self._scheduled = True
            self._timer = self.loop.call_later(FLUSH_SECONDS, self._flush)

    def when_flushed(self, done: Callable[[], None]) -> None:
        """Call `done` when everything that came so far is in the journal. Somebody waits for that: flush as soon as
        nothing else is coming."""
        self._waiting.append(done)
        self.schedule()
        if not self._watching and not self.journal.problem:
            self._watching = True
            self.loop.call_soon(self._flush_when_quiet, self._arrived)

    def _flush_when_quiet(self, arrived: int) -> None:
        """Flush if the round of the loop that now ends brought nothing; the timer of `schedule` bounds the wait."""
        self._watching = False
        if not self._waiting or self._closed:
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
        if self.journal.flush() and self.settings.fsync == "always":
            try:
                self.journal.sync()
            except OSError as problem:
                if not self.journal.problem:  # there was no handle to sync with
                    self.journal.not_synced(problem)
        if self.journal.problem:  # nothing is acknowledged
            self._flush_later()
            return
        closing, self._closing = self._closing, []
        lost = sum(map(self.journal.close_origin, closing))
        if lost:
            self.pressure.release(0, lost)
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            try:
                done()
            except Exception:  # the others shall have their answers all the same
                traceback.print_exc()
        self._go_on()

    def _flush_later(self) -> None:
        """The journal has a problem: take nothing more, and try again soon, whoever met it. The disk may have room
        again, and only a flush finds out."""
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
            self.pressure.release(0, held - self.journal.held)
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
        """Write and sync everything that came so far. Raises OSError when the disk does not take it."""
        await self._wait_for_sync()
        if not self.journal.flush():
            raise OSError(self.journal.problem)
        self._sync(really=True)
        await self._wait_for_sync()
        if self.journal.problem:
            raise OSError(self.journal.problem)

    async def _wait_for_sync(self) -> None:
        while self._syncing is not None:
            await asyncio.wait([self._syncing])

    def _sync(self, really: bool | None = None) -> None:
        """In another thread: a disk may take its time, and connections should not notice. With fsync `never` files are
        only closed, unless it is asked for."""
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
            if future.exception() is None:  # else the journal's problem stays, and it is tried again
                done()

        self._syncing = self.loop.run_in_executor(None, work, *given)
        self._syncing.add_done_callback(ended)

    def _synced(self, sync: Sync) -> None:
        self.journal.synced(sync)
        if self.journal.problem:
            self._pause()

    def _failed_to_sync(self, problem: OSError) -> None:
        """There are no handles to sync with: nothing is lost, and the next turn tries again."""
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
        """What DESCRIBE STREAM shows."""
        now = self.pressure.now()
        return {
            "classes": self.counters.used(),
            "state": "paused" if self.paused else now.state,
            "journal_bytes": self.journal.held,
            "journal_limit": now.limit_bytes,
            "disk_bytes": self.journal.disk_bytes,
            "pauses": now.pauses,
            "lost_bytes": self.journal.lost_bytes,
            "problem": self.journal.problem,
        }

    async def close(self) -> None:
        """After all connections are gone: flush and let go."""
        for timer in self._timers:
            timer.cancel()
        await self._wait_for_sync()
        self._flush()
        self._closed = True
        with contextlib.suppress(OSError):  # what it did not take was not acknowledged
            await self.loop.run_in_executor(None, self.journal.close)
