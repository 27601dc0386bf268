"""Ingress: the shredder alone, the gateway into its journal beside plain sinks, and through to a window.

2,000 TCP connections send JSON lines in pieces that never end on a record (bench/senders.py, a process of its own). The
gateway is the process that a hub starts; its processor time and resident size are the kernel's figures for it. It has
one thread, and the senders need the other core of a small machine: the required speed is that of a processor second.

HTTP is measured with one client that waits for each answer and with 64 of them, beside
a sink of asyncio and httptools that only appends the bodies to a file.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import headrace
from bench.report import Report, environment, main
from headrace.base.arrays import Ints
from headrace.ingress.gateway_service import GatewayService
from headrace.ingress.journal import Journal
from headrace.ingress.mark import JournalPosition, commit
from headrace.ingress.ready import ReadyLog
from headrace.ingress.shredder import SequenceShredder
from headrace.model.definitions import StreamDef
from headrace.model.schema import Field, Schema, parse_type
from headrace.sources import SOURCES

QUICK = "--quick" in sys.argv
CONNECTIONS = 200 if QUICK else 2000
SECONDS = 3.0 if QUICK else 10.0
IDLE = 100_000 if QUICK else 1_000_000
ORIGINS, PER_ORIGIN, WINDOW, WITHOUT = 10_000, 100, 512, 0.3
COLUMNS = "device STRING, ts TIMESTAMP, temp DOUBLE, hum BIGINT, status STRING, seq BIGINT"
Say = Callable[[str], None]


# --- the shredder ---------------------------------------------------------------------------------


def arrivals(per_origin: int, whole_window: bool) -> Ints:
    """Buffers of 10,000 origins that take turns: each origin's numbers shuffled within 512 of them (there are fewer: so
    all of them), or the whole stream shuffled within 512 arrivals."""
    rng = np.random.default_rng(1)
    count = ORIGINS * per_origin
    sequence = np.repeat(np.arange(1, per_origin + 1), ORIGINS)
    origin = np.tile(np.arange(ORIGINS), per_origin)
    places = np.arange(count, dtype=np.float64)
    places += rng.random(count) * (WINDOW * ORIGINS if whole_window else WINDOW)
    order = np.argsort(places)
    rows = np.zeros((count, 7), np.int64)
    rows[:, 0], rows[:, 1], rows[:, 2] = origin[order], sequence[order], np.arange(count)
    has = rng.random(count) >= WITHOUT
    rows[:, 3] = np.where(has, 100, -1)
    rows[:, 4] = np.where(has, 4000, -1)
    rows[:, 5] = 4096
    return rows


def shred(report: Report, say: Say) -> None:
    """Buffers a second, in batches of 4,096 and one by one."""
    speeds = {}
    for name, whole in (("per_origin", True), ("interleaved", False)):
        rows = arrivals(20 if QUICK else PER_ORIGIN, whole)
        best = 0.0
        for _ in range(1 if QUICK else 3):
            shredder = SequenceShredder()
            began = time.perf_counter()
            for at in range(0, len(rows), 4096):
                shredder.arrive(rows[at : at + 4096])
            best = max(best, len(rows) / (time.perf_counter() - began))
        speeds[name] = best
        say(f"shredder, batches of 4,096, shuffled {name}: {best:,.0f} buffers/s")
    shredder, rows = SequenceShredder(), arrivals(1, False)
    began = time.perf_counter()
    for i in range(len(rows)):
        shredder.arrive(rows[i : i + 1])
    single = len(rows) / (time.perf_counter() - began)
    say(f"shredder, one by one: {single:,.0f} buffers/s")
    report.facts |= {
        "shredder_single_buffers_per_s": round(single),
        **{f"shredder_{k}": round(v) for k, v in speeds.items()},
    }
    report.require("shredder_batch_buffers_per_s", min(speeds.values()), 1_000_000, "at least")


def resident(pid: int | str = "self") -> int:
    """Resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def idle(report: Report, say: Say) -> None:
    """Bytes for an origin that has an open record and sends nothing."""
    SequenceShredder().arrive(arrivals(1, False)[:10])  # compiled
    before = resident()
    shredder = SequenceShredder()
    for at in range(0, IDLE, 10_000):
        rows = np.zeros((10_000, 7), np.int64)
        rows[:, 0], rows[:, 1], rows[:, 2] = np.arange(at, at + 10_000), 1, np.arange(at, at + 10_000)
        rows[:, 3:6] = (10, 20, 30)
        shredder.arrive(rows)
    assert shredder.origins == shredder.waiting == IDLE
    each = (resident() - before) / IDLE
    say(f"{IDLE:,} idle origins: {each:.0f} bytes each")
    report.require("bytes_per_idle_origin", each, 300, "at most")


