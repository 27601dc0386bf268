"""Prints to standard output or error without ever blocking the caller, even if the reader is slow or has closed it.

A thread takes texts from a bounded queue. If the queue is full, a text is dropped and counted, and the next printed
text says so. If the reader has closed the other end, nothing is printed any more, and `gone` says why.
"""

from __future__ import annotations

import contextlib
import io
import os
import queue
import select
import sys
import threading
import time
from collections.abc import Callable
from typing import Literal, TextIO

WAITING = 64  # texts; a console sink prints one per epoch
# A pipe that is ready for writing takes this many bytes without blocking.
_PIECE = select.PIPE_BUF


_NAMES = {"stdout": "standard output", "stderr": "standard error"}


class Printer:
    """One for each sink, and one for log lines. `print` never blocks and never fails. `close` prints the waiting texts
    for a bounded time. `note` makes the text about texts that were dropped from their number."""

    def __init__(
        self,
        to: Literal["stdout", "stderr"] = "stdout",
        note: Callable[[int], str] = lambda count: f"({count} epochs are not shown: the output was not read in time)\n",
        waiting: int = WAITING,
    ) -> None:
        self._to, self._note = to, note
        self._queue: queue.Queue[str | None] = queue.Queue(waiting)
        self._done = threading.Condition()
        self._unwritten = 0  # texts that are queued or being written
        self._late = False  # true if `settle` has waited in vain since everything was written
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._lock = threading.RLock()  # a signal handler may print, too
        self._skipped = 0
        self.dropped = 0  # texts that are never printed
        self.gone = ""  # why nothing is printed any more; empty while printing works

    def print(self, text: str) -> None:
        """Queue a text, or count it as dropped."""
        with self._lock:
            if self.gone:
                self.dropped += 1
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="headrace-console", daemon=True)
                self._thread.start()
            skipped, self._skipped = self._skipped, 0
            note = self._note(skipped) if skipped else ""
            try:
                self._count(1)
                self._queue.put_nowait(note + text)
            except queue.Full:
                self._count(-1)
                self._skipped = skipped + 1
                self.dropped += 1

    def settle(self, seconds: float) -> None:
        """Wait until everything is written, for at most `seconds`, and not at all while a reader keeps it from that."""
        with self._done:
            if not self._late and not self.gone:
                self._late = not self._done.wait_for(lambda: not self._unwritten or bool(self.gone), seconds)

    def _count(self, more: int) -> None:
        with self._done:
            self._unwritten += more
            self._late = self._late and self._unwritten > 0
            self._done.notify_all()

    def close(self, seconds: float = 2.0) -> None:
        """Print the waiting texts, for at most `seconds`, and stop."""
        thread = self._thread
        if thread is None:
            return
        deadline = time.monotonic() + seconds
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=seconds)
        thread.join(max(0.0, deadline - time.monotonic()))
        self._closing.set()
        thread.join(1.0)

    def _run(self) -> None:
        while (text := self._queue.get()) is not None and not self._closing.is_set():
            try:
                self._write(text)
            except (OSError, ValueError) as problem:  # ValueError: it is closed
                self.gone = f"{_NAMES[self._to]} cannot be written any more: {problem}"
                return
            finally:
                self._count(-1)

    def _write(self, text: str) -> None:
        """Write to the file descriptor, a little at a time. A thread that blocks inside `sys.stdout` would keep its
        lock, and the process could neither print nor exit."""
        stream: TextIO | None = getattr(sys, self._to)
        if stream is None:  # it was closed when the process started
            raise OSError("there is none")
        try:
            # A live view replaces standard error, and puts texts above itself.
            out = stream.fileno() if self._to == "stdout" or stream is sys.__stderr__ else -1
        except (AttributeError, io.UnsupportedOperation):  # a notebook, or a test that captures output
            out = -1
        if out < 0:
            stream.write(text)
            stream.flush()
            return
        data = memoryview(text.encode(stream.encoding or "utf-8", "replace"))
        poll = select.poll()
        poll.register(out, select.POLLOUT)
        while data and not self._closing.is_set():
            if poll.poll(200):
                data = data[os.write(out, data[:_PIECE]) :]
