"""What the gateway does when the disk, the system or the hub fails it: nothing is acknowledged that could be lost, and
it goes on when the trouble is over."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import JournalUnwritable
from headrace.ingress import flusher, http, tcp
from headrace.ingress import gateway as gateway_module
from headrace.ingress.arena import LARGEST_READ
from headrace.ingress.gateway import raise_file_limit
from headrace.ingress.gateway_messages import GatewayOrder
from headrace.ingress.journal import Journal
from headrace.ingress.journal_sync import Sync
from headrace.ingress.mark import JournalPosition, commit
from headrace.ingress.ready import ReadyLog
from tests.ingress.test_gateway import Site, ask, post, run, serving, statuses, until
from tests.ingress.test_journal import Sender, read


class Failing:
    """A function that fails while `on`."""

    def __init__(self, real: Callable[..., Any], code: int) -> None:
        self.real, self.code, self.on = real, code, False

    def __call__(self, *given: Any) -> Any:
        if self.on:
            raise OSError(self.code, os.strerror(self.code))
        return self.real(*given)


def test_writing_continues_after_a_segment_cannot_be_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path, 1)
    sender = Sender(journal, 1)
    sender.send(b"kernels may have to be compiled, which opens files\n")
    assert journal.flush()
    opening = Failing(os.open, 24)
    monkeypatch.setattr(os, "open", opening)
    for turn in range(20):
        opening.on = turn % 4 != 3
        sender.send(b"a line of this turn, %d\nand half of" % turn)
        assert journal.flush() == (not opening.on)
        opening.on = False
        assert read(tmp_path) == sender.whole
    assert journal.flush()
    journal.sync()
    assert len(list(tmp_path.glob("ready-*"))) > 3
    journal.close()


def test_a_log_that_did_not_take_a_record_is_not_changed_under_later_buffers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path, 100)
    sender = Sender(journal, 1)
    writing = Failing(os.pwrite, 28)
    sender.send(b"x" * 120 + b"\n")

    def only_the_log(handle: int, data: memoryview, at: int) -> int:
        return int((writing if handle == journal._log.ready else writing.real)(handle, data, at))

    monkeypatch.setattr(os, "pwrite", only_the_log)
    writing.on = True
    assert not journal.flush()
    sender.send(b"for the old segment\n")
    writing.on = False
    assert journal.flush()
    assert read(tmp_path) == sender.whole
    journal.close()


def test_a_shredder_that_fails_finds_the_same_buffers_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path, 1 << 20)
    sender = Sender(journal, 1)
    sender.send(b"one\ntw")
    with monkeypatch.context() as patch:
        patch.setattr(journal.shredder, "arrive", lambda _: (_ for _ in ()).throw(MemoryError()))
        with pytest.raises(MemoryError):
            journal.flush()
    sender.send(b"o\n")
    assert journal.flush()
    assert read(tmp_path) == [b"one", b"two"]
    journal.close()


def test_consumers_that_move_while_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path, 100)
    slow, busy = Sender(journal, 99), Sender(journal, 1)
    slow.send(b"open, ")
    for i in range(20):
        busy.send(b"a line of the busy one, %d\n" % i)
        journal.flush()
    busy.send(b"in the arena\n")
    log = ReadyLog(tmp_path)
    log.follow(JournalPosition())
    end = log.advance(JournalPosition(), None)
    before = len(list(tmp_path.glob("*")))
    writing = Failing(os.pwrite, 28)
    monkeypatch.setattr(os, "pwrite", writing)
    writing.on = True
    commit(tmp_path, "stream", end)
    assert journal.poll()
    assert journal.held == len(b"open, in the arena\n")
    assert len(list(tmp_path.glob("*"))) < before  # room for the flush to come
    writing.on = False
    slow.send(b"closed\n")
    assert journal.flush()
    assert sorted(read(tmp_path, end)) == [b"in the arena", b"open, closed"]
    journal.close()


def test_space_is_released_even_if_an_open_record_cannot_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, "tcp", {})

    async def main() -> None:
        async with serving(site):
            ingress = site.ingress
            ingress.journal.segment_bytes = 1000
            _, slow = await site.connect()
            slow.write(b'{"a":')
            _, busy = await site.connect()
            for _ in range(30):
                busy.write(b'{"a":2}' + b" " * 100 + b"\n")
                await asyncio.sleep(0.01)
            await until(lambda: ingress.counters.of("tcp")["bytes"] == 30 * 108 + 5 and not ingress.flusher._scheduled)
            failing = Failing(ingress.journal._kept.carry, 5)
            failing.on = True
            monkeypatch.setattr(ingress.journal._kept, "carry", failing)
            assert len(site.read()) == 30
            await until(lambda: ingress.pressure.held == ingress.journal.held == 5)
            failing.on = False
            slow.write(b"1}\n")
            await until(lambda: site.read() == [b'{"a":1}'])

    run(main)


@pytest.mark.parametrize("fsync", ["always", "second"])
def test_data_that_cannot_be_synced_is_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: str
) -> None:
    site = Site(tmp_path, "http", {"fsync": fsync})
    syncing = Failing(os.fdatasync, 5)
    monkeypatch.setattr(os, "fdatasync", syncing)

    async def main() -> None:
        async with serving(site):
            syncing.on = True
            asked = [asyncio.ensure_future(ask(site, post(b'{"a":1}', b"Connection: close")))]
            await until(lambda: "cannot be synced" in site.ingress.metrics()["problem"])
            if fsync == "always":
                assert not (await asyncio.wait(asked, timeout=0.3))[0]
            assert site.ingress.metrics()["state"] == "paused"
            assert statuses(await ask(site, post(b'{"a":2}', b"Connection: close"))) == [429]
            with pytest.raises(OSError):
                await site.ingress.flusher.sync()
            syncing.on = False
            assert statuses(await asked[0]) == [204]
            await until(lambda: site.ingress.open)
            assert not site.ingress.journal.unsynced()
            assert statuses(await ask(site, post(b'{"a":3}', b"Connection: close"))) == [204]
            assert site.read() == [b'{"a":1}', b'{"a":3}']

    run(main)


def test_data_whose_file_cannot_be_closed_is_acknowledged_when_it_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, "http", {"fsync": "always"})
    close, run_sync, ran = os.close, Sync.run, list[Sync]()
    closed: list[int] = []

    def close_with_an_error(handle: int) -> None:
        close(handle)
        closed.append(handle)
        if len(ran) == 1 and handle == ran[0].files[0][1]:
            raise OSError(5, os.strerror(5))

    def run_with_an_error(sync: Sync, *given: bool) -> None:
        ran.append(sync)
        with monkeypatch.context() as patch:
            patch.setattr(os, "close", close_with_an_error)
            run_sync(sync, *given)

    async def main() -> None:
        async with serving(site):
            monkeypatch.setattr(Sync, "run", run_with_an_error)
            rewrites = Failing(site.ingress.journal.rewrite, 5)
            monkeypatch.setattr(site.ingress.journal, "rewrite", rewrites)
            rewrites.on = True
            asked = asyncio.ensure_future(ask(site, post(b'{"a":1}', b"Connection: close")))
            await until(lambda: "cannot be synced" in site.ingress.metrics()["problem"])
            assert not (await asyncio.wait([asked], timeout=0.3))[0]
            assert {handle for _, handle in ran[0].files} <= set(closed)
            rewrites.on = False
            assert statuses(await asked) == [204]
            await until(lambda: site.ingress.open)
            assert site.read() == [b'{"a":1}']

    run(main)


class Gate:
    """Syncs wait until the test lets them pass."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.begun, self._passes, self._real = 0, threading.Semaphore(0), Sync.run
        self.files: list[list[str]] = []  # of each sync that has run
        patch.setattr(Sync, "run", lambda sync, *given, **named: self._run(sync, *given, **named))

    def _run(self, sync: Sync, *given: Any, **named: Any) -> None:
        self.begun += 1
        assert self._passes.acquire(timeout=20)
        self._real(sync, *given, **named)
        self.files.append([path.name for path, _ in sync.files])

    def let(self, syncs: int) -> None:
        self._passes.release(syncs)


