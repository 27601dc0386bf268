"""A broker moves to another address and wants a login: `CREATE OR REPLACE STREAM` follows it and keeps the progress."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.errors import BrokerDenied, StateDamaged
from tests.connectors import mosquitto, nats_server
from tests.connectors.mosquitto import Mosquitto
from tests.connectors.nats_server import NatsServer
from tests.shared.mini import Mini


def numbers(first: int, last: int) -> list[str]:
    return [json.dumps({"a": i}) for i in range(first, last)]


def declare(mini: Mini, **options: str) -> None:
    listed = ", ".join(f"{name} = '{value}'" for name, value in ({"format": "json"} | options).items())
    mini.hub.sql(f"CREATE OR REPLACE STREAM s (a BIGINT) WITH ({listed})")


def wait(mini: Mini, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline, (found(mini).total(), mini.hub.streams["s"].ingress())
        mini.drain()
        time.sleep(0.02)


def found(mini: Mini) -> Counter[int]:
    return Counter(a for rows in mini.checkpoint.kept.values() for (a,) in rows)


def test_mqtt_continues_with_the_session_and_the_journal_of_before(mini: Mini, tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    broker = Mosquitto(tmp_path / "broker")
    given = {"source": "mqtt", "topics": "open/a", "qos": "2"}
    try:
        declare(mini, url=broker.url, **given)
        mini.hub.sql("CREATE PIPELINE p INTO out AS SELECT a FROM s")
        wait(mini, lambda: bool(mini.hub.streams["s"].ingress().get("classes", {}).get("mqtt", {}).get("open")))
        broker.send("open/a", numbers(0, 50))
        wait(mini, lambda: found(mini).total() == 50)
        broker.stop()
        broker = Mosquitto(tmp_path / "broker", login=True)  # with the sessions of before
        broker.send("open/a", numbers(50, 100))
        with pytest.raises(BrokerDenied):
            declare(mini, url=broker.url, user=mosquitto.USER, password="wrong", **given)
        declare(mini, url=broker.url, user=mosquitto.USER, password=mosquitto.PASSWORD, **given)
        broker.send("open/a", numbers(100, 150))
        wait(mini, lambda: found(mini).total() >= 150)
        assert found(mini) == Counter(range(150))
        assert mosquitto.PASSWORD not in str(mini.hub.sql("SHOW CREATE STREAM s; DESCRIBE STREAM s"))
    finally:
        broker.stop()


def test_mqtt_continues_with_a_named_session_when_the_name_of_the_old_one_is_lost(mini: Mini, tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    broker = Mosquitto(tmp_path / "broker")
    given = {"source": "mqtt", "topics": "open/a", "qos": "2", "url": broker.url}

    def connected() -> bool:
        return bool(mini.hub.streams["s"].ingress().get("classes", {}).get("mqtt", {}).get("open"))

    try:
        declare(mini, **given)
        mini.hub.sql("CREATE PIPELINE p INTO out AS SELECT a FROM s")
        wait(mini, connected)
        broker.send("open/a", numbers(0, 50))
        wait(mini, lambda: found(mini).total() == 50)
        mini.hub.sql("STOP PIPELINE p")
        wait(mini, lambda: not connected())
        next(mini.directory.glob("streams/*/source/client_id")).unlink()
        with pytest.raises(StateDamaged, match="client_id"):
            mini.hub.sql("START PIPELINE p")
        declare(mini, client_id="chosen", **given)
        mini.hub.sql("START PIPELINE p")
        wait(mini, connected)
        broker.send("open/a", numbers(50, 100))
        wait(mini, lambda: found(mini).total() >= 100)
        assert found(mini) == Counter(range(100))
    finally:
        broker.stop()


def test_jetstream_continues_with_the_next_sequence_number(mini: Mini, tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "nats")
    given = {"source": "nats", "stream": "S"}
    try:
        server.stream("S", "s")
        server.send("s", numbers(0, 50))
        declare(mini, url=server.url, **given)
        mini.hub.sql("CREATE PIPELINE p INTO out AS SELECT a FROM s")
        wait(mini, lambda: found(mini).total() == 50)
        server.stop()
        server = NatsServer(tmp_path / "nats", login=True)  # with the streams of before
        server.send("s", numbers(50, 100))
        with pytest.raises(BrokerDenied):
            declare(mini, url=server.url, user=nats_server.USER, password="wrong", **given)
        declare(mini, url=server.url, user=nats_server.USER, password=nats_server.PASSWORD, **given)
        wait(mini, lambda: found(mini).total() >= 100)
        assert found(mini) == Counter(range(100))
        assert nats_server.PASSWORD not in str(mini.hub.sql("SHOW CREATE STREAM s; DESCRIBE STREAM s"))
    finally:
        server.stop()
