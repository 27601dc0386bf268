"""What clients of a served hub cost: a stream's rows/s without and with 50 clients, and how soon a pipeline joins.

A real `headrace serve` process reads generated rows as fast as it can for eight windowed pipelines. 50 clients, in a
process of their own, read for a minute in all: each follows the live figures, and asks for the status of a stream, of a
pipeline and of the whole hub in turn, every 1 to 1.6 s. Rows/s drift, because the JVM warms up and machines have other
work, so the minute is cut into rounds with a stretch without clients before and after each; a round is compared with
the mean of its two neighbours, and the figure is the median of the rounds. Last, `POST /sql` adds pipelines to the
running stream one by one; an epoch is the median of those that the stream reported meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

from bench.report import Report, environment, main

CLIENTS, JOINS = 50, 15
WARM, MEASURED, ROUNDS = 30.0, 60.0, 3
PIPELINES = 8
START_SECONDS = 4.0  # until the clients are there


@contextmanager
def serving(work: Path) -> Iterator[tuple[str, int]]:
    """A hub whose stream is never idle: its URL and its process."""
    pipelines = "".join(
        f"CREATE PIPELINE p{i} INTO out AS SELECT device, count(*) AS n, avg(temp) AS mean FROM s "
        f"WHERE hum > {i} GROUP BY window(ts, '10 seconds'), device;"
        for i in range(PIPELINES)
    )
    (work / "app.sql").write_text(
        "CREATE STREAM s (device STRING, ts TIMESTAMP, temp DOUBLE, hum DOUBLE, volt DOUBLE, status STRING, "
        "WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS) WITH (source = 'generator', format = 'json', "
        "max_epoch_bytes = '16MB'); CREATE SINK out WITH (type = 'memory', max_rows = '1000');" + pipelines
    )
    command = [sys.executable, "-m", "headrace.app.cli", "serve", str(work / "app.sql"), "--port", "0"]
    command += ["--state-dir", str(work / "state"), "--log-level", "warning"]
    with open(work / "errors", "w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1], process.pid
    finally:
        process.terminate()
        process.wait(120)


class Hub:
    """The served hub, as the benchmark looks at it: seldom, over one connection."""

    def __init__(self, url: str, pid: int) -> None:
        self.url, self._pid = url, pid
        self.http = httpx.Client(base_url=url, timeout=120, trust_env=False)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get("/api/v1/streams/s").json()["status"]
        return found

    def ready(self) -> bool:
        return self.http.get("/ready").status_code == 200 and self.status()["epoch"] > 0

    def rate(self, seconds: float) -> tuple[float, float]:
        """Rows/s over about this time, from one committed epoch to another, and the share of a core that the hub's own
        process took: neither Spark's JVM nor its workers."""
        rows, began, used = self._next_epoch()
        time.sleep(seconds)
        more, ended, used_then = self._next_epoch()
        return (more - rows) / (ended - began), (used_then - used) / (ended - began)

    def _next_epoch(self) -> tuple[int, float, float]:
        """Wait for the next commit: the rows so far, when that was, and the processor time until then."""
        before = self.status()["epoch"]
        while (found := self.status())["epoch"] == before:
            time.sleep(0.05)
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(") ")[2].split()
        return found["rows"], time.perf_counter(), sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def clients(url: str, over: Any, answers: Any) -> None:
    """Runs in a process of its own until `over`: puts (requests, events, errors, share of a core) then."""
    began, used = time.perf_counter(), time.process_time()
    answer = asyncio.run(_read(url, over))
    answers.put((*answer, (time.process_time() - used) / (time.perf_counter() - began)))


async def _read(url: str, over: Any) -> tuple[int, int, list[str]]:
    counts, errors = [0, 0], list[str]()

    async def follow(http: httpx.AsyncClient) -> None:
        async with http.stream("GET", "/api/v1/events") as answer:
            if answer.status_code != 200:
                errors.append(f"events: {answer.status_code}")
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    json.loads(line[6:])
                    counts[1] += 1
                if over.is_set():
                    return

    async def ask(http: httpx.AsyncClient, number: int) -> None:
        paths = ("/api/v1/streams/s", f"/api/v1/pipelines/p{number % PIPELINES}", "/ready")
        while not over.is_set():
            answer = await http.get(paths[counts[0] % len(paths)])
            counts[0] += 1
            if answer.status_code != 200:
                errors.append(f"{answer.url}: {answer.status_code}")
            await asyncio.sleep(1.0 + number % 7 / 10)

    async def one(number: int) -> None:
        await asyncio.sleep(number / CLIENTS)
        try:
            async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as http:
                await asyncio.gather(follow(http), ask(http, number))
        except httpx.HTTPError as problem:
            errors.append(f"{type(problem).__name__}: {problem}")

    await asyncio.gather(*(one(i) for i in range(CLIENTS)))
    return counts[0], counts[1], errors


