"""The blocking MQTT client, and the sink that uses it, against a broker in a thread, which answers as a test says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.brokers import mqtt_connection
from headrace.brokers import mqtt_packets as mqtt
from headrace.brokers.mqtt_connection import MqttClient, MqttConnection
from headrace.errors import (
    BadOption,
    BrokerDenied,
    BrokerUnreachable,
    HeadraceError,
    SinkMismatch,
    SinkRefused,
    SinkUnavailable,
)
from headrace.model.definitions import SinkDef
from headrace.model.schema import BIGINT, STRING, Field, Schema
from headrace.sinks import SINKS, SinkKey, settle_sink

Answer = Callable[[mqtt.Packet], bytes]


class ThreadBroker:
    """Serves one connection. `answer` makes the bytes that follow a packet."""

    def __init__(self, answer: Answer) -> None:
        self.got: list[mqtt.Packet] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"mqtt://127.0.0.1:{self._listener.getsockname()[1]}"
        self._answer = answer
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with self._listener, self._listener.accept()[0] as peer:
            reader = mqtt.PacketReader()
            while data := peer.recv(65536):
                packets = reader.feed(data)
                self.got += packets
                if answers := b"".join(map(self._answer, packets)):
                    peer.sendall(answers)

    def join(self) -> None:
        self._thread.join(10)


def accepting(packet: mqtt.Packet) -> bytes:
    """A broker that takes everything, in version 5."""
    if packet.kind == mqtt.CONNECT:
        return b"\x20\x03\0\0\0"
    if packet.kind == mqtt.PINGREQ:
        return b"\xd0\0"
    if packet.kind == mqtt.PUBREL:
        return mqtt.acknowledge(mqtt.PUBCOMP, mqtt.acknowledged(packet)[0])
    if packet.kind == mqtt.PUBLISH and (message := mqtt.published(packet, mqtt.V5)).qos:
        return mqtt.acknowledge(mqtt.PUBACK if message.qos == 1 else mqtt.PUBREC, message.mid)
    return b""


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publish_returns_when_every_message_is_acknowledged(qos: int) -> None:
    broker = ThreadBroker(accepting)
    client = MqttClient(MqttConnection(broker.url))
    wanted = [(b"t/%d" % (i % 3), b"%d" % i) for i in range(2 * mqtt_connection.WINDOW + 7)]
    client.publish(wanted, qos, retain=True)
    client.publish(iter(()), qos, retain=False)
    client.close()
    broker.join()
    sent = [mqtt.published(p, mqtt.V5) for p in broker.got if p.kind == mqtt.PUBLISH]
    assert [(m.topic, m.payload) for m in sent] == wanted and all(m.retain and m.qos == qos for m in sent)
    assert sum(p.kind == mqtt.PUBREL for p in broker.got) == (len(wanted) if qos == 2 else 0)
    assert broker.got[-1].kind == mqtt.DISCONNECT


@pytest.mark.parametrize("allowed", [1, 20])
def test_no_more_messages_wait_for_their_acknowledgement_than_the_broker_allows(allowed: int) -> None:
    waiting, most = set[int](), [0]

    def answer(packet: mqtt.Packet) -> bytes:
        if packet.kind == mqtt.CONNECT:  # a name, a user property, the limit
            properties = b"\x12\0\x01c\x26\0\x01a\0\x01b\x21" + allowed.to_bytes(2, "big")
            return bytes([0x20, 3 + len(properties), 0, 0, len(properties)]) + properties
        if packet.kind == mqtt.PUBLISH:
            waiting.add(mid := mqtt.published(packet, mqtt.V5).mid)
            most[0] = max(most[0], len(waiting))
            return mqtt.acknowledge(mqtt.PUBREC, mid)
        if packet.kind == mqtt.PUBREL:
            waiting.discard(mqtt.acknowledged(packet)[0])
            return mqtt.acknowledge(mqtt.PUBCOMP, mqtt.acknowledged(packet)[0])
        return b""

    broker = ThreadBroker(answer)
    client = MqttClient(MqttConnection(broker.url))
    client.publish([(b"t", b"%d" % i) for i in range(3 * allowed)], 2, retain=False)
    client.close()
    broker.join()
    assert not waiting and most[0] == allowed


def refusing(kind: int, answer: bytes) -> Iterator[Answer]:
    yield lambda packet: answer if packet.kind == kind else accepting(packet)


@pytest.mark.parametrize(
    ("kind", "answer", "error"),
    [
        (mqtt.CONNECT, b"\x20\x03\0\x86\0", BrokerDenied),
        (mqtt.CONNECT, b"\x20\x03\0\x88\0", HeadraceError),
        (mqtt.CONNECT, b"HTTP/1.1 400 Bad Request\r\n\r\n", BrokerUnreachable),
        (mqtt.PUBLISH, b"\x40\x03\0\x01\x87", BrokerDenied),
        (mqtt.PUBLISH, b"\xe0\x01\x8b", HeadraceError),
        (mqtt.PUBLISH, b"", BrokerUnreachable),
        (mqtt.CONNECT, b"\xd0\0", BrokerUnreachable),
        (mqtt.CONNECT, b"\x20\x05\0\0\x02\x21\0", BrokerUnreachable),
        (mqtt.PUBLISH, b"\x40\0", BrokerUnreachable),
    ],
)
def test_refusals_and_silence_are_coded(
    kind: int, answer: bytes, error: type[HeadraceError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_connection, "ANSWER_SECONDS", 1.0)
    broker = ThreadBroker(next(refusing(kind, answer)))
    with pytest.raises(error):
        client = MqttClient(MqttConnection(broker.url))
        try:
            client.publish([(b"t", b"1")], 1, retain=False)
        finally:
            client.close()
    broker.join()


OUTPUT = Schema((Field("t", STRING), Field("n", BIGINT)))


def commit(url: str, staging: Path, rows: list[dict[str, object]], **options: str) -> int:
    """Stage and commit rows as the epoch 0 of a sink."""
    kind, key = SINKS["mqtt"], SinkKey("c", 1, 0, "d")
    sink = SinkDef("out", "mqtt", {"url": url, "staging": str(staging)} | options)
    kind.require_output(sink, OUTPUT)
    driver = kind.driver(sink, OUTPUT)
    try:
        return driver.commit(key, [kind.task(sink).stage(pa.Table.from_pylist(rows, schema=OUTPUT.arrow), key)])
    finally:
        driver.close()


def test_the_sink_publishes_its_rows_and_codes_what_goes_wrong(tmp_path: Path) -> None:
    broker = ThreadBroker(accepting)
    rows: list[dict[str, object]] = [{"t": f"a/{i}", "n": i} for i in range(3)]
    assert commit(broker.url, tmp_path / "a", rows, topic_column="t", qos="2") == 3
    broker.join()
    sent = [mqtt.published(p, mqtt.V5) for p in broker.got if p.kind == mqtt.PUBLISH]
    assert [(m.topic, m.payload) for m in sent] == [(b"a/%d" % i, b'{"n":%d}' % i) for i in range(3)]
    with pytest.raises(SinkRefused):  # a topic with a wildcard
        commit(ThreadBroker(accepting).url, tmp_path / "b", [{"t": "a/#", "n": 1}], topic_column="t")
    with pytest.raises(SinkRefused):
        refused = ThreadBroker(next(refusing(mqtt.PUBLISH, b"\x40\x03\0\x01\x87")))
        commit(refused.url, tmp_path / "c", rows, topic="t")
    with pytest.raises(SinkUnavailable):
        commit("mqtt://127.0.0.1:1", tmp_path / "d", rows, topic="t")
    with pytest.raises(SinkMismatch):
        commit("mqtt://127.0.0.1:1", tmp_path / "e", rows, topic_column="n")
    for options in ({}, {"topic": "a/#"}, {"topic": "a", "topic_column": "t"}):
        with pytest.raises(BadOption):
            settle_sink(SinkDef("out", "mqtt", {"url": "mqtt://127.0.0.1:1"} | options))
    with pytest.raises(BrokerUnreachable):
        settle_sink(SinkDef("out", "mqtt", {"url": "mqtt://127.0.0.1:1", "topic": "a"}))
