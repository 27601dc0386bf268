"""Decides when the journal of a stream is flushed and synced, and when senders get their acknowledgements.

Bytes are flushed when a sender waits and no more bytes come, or after `FLUSH_SECONDS`. Syncs run in another thread, so
that a slow disk does not delay connections. When the disk fails, all senders pause until it works again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from headrace.ingress.backpressure import Backpressure
from headrace.ingress.journal import Journal
from headrace.ingress.journal_sync import Sync
from headrace.ingress.pending_acks import PendingAcks, SendAck, Settle, send
from headrace.ingress.senders import Periodic, Senders

# How long a byte waits for others before it is written. At 150 MB/s, 5 ms are blocks of 750 KB, close to the maximum.
# When a sender waits for a response, a flush follows as soon as an iteration of the event loop brings no more bytes. So
# a single client is answered at once, and one flush answers many waiting clients.
FLUSH_SECONDS = 0.005
POLL_SECONDS = 0.05  # how often the consumers' progress is read
SYNC_SECONDS = 1.0
RETRY_SECONDS = 1.0  # after a flush that failed


class JournalFlusher:
    """See the module. `fsync` is the option of the stream. Runs in the event loop's thread."""

    def __init__(
        self, journal: Journal, fsync: str, pressure: Backpressure, senders: Senders, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._journal, self._fsync, self._pressure, self._senders = journal, fsync, pressure, senders
        self._loop = loop
        self._acks = PendingAcks()
        self._ended: list[int] = []  # origins that send no more bytes, and are not ended in the journal yet
        self._scheduled = self.closed = False
        self._arrived = 0  # buffers and bodies so far
        self._watching = False  # true while waiting for a loop iteration without new bytes
        self._syncing: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._periodic = [Periodic(loop, POLL_SECONDS, self._poll), Periodic(loop, SYNC_SECONDS, self._sync)]

    # --- flushing ---------------------------------------------------------------------------------

    def arrived(self) -> None:
        """A buffer, a body or messages arrived."""
        self._arrived += 1

    def schedule(self) -> None:
        """Schedule a flush."""
        if not self._scheduled:
            self._scheduled = True
            self._timer = self._loop.call_later(FLUSH_SECONDS, self._flush)

    def end_origin(self, number: int) -> None:
        """End an origin after the next flush."""
        self._ended.append(number)
        self.schedule()

    def acknowledge(self, settle: Settle) -> None:
        """Call `settle` when everything received so far is in the journal, and what it returns when that is safe. A
        client waits for that, so flush as soon as no more bytes arrive."""
        self._acks.ask(settle)
        self.schedule()
        if not self._watching and not self._journal.problem:
            self._watching = True
            self._loop.call_soon(self._flush_when_quiet, self._arrived)

    def _flush_when_quiet(self, arrived: int) -> None:
        """Flush if the last iteration of the loop brought no bytes. The timer of `schedule` limits the wait."""
        self._watching = False
        if not self._acks.asked or self.closed:
            return
        if self._arrived == arrived:
            self._flush()
        else:
            self._watching = True
            self._loop.call_soon(self._flush_when_quiet, self._arrived)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._scheduled = False
        if self.closed:
            return
        if not self._journal.flush():  # acknowledge nothing
            self._flush_later()
            return
        ended, self._ended = self._ended, []
        lost = sum(map(self._journal.close_origin, ended))
        if lost:
            self._pressure.release(lost)
        self._acks.written()
        if self._fsync == "always":
            self._sync_for_acks()
        else:
            self._safe(self._acks.take())

    def _safe(self, acks: list[SendAck]) -> None:
        send(acks)
        self._go_on()

    def _flush_later(self) -> None:
        """Pause all senders after a problem of the journal, and retry soon: only a flush shows whether the disk works
        again."""
        self._senders.pause()
        if self._retry is None:
            self._retry = self._loop.call_later(RETRY_SECONDS, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self.schedule()

    def _poll(self) -> None:
        held = self._journal.held
        try:
            self._journal.poll()
        finally:
            self._pressure.release(held - self._journal.held)
        if self._journal.problem:
            self._flush_later()
        self._go_on()

    def _go_on(self) -> None:
        if self._pressure.open and not self._journal.problem:
            self._senders.resume()

    # --- syncing ----------------------------------------------------------------------------------

    def _sync_for_acks(self) -> None:
        """Sync what clients wait for, in another thread. What is written meanwhile waits for the next sync, which
        begins when this one ends: so one sync serves many clients when there are many."""
        if self._syncing is not None:
            return
        if self._journal.suspect:
            self._flush_later()
            return
        try:
            sync = self._journal.unsynced()
        except OSError as problem:  # no file handle was left
            self._journal.not_synced(problem)
            self._flush_later()
            return
        # A full disk is no reason to stop here: what was written before can be synced, and the journal forgets the
        # files of a prepared sync.
        taken = self._acks.take()
        if sync is None:  # another sync has covered them
            self._safe(taken)
        else:
            mark = self._journal.mark_is_due()
            self._begin_sync(sync.run, lambda: self._synced_for_acks(sync, taken), True, mark)

    def _synced_for_acks(self, sync: Sync, taken: list[SendAck]) -> None:
        self._journal.synced(sync)
        if sync.problem is not None:
            self._acks.put_back(taken)
            self._flush_later()
        else:
            self._safe(taken)

    async def sync(self) -> None:
        """Write and sync everything received so far. Raises OSError if the disk fails, and JournalDamaged if files of
        the journal were removed."""
        await self._wait_for_sync()
        if not self._journal.flush():
            raise self._journal.damage or OSError(self._journal.problem)
        self._sync(really=True)
        await self._wait_for_sync()
        if self._journal.problem:
            raise OSError(self._journal.problem)

    async def _wait_for_sync(self) -> None:
        while self._syncing is not None:
            await asyncio.wait([self._syncing])

    def _sync(self, really: bool | None = None) -> None:
        """Sync. With fsync = 'never' the files are only closed, unless `really` is true."""
        if self._syncing is not None:
            return
        try:
            sync = None if self._journal.suspect else self._journal.unsynced()
        except OSError as problem:  # no file handle was left: nothing is lost, and the next turn retries
            self._journal.not_synced(problem)
            self._senders.pause()
            return
        if sync is not None:
            wanted = self._fsync != "never" if really is None else really
            self._begin_sync(sync.run, lambda: self._synced(sync), wanted)
        elif self._journal.suspect:
            self._begin_sync(self._journal.rewrite, self._go_on)

    def _begin_sync(self, work: Callable[..., None], done: Callable[[], None], *given: bool) -> None:
        def ended(future: asyncio.Future[None]) -> None:
            self._syncing = None
            if future.exception() is None:  # otherwise the journal keeps its problem, and the next turn retries
                done()
            if self._acks.unsafe:
                self._sync_for_acks()

        self._syncing = self._loop.run_in_executor(None, work, *given)
        self._syncing.add_done_callback(ended)

    def _synced(self, sync: Sync) -> None:
        self._journal.synced(sync)
        if self._journal.problem:
            self._senders.pause()

    async def close(self) -> None:
        """Flush and close the journal. Called after all connections are gone."""
        for one in self._periodic:
            one.cancel()
        await self._wait_for_sync()
        self._flush()
        await self._wait_for_sync()
        self.closed = True
        with contextlib.suppress(OSError):  # data that the disk refused was never acknowledged
            await self._loop.run_in_executor(None, self._journal.close)