def test_the_loop_continues_while_the_disk_syncs_and_one_sync_answers_all_who_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, quick = Site(tmp_path, "http", {"fsync": "always"}), Site(tmp_path, "http", {"fsync": "never"}, name="q")

    async def main() -> None:
        async with serving(slow, quick):
            gate = Gate(monkeypatch)
            first = asyncio.ensure_future(ask(slow, post(b'{"a":0}', b"Connection: close")))
            await until(lambda: gate.begun >= 1)
            late = [asyncio.ensure_future(ask(slow, post(b'{"a":%d}' % i, b"Connection: close"))) for i in range(1, 20)]
            assert statuses(await ask(quick, post(b'{"a":1}', b"Connection: close", path=b"/ingest/q"))) == [204]
            await until(lambda: slow.ingress.counters.of("http")["buffers"] == 20)
            assert not (await asyncio.wait([first, *late], timeout=0.3))[0]
            gate.let(1)
            assert statuses(await first) == [204]
            assert not (await asyncio.wait(late, timeout=0.1))[0]
            gate.let(100)
            assert [statuses(await one) for one in late] == [[204]] * 19
            assert gate.begun <= 5, "one sync for the requests that came during the first, and those of the timers"

    run(main)


def test_an_acknowledgement_never_covers_bytes_that_came_while_the_disk_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, "tcp", {"fsync": "always", "acks": "true"})

    async def main() -> None:
        async with serving(site):
            gate = Gate(monkeypatch)
            reader, writer = await site.connect()
            writer.write(b'{"a":1}\n')
            for turn in range(1, 6):
                await until(partial(_equal, lambda: gate.begun, turn))
                writer.write(b'{"a":2}\n')
                await until(partial(_equal, lambda: site.ingress.counters.of("tcp")["bytes"], 8 * (turn + 1)))
                await asyncio.sleep(0.02)  # it is flushed too
                gate.let(1)
                assert await reader.readline() == b"%d\n" % (8 * turn)
            gate.let(100)
            assert await reader.readline() == b"48\n"
            assert len(site.read()) == 6

    run(main)