# --- the journal ----------------------------------------------------------------------------------


def reopen(report: Report, say: Say) -> None:
    """Processor seconds to open a journal of small buffers again: for each GiB in full blocks; and for one whose newest
    files are full of blocks of one buffer, as a client that waits for each answer makes them."""
    seconds = {}
    for name, size, each in (("full_blocks", 64 if QUICK else 512, 10_000), ("one_buffer_a_block", 12, 1)):
        with tempfile.TemporaryDirectory() as work:
            journal, data = Journal(Path(work), 64 << 20), b"x" * 99 + b"\n"
            for i in range((size << 20) // 100):
                journal.put(1, i + 1, data, 100, 100)
                if (i + 1) % each == 0:
                    journal.flush()
            held = journal.held
            journal.close()
            began = time.process_time()
            again = Journal(Path(work), 64 << 20)
            seconds[name] = time.process_time() - began
            assert again.held == held
            again.close()
        say(f"opening a journal of {size} MiB in buffers of 100 bytes, {name}: {seconds[name]:.3f} processor seconds")
    report.require("reopen_cpu_s_per_gib", seconds["full_blocks"] * 1024 / (64 if QUICK else 512), 1, "at most")
    report.require("reopen_newest_file_cpu_s", seconds["one_buffer_a_block"], 2, "at most")


# --- the gateway ----------------------------------------------------------------------------------


def cpu(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def senders(port: int, seconds: float) -> tuple[int, int, float]:
    """(bytes, records, seconds) of one run of the senders."""
    command = [sys.executable, "-m", "bench.senders", str(port), str(CONNECTIONS), str(seconds)]
    began = time.monotonic()
    sent, records = map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    return sent, records, time.monotonic() - began


@contextmanager
def sink(*given: str) -> Iterator[tuple[int, int]]:
    """(port, process id) of a plain sink of bench/senders.py."""
    command = [sys.executable, "-m", "bench.senders", *given]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        yield int(process.stdout.readline()), process.pid
        process.stdin.close()


def loopback(say: Say) -> tuple[float, float]:
    """(MB/s, MB per processor second) of a sink that only reads."""
    with sink("sink") as (port, pid):
        before = cpu(pid)
        sent, _, _ = senders(port, SECONDS)
        used = cpu(pid) - before
    say(f"a sink that only reads: {sent / SECONDS / 1e6:.0f} MB/s, {sent / used / 1e6:.0f} MB per processor second")
    return sent / SECONDS / 1e6, sent / used / 1e6


@contextmanager
def consuming(directory: Path) -> Iterator[None]:
    """Somebody who is past everything at once, so that files are deleted."""
    over = threading.Event()

    def run() -> None:
        log, at = ReadyLog(directory), JournalPosition()
        while not over.wait(0.2):
            log.follow(at)
            at = log.advance(at, None)
            commit(directory, "stream", at)

    thread = threading.Thread(target=run)
    thread.start()
    yield
    over.set()
    thread.join()


@contextmanager
def gateway(source: str, fsync: str) -> Iterator[tuple[GatewayService, int, int]]:
    """(service, port, process id) of a gateway with one stream, whose journal is consumed."""
    columns = (column.split() for column in COLUMNS.split(", "))
    schema = Schema(tuple(Field(name, parse_type(kind)) for name, kind in columns))
    options = {"listen": "127.0.0.1:0", "fsync": fsync, "max_journal_bytes": "8GiB"}
    stream = StreamDef("s", schema, None, 0, source, "json", options)
    with tempfile.TemporaryDirectory() as work:
        service = GatewayService(Path(work) / "gateway.log")
        directory = Path(work) / "journal"
        address = service.open(stream, directory, SOURCES[source].settings_of(stream))[0].split("://")[1]
        pid = (service.metrics("s") or {})["gateway_pid"]
        try:
            with consuming(directory):
                yield service, int(address.split("/")[0].rpartition(":")[2]), pid
        finally:
            service.stop()


def into_journal(report: Report, say: Say, fsync: str, seconds: float) -> tuple[float, float]:
    """(MB/s into the journal, MB per processor second of the gateway)."""
    with gateway("tcp", fsync) as (service, port, pid):
        senders(port, 0.5)  # connections accepted once, kernels loaded
        before, began = cpu(pid), (service.metrics("s") or {})["classes"]["tcp"]["bytes"]
        sent, _, _ = senders(port, seconds)
        used, memory = cpu(pid) - before, resident(pid)
        counted = (service.metrics("s") or {})["classes"]["tcp"]
        assert counted["bytes"] - began == sent, (counted, sent)
        assert counted["cut_records"] == counted["dropped_records"] == 0
    speed = sent / seconds / 1e6
    say(
        f"into the journal, fsync {fsync}: {speed:.0f} MB/s, {used / seconds:.2f} processors, "
        f"{sent / used / 1e6:.0f} MB per processor second, {memory / 1e6:.0f} MB resident"
    )
    report.facts[f"journal_fsync_{fsync}"] = (
        f"{speed:.0f} MB/s, {sent / used / 1e6:.0f} MB per processor second, {memory / 1e6:.0f} MB resident"
    )
    return speed, sent / used / 1e6


def requests(port: int, connections: int) -> float:
    """Requests a second of so many clients that each wait for their answer."""
    seconds = SECONDS / 2
    command = [sys.executable, "-m", "bench.senders", "http", str(port), str(connections), str(seconds)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) / seconds


def over_http(report: Report, say: Say) -> None:
    """Requests of ten records, for one client and for 64, into the journal with fsync second and into a file."""
    with tempfile.TemporaryDirectory() as work, sink("http-sink", f"{work}/bodies") as (port, _):
        plain = [requests(port, count) for count in (1, 64)]
    with gateway("http", "second") as (service, port, pid):
        requests(port, 1)  # kernels loaded
        before = cpu(pid)
        ours = [requests(port, count) for count in (1, 64)]
        used = cpu(pid) - before
        total = sum(ours) * SECONDS / 2
        counted = (service.metrics("s") or {})["classes"]["http"]
        assert counted["requests"] >= total and counted["refused"] == 0, counted
    for name, found in (("asyncio and httptools, appending to a file", plain), ("into the journal", ours)):
        say(f"HTTP, {name}: {found[0]:,.0f} requests/s of one client, {found[1]:,.0f} of 64")
    report.facts["http_plain_sink"] = f"{plain[0]:,.0f} requests/s of one client, {plain[1]:,.0f} of 64"
    report.facts["http_64_clients"] = f"{ours[1]:,.0f} requests/s, {used / total * 1e6:.0f} us of processor a request"
    report.require("http_sequential_requests_per_s", ours[0], 1500, "at least")


def through(report: Report, say: Say) -> None:
    """MB/s through to a windowed pipeline on Spark: from the first byte to the last committed row."""
    with tempfile.TemporaryDirectory() as work, headrace.connect(Path(work) / "state") as hub:
        hub.sql(f"""
            CREATE STREAM s ({COLUMNS}, WATERMARK FOR ts AS ts - INTERVAL 1 HOUR)
              WITH (source = 'tcp', format = 'json', listen = '127.0.0.1:0', max_journal_bytes = '256MiB');
            CREATE SINK m WITH (type = 'memory');
            CREATE PIPELINE p INTO m AS SELECT device, count(*) AS n, avg(temp) AS mean FROM s
              GROUP BY window(ts, '10 seconds'), device EMIT CHANGES""")
        port = int(hub.runtime("s").ingress()["addresses"][0].rpartition(":")[2])
        gateway_pid = hub.streams["s"].ingress()["gateway_pid"]
        warm = senders(port, 3.0)[1]
        _until(lambda: hub.streams["s"].status().rows == warm)
        before, began = cpu(gateway_pid), time.monotonic()
        sent, records, _ = senders(port, SECONDS)
        _until(lambda: hub.streams["s"].status().rows == warm + records)
        wall, used = time.monotonic() - began, cpu(gateway_pid) - before
        counters = hub.runtime("s").ingress()["classes"]["tcp"]
        assert counters["cut_records"] == counters["dropped_records"] == 0
    say(
        f"through to a window: {sent / wall / 1e6:.0f} MB/s ({records / wall:,.0f} rows/s) over {wall:.1f} s, "
        f"gateway {used / wall:.2f} processors"
    )
    report.facts["through_to_window"] = f"{sent / wall / 1e6:.0f} MB/s, {records / wall:,.0f} rows/s"


def _until(fact: Callable[[], bool]) -> None:
    while not fact():
        time.sleep(0.02)


def measure(say: Say) -> Report:
    random.seed(1)
    report = Report(facts=environment("numba", "uvloop", "httptools", "pyspark"))
    idle(report, say)  # first: freed memory that is used again would not count
    shred(report, say)
    reopen(report, say)
    plain, plain_core = loopback(say)
    report.facts["loopback_sink"] = f"{plain:.0f} MB/s, {plain_core:.0f} MB per processor second"
    speeds = {fsync: into_journal(report, say, fsync, SECONDS) for fsync in ("second", "never", "always")}
    report.require("journal_mb_per_s_of_one_core", speeds["second"][1], 150, "at least")
    report.facts["journal_over_loopback"] = (
        f"{speeds['second'][0] / plain:.2f} of its MB/s, {speeds['second'][1] / plain_core:.2f} per processor second"
    )
    over_http(report, say)
    through(report, say)
    return report


if __name__ == "__main__":
    main("The ingress", measure)
