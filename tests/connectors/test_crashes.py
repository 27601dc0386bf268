"""From a broker to other systems, with a crash of the hub at every place of an epoch and a broker that restarts: every
row is there once."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.stream.retries import RetryPolicy
from tests.connectors.broker import Broker
from tests.connectors.mosquitto import Mosquitto
from tests.connectors.postgresql import PASSWORD, PostgresServer, ServerMissing
from tests.connectors.servers import missing
from tests.connectors.test_kafka_source import look
from tests.connectors.topics import Topics
from tests.shared.mini import Crash, Mini

PLACES = ("logged", "tasks", "lanes", "committed")


def lines(first: int, last: int) -> list[str]:
    return [json.dumps({"a": i, "b": f"b{i}"}) for i in range(first, last)]


def crash_at(mini: Mini, place: str, act: Callable[[], object]) -> None:
    """End the hub at `place` of the next epoch, and open it again."""
    mini.checkpoint.crash = place
    deadline = time.monotonic() + 30
    with pytest.raises(Crash):
        while True:
            act()
            assert time.monotonic() < deadline
    mini.crash()


def test_kafka_to_kafka_postgres_and_delta_is_exactly_once(
    topics: Topics, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deltalake import DeltaTable

    try:
        server = PostgresServer()
    except (ServerMissing, ImportError) as problem:
        missing(str(problem))
    monkeypatch.setattr("headrace.stream.supervisor.RetryPolicy", lambda: RetryPolicy(first=600, longest=600))
    mini = Mini(tmp_path / "state", monkeypatch)
    try:
        source, copy = topics.make(partitions=2), topics.make(partitions=2)
        password = PASSWORD.replace("'", "''")
        mini.hub.sql(f"""
            CREATE STREAM s (a BIGINT, b STRING) WITH (
              source = 'kafka', format = 'json', topics = '{source}', kafka.bootstrap.servers = '{topics.address}');
            CREATE SINK k WITH (type = 'kafka', topic = '{copy}', kafka.bootstrap.servers = '{topics.address}');
            CREATE SINK p WITH (type = 'postgres', url = '{server.url}', password = '{password}', table = 'rows',
              create_table = 'true');
            CREATE SINK d WITH (type = 'delta', path = '{tmp_path}/delta');
            CREATE PIPELINE tok INTO k AS SELECT a, b FROM s;
            CREATE PIPELINE top INTO p AS SELECT a, b FROM s;
            CREATE PIPELINE tod INTO d AS SELECT a, b FROM s
        """)
        sent = 0
        for place in PLACES:
            topics.write(source, lines(sent, sent + 30), partition=sent % 2)
            sent += 30
            crash_at(mini, place, lambda: look(mini))
            look(mini)
        broker.restart()
        topics.write(source, lines(sent, sent + 30))
        sent += 30
        deadline, wanted = time.monotonic() + 60, Counter((i, f"b{i}") for i in range(sent))
        while Counter(server.sql("SELECT a, b FROM rows")) != wanted:
            assert time.monotonic() < deadline
            mini.hub.runtime("s").supervisor.try_now()
            look(mini)
        copied = (json.loads(m.value()) for m in topics.read(copy))
        assert Counter((r["a"], r["b"]) for r in copied) == wanted
        table = DeltaTable(str(tmp_path / "delta")).to_pyarrow_table()
        assert Counter((r["a"], r["b"]) for r in table.to_pylist()) == wanted
    finally:
        mini.hub.close(drain=False)
        server.remove()


def test_mqtt_to_files_is_exactly_once_with_qos_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broker").mkdir()
    broker = Mosquitto(tmp_path / "broker")
    mini = Mini(tmp_path / "state", monkeypatch)
    out = tmp_path / "out"
    try:
        mini.hub.sql(f"""
            CREATE STREAM s (a BIGINT, b STRING) WITH (
              source = 'mqtt', format = 'json', url = '{broker.url}', topics = 't', qos = '2');
            CREATE SINK o WITH (type = 'jsonl', path = '{out}');
            CREATE PIPELINE p INTO o AS SELECT a, b FROM s
        """)
        while not mini.hub.streams["s"].ingress().get("classes", {}).get("mqtt", {}).get("open"):
            time.sleep(0.05)
        sent = 0
        for place in PLACES:
            broker.send("t", lines(sent, sent + 30))
            sent += 30
            crash_at(mini, place, mini.drain)
        broker.stop()
        broker.start()
        broker.send("t", lines(sent, sent + 30))
        sent += 30
        deadline, found = time.monotonic() + 60, Counter[int]()
        while found.total() < sent:
            assert time.monotonic() < deadline, found
            mini.drain()
            rows = (json.loads(line) for file in out.glob("part-*") for line in file.read_text().splitlines())
            found = Counter(row["a"] for row in rows)
            time.sleep(0.05)
        assert found == Counter(range(sent))
    finally:
        mini.hub.close(drain=False)
        broker.stop()