def test_a_sync_of_written_data_runs_and_answers_its_clients_while_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher, "RETRY_SECONDS", 0.05)
    site = Site(tmp_path, "http", {"fsync": "always"})
    writing = Failing(os.pwrite, 28)

    def send(number: int) -> asyncio.Future[bytes]:
        return asyncio.ensure_future(ask(site, post(b'{"a":%d}' % number, b"Connection: close")))

    async def main() -> None:
        async with serving(site):
            assert statuses(await send(0)) == [204]  # compiles the kernels
            journal = site.ingress.journal
            handles = len(os.listdir("/proc/self/fd"))
            monkeypatch.setattr(os, "pwrite", writing)
            gate = Gate(monkeypatch)
            first = send(1)
            await until(lambda: gate.begun == 1)
            number, journal.segment_bytes = journal.number, 1
            second = send(2)  # fills the segment
            await until(lambda: journal.number == number + 1)
            journal.segment_bytes = 1 << 20
            writing.on = True
            third = send(3)
            await until(lambda: journal.problem)
            gate.let(1)
            assert statuses(await first) == [204]
            await until(lambda: gate.begun == 2)
            assert not (await asyncio.wait([second], timeout=0.2))[0]
            gate.let(1)
            assert statuses(await second) == [204]
            assert f"segment-{number:08}.raw" in gate.files[1]
            assert journal.problem and not third.done()
            writing.on = False
            gate.let(100)
            assert statuses(await third) == [204]
            await until(lambda: site.ingress.open)
            await until(lambda: len(os.listdir("/proc/self/fd")) <= handles)
            assert site.read() == [b'{"a":%d}' % i for i in range(4)]

    run(main)


def _equal(found: Callable[[], int], wanted: int) -> bool:
    return found() == wanted


def test_a_sync_waits_for_the_one_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path, "http", {})
    gate, entered = threading.Event(), threading.Event()

    def slowly(handle: int) -> None:
        entered.set()
        gate.wait(10)

    async def main() -> None:
        async with serving(site):
            monkeypatch.setattr(os, "fdatasync", slowly)
            assert statuses(await ask(site, post(b'{"a":1}', b"Connection: close"))) == [204]
            await until(entered.is_set)
            asked = asyncio.ensure_future(site.ingress.flusher.sync())
            assert not (await asyncio.wait([asked], timeout=0.2))[0]
            gate.set()
            await asked

    run(main)


