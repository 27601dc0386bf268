"""Workload (e): from the arrival of a row to the visible row, at a fixed rate, for N pipelines on one headrace stream.

A file with a tenth of a second of rows appears ten times a second. A row arrives when its file appears. Every eighth
pipeline, from the first on, has no state; its rows are visible when the sink has committed them. The others count by
windows of a second; a row of theirs arrives with the first row that lets its window close (a second, the watermark's
delay, after its end). One pipeline of each kind has a memory sink, which is looked at every 10 ms; the others count
their rows (noop), and are committed in the same epochs. `python -m bench.peers.latency` prints a JSON line for each
combination.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import headrace
from bench import feed
from bench.peers.worker import link
from headrace.hub.hub import Hub
from headrace.hub.objects import Pipeline

PER_FILE = 0.1  # seconds of rows
KEYS = 100
WARM_SECONDS = 6.0
SETTLE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Latency:
    """What was seen at one rate with N pipelines: percentiles in seconds by kind of pipeline, lag in seconds of input
    in both halves, whether all rows came out in the end."""

    rate: int
    count: int
    row_p50: float
    row_p99: float
    window_p50: float | None
    window_p99: float | None
    lag_first: float
    lag_second: float
    complete: bool


def select(number: int) -> str:
    """Pipeline `number`."""
    if number % 8 == 0:
        return f"SELECT seq, user, value FROM s WHERE value >= {990 - number % 100}"
    return (
        "SELECT window.start AS started, user, count(*) AS n, sum(value) AS total FROM s "
        f"WHERE value >= {number} GROUP BY window(ts, '1 second'), user"
    )


def percentile(values: list[tuple[float, int]], share: float) -> float:
    """The smallest latency that `share` of the rows do not exceed. `values` are (latency, rows)."""
    ordered = sorted(values)
    wanted, seen = share * sum(rows for _, rows in ordered), 0
    for latency, rows in ordered:
        seen += rows
        if seen >= wanted:
            return latency
    return ordered[-1][0]


class _Watch:
    """The rows of one pipeline as they become visible. `column` names the time or number that tells their arrival."""

    def __init__(self, pipeline: Pipeline, column: str) -> None:
        self._pipeline, self._column, self._rows = pipeline, column, 0
        self.seen: list[tuple[float, list[int]]] = []

    def look(self) -> None:
        total = self._pipeline.status().rows_out
        if total == self._rows:
            return
        now, fresh = time.monotonic(), total - self._rows
        self._rows = total
        values: list[Any] = self._pipeline.results().column(self._column).to_pylist()[-fresh:]
        found = [value if isinstance(value, int) else round(value.timestamp() * 1000) for value in values]
        self.seen.append((now, found))


def measure(hub: Hub, work: Path, rate: int, count: int, seconds: float) -> Latency:
    """Run `count` pipelines for `seconds` after the warm-up."""
    per_file = round(rate * PER_FILE)
    warm = round(WARM_SECONDS / PER_FILE)
    files = warm + round(seconds / PER_FILE)
    # Event time passes as the clock does: rows are 1 / rate apart.
    made = feed.write(work / "made", files, per_file, KEYS, per_second=rate)
    inbox = work / "in"
    link(inbox, made[:1])
    hub.sql(f"{feed.declaration(inbox)}; CREATE SINK look WITH (type = 'memory', max_rows = '400000')")
    hub.sql("CREATE SINK out WITH (type = 'noop')")
    watched = {0, max(n for n in range(count) if n % 8)} if count > 1 else {0}
    hub.sql(
        ";".join(f"CREATE PIPELINE p{n} INTO {'look' if n in watched else 'out'} AS {select(n)}" for n in range(count))
    )
    rows = _Watch(hub.pipelines["p0"], "seq")
    windows = [_Watch(hub.pipelines[f"p{n}"], "started") for n in sorted(watched) if n]
    stream, arrived, lags = hub.streams["s"], [time.monotonic()], []
    while stream.status().rows < per_file:
        time.sleep(0.02)
    began = time.monotonic()
    for number in range(1, files):
        due = began + number * PER_FILE
        while time.monotonic() < due:
            for watch in (rows, *windows):
                watch.look()
            time.sleep(min(0.01, max(0.0, due - time.monotonic())))
        link(inbox, made[number : number + 1])
        arrived.append(time.monotonic())
        if number >= warm:
            lags.append(((number + 1) * per_file - stream.status().rows) / rate)
    deadline = time.monotonic() + SETTLE_SECONDS
    while (done := stream.status().rows) < files * per_file and time.monotonic() < deadline:
        for watch in (rows, *windows):
            watch.look()
        time.sleep(0.01)
    for watch in (rows, *windows):
        watch.look()
    by_row = _latencies(rows, arrived, warm, lambda seq: seq // per_file)
    by_window = [
        found
        for watch in windows
        for found in _latencies(watch, arrived, warm, lambda at: closing_file(at, rate, per_file))
    ]
    middle = len(lags) // 2
    return Latency(
        rate, count, percentile(by_row, 0.5), percentile(by_row, 0.99),
        percentile(by_window, 0.5) if by_window else None, percentile(by_window, 0.99) if by_window else None,
        max(lags[:middle]), max(lags[middle:]), done == files * per_file,
    )  # fmt: skip


def closing_file(started_ms: int, rate: int, per_file: int) -> int:
    """The file with the first row that closes the window which starts at `started_ms` (since 1970). That row is two
    seconds, window and delay, after the start."""
    since = started_ms / 1000 - feed.START_SECONDS + 2.0
    return round(since * rate) // per_file


def _latencies(
    watch: _Watch, arrived: list[float], warm: int, file_of: Callable[[int], int]
) -> list[tuple[float, int]]:
    found: dict[float, int] = {}
    for seen, values in watch.seen:
        for value in values:
            file = file_of(value)
            if warm <= file < len(arrived):
                latency = seen - arrived[file]
                found[latency] = found.get(latency, 0) + 1
    return list(found.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("combinations", nargs="+", help="rate:pipelines, for example 50000:32")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="headrace-peers-"))
    with headrace.connect(work / "first") as first:
        spark = first.spark
        for text in options.combinations:
            rate, count = map(int, text.split(":"))
            place = work / text.replace(":", "-")
            place.mkdir()
            with headrace.connect(place / "state", spark=spark) as hub:
                print(json.dumps(asdict(measure(hub, place, rate, count, options.seconds))), flush=True)
            shutil.rmtree(place)
    shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
