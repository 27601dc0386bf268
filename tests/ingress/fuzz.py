"""Hostile, mutated and good HTTP requests against a real gateway process on loopback.

    python -m tests.ingress.fuzz --seconds 60 [--seed 7]

Every connection sends good requests with records of its own, and then perhaps something hostile: mutated bytes, attacks
on the framing, compression bombs, answers that are not read, or silence. Checked:

- what was answered 204 is in the journal exactly once; what was answered otherwise is not;
- the gateway does not die and writes no traceback; its memory stays bounded;
- a well-behaved client beside all that gets its answers in time;
- afterwards no connection is open longer than its timeouts allow.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import re
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.report import Report
from headrace.ingress.gateway_service import GatewayService
from headrace.ingress.mark import JournalPosition, commit
from headrace.ingress.ready import ReadyLog, UnitReader
from tests.ingress.test_gateway import Site

BEHAVES = b'{"a":%d,"b":"behaves"}'
BOMB = b" " * 20_000_000
AT_ONCE = 24
MOST_BODY = 64 << 10
MEMORY = 400 << 20  # resident bytes of the gateway, the compiler's libraries included
LATENCY = 1.0  # seconds for an answer to the client that behaves
OPEN_SECONDS = 12.0  # after the last byte: the timeouts below, the time for a last answer, and a busy machine
OPTIONS = {"request_timeout": "1s", "idle_timeout": "2s", "max_request_bytes": str(MOST_BODY), "fsync": "never"}


@dataclass
class Outcome:
    """What all connections saw."""

    taken: Counter[bytes] = field(default_factory=Counter)  # records of requests that were answered 204
    refused: Counter[bytes] = field(default_factory=Counter)
    unknown: Counter[bytes] = field(default_factory=Counter)  # no answer came
    statuses: Counter[int] = field(default_factory=Counter)
    connections: int = 0
    slowest: float = 0.0
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it was sent; `records` is empty where a mutation may have changed them."""

    text: bytes
    records: tuple[bytes, ...]


# --- requests -------------------------------------------------------------------------------------


def good(rng: random.Random, name: str) -> Asked:
    """A request that is right, in any of the shapes that clients send."""
    records = tuple(b'{"a":%d,"b":"%s"}' % (i, name.encode()) for i in range(rng.randrange(1, 6)))
    body = b"\n".join(records) + rng.choice((b"", b"\n"))
    stream = rng.choice(("s", "t"))
    headers = [b"Host: x"]
    if stream == "t":
        headers.append(rng.choice((b"Authorization: Bearer secret", b"authorization: bearer secret")))
    codec = rng.choice(("", "", "gzip", "zstd", "lz4", "bzip2", "snappy"))
    if codec:
        body = packed(body, codec)
        headers.append(b"Content-Encoding: " + codec.encode())
    if rng.random() < 0.2:
        headers += [b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQA"]
    if rng.random() < 0.1:
        headers.append(b"Expect: 100-continue")
    if rng.random() < 0.5:
        headers.append(b"Content-Length: %d" % len(body))
    else:
        headers.append(b"Transfer-Encoding: chunked")
        body = chunked(rng, body)
    rng.shuffle(headers)
    target = rng.choice((b"/ingest/", b"http://x:1/ingest/")) + stream.encode()
    return Asked(b"POST " + target + b" HTTP/1.1\r\n" + b"\r\n".join(headers) + b"\r\n\r\n" + body, records)


def chunked(rng: random.Random, body: bytes) -> bytes:
    parts = []
    at = 0
    while at < len(body):
        step = rng.choice((1, 2, 7, 100, 5000))
        part = body[at : at + step]
        parts.append(b"%x%s\r\n%s\r\n" % (len(part), rng.choice((b"", b";x=y")), part))
        at += step
    return b"".join(parts) + b"0\r\n" + rng.choice((b"", b"Content-Encoding: gzip\r\n")) + b"\r\n"


@lru_cache(64)
def packed(text: bytes, codec: str) -> bytes:
    if codec == "snappy":
        return bytes(pa.Codec("snappy").compress(text, asbytes=True))
    out = pa.BufferOutputStream()
    name: Any = "bz2" if codec == "bzip2" else codec
    with pa.CompressedOutputStream(out, name) as file:
        file.write(text)
    return out.getvalue().to_pybytes()


def mutated(rng: random.Random, text: bytes) -> bytes:
    data = bytearray(text)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(data))
        match rng.randrange(5):
            case 0:
                data[at] = rng.randrange(256)
            case 1:
                del data[at : at + rng.randrange(1, 20)]
            case 2:
                data[at:at] = rng.choice(
                    (b"\r\n", b"\n", b"\r", b"\0", b" ", b":", b"0\r\n\r\n", b"Content-Length: 3\r\n")
                )
            case 3:
                data[at:at] = data[at : at + rng.randrange(1, 60)]
            case _:
                data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 30)))
        if not data:
            return b"\r"
    return bytes(data)


