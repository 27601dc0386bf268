"""HTTP clients that are hostile, broken or only unusual, on a real gateway with real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.formats.codecs import decompress
from headrace.ingress import bodies, flusher, http, refusals
from headrace.ingress import site as sites
from headrace.ingress.gateway_messages import GatewayOrder
from headrace.ingress.http import HttpConnection
from headrace.ingress.site import Route
from tests.ingress.fuzz import packed
from tests.ingress.test_gateway import Site, ask, post, run, serving, statuses, until

DOCS = Path(__file__).parents[2] / "docs" / "ingress.md"
CHUNKED = b"POST /ingest/s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"


def problem(answer: bytes) -> str:
    """The code in the body of the last answer; it has advice."""
    found = json.loads(answer.rpartition(b"\r\n\r\n")[2])
    assert found["message"] and found["advice"]
    return str(found["code"])


def connections(site: Site) -> list[HttpConnection]:
    server = site.gateway.streams[site.definition.name].http
    assert server is not None
    return [c for c in server.site.connections if isinstance(c, HttpConnection)]


def route(site: Site) -> Route:
    server = site.gateway.streams[site.definition.name].http
    assert server is not None
    return server.site.routes[site.definition.name]


def address_counters(site: Site) -> dict[str, int]:
    server = site.gateway.streams[site.definition.name].http
    assert server is not None
    return server.site.counters


# --- upgrades -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_text",
    [
        # Java's HttpClient: BodyPublishers.ofString, and ofInputStream.
        b"POST /ingest/s HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: 8\r\nHost: 127.0.0.1:1\r\n"
        b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\nUpgrade: h2c\r\nUser-Agent: Java\r\n"
        b'\r\n{"a":1}\n',
        b"POST /ingest/s HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nTransfer-encoding: chunked\r\nHost: x\r\n"
        b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\nUpgrade: h2c\r\n\r\n"
        b'3\r\n{"a\r\n5\r\n":1}\n\r\n0\r\n\r\n',
        # curl --http2
        b"POST /ingest/s HTTP/1.1\r\nHost: 127.0.0.1:1\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n" + UPGRADE
        + b'Content-Length: 8\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\n{"a":1}\n',
        b"POST /ingest/s HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 7\r\n\r\n" b'{"a":1}',
    ],
)  # fmt: skip
def test_a_body_that_comes_with_an_offered_upgrade_is_stored(tmp_path: Path, request_text: bytes) -> None:
    site = Site(tmp_path, "http", {})

    async def main() -> None:
        async with serving(site):
            answer = await ask(site, request_text + post(b'{"a":2}') + request_text + post(b'{"a":3}'))
            assert statuses(answer) == [204] * 4
            assert [json.loads(line)["a"] for line in site.read()] == [1, 2, 1, 3]
            assert route(site).body_bytes == 0

    run(main)


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_a_body_from_curl_with_http2_is_stored(tmp_path: Path) -> None:
    site = Site(tmp_path, "http", {})

    async def main() -> None:
        async with serving(site):
            command = ["curl", "-sS", "--http2", "--data-binary", '{"a":1}', "-w", "%{http_code}"]
            command.append(f"http://127.0.0.1:{site.port}/ingest/s")
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=20, check=True)
            assert done.stdout == b"204"
            assert site.read() == [b'{"a":1}']

    run(main)


def test_a_body_without_a_length_is_not_answered_by_204(tmp_path: Path) -> None:
    site = Site(tmp_path, "http", {})

    async def main() -> None:
        async with serving(site):
            answer = await ask(site, b'POST /ingest/s HTTP/1.0\r\n\r\n{"a":1}\n')
            assert (statuses(answer), problem(answer)) == ([411], "LENGTH_REQUIRED")

    run(main)


# --- what is refused, and how ---------------------------------------------------------------------

TOKEN = b"Authorization: Bearer secret"


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [
        (post(b"{}", TOKEN, b"Content-Encoding: gzip", b"Content-Encoding: gzip"), 415, "UNSUPPORTED_ENCODING"),
        (post(b"{}", TOKEN, b"Content-Encoding: gzip, gzip"), 415, "UNSUPPORTED_ENCODING"),
        (post(b"{}", TOKEN, b"Content-Encoding: gzip", b"Content-Encoding: zstd"), 415, "UNSUPPORTED_ENCODING"),
        (post(b"{}", TOKEN, b"Content-Encoding: br"), 415, "UNSUPPORTED_ENCODING"),
        (post(b"{}", TOKEN, b"Content-Encoding: "), 415, "UNSUPPORTED_ENCODING"),
        (post(b"{}", TOKEN, b"Transfer-Encoding: gzip, chunked").replace(b"Content-Length: 2\r\n", b""), 501,
         "UNSUPPORTED_TRANSFER"),
        (post(b"{}", TOKEN, b"Transfer-Encoding: gzip").replace(b"Content-Length: 2\r\n", b""), 400, "BAD_REQUEST"),
        (post(b"{}", TOKEN, b"Transfer-Encoding: chunked"), 400, "BAD_REQUEST"),
        (post(b"{}", TOKEN, TOKEN), 401, "UNAUTHORIZED"),
        (post(b"{}", b"Authorization: Basic secret"), 401, "UNAUTHORIZED"),
        (post(b"{}", b"Authorization: Bearer secre"), 401, "UNAUTHORIZED"),
        (post(b"{}", b"Authorization: Bearer"), 401, "UNAUTHORIZED"),
        (post(b"{}", TOKEN, path=b"/ingest/t"), 404, "UNKNOWN_STREAM"),
        (post(b"{}", TOKEN, path=b"ftp://x/ingest/s"), 404, "UNKNOWN_STREAM"),
        (post(b"{}", TOKEN, method=b"PUT"), 405, "METHOD_NOT_ALLOWED"),
        (post(b"{}", TOKEN, b"Expect: a miracle"), 417, "EXPECTATION_FAILED"),
        (post(b"x" * 1001, TOKEN), 413, "BODY_TOO_LARGE"),
        (post(b"no gzip", TOKEN, b"Content-Encoding: gzip"), 400, "BODY_DAMAGED"),
        (post(b"{}", TOKEN, b"X: " + b"y" * 17_000), 431, "HEADERS_TOO_LARGE"),
        (CHUNKED.replace(b"Host", TOKEN + b"\r\nHost") + b"0\r\nX: " + b"y" * 17_000, 431, "HEADERS_TOO_LARGE"),
        (CHUNKED.replace(b"Host", TOKEN + b"\r\nHost") + b"no number\r\n", 400, "BAD_REQUEST"),
    ],
)  # fmt: skip
def test_a_refusal_has_a_status_a_code_and_advice(tmp_path: Path, text: bytes, status: int, code: str) -> None:
    site = Site(tmp_path, "http", {"token": "secret", "max_request_bytes": "1000"})

    async def main() -> None:
        async with serving(site):
            answer = await ask(site, text)
            assert (statuses(answer), problem(answer)) == ([status], code)
            assert site.read() == []
            assert site.counters("http")["refused"] + address_counters(site)["refused"] == 1

    run(main)


@pytest.mark.parametrize(
    "text",
    [
        post(b'{"a":1}', b"Authorization: bearer secret"),
        post(b'{"a":1}', b"aUTHORIZATION: BEARER  secret"),
        post(b'{"a":1}', TOKEN, path=b"http://gateway.example:8080/ingest/s?x=1"),
        post(b'{"a":1}', TOKEN, path=b"HTTP://gateway/ingest/%53"),
        post(b'{"a":1}', TOKEN, b"Content-Encoding: identity"),
        post(gzip.compress(b'{"a":1}'), TOKEN, b"Content-Encoding: X-GZIP"),
        b"\r\n" + post(b'{"a":1}', TOKEN),
        CHUNKED.replace(b"Host", TOKEN + b"\r\nHost")
        + b'7\r\n{"a":1}\r\n0\r\nContent-Encoding: gzip\r\nAuthorization: Bearer x\r\n\r\n',
    ],
)
def test_unusual_requests_that_are_right_are_taken(tmp_path: Path, text: bytes) -> None:
    site = Site(tmp_path, "http", {"token": "secret", "max_request_bytes": "1000"})

    async def main() -> None:
        async with serving(site):
            assert statuses(await ask(site, text)) == [204]
            assert site.read() == [b'{"a":1}']

    run(main)


def test_the_answers_are_documented() -> None:
    listed = re.findall(r"^\| (\d+) \| `(\w+)` \|", DOCS.read_text(), re.MULTILINE)
    assert {(int(status), code) for status, code in listed} == {
        (one.status.value, one.code) for one in vars(refusals).values() if isinstance(one, refusals.Refusal)
    }


def test_a_head_request_gets_no_body(tmp_path: Path) -> None:
    site = Site(tmp_path, "http", {})

    async def main() -> None:
        async with serving(site):
            answer = await ask(site, b"HEAD /ingest/s HTTP/1.1\r\nHost: x\r\n\r\n")
            assert statuses(answer) == [405]
            assert answer.endswith(b"\r\n\r\n") and answer.count(b"\r\n\r\n") == 1

    run(main)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"Content-Length: 500", 401),
        (b"Authorization: Bearer secret\r\nContent-Length: 1001", 413),
        (b"Authorization: Bearer secret\r\nContent-Length: 500\r\nContent-Encoding: br", 415),
        (b"Transfer-Encoding: chunked", 401),
    ],
)
def test_an_expectation_is_refused_before_the_body(tmp_path: Path, head: bytes, status: int) -> None:
    site = Site(tmp_path, "http", {"token": "secret", "max_request_bytes": "1000"})

    async def main() -> None:
        async with serving(site):
            reader, writer = await site.connect()
            writer.write(b"POST /ingest/s HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n" + head + b"\r\n\r\n")
            answer = await asyncio.wait_for(reader.read(), 10)  # nothing of the body is sent
            assert statuses(answer) == [status]
            assert b"Connection: close" in answer

    run(main)


def test_a_body_that_is_too_large_is_answered_before_its_end_and_the_answer_arrives(tmp_path: Path) -> None:
    site = Site(tmp_path, "http", {"max_request_bytes": "1000"})

    async def main() -> None:
        async with serving(site):
            for framing in (b"Content-Length: 9000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n895440\r\n"):
                reader, writer = await site.connect()
                writer.write(b"POST /ingest/s HTTP/1.1\r\nHost: x\r\n" + framing + b"x" * 8_000_000)
                await writer.drain()
                answer = await asyncio.wait_for(reader.read(), 10)
                assert (statuses(answer), problem(answer)) == ([413], "BODY_TOO_LARGE")
                writer.close()
            await until(lambda: not connections(site))

    run(main)


def test_a_small_body_that_is_refused_keeps_the_connection(tmp_path: Path) -> None:
    site = Site(tmp_path, "http", {"max_request_bytes": "1000"})

    async def main() -> None:
        async with serving(site):
            answer = await ask(site, post(b"x" * 5000) + post(b'{"a":1}'))
            assert statuses(answer) == [413, 204]

    run(main)


# --- attacks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rest", [b"garbage \xff", b"GARBAGE\r\n\r\n", b"\x16\x03\x01", b"POST / HTTP/1.1\nX: y\n"])
def test_garbage_after_a_good_request_closes_the_connection(tmp_path: Path, rest: bytes) -> None:
    site = Site(tmp_path, "http", {})

    async def main() -> None:
        async with serving(site):
            reader, writer = await site.connect()
            writer.write(post(b'{"a":1}') + rest)
            answer = await asyncio.wait_for(reader.read(), 10)
            assert (statuses(answer), problem(answer)) == ([204, 400], "BAD_REQUEST")
            writer.close()
            await until(lambda: not connections(site))
            assert site.read() == [b'{"a":1}']

    run(main)


def test_a_client_that_never_reads_its_last_response_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LINGER_SECONDS", 0.2)
    site = Site(tmp_path, "http", {})

    async def main() -> None:
        async with serving(site):
            _, writer = await site.connect()
            writer.write(b"garbage\r\n\r\n")
            for _ in range(20):  # it goes on sending, and never ends its side
                writer.write(b"x" * 1000)
                await asyncio.sleep(0.01)
            await until(lambda: not connections(site))

    run(main)


@pytest.mark.parametrize("text", [b"GET / HTTP/1.1\r\n\r\n", post(b"{}"), post(b"{}", b"Expect: 100-continue")])
def test_answers_that_are_not_read_are_bounded_in_memory_and_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    monkeypatch.setattr(http, "MAX_UNREAD", 4096)
    site = Site(tmp_path, "http", {"request_timeout": "500ms"})

    async def main() -> None:
        async with serving(site):
            client = socket.create_connection(("127.0.0.1", site.port))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            sent, peak, seen = 0, 0, False
            with contextlib.suppress(ConnectionError):
                while not seen or connections(site):
                    with contextlib.suppress(BlockingIOError):
                        sent += client.send(text * (60_000 // len(text)))
                    for transport in [c._transport for c in connections(site) if c._transport is not None]:
                        seen = True
                        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
                        peak = max(peak, transport.get_write_buffer_size())
                    await asyncio.sleep(0.002)
            await until(lambda: not connections(site))
            client.close()
            assert 4096 < peak < 4096 + http.MAX_PIPELINED * 400
            assert site.counters("http")["timeouts"] + address_counters(site)["timeouts"] == 1
            assert sent > 100_000

    run(main)


def test_an_endless_trailer_is_refused(tmp_path: Path) -> None:
    site = Site(tmp_path, "http", {})

    async def main() -> None:
        async with serving(site):
            reader, writer = await site.connect()
            writer.write(CHUNKED + b'8\r\n{"a":1}\n\r\n0\r\nX: ')
            answer = asyncio.ensure_future(reader.read())
            with contextlib.suppress(ConnectionError):
                while not answer.done():
                    writer.write(b"y" * 4000)
                    await writer.drain()
                    await asyncio.sleep(0)
            assert (statuses(await answer), problem(await answer)) == ([431], "HEADERS_TOO_LARGE")
            assert site.read() == []
            assert route(site).body_bytes == 0

    run(main)


def test_small_chunks_take_no_more_memory_than_their_bytes(tmp_path: Path) -> None:
    site = Site(tmp_path, "http", {})
    count = 100_000

    async def main() -> None:
        async with serving(site):
            reader, writer = await site.connect()
            writer.write(CHUNKED + b"2\r\n7\n\r\n" * count)
            await until(lambda: route(site).body_bytes == 2 * count)
            (connection,) = connections(site)
            assert sys.getsizeof(connection._body) < 2.5 * count
            assert len(connection._reader._data) < 300_000
            writer.write(b"0\r\n\r\n")
            assert statuses(await reader.readuntil(b"\r\n\r\n")) == [204]
            assert site.read() == [b"7"] * count

    run(main)


def test_a_connection_with_much_to_do_lets_others_have_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, "http", {})
    answers: list[str] = []
    send = http.HttpConnection._answer

    def watched(self: Any, place: Any, text: bytes) -> None:
        answers.append("busy" if b"404" in text else "other")
        send(self, place, text)

    monkeypatch.setattr(http.HttpConnection, "_answer", watched)

    async def main() -> None:
        async with serving(site):
            _, busy = await site.connect()
            reader, other = await site.connect()
            busy.write(b"GET / HTTP/1.1\r\n\r\n" * 2000)
            other.write(post(b"{}"))
            assert statuses(await reader.readuntil(b"\r\n\r\n")) == [204]
            await until(lambda: len(answers) == 2001)
            assert answers.index("other") < 1500

    run(main)


def test_decompression_does_not_stop_the_loop_and_keeps_the_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, "http", {})
    release = threading.Event()
    real = decompress

    def slow(*given: Any) -> bytes:
        assert release.wait(20)
        return real(*given)

    monkeypatch.setattr(bodies, "decompress", slow)

    async def main() -> None:
        async with serving(site):
            reader, writer = await site.connect()
            writer.write(
                post(gzip.compress(b'{"a":1}'), b"Content-Encoding: gzip") + post(b'{"a":2}') + post(b'{"a":3}')
            )
            await until(lambda: any(c._working for c in connections(site)))
            assert statuses(await ask(site, post(b'{"a":0}'))) == [204]
            release.set()
            writer.write_eof()
            assert statuses(await reader.read()) == [204, 204, 204]
            assert site.read() == [b'{"a":%d}' % i for i in range(4)]

    run(main)


@pytest.mark.parametrize(
    ("error", "status"), [(RuntimeError("a defect"), 400), (MemoryError(), 429), (SystemError(), 400)]
)
def test_any_exception_of_a_decompressor_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    site = Site(tmp_path, "http", {})

    def fail(*given: Any) -> bytes:
        raise error

    monkeypatch.setattr(bodies, "decompress", fail)

    async def main() -> None:
        async with serving(site):
            answer = await ask(site, post(b"abc", b"Content-Encoding: zstd") + post(b'{"a":1}'))
            assert statuses(answer) == [status, 204]
            assert route(site).body_bytes == 0
            assert site.read() == [b'{"a":1}']

    run(main)


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4", "bzip2", "snappy"])
def test_a_bomb_is_refused_when_it_is_larger_than_a_body_may_be(tmp_path: Path, codec: str) -> None:
    site = Site(tmp_path, "http", {"max_request_bytes": "1MiB"})
    bomb = packed(b" " * (8 << 20), codec)

    async def main() -> None:
        async with serving(site):
            answer = await ask(site, post(bomb, b"Content-Encoding: " + codec.encode()))
            assert (statuses(answer), problem(answer)) == ([413], "BODY_TOO_LARGE")

    run(main)


@pytest.mark.parametrize("chunk", [b"\xfe\x00\x00\x00", b"\x01\x05\x00\x00abcdx"])
def test_a_body_of_crumbs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: bytes) -> None:
    site = Site(tmp_path, "http", {})
    monkeypatch.setattr(bodies, "decompress", lambda *given: pytest.fail("it would take seconds"))

    async def main() -> None:
        async with serving(site):
            answer = await ask(site, post(b"\xff\x06\x00\x00sNaPpY" + chunk * 5_000, b"Content-Encoding: snappy"))
            assert (statuses(answer), problem(answer)) == ([400], "BODY_DAMAGED")

    run(main)


def test_a_bug_in_the_gateway_leaves_no_connection_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site(tmp_path, "http", {"token": "very secret"})

    def fail(*given: Any) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(http.HttpConnection, "_take", fail)

    async def main() -> None:
        async with serving(site):
            token = b"Authorization: Bearer very secret"
            for text in (post(b"{}", token), post(gzip.compress(b"{}"), token, b"Content-Encoding: gzip")):
                with contextlib.suppress(ConnectionError):
                    assert await ask(site, text) == b""
            await until(lambda: not connections(site))
            assert "very secret" not in repr(route(site))

    run(main)
    shown = capsys.readouterr().err
    assert "a defect" in shown and "very secret" not in shown


# --- answers without a timer ----------------------------------------------------------------------


@pytest.mark.parametrize("source", ["http", "tcp"])
def test_a_client_that_waits_is_answered_without_a_timer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setattr(flusher, "FLUSH_SECONDS", 60.0)
    site = Site(tmp_path, source, {"acks": "true"} if source == "tcp" else {})

    async def main() -> None:
        async with serving(site):
            reader, writer = await site.connect()
            for i in range(1, 21):
                writer.write(post(b'{"a":1}\n') if source == "http" else b'{"a":1}\n')
                if source == "http":
                    assert statuses(await reader.readuntil(b"\r\n\r\n")) == [204]
                else:
                    assert await reader.readline() == b"%d\n" % (8 * i)
                assert site.read() == [b'{"a":1}']

    run(main)


def test_clients_that_wait_together_share_flushes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher, "FLUSH_SECONDS", 60.0)
    site = Site(tmp_path, "http", {})

    async def main() -> None:
        async with serving(site):
            clients = [await site.connect() for _ in range(50)]
            flushes = [0]
            real = site.ingress.journal.flush

            def counted() -> bool:
                flushes[0] += 1
                return real()

            monkeypatch.setattr(site.ingress.journal, "flush", counted)
            for _, writer in clients:
                writer.write(post(b"{}"))
            for reader, _ in clients:
                assert statuses(await reader.readuntil(b"\r\n\r\n")) == [204]
            assert flushes[0] <= 25

    run(main)


# --- streams that share an address ----------------------------------------------------------------


def test_streams_that_share_an_address_have_their_own_timeouts_limits_and_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sites, "MAX_BODIES", 1000)
    strict = {"request_timeout": "200ms", "idle_timeout": "200ms", "max_connections": "1", "max_request_bytes": "900"}
    one = Site(tmp_path, "http", strict, name="one")

    async def main() -> None:
        async with serving(one) as gateway:
            two = Site(tmp_path, "http", {"listen": f"127.0.0.1:{one.port}", "token": "x"}, name="two")
            await two.open(gateway)
            token = b"Authorization: Bearer x"
            first, at_one = await one.connect()
            at_one.write(post(b"1", path=b"/ingest/one") + post(b"x" * 500, path=b"/ingest/one")[:-1])
            assert statuses(await first.readuntil(b"\r\n\r\n")) == [204]
            second, at_two = await one.connect()
            at_two.write(post(b"2", token, path=b"/ingest/two") + post(b"y" * 950, token, path=b"/ingest/two")[:-1])
            assert statuses(await second.readuntil(b"\r\n\r\n")) == [204]
            await until(lambda: (route(one).body_bytes, route(two).body_bytes) == (499, 949))
            # One stream has all the connections that it may have; the other has not.
            both = post(b"3", path=b"/ingest/one") + post(b"4", token, path=b"/ingest/two")
            answer = await ask(one, both + post(b"5", path=b"/ingest/two") + post(b"6", path=b"/ingest/three"))
            assert statuses(answer) == [503, 204, 401, 404]
            assert statuses(await first.read()) == [408]
            at_one.close()
            await asyncio.sleep(1.2)
            assert route(two).body_bytes == 949  # its time is not over
            at_two.write(b"y")
            assert statuses(await second.readuntil(b"\r\n\r\n")) == [204]
            at_two.write(post(b"7", path=b"/ingest/one"))  # belongs to both from now on
            assert statuses(await second.readuntil(b"\r\n\r\n")) == [204]
            assert await second.read() == b""  # idle, by the rule of the stream that it sent to last
            await until(lambda: not connections(one))
            mine, its = one.counters("http"), two.counters("http")
            names = ("opened", "closed", "requests", "refused", "timeouts", "bytes")
            assert [mine[name] for name in names] == [2, 2, 2, 2, 2, 4]
            assert [its[name] for name in names] == [2, 2, 3, 1, 0, 955]
            shared = address_counters(one)
            assert [shared[name] for name in names] == [3, 3, 0, 1, 0, 0]
            found = ((await gateway.do(GatewayOrder("metrics", "two"))).metrics or {})["classes"]
            assert found["http_address"]["refused"] == 1 and found["http"]["open"] == 0

    run(main)


def test_bodies_of_one_stream_leave_room_for_those_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sites, "MAX_BODIES", 1000)
    one = Site(tmp_path, "http", {"max_request_bytes": "1000"}, name="one")

    async def main() -> None:
        async with serving(one) as gateway:
            two = Site(tmp_path, "http", {"listen": f"127.0.0.1:{one.port}", "max_request_bytes": "5000"}, name="two")
            await two.open(gateway)
            _, hanging = await one.connect()
            hanging.write(post(b"x" * 900, path=b"/ingest/one")[:-10])
            await until(lambda: route(one).body_bytes == 890)
            large = post(b"1" * 4500, path=b"/ingest/two")  # larger than all bodies may be, but a body may be so large
            answer = await ask(one, post(b"y" * 500, path=b"/ingest/one") + large)
            assert statuses(answer) == [429, 204]

    run(main)