def test_a_connection_outlives_a_stream_that_is_closed_and_opened_again(tmp_path: Path) -> None:
    first = Site(tmp_path, "http", {"max_connections": "3"}, name="s")
    other = Site(tmp_path, "http", {}, name="t")

    async def main() -> None:
        async with serving(first) as gateway:
            other.settings = replace(other.settings, listen=("127.0.0.1", first.port))
            await other.open(gateway)
            reader, writer = await first.connect()

            async def send(body: bytes, path: bytes = b"/ingest/s") -> list[int]:
                writer.write(post(body, path=path))
                answer = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int((re.findall(rb"Content-Length: (\d+)", answer) or [b"0"])[0]))
                return statuses(answer)

            for i in range(3):
                assert await send(b'{"a":%d}' % i) == [204]
            old = first.ingress
            await gateway.close("s")
            assert not old.open
            assert not old.take_body(old.begin_origin("http"), b"{}\n", lambda: None)
            assert await send(b"{}") == [404]
            shared = gateway.streams["t"].metrics
            assert (shared()["classes"]["http_address"]["refused"], shared()["classes"]["http_address"]["open"]) == (
                1,
                1,
            )
            assert "http" not in shared()["classes"]  # nothing was sent to it
            first.settings = replace(first.settings, listen=("127.0.0.1", first.port))
            await first.open(gateway)
            assert await send(b'{"a":3}') == [204]
            assert first.read() == [b'{"a":%d}' % i for i in range(4)]
            assert first.ingress.metrics()["classes"]["http"]["open"] == 1
            writer.close()
            await until(lambda: shared()["classes"]["http_address"]["open"] == 0)
            assert first.ingress.metrics()["classes"]["http"]["open"] == 0

    run(main)


def test_a_connection_is_not_left_waiting_for_a_journal_that_was_closed_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "LINGER_SECONDS", 0.2)
    first, other = Site(tmp_path, "http", {}, name="s"), Site(tmp_path, "http", {}, name="t")
    writing = Failing(os.pwrite, 28)
    monkeypatch.setattr(os, "pwrite", writing)

    async def main() -> None:
        async with serving(first) as gateway:
            other.settings = replace(other.settings, listen=("127.0.0.1", first.port))
            await other.open(gateway)
            reader, writer = await first.connect()
            writing.on = True
            writer.write(post(b"{}"))
            await until(lambda: first.ingress.journal.problem)
            await gateway.close("s")
            writing.on = False
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), 10) == b""
            assert gateway.streams["t"].metrics()["classes"]["http_address"]["open"] == 0

    run(main)


def test_streams_share_an_address_by_the_name_that_they_give_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    sites = [Site(tmp_path, "http", {"listen": f"localhost:{port}"}, name=name) for name in ("s", "t")]

    async def main() -> None:
        async with serving(*sites) as gateway:
            assert statuses(await ask(sites[0], post(b"{}", b"Connection: close", path=b"/ingest/t"))) == [204]
            assert sites[1].read() == [b"{}"]
            for name in ("s", "t"):
                await gateway.close(name)
            assert not gateway.https

    run(main)


def test_a_connection_that_comes_while_the_stream_is_paused_waits_too(tmp_path: Path) -> None:
    site = Site(tmp_path, "tcp", {"max_journal_bytes": "1MiB"})

    async def main() -> None:
        async with serving(site):
            _, first = await site.connect()
            first.write(b" " * (2 << 20))
            await until(lambda: site.ingress.metrics()["state"] == "paused")
            _, second = await site.connect()
            second.write(b" " * (2 << 20))
            await asyncio.sleep(0.3)
            assert site.ingress.journal.held <= (1 << 20) + 2 * LARGEST_READ

    run(main)


def test_the_gateway_may_open_as_many_files_as_the_system_allows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard) - 1, hard))
        raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_other_streams_continue_while_a_journal_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, slow = Site(tmp_path, "http", {}, name="s"), Site(tmp_path, "http", {}, name="t")
    gate, opened = threading.Event(), []

    def slowly(directory: Path, size: int) -> Journal:
        opened.append(directory)
        assert gate.wait(20)
        return Journal(directory, size)

    async def main() -> None:
        async with serving(first) as gateway:
            monkeypatch.setattr(gateway_module, "Journal", slowly)
            opening = [asyncio.ensure_future(slow.open(gateway)) for _ in range(2)]  # the hub may ask again
            await until(lambda: opened)
            assert statuses(await ask(first, post(b'{"a":1}', b"Connection: close"))) == [204]
            assert not (await asyncio.wait(opening, timeout=0.1))[0]
            gate.set()
            sites = await asyncio.gather(*opening)
            assert sites[0].addresses == sites[1].addresses
            assert len(opened) == 1
            assert statuses(await ask(slow, post(b'{"a":2}', b"Connection: close", path=b"/ingest/t"))) == [204]

    run(main)