def hostile(rng: random.Random) -> bytes:
    """An attack, bounded to a few megabytes."""
    head = b"POST /ingest/s HTTP/1.1\r\nHost: x\r\n"
    chunks = head + b"Transfer-Encoding: chunked\r\n"
    snappy = b"\xff\x06\x00\x00sNaPpY" + b"\xfe\x00\x00\x00" * 15_000

    def body(content: bytes, codec: bytes) -> bytes:
        return head + b"Content-Encoding: %s\r\nContent-Length: %d\r\n\r\n%s" % (codec, len(content), content)

    return rng.choice(
        (
            lambda: chunks + b"\r\n1\r\nx\r\n0\r\nX: " + b"y" * 300_000,
            lambda: chunks + b"\r\n0\r\n" + b"X: y\r\n" * 30_000,
            lambda: chunks + b"\r\n" + b"2\r\nab\r\n" * 60_000,
            lambda: chunks + b"\r\n" + b"1;" + b"e" * 100_000,
            lambda: chunks + b"\r\nffffffff\r\n" + b"x" * 1_000_000,
            lambda: head + b"X: " + b"y" * 100_000,
            lambda: head + b"X: y\r\n" * 10_000,
            lambda: head + b"Content-Length: 999999999999\r\n\r\n" + b"x" * 1_000_000,
            lambda: head + b"Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n",
            lambda: b"GET / HTTP/1.1\r\n\r\n" * 5_000,
            lambda: b"\r\n" * 50_000,
            lambda: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300),
            lambda: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            lambda: bytes(rng.randrange(256) for _ in range(5_000)),
            lambda: body(packed(BOMB, "gzip"), b"gzip"),
            lambda: body(packed(BOMB, "bzip2"), b"bzip2"),
            lambda: body(packed(b"", "bzip2") * 4_000, b"bzip2"),
            lambda: body(packed(b"", "gzip") * 3_000, b"gzip"),
            lambda: body(packed(BOMB, "zstd"), b"zstd"),
            lambda: body(snappy, b"snappy"),
            lambda: body(b"\xff\xff\xff\xff\x07", b"snappy"),
        )
    )()


# --- connections ----------------------------------------------------------------------------------


async def talk(rng: random.Random, port: int, name: str, seen: Outcome) -> None:
    """One connection from its beginning to its end."""
    asked = [good(rng, f"{name}.{i}") for i in range(rng.randrange(0, 5))]
    text = b"".join(one.text for one in asked)
    manner = rng.choice(("good", "mutated", "hostile", "hostile", "silent", "cut", "deaf"))
    if manner == "mutated":
        text += mutated(rng, good(rng, "mutated").text)
    elif manner == "hostile":
        text += hostile(rng)
    elif manner == "silent":
        text += good(rng, "silent").text[: rng.randrange(1, 40)]
    elif manner == "deaf":
        text += b"GET / HTTP/1.1\r\n\r\n" * 20_000
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    answers = asyncio.ensure_future(_nothing() if manner in ("deaf", "cut") else reader.read())
    with contextlib.suppress(ConnectionError, TimeoutError):
        at = 0
        while at < len(text):
            step = rng.choice((1, 10, 1000, 60_000, 1_000_000)) if at < 20_000 else 1_000_000
            writer.write(text[at : at + step])
            at += step
            await asyncio.wait_for(writer.drain(), 3)
        if manner == "good" and rng.random() < 0.5:
            writer.write_eof()
    found = b""
    with contextlib.suppress(ConnectionError, TimeoutError):
        found = await asyncio.wait_for(answers, 0.01 if manner in ("deaf", "cut") else 20)
    writer.transport.abort()
    codes = [int(code) for code in re.findall(rb"HTTP/1\.1 (\d{3}) ", found)]
    seen.statuses.update(codes)
    seen.connections += 1
    final = [code for code in codes if code != 100]
    for place, one in enumerate(asked):
        where = seen.unknown if place >= len(final) else seen.taken if final[place] == 204 else seen.refused
        where.update(one.records)


async def _nothing() -> bytes:
    await asyncio.sleep(0.01)
    return b""


def behave(port: int) -> None:
    """A client that does everything right, until its standard input ends. Prints how many requests were answered 204,
    and the longest wait. A process of its own, because the attackers keep theirs busy."""
    client = socket.create_connection(("127.0.0.1", port))
    count, slowest = 0, 0.0
    while not select.select([sys.stdin], [], [], 0.02)[0]:
        record = BEHAVES % count
        began = time.monotonic()
        client.sendall(
            b"POST /ingest/t HTTP/1.1\r\nAuthorization: Bearer secret\r\nContent-Length: %d\r\n\r\n%s"
            % (len(record), record)
        )
        answer = client.recv(4096)
        slowest = max(slowest, time.monotonic() - began)
        if not answer.startswith(b"HTTP/1.1 204"):
            raise SystemExit(f"the client that behaves was answered {answer!r}")
        count += 1
    print(count, slowest)


