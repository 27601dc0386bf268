"""Prints to standard output without ever blocking the caller, even if the reader is slow or has closed it.

A thread takes texts from a bounded queue. If the queue is full, a text is dropped and counted, and the next printed
text says so. If the reader has closed standard output, nothing is printed any more, and `gone` says why.
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

WAITING = 64  # texts; a console sink prints one per epoch
# A pipe that is ready for writing takes this many bytes without blocking.
_PIECE = select.PIPE_BUF


class Printer:
    """One for each sink. `print` never blocks and never fails. `close` prints the waiting texts for a bounded time."""

    def __init__(self) -> None:
        self._queue: queue.Queue[str | None] = queue.Queue(WAITING)
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._lock = threading.Lock()
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
            note = f"({skipped} epochs are not shown: the output was not read in time)\n" if skipped else ""
            try:
                self._queue.put_nowait(note + text)
            except queue.Full:
                self._skipped = skipped + 1
                self.dropped += 1

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
            except (OSError, ValueError) as problem:  # ValueError: standard output is closed
                self.gone = f"standard output cannot be written any more: {problem}"
                return

    def _write(self, text: str) -> None:
        """Write to the file descriptor, a little at a time. A thread that blocks inside `sys.stdout` would keep its
        lock, and the process could neither print nor exit."""
        if sys.stdout is None:  # it was closed when the process started
            raise OSError("there is none")
        try:
            out = sys.stdout.fileno()
        except (AttributeError, io.UnsupportedOperation):  # a notebook, or a test that captures output
            sys.stdout.write(text)
            sys.stdout.flush()
            return
        data = memoryview(text.encode(sys.stdout.encoding or "utf-8", "replace"))
        poll = select.poll()
        poll.register(out, select.POLLOUT)
        while data and not self._closing.is_set():
            if poll.poll(200):
                data = data[os.write(out, data[:_PIECE]) :]
