"""The mqtt sink against a real broker."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import BadOption, BrokerUnreachable, SinkMismatch, SinkRefused, SinkUnavailable
from headrace.model.definitions import SinkDef
from headrace.model.schema import BIGINT, STRING, Field, Schema
from headrace.sinks import SINKS, SinkKey, settle_sink
from tests.connectors.mosquitto import Mosquitto

OUTPUT = Schema((Field("t", STRING), Field("n", BIGINT)))


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    made = Mosquitto(tmp_path_factory.mktemp("mosquitto"))
    yield made
    made.stop()


class Listener:
    """Everything that is published below `topic`."""

    def __init__(self, broker: Mosquitto, topic: str) -> None:
        self.found: queue.Queue[tuple[str, bytes, int]] = queue.Queue()
        ready: queue.Queue[int] = queue.Queue()
        self._client = broker.client()
        self._client.on_message = lambda c, u, m: self.found.put((m.topic, m.payload, m.qos))
        self._client.on_subscribe = lambda *_: ready.put(1)
        self._client.subscribe(f"{topic}/#", 2)
        ready.get(timeout=10)

    def take(self, count: int) -> list[tuple[str, bytes, int]]:
        return [self.found.get(timeout=10) for _ in range(count)]

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class Writer:
    """One pipeline's use of a sink."""

    def __init__(self, url: str, staging: Path, **options: str) -> None:
        self.sink = settle_sink(SinkDef("out", "mqtt", {"url": url, "staging": str(staging)} | options))
        self.driver = SINKS["mqtt"].driver(self.sink, OUTPUT)

    def commit(self, epoch: int, rows: list[dict[str, Any]]) -> int:
        key, kind = SinkKey("c", 1, epoch, "d"), SINKS["mqtt"]
        kind.require_output(self.sink, OUTPUT)
        return self.driver.commit(
            key, [kind.task(self.sink).stage(pa.Table.from_pylist(rows, schema=OUTPUT.arrow), key)]
        )


@pytest.mark.parametrize(("version", "qos"), [("3.1.1", "1"), ("5", "2"), ("5", "0")])
def test_rows_are_published_and_acknowledged(mosquitto: Mosquitto, tmp_path: Path, version: str, qos: str) -> None:
    name = f"out{version}{qos}"
    listener = Listener(mosquitto, name)
    writer = Writer(mosquitto.url, tmp_path, topic_column="t", qos=qos, version=version)
    rows = [{"t": f"{name}/{i % 3}", "n": i} for i in range(1500)]
    assert writer.commit(0, rows) == 1500
    writer.commit(1, [{"t": f"{name}/x", "n": None}])
    writer.driver.close()
    found = listener.take(1501)
    listener.close()
    assert found[:1500] == [(f"{name}/{i % 3}", b'{"n":%d}' % i, int(qos)) for i in range(1500)]
    assert found[1500] == (f"{name}/x", b"{}", int(qos))


def test_a_broker_that_restarts_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    broker = Mosquitto(tmp_path / "broker")
    try:
        writer = Writer(broker.url, tmp_path / "staging", topic="out/a")
        writer.commit(0, [{"t": "x", "n": 0}])
        broker.stop()
        with pytest.raises(SinkUnavailable):
            writer.commit(1, [{"t": "x", "n": 1}])
        broker.start()
        listener = Listener(broker, "out")
        assert writer.commit(1, [{"t": "x", "n": 1}]) == 1
        assert listener.take(1) == [("out/a", b'{"t":"x","n":1}', 1)]
        listener.close()
        writer.driver.close()
    finally:
        broker.stop()


def test_mistakes_are_coded(mosquitto: Mosquitto, tmp_path: Path) -> None:
    for options in ({"topic": "a/#"}, {}, {"topic": "a", "topic_column": "t"}, {"topic": "a", "qos": "3"}):
        with pytest.raises(BadOption):
            Writer(mosquitto.url, tmp_path, **options)
    with pytest.raises(BrokerUnreachable):
        Writer("mqtt://localhost:1", tmp_path, topic="a")
    with pytest.raises(SinkMismatch):
        Writer(mosquitto.url, tmp_path, topic_column="n").commit(0, [{"t": "x", "n": 1}])
    with pytest.raises(SinkMismatch):
        Writer(mosquitto.url, tmp_path, topic="a", format="text").commit(0, [{"t": "x", "n": 1}])
    writer = Writer(mosquitto.url, tmp_path, topic_column="t")
    with pytest.raises(SinkRefused):
        writer.commit(0, [{"t": "a/#", "n": 1}])
    writer.driver.close()