async def attack(seed: int, seconds: float, cases: int, port: int, pid: int, seen: Outcome) -> None:
    rng = random.Random(seed)
    end = time.monotonic() + seconds
    running: set[asyncio.Task[None]] = set()
    number = 0
    while number < cases and time.monotonic() < end:
        running.add(asyncio.ensure_future(talk(random.Random(rng.random()), port, f"{seed}.{number}", seen)))
        number += 1
        if len(running) >= AT_ONCE:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        seen.memory = max(seen.memory, resident(pid))
    for task in running:
        await task
    seen.memory = max(seen.memory, resident(pid))


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# --- checks ---------------------------------------------------------------------------------------


def journaled(directory: Path) -> Counter[bytes]:
    """The records of a journal."""
    log = ReadyLog(directory)
    log.follow(JournalPosition())
    end = log.advance(JournalPosition(), None)
    found: Counter[bytes] = Counter()
    reader = UnitReader(directory)
    for group in log.stretches(JournalPosition(), end, 1):
        found.update(line for part in group for run in reader.runs(part, 1 << 20) for line in run.data.splitlines())
    commit(directory, "stream", end)
    return found


def run(seed: int, seconds: float, cases: int) -> Report:
    """Attack a gateway; the figures. Raises AssertionError when a record is lost, doubled or invented."""
    seen = Outcome()
    with tempfile.TemporaryDirectory() as work:
        root = Path(work)
        service = GatewayService(root / "gateway.log")
        try:
            first = Site(root, "http", OPTIONS, name="s")
            address = service.open(first.definition, first.directory, first.settings)[0]
            port = int(address.split("://")[1].split("/")[0].rpartition(":")[2])
            second = Site(root, "http", {**OPTIONS, "listen": f"127.0.0.1:{port}", "token": "secret"}, name="t")
            service.open(second.definition, second.directory, second.settings)
            process = service._process
            assert process is not None
            with subprocess.Popen(
                [sys.executable, "-m", "tests.ingress.fuzz", "--behave", str(port)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            ) as behaving:
                asyncio.run(attack(seed, seconds, cases, port, process.pid, seen))
                words = behaving.communicate(timeout=30)[0].split()
            assert behaving.returncode == 0, "the client that behaves was not served"
            seen.taken.update(BEHAVES % i for i in range(int(words[0])))
            seen.slowest = float(words[1])
            ended = time.monotonic()
            while (still := _open(service)) and time.monotonic() < ended + OPEN_SECONDS:
                time.sleep(0.1)
            crashes = int(process.poll() is not None) + (service.metrics("s") or {})["gateway_restarts"]
        finally:
            service.stop()
        found = journaled(first.directory) + journaled(second.directory)
        log = (root / "gateway.log").read_text()
    known = seen.taken + seen.unknown + seen.refused
    missing = seen.taken - found
    doubled = Counter({record: n for record, n in found.items() if record in known and n > 1})
    invented = [record for record in found if record in seen.refused]
    assert not missing and not doubled and not invented, (seed, list(missing)[:3], list(doubled)[:3], invented[:3])
    report = Report(
        facts={"seed": seed, "connections": seen.connections, "answers": dict(sorted(seen.statuses.items()))}
    )
    report.facts["records_acknowledged_and_found"] = seen.taken.total()
    report.require("crashes_and_tracebacks", crashes + log.count("Traceback"), 0, "at most")
    report.require("connections_left_open", still, 0, "at most")
    report.require("gateway_resident_mb", seen.memory / 1e6, MEMORY / 1e6, "at most")
    report.require("slowest_answer_to_a_good_client_s", seen.slowest, LATENCY, "at most")
    if log:
        report.facts["log"] = log[-2000:]
    return report


def _open(service: GatewayService) -> int:
    return int((service.metrics("s") or {})["classes"]["http_address"]["open"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--cases", type=int, default=1 << 40)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--behave", type=int, help="be the client that behaves, on this port")
    options = parser.parse_args()
    if options.behave:
        behave(options.behave)
        return 0
    print(f"seed {options.seed}", flush=True)
    report = run(options.seed, options.seconds, options.cases)
    for name, value in report.facts.items():
        print(f"{name}: {value}")
    for figure in report.figures:
        print(figure.line())
    return 0 if all(figure.ok for figure in report.figures) else 1


if __name__ == "__main__":
    sys.exit(main())
