"""The gateway as an MQTT client, against a broker that a test scripts packet by packet."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from headrace.brokers import mqtt_packets as mqtt
from headrace.errors import StateDamaged
from headrace.ingress.frames import parse_frames
from headrace.ingress.gateway import Gateway, OpenStream
from headrace.ingress.mark import JournalPosition
from headrace.ingress.mqtt_session import MqttSession
from headrace.ingress.ready import ReadyLog, UnitReader
from headrace.model.definitions import StreamDef
from headrace.model.schema import BIGINT, Field, Schema
from headrace.sources import SOURCES


class Scripted:
    """A broker for one client at a time. `kept` says whether it has the session, `code` what it answers to a login."""

    def __init__(self) -> None:
        self.kept, self.code, self.version = False, 0, mqtt.V5
        self.got: asyncio.Queue[mqtt.Packet] = asyncio.Queue()
        self.connections = 0
        self._writer: asyncio.StreamWriter | None = None

    async def serve(self) -> int:
        self._server = await asyncio.start_server(self._client, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        packets, self._writer = mqtt.PacketReader(), writer
        self.connections += 1
        while data := await reader.read(65536):
            for packet in packets.feed(data):
                if packet.kind == mqtt.CONNECT:
                    tail = b"\0" if self.version == mqtt.V5 else b""
                    writer.write(bytes([0x20, 2 + len(tail), self.kept, self.code]) + tail)
                elif packet.kind == mqtt.SUBSCRIBE:
                    tail = b"\0" if self.version == mqtt.V5 else b""
                    writer.write(bytes([0x90, 3 + len(tail)]) + packet.body[:2] + tail + b"\2")
                elif packet.kind != mqtt.PINGREQ:
                    self.got.put_nowait(packet)
                    if packet.kind == mqtt.DISCONNECT:
                        return writer.close()
        writer.close()

    def send(self, number: int, qos: int, mid: int, dup: bool = False) -> None:
        assert self._writer is not None
        self._writer.write(mqtt.publish(b"t", b"%d" % number, qos, False, mid, self.version, dup))

    def send_bytes(self, size: int, mid: int) -> None:
        assert self._writer is not None
        self._writer.write(mqtt.publish(b"t", bytes(size), 1, False, mid, self.version))

    def release(self, mid: int) -> None:
        assert self._writer is not None
        self._writer.write(mqtt.acknowledge(mqtt.PUBREL, mid))

    def read(self, on: bool) -> None:
        """Read what the client sends, or leave it in the socket."""
        assert self._writer is not None
        transport: Any = self._writer.transport
        transport.resume_reading() if on else transport.pause_reading()

    @property
    def reset(self) -> bool:
        """True if the client broke the connection off, with bytes that may not have been read."""
        assert self._writer is not None
        return bool(self._writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

    def hang_up(self) -> None:
        assert self._writer is not None
        self._writer.transport.abort()

    async def answers(self, count: int) -> list[tuple[int, int]]:
        """The next packets, as (type, number of the message)."""
        found = [await asyncio.wait_for(self.got.get(), 10) for _ in range(count)]
        return [(p.kind, mqtt.acknowledged(p)[0] if p.body else 0) for p in found]

    async def close(self) -> None:
        self._server.close()


class Run:
    """A stream `s` on a gateway in this process that reads from a scripted broker."""

    def __init__(self, root: Path, broker: Scripted, gateway: Gateway) -> None:
        self.root, self.broker, self.gateway = root, broker, gateway

    async def open(self, port: int, **options: str) -> Run:
        version = "5" if self.broker.version == mqtt.V5 else "3.1.1"
        given = {"url": f"mqtt://127.0.0.1:{port}", "topics": "t", "qos": "2", "version": version} | options
        stream = StreamDef("s", Schema((Field("a", BIGINT),)), None, 0, "mqtt", "json", given)
        await self.gateway.open(stream, self.root / "s" / "journal", SOURCES["mqtt"].settings_of(stream))
        return self

    @property
    def stream(self) -> OpenStream:
        return self.gateway.streams["s"]

    @property
    def session(self) -> MqttSession:
        assert isinstance(self.stream.session, MqttSession)
        return self.stream.session

    def block(self) -> Callable[[], None]:
        """The journal cannot be written until the result is called."""
        journal: Any = self.stream.ingress.journal
        real, journal.flush = journal.flush, lambda: False

        def unblock() -> None:
            journal.flush = real

        return unblock

    def journaled(self) -> list[int]:
        directory, log = self.root / "s" / "journal", ReadyLog(self.root / "s" / "journal")
        log.follow(JournalPosition())
        groups = log.stretches(JournalPosition(), log.advance(JournalPosition(), None), 1)
        runs = [run for g in groups for stretch in g for run in UnitReader(directory).runs(stretch, 1 << 20)]
        return [int(value) for run in runs for value in parse_frames(run.data, run.address).values]


async def until(fact: Callable[[], Any]) -> None:
    for _ in range(1000):
        if fact():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("not within 10 s")


def play(root: Path, scene: Callable[[Run], Awaitable[None]], version: int = mqtt.V5, **options: str) -> None:
    """Run `scene` with a connected stream, and close it."""

    async def scenery() -> None:
        broker, gateway = Scripted(), Gateway(asyncio.get_running_loop())
        broker.version = version
        port = await broker.serve()
        try:
            run = await Run(root, broker, gateway).open(port, **options)
            await until(lambda: not run.session.problem)
            await scene(run)
        finally:
            await gateway.close("s")
            await broker.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenery(), 60))


@pytest.mark.parametrize("version", [mqtt.V311, mqtt.V5])
def test_nothing_is_acknowledged_before_the_journal_has_it(tmp_path: Path, version: int) -> None:
    async def scene(run: Run) -> None:
        unblock = run.block()
        for number, qos in enumerate((0, 1, 2)):
            run.broker.send(number, qos, 7 + number)
        await until(lambda: run.stream.ingress.counters.of("mqtt")["requests"] == 3)
        await asyncio.sleep(0.05)
        assert run.broker.got.empty() and run.journaled() == []
        unblock()
        assert await run.broker.answers(2) == [(mqtt.PUBACK, 8), (mqtt.PUBREC, 9)]
        assert run.journaled() == [0, 1, 2]
        run.broker.release(9)
        assert await run.broker.answers(1) == [(mqtt.PUBCOMP, 9)]

    play(tmp_path, scene, version)


def test_a_message_of_qos_2_that_comes_again_is_acknowledged_and_not_taken_again(tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        run.broker.kept = True
        run.broker.send(1, 2, 1)
        assert await run.broker.answers(1) == [(mqtt.PUBREC, 1)]
        unblock = run.block()
        run.broker.send(2, 2, 2)
        await until(lambda: run.stream.ingress.counters.of("mqtt")["requests"] == 2)
        run.broker.hang_up()  # the broker has seen neither acknowledgement
        await until(lambda: run.broker.connections == 2 and not run.session.problem)
        run.broker.send(1, 2, 1, dup=True)
        run.broker.send(2, 2, 2, dup=True)
        assert await run.broker.answers(1) == [(mqtt.PUBREC, 1)]
        unblock()
        assert await run.broker.answers(1) == [(mqtt.PUBREC, 2)]
        for mid in (1, 2):
            run.broker.release(mid)
        assert await run.broker.answers(2) == [(mqtt.PUBCOMP, 1), (mqtt.PUBCOMP, 2)]
        run.broker.send(3, 2, 1)  # the number is free again
        assert await run.broker.answers(1) == [(mqtt.PUBREC, 1)]
        assert run.journaled() == [1, 2, 3]

    play(tmp_path, scene)


def test_a_broker_that_lost_the_session_gives_its_numbers_to_other_messages(tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        run.broker.send(1, 2, 1)
        assert await run.broker.answers(1) == [(mqtt.PUBREC, 1)]
        unblock = run.block()
        run.broker.send(2, 1, 5)
        await until(lambda: run.stream.ingress.counters.of("mqtt")["requests"] == 2)
        run.broker.hang_up()
        await until(lambda: run.broker.connections == 2 and not run.session.problem)
        run.broker.send(3, 2, 1)
        unblock()
        assert await run.broker.answers(1) == [(mqtt.PUBREC, 1)]  # and none for 5, which this connection never sent
        assert run.broker.got.empty() and run.journaled() == [1, 2, 3]

    play(tmp_path, scene)


def test_a_stream_that_closes_acknowledges_what_it_has(tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        for number in range(20):
            run.broker.send(number, 1, number + 1)
        await until(lambda: run.stream.ingress.counters.of("mqtt")["requests"] == 20)
        await run.gateway.close("s")
        assert await run.broker.answers(21) == [*((mqtt.PUBACK, n + 1) for n in range(20)), (mqtt.DISCONNECT, 0)]
        assert run.journaled() == list(range(20))

    play(tmp_path, scene)


def test_a_broker_that_reads_late_gets_every_acknowledgement_of_a_stream_that_closes(tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        unblock = run.block()
        for number in range(20):
            run.broker.send(number, 2, number + 1)
        await until(lambda: len(run.session.held) == 20)
        run.broker.read(False)
        closing = asyncio.create_task(run.gateway.close("s"))
        await asyncio.sleep(0.05)
        run.broker.send(20, 2, 21)  # it is not taken any more
        unblock()
        await asyncio.wait([closing], timeout=1.5)
        assert not run.broker.reset
        run.broker.read(True)
        await closing
        assert await run.broker.answers(21) == [*((mqtt.PUBREC, n + 1) for n in range(20)), (mqtt.DISCONNECT, 0)]
        assert run.journaled() == list(range(20))

    play(tmp_path, scene)


def test_a_full_journal_pauses_the_broker_or_drops_and_counts(tmp_path: Path) -> None:
    async def paused(run: Run) -> None:
        for number in range(3):
            run.broker.send_bytes(400_000, number + 1)
            await asyncio.sleep(0.1)
        await until(lambda: run.stream.ingress.paused)
        assert run.stream.ingress.counters.of("mqtt")["dropped_records"] == 0

    async def dropped(run: Run) -> None:
        for number in range(5):
            run.broker.send_bytes(400_000, number + 1)
            await asyncio.sleep(0.05)
        assert len(await run.broker.answers(5)) == 5
        assert run.stream.ingress.counters.of("mqtt")["dropped_records"] >= 2

    play(tmp_path / "a", paused, max_journal_bytes="1MiB")
    play(tmp_path / "b", dropped, max_journal_bytes="1MiB", backpressure="drop")


def test_a_refused_login_is_shown_and_tried_again(tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        run.broker.code = 0x87
        run.broker.hang_up()
        await until(lambda: run.session.problem.startswith("BROKER_DENIED"))
        assert run.stream.metrics()["problem"].startswith("BROKER_DENIED")
        run.broker.code = 0
        await until(lambda: not run.session.problem)

    play(tmp_path, scene)


def test_a_stream_that_lost_the_name_of_its_session_begins_no_other_one(tmp_path: Path) -> None:
    """The broker keeps messages for the old session. They would never arrive, and nobody would know."""

    async def takes_one(run: Run) -> None:
        run.broker.send(1, 1, 1)
        assert await run.broker.answers(1) == [(mqtt.PUBACK, 1)]

    async def nothing(run: Run) -> None:
        raise AssertionError("it must not open")

    play(tmp_path, takes_one)
    name = tmp_path / "s" / "client_id"
    data = name.read_bytes()
    for damaged in (None, b"", data[: len(data) // 2], bytes([data[0] ^ 1]) + data[1:], b"\xff"):
        name.unlink()
        if damaged is not None:
            name.write_bytes(damaged)
        with pytest.raises(StateDamaged, match="client_id"):
            play(tmp_path, nothing)
        name.write_bytes(b"")
    name.write_bytes(data)
    play(tmp_path, takes_one)
    name.unlink()
    play(tmp_path, takes_one, client_id="chosen")
