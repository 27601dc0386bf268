"""Log lines on a standard error that nobody reads: whoever logs goes on."""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from headrace.base.logs import facts, logging_to

_log = logging.getLogger("headrace.test")


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """Call it to make standard error a pipe, and get its other end. (pytest sets its own just before the test.)"""
    reads, writes = os.pipe()
    stream = io.TextIOWrapper(os.fdopen(writes, "wb"), encoding="utf-8", line_buffering=True)

    def make() -> int:
        for name in ("stderr", "__stderr__"):
            monkeypatch.setattr(sys, name, stream)
        return reads

    yield make
    monkeypatch.undo()
    stream.close()
    os.close(reads)


def log(count: int) -> None:
    for number in range(count):
        _log.info("epoch %d %s", number, "x" * 200, extra=facts("epoch"))


def test_a_standard_error_that_nobody_reads_holds_up_no_thread_that_logs(pipe: Callable[[], int]) -> None:
    reads = pipe()
    with logging_to("json", logging.INFO, timed=True):
        logging_thread = threading.Thread(target=log, args=(3000,), daemon=True)  # a pipe holds 64 kB
        logging_thread.start()
        logging_thread.join(10)
        assert not logging_thread.is_alive()
        seen = b""
        while seen.count(b"\n") < 900:
            seen += os.read(reads, 1 << 20)
        log(1)
        while b"lines are not shown" not in seen:
            seen += os.read(reads, 1 << 20)
    assert seen.startswith(b'{"time"')


def test_lines_are_written_in_order_with_other_output(pipe: Callable[[], int]) -> None:
    reads = pipe()
    with logging_to("text", logging.INFO, timed=False):
        for number in range(20):
            _log.info("line %d", number)
            print(f"other {number}", file=sys.stderr, flush=True)
    found = os.read(reads, 1 << 20).decode().splitlines()
    assert found == [text for n in range(20) for text in (f"INFO: line {n}", f"other {n}")]
