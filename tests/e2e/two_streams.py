"""Two streams of small JSON files, for tests that count rows and look at what is left on disk."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.support import put, rows_of, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.hub.hub import Hub

START = datetime(2026, 1, 1, tzinfo=UTC)


class Streams:
    """Two streams of (id, k, ts) on a hub of its own. Every file is an epoch."""

    def __init__(self, base: Path, session: SparkSession) -> None:
        self.base, self.session, self.files = base, session, 0

    def script(self) -> str:
        made = [
            f"CREATE STREAM {name} (id BIGINT, k STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 1 SECOND) "
            f"WITH (source = 'files', format = 'json', path = '{self.base / name}')"
            for name in ("a", "b")
        ]
        return ";".join([*made, "CREATE SINK m WITH (type = 'memory', max_rows = '1000000')"])

    def give(self, hub: Hub, stream: str, seconds: range, pad: int = 0) -> None:
        """One row per second. Waits until the stream has read them."""
        self.files += 1
        before = hub.streams[stream].status().rows
        put(self.base / stream / f"{self.files:06}.json", lines(seconds, pad))
        until(lambda: hub.streams[stream].status().rows >= before + len(seconds), "the rows are read", 300)

    def left(self) -> list[str]:
        """What is on disk of feeds and dedicated queries."""
        state = self.base / "state"
        return [str(p.relative_to(state)) for p in state.rglob("*") if {"feeds", "dedicated"} & set(p.parts)]


def lines(seconds: range, pad: int = 0) -> list[str]:
    """One row for each second."""
    return [
        f'{{"id": {s}, "k": "k{s % 3}{"x" * pad}", "ts": "{(START + timedelta(seconds=s)).isoformat()}"}}'
        for s in seconds
    ]


def found(hub: Hub, name: str) -> list[tuple[object, ...]]:
    return sorted(rows_of(hub.pipelines[name].results()), key=repr)
