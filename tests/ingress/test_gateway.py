"""The gateway with real sockets: good clients, bad clients, overload. No Spark: the journal is read directly."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import random
import re
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import uvloop

from headrace.errors import AddressInUse, BadOption
from headrace.ingress import senders, stream_ingress, tcp
from headrace.ingress import site as sites
from headrace.ingress.gateway import Gateway
from headrace.ingress.gateway_messages import GatewayAnswer, GatewayOrder
from headrace.ingress.mark import JournalPosition, commit
from headrace.ingress.ready import ReadyLog, UnitReader
from headrace.model.definitions import StreamDef
from headrace.model.schema import BIGINT, STRING, Field, Schema
from headrace.sources import SOURCES, check_stream

SCHEMA = Schema((Field("a", BIGINT), Field("b", STRING)))
LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


class Site:
    """One stream on a gateway in this process."""

    def __init__(self, root: Path, source: str, options: dict[str, str], fmt: str = "json", name: str = "s") -> None:
        given = {"listen": "127.0.0.1:0", **options}
        self.definition = StreamDef(name, SCHEMA, None, 0, source, fmt, {k: v for k, v in given.items() if v})
        check_stream(self.definition)
        self.settings = SOURCES[source].settings_of(self.definition)
        self.directory = root / name / "journal"
        self.at = JournalPosition()
        self.clients: list[asyncio.StreamWriter] = []

    async def open(self, gateway: Gateway) -> Site:
        self.gateway = gateway
        self.addresses = await gateway.open(self.definition, self.directory, self.settings)
        if self.addresses:
            self.port = int(self.addresses[0].split("://")[1].split("/")[0].rpartition(":")[2])
        return self

    @property
    def ingress(self) -> stream_ingress.StreamIngress:
        return self.gateway.streams[self.definition.name].ingress

    def counters(self, kind: str) -> dict[str, int]:
        return self.ingress.counters.of(kind)

    def read(self, limit: int | None = None) -> list[bytes]:
        """The records that became ready since the last call, and tell the journal that they are read."""
        log = ReadyLog(self.directory)
        log.follow(self.at)
        end = log.advance(self.at, limit)
        lines: list[bytes] = []
        for group in log.stretches(self.at, end, 1):
            reader = UnitReader(self.directory)
            lines += [line for part in group for run in reader.runs(part, 1 << 20) for line in run.data.splitlines()]
        self.at = end
        commit(self.directory, "stream", end)
        return lines

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A client's connection, closed at the end of the test."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.clients.append(writer)
        return reader, writer

    async def hang_up(self) -> None:
        for writer in self.clients:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def serving(*sites: Site) -> AsyncIterator[Gateway]:
    gateway = Gateway(asyncio.get_running_loop())
    for site in sites:
        await site.open(gateway)
    try:
        yield gateway
    finally:
        for site in sites:
            await site.hang_up()
        for name in list(gateway.streams):
            await gateway.close(name)


def run(main: Callable[[], Awaitable[None]], loop: Any = uvloop.new_event_loop) -> None:
    async def limited() -> None:
        await asyncio.wait_for(main(), 30)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(limited())


async def until(fact: Callable[[], Any]) -> None:
    for _ in range(1000):
        if fact():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("not within 10 s")


def lines(origin: int, count: int) -> list[bytes]:
    return [json.dumps({"a": i, "b": f"origin {origin}"}).encode() for i in range(count)]


@pytest.mark.parametrize("loop", LOOPS)
def test_pieces_of_many_connections_become_the_records_that_were_sent(tmp_path: Path, loop: Any) -> None:
    site = Site(tmp_path, "tcp", {"acks": "true"})

    async def client(number: int) -> None:
        rng = random.Random(number)
        reader, writer = await site.connect()
        data = b"".join(line + b"\n" for line in lines(number, 60))
        at = 0
        while at < len(data):
            step = rng.randrange(1, 300)
            writer.write(data[at : at + step])
            at += step
            await writer.drain()
            await asyncio.sleep(0)
        writer.write_eof()
        assert (await reader.read()).splitlines()[-1] == b"%d" % len(data)
        writer.close()

    async def main() -> None:
        async with serving(site):
            await asyncio.gather(*map(client, range(50)))
            wanted = Counter(line for n in range(50) for line in lines(n, 60))
            assert Counter(site.read()) == wanted
            counters = site.counters("tcp")
            assert (counters["opened"], counters["closed"], counters["cut_records"]) == (50, 50, 0)
            assert counters["bytes"] == sum(len(line) + 1 for line in wanted.elements())
            await until(lambda: site.ingress.journal.held == 0)
            assert site.ingress.journal.shredder.origins == 0

    run(main, loop)


@pytest.mark.parametrize(("last", "clean", "kept"), [("keep", True, 1), ("keep", False, 0), ("drop", True, 0)])
def test_a_client_that_ends_in_mid_record(tmp_path: Path, last: str, clean: bool, kept: int) -> None:
    site = Site(tmp_path, "tcp", {"last_record": last})

    async def main() -> None:
        async with serving(site):
            reader, writer = await site.connect()
            writer.write(b'{"a":1}\n{"a":2}')
            await writer.drain()
            await until(lambda: site.counters("tcp")["bytes"] == 15)
            if clean:
                writer.write_eof()
                assert await reader.read() == b""
            else:
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset, not an end
                writer.transport.abort()
            await until(lambda: site.counters("tcp")["closed"] == 1 and not site.ingress.flusher._ended)
            assert site.read() == [b'{"a":1}', b'{"a":2}'][: 1 + kept]
            counters = site.counters("tcp")
            assert (counters["cut_records"], counters["cut_bytes"]) == ((0, 0) if kept else (1, 7))
            assert counters["errors"] == (not clean)

    run(main)


def test_a_record_without_end_is_cut_and_what_follows_is_read(tmp_path: Path) -> None:
    site = Site(tmp_path, "tcp", {"max_record_bytes": "2000"})

    async def main() -> None:
        async with serving(site):
            reader, writer = await site.connect()
            writer.write(b'{"a":1}\n' + b"x" * 500_000 + b'\n{"a":2}\n')
            writer.write_eof()
            await reader.read()
            first, long, second = site.read()
            assert (first, second) == (b'{"a":1}', b'{"a":2}')
            assert 2000 < len(long) < 2000 + (64 << 10) + 3
            assert site.counters("tcp")["long"] == 1
            assert site.ingress.journal.shredder.waiting == 0

    run(main)


def test_garbage_idle_and_surplus_connections_are_bounded_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(senders, "SWEEP_SECONDS", 0.05)
    site = Site(tmp_path, "tcp", {"max_connections": "3", "idle_timeout": "300ms"})

    async def main() -> None:
        async with serving(site):
            peers = [await site.connect() for _ in range(3)]
            await until(lambda: len(site.ingress.peers) == 3)
            reader, _ = await site.connect()
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            assert site.counters("tcp")["refused"] == 1
            peers[0][1].write(bytes(range(256)) * 100)
            for reader, _ in peers:
                with contextlib.suppress(ConnectionError):
                    await reader.read()
            counters = site.counters("tcp")
            assert (counters["timeouts"], counters["cut_records"], counters["errors"]) == (3, 1, 0)
            await until(lambda: site.ingress.journal.shredder.origins == 0)

    run(main)


def test_a_stream_reads_from_servers_and_connects_again(tmp_path: Path) -> None:
    async def main() -> None:
        turns = [0]

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            turns[0] += 1
            writer.write(b'{"a":%d}\n{"a":' % turns[0])
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        site = Site(tmp_path, "tcp", {"listen": "", "connect": f"127.0.0.1:{port}, 127.0.0.1:1"})
        async with serving(site):
            found: list[bytes] = []

            def enough() -> bool:
                found.extend(site.read())
                return len(found) >= 3

            await until(enough)
            assert found[:3] == [b'{"a":1}', b'{"a":2}', b'{"a":3}']
            counters = site.counters("tcp_client")
            assert counters["cut_records"] >= 3
            assert counters["errors"] >= 1  # nobody listens on port 1
        server.close()

    run(main)


# --- overload -------------------------------------------------------------------------------------


async def pour(site: Site, count: int, size: int) -> int:
    """Send records as fast as they are taken; how many were sent before the other side was too slow for a while."""
    _, writer = await site.connect()
    data = b"".join(b'{"a":%d,"b":"%s"}\n' % (i, b"x" * size) for i in range(count))
    for at in range(0, len(data), 50_001):
        writer.write(data[at : at + 50_001])
        await writer.drain()
    writer.write_eof()
    await writer.drain()
    writer.close()
    return count


def test_pause_stops_the_senders_and_loses_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path, "tcp", {"max_journal_bytes": "1MiB"})

    async def main() -> None:
        async with serving(site):
            sending = asyncio.ensure_future(pour(site, 20_000, 500))
            await until(lambda: site.ingress.metrics()["state"] == "paused")
            await asyncio.sleep(0.2)
            assert site.ingress.journal.held < (1 << 20) + (64 << 10)
            assert not sending.done()
            found: list[bytes] = []

            def done() -> bool:
                found.extend(site.read(300_000))
                assert site.ingress.journal.disk_bytes < 6 << 20
                return len(found) == 20_000

            await until(done)
            assert [json.loads(line)["a"] for line in found] == list(range(20_000))
            assert site.ingress.metrics()["pauses"] > 3

    run(main)


@pytest.mark.parametrize("strategy", ["drop", "spill"])
def test_dropped_records_are_counted_exactly(tmp_path: Path, strategy: str) -> None:
    options = {"backpressure": strategy, "max_journal_bytes": "1MiB", "max_spill_bytes": "1MiB"}
    site = Site(tmp_path, "tcp", options)
    limit = (1 << 20) * (2 if strategy == "spill" else 1)

    async def main() -> None:
        async with serving(site):
            sending = asyncio.gather(*(pour(site, 10_000, 100 * n) for n in range(1, 4)))
            while not sending.done():
                await asyncio.sleep(0.05)
                assert site.ingress.journal.held <= limit + 3 * (64 << 10)
            await until(lambda: site.counters("tcp")["closed"] == 3)
            found: list[bytes] = []

            def done() -> bool:
                found.extend(site.read())
                return site.ingress.journal.held == 0

            await until(done)
            counters = site.counters("tcp")
            assert all(isinstance(json.loads(line), dict) for line in found)  # none is cut or glued
            assert len(found) + counters["dropped_records"] == 30_000
            assert counters["dropped_records"] > 1000
            assert (
                sum(len(line) + 1 for line in found) + counters["dropped_bytes"]
                == counters["bytes"] + counters["dropped_bytes"]
            )
            if strategy == "spill":
                assert sum(map(len, found)) > 1 << 20

    run(main)


@pytest.mark.parametrize("strategy", ["drop", "spill"])
def test_acknowledgements_cover_exactly_the_records_that_were_not_dropped(tmp_path: Path, strategy: str) -> None:
    options = {"backpressure": strategy, "max_journal_bytes": "1MiB", "max_spill_bytes": "1MiB", "acks": "true"}
    site = Site(tmp_path, "tcp", options)
    found: list[bytes] = []
    dropped: list[int] = []

    async def client(number: int) -> list[bytes]:
        """Sends; the records that are safe, by what the gateway said."""
        rng = random.Random(number)
        size = 40 * number
        records = [b'{"a":%d,"b":"%d %s"}\n' % (i, number, b"x" * rng.randrange(size, 3 * size)) for i in range(20_000)]
        data = b"".join(records)
        reader, writer = await site.connect()
        answer = asyncio.ensure_future(reader.read())
        at = 0
        while at < len(data):
            step = rng.randrange(1, 90_000)
            writer.write(data[at : at + step])
            at += step
            await writer.drain()
        writer.write_eof()
        lines = (await answer).splitlines()
        stretches: list[tuple[int, int, int]] = []
        settled = 0
        for line in lines:
            words = line.split()
            if words[0] == b"dropped":
                begin, end, count = map(int, words[1:])
                assert begin >= (stretches[-1][1] if stretches else 0) and end > settled
                assert data[begin:end].count(b"\n") == count and data[end - 1 : end] == b"\n"
                assert begin == 0 or data[begin - 1 : begin] == b"\n"
                stretches.append((begin, end, count))
            else:
                lost = sum(count for _, end, count in stretches)
                assert list(map(int, words[1:])) == ([lost] if lost else [])
                assert all(end <= int(words[0]) for _, end, _ in stretches)
                settled = int(words[0])
        assert settled == len(data)
        dropped.append(sum(count for _, _, count in stretches))
        kept, at = [], 0
        for begin, end, _ in [*stretches, (len(data), len(data), 0)]:
            kept += data[at:begin].splitlines()
            at = end
        return kept

    async def main() -> None:
        async with serving(site):
            sending = asyncio.gather(*map(client, range(1, 4)))
            while not sending.done():
                await asyncio.sleep(0.03)
                found.extend(site.read(400_000))
            promised = [line for kept in await sending for line in kept]
            while site.ingress.journal.held:
                found.extend(site.read())
                await asyncio.sleep(0.01)
            assert Counter(found) == Counter(promised)
            assert sum(dropped) == site.counters("tcp")["dropped_records"] == 60_000 - len(found)
            assert sum(dropped) > 1000

    run(main)


def test_a_record_that_is_being_dropped_is_not_acknowledged_before_its_end(tmp_path: Path) -> None:
    site = Site(tmp_path, "tcp", {"backpressure": "drop", "max_journal_bytes": "1MiB", "acks": "true"})

    async def main() -> None:
        async with serving(site):
            reader, writer = await site.connect()
            filler = b" " * ((1 << 20) - 1000) + b"\n"
            writer.write(filler)
            while await reader.readline() != b"%d\n" % len(filler):
                pass
            begin = len(filler)
            writer.write(b"x" * 1500)  # no room, and no end
            await until(lambda: site.counters("tcp")["dropped_bytes"] == 1500)
            assert len(site.read()) == 1
            await until(lambda: site.ingress.journal.held == 0)
            writer.write(b"y\nz\n")
            assert await reader.readline() == b"dropped %d %d 1\n" % (begin, begin + 1502)
            assert await reader.readline() == b"%d 1\n" % (begin + 1504)
            assert site.read() == [b"z"]

    run(main)


def test_the_gateway_stops_reading_from_a_client_that_ignores_dropped_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp, "MAX_STRETCHES", 3)
    site = Site(tmp_path, "tcp", {"backpressure": "drop", "max_journal_bytes": "1MiB", "acks": "true"})

    async def main() -> None:
        async with serving(site):
            reader, writer = await site.connect()
            await until(lambda: site.ingress.peers)
            (peer,) = site.ingress.peers
            assert isinstance(peer, tcp.TcpPeer)
            monkeypatch.setattr(peer, "_acknowledge", lambda settled, dropped, last: peer._unreported.extend(dropped))
            for turn in range(5):  # as if nothing could be written
                origin = peer.origin
                origin.drop(origin.total + 10 * turn, origin.total + 10 * turn + 5, 1, open_end=False)
            writer.write(b"1\n")
            await until(lambda: origin.total == 2)
            writer.write(b"2\n")
            await asyncio.sleep(0.1)
            assert origin.total == 2
            monkeypatch.undo()
            peer.resume_writing()
            assert (await reader.readline()).startswith(b"dropped ")
            await until(lambda: origin.total == 4)

    run(main)


# --- HTTP -----------------------------------------------------------------------------------------


async def ask(site: Site, text: bytes) -> bytes:
    """Send raw bytes, end, and read all answers."""
    reader, writer = await site.connect()
    writer.write(text)
    await writer.drain()
    with contextlib.suppress(ConnectionError):
        writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return answer


def post(body: bytes, *headers: bytes, path: bytes = b"/ingest/s", method: bytes = b"POST") -> bytes:
    lines = [method + b" " + path + b" HTTP/1.1", b"Host: x", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def statuses(answer: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", answer)]


@pytest.mark.parametrize("loop", LOOPS)
def test_requests_are_taken_whole_and_answered_in_order(tmp_path: Path, loop: Any) -> None:
    site = Site(tmp_path, "http", {})
    chunked = (
        b"POST /ingest/S?x=1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        b'5\r\n{"a":\r\n2\r\n2}\r\n0\r\n\r\n'
    )

    async def main() -> None:
        async with serving(site):
            good = post(b'{"a":0}\n{"a":1}\n') + chunked + post(b"", b"Connection: keep-alive") + post(b'{"a":3}')
            answer = await ask(site, good + post(b"{}", path=b"/nothing") + post(b'{"a":4}\n', b"Connection: close"))
            assert statuses(answer) == [204, 204, 204, 204, 404, 204]
            assert site.read() == [b'{"a":%d}' % i for i in range(5)]
            counters = site.counters("http")
            assert (counters["requests"], counters["refused"], counters["opened"]) == (5, 0, 1)
            large = b'{"b":"' + b"y" * 3_000_000 + b'"}'
            assert statuses(await ask(site, post(large, b"Expect: 100-continue", b"Connection: close"))) == [100, 204]
            assert site.read() == [large]

    run(main, loop)


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4", "snappy", "bzip2"])
def test_a_compressed_body_is_its_records(tmp_path: Path, codec: str) -> None:
    site = Site(tmp_path, "http", {})
    text = b'{"a":1}\n{"a":2}'
    if codec == "snappy":
        packed = pa.Codec("snappy").compress(text, asbytes=True)
    else:
        out = pa.BufferOutputStream()
        name: Any = "bz2" if codec == "bzip2" else codec
        with pa.CompressedOutputStream(out, name) as file:
            file.write(text)
        packed = out.getvalue().to_pybytes()

    async def main() -> None:
        async with serving(site):
            header = b"Content-Encoding: " + codec.encode()
            assert statuses(await ask(site, post(packed, header, b"Connection: close"))) == [204]
            assert site.read() == text.split(b"\n")

    run(main)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (post(b"{}", method=b"GET"), [401]),
        (post(b"{}", b"Authorization: Bearer secret", method=b"GET"), [405]),
        (post(b"{}"), [401]),
        (post(b"{}", b"Authorization: Bearer wrong"), [401]),
        (post(b"{}", b"Authorization: Bearer secret"), [204]),
        (post(b"{}", b"Authorization: Bearer secret", b"Content-Encoding: br"), [415]),
        (post(b"{}", b"Authorization: Bearer secret", b"Content-Encoding: gzip"), [400]),
        (post(gzip.compress(b"{}"), b"Authorization: Bearer secret", b"Content-Encoding: gzip"), [204]),
        (post(gzip.compress(b"{}")[:-9], b"Authorization: Bearer secret", b"Content-Encoding: gzip"), [400]),
        (post(gzip.compress(b"x" * 1500), b"Authorization: Bearer secret", b"Content-Encoding: gzip"), [413]),
        (post(b"\xdc\x0b" + b"x" * 20, b"Authorization: Bearer secret", b"Content-Encoding: snappy"), [413]),
        (post(b"x" * 1500, b"Authorization: Bearer secret"), [413]),
        (
            b"POST /ingest/s HTTP/1.1\r\nAuthorization: Bearer secret\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"5dc\r\n" + b"x" * 1500 + b"\r\n0\r\n\r\n",
            [413],
        ),
        (b"\x16\x03\x01 this is no http\r\n\r\n", [400]),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * 20_000, [431]),
    ],
)  # fmt: skip
def test_every_refusal_has_its_own_code(tmp_path: Path, text: bytes, wanted: list[int]) -> None:
    site = Site(tmp_path, "http", {"token": "secret", "max_request_bytes": "1000"})

    async def main() -> None:
        async with serving(site):
            assert statuses(await ask(site, text + b"")) == wanted
            assert len(site.read()) == (wanted == [204])
            assert site.ingress.journal.held == 0 or wanted == [204]

    run(main)


def test_slow_and_broken_requests_leave_no_data_or_connection(tmp_path: Path) -> None:
    site = Site(tmp_path, "http", {"request_timeout": "200ms", "idle_timeout": "300ms"})

    async def main() -> None:
        async with serving(site):
            reader, writer = await site.connect()
            writer.write(b"POST /ingest/s HTTP/1.1\r\nContent-Le")  # and no more
            assert statuses(await reader.read()) == [408]
            reader, writer = await site.connect()
            writer.write(post(b"x" * 100)[:-50])
            await writer.drain()
            await asyncio.sleep(0.05)
            writer.transport.abort()
            reader, writer = await site.connect()
            writer.write(post(b"{}"))
            assert statuses(await reader.read()) == [204]  # then it is idle, and closed
            server = site.gateway.streams["s"].http
            assert server is not None
            await site.hang_up()
            await until(lambda: server.site.counters["closed"] == 3)
            assert site.read() == [b"{}"]
            counters = site.counters("http")
            assert (counters["cut_records"], counters["cut_bytes"], counters["timeouts"]) == (1, 50, 1)
            assert server.site.counters["timeouts"] == 1  # the request that named no stream
            assert server.site.routes["s"].body_bytes == 0

    run(main)


def test_a_full_journal_answers_429_until_there_is_room(tmp_path: Path) -> None:
    site = Site(tmp_path, "http", {"max_journal_bytes": "1MiB"})

    async def main() -> None:
        async with serving(site):
            body = b'{"b":"' + b"x" * 400_000 + b'"}\n'
            answers = [statuses(await ask(site, post(body, b"Connection: close")))[0] for _ in range(4)]
            assert answers == [204, 204, 429, 429]
            assert b"Retry-After" in await ask(site, post(body, b"Connection: close"))
            assert len(site.read()) == 2
            await until(lambda: site.ingress.open)
            assert statuses(await ask(site, post(body, b"Connection: close"))) == [204]
            assert len(site.read()) == 1

    run(main)


def test_streams_share_an_address_and_a_taken_one_is_an_error(tmp_path: Path) -> None:
    first = Site(tmp_path, "http", {}, name="one")

    async def main() -> None:
        async with serving(first) as gateway:
            second = Site(tmp_path, "http", {"listen": f"127.0.0.1:{first.port}"}, name="two")
            await second.open(gateway)
            both = post(b"1", path=b"/ingest/one") + post(b"2", b"Connection: close", path=b"/ingest/two")
            assert statuses(await ask(first, both)) == [204, 204]
            assert (first.read(), second.read()) == ([b"1"], [b"2"])
            with pytest.raises(AddressInUse):
                await Site(tmp_path, "tcp", {"listen": f"127.0.0.1:{first.port}"}, name="three").open(gateway)
            assert set(gateway.streams) == {"one", "two"}
            await gateway.close("one")
            assert statuses(await ask(second, post(b"", b"Connection: close", path=b"/ingest/one"))) == [404]

    run(main)


def test_formats_without_a_visible_delimiter_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadOption):
        Site(tmp_path, "tcp", {"header": "true"}, fmt="csv")
    with pytest.raises(BadOption):
        Site(tmp_path, "http", {"multiline": "true", "record_delimiter": "|;"}, fmt="csv")
    with pytest.raises(BadOption):
        Site(tmp_path, "tcp", {"listen": ""})


def test_quoted_newlines_do_not_end_records(tmp_path: Path) -> None:
    site = Site(tmp_path, "tcp", {"multiline": "true"}, fmt="csv")

    async def main() -> None:
        async with serving(site):
            reader, writer = await site.connect()
            for piece in (b'1,"a\n', b'b"', b'"\nc"\n2,', b"x\n", b'3,"open\n'):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.02)
            writer.write_eof()
            await reader.read()
            assert b"\n".join(site.read()) == b'1,"a\nb""\nc"\n2,x'
            assert site.counters("tcp")["cut_records"] == 1

    run(main)


def test_a_sync_makes_everything_survive_the_machine(tmp_path: Path) -> None:
    site = Site(tmp_path, "tcp", {"fsync": "never"})

    async def main() -> None:
        async with serving(site) as gateway:
            _, writer = await site.connect()
            writer.write(b"{}\n")
            await until(lambda: site.counters("tcp")["bytes"] == 3)
            assert await gateway.do(GatewayOrder("sync", "S")) == GatewayAnswer()
            assert site.ingress.journal.unsynced() is None
            assert site.read() == [b"{}"]
            assert await gateway.do(GatewayOrder("sync", "unknown")) == GatewayAnswer()

    run(main)


def test_bodies_are_bounded_in_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sites, "MAX_BODIES", 1000)
    site = Site(tmp_path, "http", {"max_request_bytes": "1000"})

    async def main() -> None:
        async with serving(site):
            _, hanging = await site.connect()
            hanging.write(post(b"x" * 900)[:-10])
            server = site.gateway.streams["s"].http
            assert server is not None
            await until(lambda: server.site.routes["s"].body_bytes == 890)
            assert statuses(await ask(site, post(b"y" * 500, b"Connection: close"))) == [429]
            hanging.close()

    run(main)