def with_clients(hub: Hub, seconds: float) -> tuple[tuple[float, float], tuple[int, int, list[str], float]]:
    """`Hub.rate` while the clients read, and what they say."""
    context = multiprocessing.get_context("spawn")
    answers: Any = context.SimpleQueue()
    over = context.Event()
    readers = context.Process(target=clients, args=(hub.url, over, answers))
    readers.start()
    time.sleep(START_SECONDS)
    found = hub.rate(seconds)
    over.set()
    answer: tuple[int, int, list[str], float] = answers.get()
    readers.join()
    return found, answer


def joins(hub: Hub, count: int) -> tuple[list[float], list[float]]:
    """Seconds of each `POST /sql` that adds a pipeline to the running stream, and the epochs meanwhile in ms."""
    found, epochs = [], {}
    for i in range(count):
        text = f"CREATE PIPELINE j{i} INTO out AS SELECT device, volt FROM s WHERE volt > {1000 + i}"
        began = time.perf_counter()
        hub.http.post("/api/v1/sql", json={"text": text}).raise_for_status()
        found.append(time.perf_counter() - began)
        time.sleep(0.37)  # at another moment of an epoch each time
        answer = hub.status()
        epochs[answer["epoch"]] = answer["epoch_ms"]
    return found, [ms for ms in epochs.values() if ms is not None]


def measure(say: Callable[[str], None]) -> Report:
    report = Report(facts=environment("pyspark", "duckdb", "fastapi", "uvicorn"))
    quick = "--quick" in sys.argv
    warm, seconds, added = (10.0, 5.0, 5) if quick else (WARM, MEASURED / ROUNDS, JOINS)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch, serving(Path(scratch)) as (url, pid):
        hub = Hub(url, pid)
        while not hub.ready():
            time.sleep(0.5)
        time.sleep(warm)
        without = [hub.rate(seconds)]
        say(f"without clients: {without[0][0]:,.0f} rows/s")
        between, requests, events, errors, own = list[tuple[float, float]](), 0, 0, list[str](), list[float]()
        for _ in range(ROUNDS):
            found, answer = with_clients(hub, seconds)
            between.append(found)
            own.append(answer[3])
            requests, events, errors = requests + answer[0], events + answer[1], errors + answer[2]
            without.append(hub.rate(seconds))
            said = f"{answer[0]} requests, {answer[1]} events, {len(answer[2])} errors"
            say(f"with {CLIENTS} clients: {found[0]:,.0f} rows/s; {said}; without again: {without[-1][0]:,.0f} rows/s")
        times, epochs = joins(hub, added)
    shares = [b[0] / (x[0] + y[0]) * 2 for b, (x, y) in zip(between, pairwise(without), strict=True)]
    joined, epoch = statistics.median(times), statistics.median(epochs) / 1000
    say(f"a pipeline joined in {joined:.2f} s (median of {added}); an epoch took {epoch:.2f} s")
    report.facts |= {
        "rows_per_s_without": [round(r) for r, _ in without],
        "rows_per_s_with_clients": [round(r) for r, _ in between],
        "shares": [round(share, 3) for share in shares],
        "hub_cores_without": [round(c, 3) for _, c in without],
        "hub_cores_with_clients": [round(c, 3) for _, c in between],
        "clients_cores": [round(c, 3) for c in own],
        "requests": requests,
        "events": events,
        "errors": errors[:5],
        "epoch_ms": round(epoch * 1000),
        "join_seconds": [round(t, 3) for t in times],
    }
    report.require("errors of 50 clients", len(errors), 0, "at most")
    report.require("rows/s with 50 clients / without", statistics.median(shares), 0.9, "at least")
    report.require("POST /sql that adds a pipeline, p50 in epochs", joined / epoch, 1.5, "at most")
    return report


if __name__ == "__main__":
    main(__doc__ or "", measure)
