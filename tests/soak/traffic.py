"""Input for the soaks: files of rows in order of time, and senders that keep account of what was acknowledged."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import socket
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.e2e.support import put

_START = datetime(2026, 1, 1, tzinfo=UTC)
ACK_SECONDS = 20.0


def row(i: int) -> dict[str, Any]:
    moment = _START + timedelta(milliseconds=100 * i)
    return {"id": i, "k": f"k{i % 5}" if i % 7 else None, "v": i * 31 % 1000, "ts": moment.isoformat()}


class Feed:
    """Files for a stream: rows 0, 1, 2, ... in order, and now and then a record that is no row."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.written = 0
        self.bad: list[str] = []
        self._files = 0
        directory.mkdir(parents=True, exist_ok=True)

    def more(self, count: int) -> None:
        """Another file with `count` rows."""
        lines = []
        for i in range(self.written, self.written + count):
            lines.append(json.dumps(row(i)))
            if i % 50 == 0:
                self.bad.append(f'{{"id": {i}')
                lines.append(self.bad[-1])
        put(self.directory / f"{self._files:06}.json", lines)
        self._files += 1
        self.written += count

    def copy(self) -> Feed:
        """A feed that continues from here in the same directory."""
        other = Feed(self.directory)
        other.written, other.bad, other._files = self.written, list(self.bad), self._files
        return other

    def take_back(self, earlier: Feed) -> None:
        """Remove the files that this one has written and `earlier` had not."""
        for number in range(earlier._files, self._files):
            (self.directory / f"{number:06}.json").unlink()


def windows(total: int, kept: Callable[[int], bool] = lambda v: True) -> list[tuple[int, str | None, int, int]]:
    """Ten-second windows over the first `total` rows whose `v` is kept: start, key, count and sum."""
    found: dict[tuple[int, str | None], list[int]] = {}
    for i in range(total):
        r = row(i)
        if not kept(r["v"]):
            continue
        second = int(datetime.fromisoformat(r["ts"]).timestamp())
        found.setdefault((second - second % 10, r["k"]), []).append(r["v"])
    return [(start, k, len(v), sum(v)) for (start, k), v in found.items()]


class Sender(threading.Thread):
    """Sends small requests of records with ids of their own until `finish`, and connects again whenever it must. An id
    is sent once: after that it is either acknowledged or in doubt for ever."""

    def __init__(self, kind: str, address: Callable[[], str], seed: int) -> None:
        super().__init__(daemon=True)
        self.kind, self._address, self._rng = kind, address, random.Random(seed)
        self.acknowledged: set[int] = set()
        self.doubtful: list[range] = []  # by request
        self._next = 0
        self._end = threading.Event()
        self._connection: Any = None
        self._sent = self._answered = self._before = 0  # bytes of this connection (tcp)
        self._answers = b""

    def finish(self) -> None:
        """End after the current request."""
        self.stop()
        self.join()

    def stop(self) -> None:
        self._end.set()

    def run(self) -> None:
        while not self._end.is_set():
            ids = range(self._next, self._next + self._rng.randrange(1, 40))
            self._next = ids.stop
            lines = [json.dumps({"id": i, "k": f"k{i % 3}", "ts": "2026-01-01T00:30:00Z"}).encode() for i in ids]
            try:
                safe = self._tcp(lines) if self.kind == "tcp" else self._http(lines)
            except (OSError, ValueError, http.client.HTTPException):
                safe = self._safe(lines) if self.kind == "tcp" else 0
                self._drop()
            self.acknowledged.update(ids[:safe])
            if safe < len(ids):
                self.doubtful.append(ids[safe:])
                self._end.wait(0.2)
            self._end.wait(self._rng.uniform(0, 0.3))
        self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.close()
        self._connection = None

    def _tcp(self, lines: list[bytes]) -> int:
        """Send records over a connection that stays, in pieces; how many of them are acknowledged."""
        self._before = self._sent if self._connection is not None else 0
        if self._connection is None:
            self._sent = self._answered = 0
            host, _, port = self._address().removeprefix("tcp://").rpartition(":")
            self._connection = socket.create_connection((host, int(port)), timeout=ACK_SECONDS)
            self._answers = b""
        data = b"".join(line + b"\n" for line in lines)
        self._sent += len(data)
        while data:
            piece = self._rng.randrange(1, 2000)
            self._connection.sendall(data[:piece])
            data = data[piece:]
        deadline = time.monotonic() + ACK_SECONDS
        while self._answered < self._sent and time.monotonic() < deadline:
            answer = self._connection.recv(4096)
            if not answer:
                raise ConnectionResetError
            self._answers += answer
            *whole, self._answers = self._answers.split(b"\n")
            if whole:
                self._answered = int(whole[-1])
        return self._safe(lines)

    def _safe(self, lines: list[bytes]) -> int:
        """How many of the records that were sent last end within the acknowledged bytes."""
        at, safe = self._before, 0
        for line in lines:
            at += len(line) + 1
            safe += at <= self._answered
        return safe

    def _http(self, lines: list[bytes]) -> int:
        """Post records; all of them are acknowledged, or none. 429 means that nothing was taken: try again."""
        host, _, path = self._address().removeprefix("http://").partition("/")
        if self._connection is None:
            self._connection = http.client.HTTPConnection(host, timeout=ACK_SECONDS)
        while True:
            self._connection.request("POST", f"/{path}", b"\n".join(lines))
            answer = self._connection.getresponse()
            answer.read()
            if answer.status == 204:
                return len(lines)
            if answer.status != 429 or self._end.wait(0.5):
                return 0
