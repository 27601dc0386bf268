"""The source `mqtt` against a real broker, on the way a user meets it."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.mosquitto import Mosquitto
from tests.shared.mini import Mini


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    made = Mosquitto(tmp_path_factory.mktemp("mosquitto"))
    yield made
    made.stop()


def declare(mini: Mini, url: str, topics: str, columns: str = "a BIGINT", select: str = "a", **options: str) -> None:
    given = {"source": "mqtt", "format": "json", "url": url, "topics": topics} | options
    listed = ", ".join(f"{name} = '{value}'" for name, value in given.items() if value)
    mini.hub.sql(f"CREATE STREAM s ({columns}) WITH ({listed}); CREATE PIPELINE p INTO out AS SELECT {select} FROM s")


def rows(mini: Mini) -> list[Any]:
    return [row for values in mini.checkpoint.kept.values() for row in values]


def wait(mini: Mini, done: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, mini.hub.streams["s"].ingress()
        mini.drain()
        time.sleep(0.02)


def connected(mini: Mini) -> bool:
    return bool(mini.hub.streams["s"].ingress().get("classes", {}).get("mqtt", {}).get("open"))


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_messages_arrive_with_their_topic_and_by_their_own_boundary(
    mini: Mini, mosquitto: Mosquitto, version: str
) -> None:
    at = f"v{version}"
    columns = (
        "a BIGINT, topic STRING METADATA, q INT METADATA FROM 'qos', kept BOOLEAN METADATA FROM 'retained', "
        "at TIMESTAMP METADATA FROM 'arrival'"
    )
    mosquitto.send(f"{at}/old", ['{"a": 0}'], retain=True)
    declare(mini, mosquitto.url, f"{at}/+, other", columns, "*", qos="2", version=version)
    wait(mini, lambda: len(rows(mini)) == 1)
    for qos in range(3):
        mosquitto.send(f"{at}/q{qos}", [f'{{\n"a": {qos + 1}\n}}'], qos)
    mosquitto.send(f"{at}/deep/er", ['{"a": 99}'])
    mosquitto.send("other", ["", " ", '{"a": 4}{"a": 5}', '{"a": 6}'])
    wait(mini, lambda: len(rows(mini)) == 5)
    now = dt.datetime.now(dt.UTC)
    assert all(now - dt.timedelta(minutes=5) < row[4] <= now for row in rows(mini))
    assert sorted(row[:4] for row in rows(mini)) == [
        (0, f"{at}/old", 2, True), (1, f"{at}/q0", 0, False), (2, f"{at}/q1", 1, False), (3, f"{at}/q2", 2, False),
        (6, "other", 2, False),
    ]  # fmt: skip
    assert mini.hub.streams["s"].status().bad == {"empty_message": 1, "no_record": 1, "bad_json": 1}


def test_the_broker_keeps_messages_while_it_or_the_stream_is_away(mini: Mini, tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    broker = Mosquitto(tmp_path / "broker")
    try:
        declare(mini, broker.url, "a", qos="2")
        wait(mini, lambda: connected(mini))
        broker.send("a", [json.dumps({"a": i}) for i in range(100)])
        broker.stop()
        broker.start()
        broker.send("a", [json.dumps({"a": i}) for i in range(100, 200)])
        wait(mini, lambda: len(rows(mini)) == 200)
        mini.hub.sql("STOP PIPELINE p")
        broker.send("a", [json.dumps({"a": i}) for i in range(200, 300)])
        mini.hub.sql("START PIPELINE p")
        wait(mini, lambda: len(rows(mini)) == 300)
        assert Counter(a for (a,) in rows(mini)) == Counter(range(300))
    finally:
        broker.stop()