def test_a_full_disk_pauses_the_senders_until_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path, "http", {})
    writing = Failing(os.pwrite, 28)
    monkeypatch.setattr(os, "pwrite", writing)

    async def main() -> None:
        async with serving(site) as gateway:
            assert statuses(await ask(site, post(b'{"a":1}', b"Connection: close"))) == [204]
            writing.on = True
            asked = asyncio.ensure_future(ask(site, post(b'{"a":2}', b"Connection: close")))
            await until(lambda: "No space" in site.ingress.metrics()["problem"])
            assert site.ingress.metrics()["state"] == "paused"
            assert statuses(await ask(site, post(b'{"a":3}', b"Connection: close"))) == [429]
            with pytest.raises(JournalUnwritable):
                await gateway.do(GatewayOrder("sync", "s"))
            assert not asked.done()
            writing.on = False
            assert statuses(await asked) == [204]
            await until(lambda: site.ingress.open)
            assert site.read() == [b'{"a":1}', b'{"a":2}']

    run(main)


def test_a_journal_that_cannot_be_opened_has_a_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path, "http", {})
    writing = Failing(os.pwrite, 28)
    monkeypatch.setattr(os, "pwrite", writing)
    writing.on = True

    async def main() -> None:
        async with serving() as gateway:
            with pytest.raises(JournalUnwritable):
                await site.open(gateway)
            writing.on = False
            await site.open(gateway)
            assert statuses(await ask(site, post(b'{"a":1}', b"Connection: close"))) == [204]

    run(main)


def test_unflushed_data_is_not_acknowledged_when_the_client_reads_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, "tcp", {"acks": "true"})
    writing = Failing(os.pwrite, 28)
    monkeypatch.setattr(os, "pwrite", writing)
    monkeypatch.setattr(flusher, "RETRY_SECONDS", 0.05)

    async def main() -> None:
        async with serving(site):
            reader, writer = await site.connect()
            writer.write(b'{"a":1}\n')
            assert await reader.readline() == b"8\n"
            (peer,) = site.ingress.peers
            assert isinstance(peer, tcp.TcpPeer)
            writing.on = True
            writer.write(b'{"a":2}\n')
            await until(lambda: site.ingress.journal.problem)
            peer.resume_writing()  # the other side has read what was waiting for it
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.readline(), 0.3)
            writing.on = False
            assert await reader.readline() == b"16\n"

    run(main)


def test_nothing_is_acknowledged_without_a_file_handle_for_the_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, "http", {"fsync": "always"})
    copying = Failing(os.dup, 24)
    monkeypatch.setattr(os, "dup", copying)
    monkeypatch.setattr(flusher, "RETRY_SECONDS", 0.05)

    async def main() -> None:
        async with serving(site):
            copying.on = True
            asked = asyncio.ensure_future(ask(site, post(b'{"a":1}', b"Connection: close")))
            await until(lambda: "cannot be synced" in site.ingress.metrics()["problem"])
            assert not (await asyncio.wait([asked], timeout=0.3))[0]
            copying.on = False
            assert statuses(await asked) == [204]
            await until(lambda: site.ingress.open)
            assert site.read() == [b'{"a":1}']

    run(main)


def test_a_client_that_never_reads_its_last_acknowledgement_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp, "LINGER_SECONDS", 0.2)
    site = Site(tmp_path, "tcp", {"acks": "true"})

    async def main() -> None:
        async with serving(site):
            reader, writer = await site.connect()
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            await until(lambda: site.ingress.peers)
            (peer,) = site.ingress.peers
            assert isinstance(peer, tcp.TcpPeer) and peer._transport is not None
            peer._transport.write(b"0\n" * (8 << 20))  # acknowledgements that fill all buffers of the system
            writer.write(b'{"a":1}\n')
            writer.write_eof()
            await asyncio.wait_for(peer.closed, 10)
            assert site.read() == [b'{"a":1}']

    run(main)
