"""The kafka sink on a real broker: exactly once, whatever fails, and coded errors for what a user can get wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import (
    BadOption,
    BrokerUnreachable,
    EpochMismatch,
    SinkMismatch,
    SinkRefused,
    SinkUnavailable,
    UnknownTopic,
)
from headrace.model.definitions import SinkDef
from headrace.model.schema import BIGINT, STRING, Field, Map, Schema
from headrace.sinks import SINKS, SinkKey, kafka_target, settle_sink
from headrace.sinks.sink_kind import KnowsWriters
from headrace.stream.retries import RetryPolicy
from tests.connectors.broker import PASSWORD, USER, Broker
from tests.connectors.topics import Topics
from tests.e2e.support import put, until
from tests.shared.mini import Mini
from tests.shared.test_full_sinks import Disk

OUTPUT = Schema((Field("k", STRING), Field("n", BIGINT), Field("h", Map(STRING, STRING))))


class Writer:
    """One pipeline's use of a topic. A new driver side for each commit is what a restarted hub has."""

    def __init__(self, address: str, topic: str, staging: Path, **options: str) -> None:
        given = {"topic": topic, "kafka.bootstrap.servers": address, "staging": str(staging)} | options
        self.sink = SinkDef("out", "kafka", given)
        self.kind = SINKS["kafka"]

    def stage(self, epoch: int, *rows: dict[str, Any], digest: str = "d") -> tuple[SinkKey, list[Any]]:
        key = SinkKey("c", 1, epoch, digest)
        table = pa.Table.from_pylist(list(rows), schema=OUTPUT.arrow)
        return key, [self.kind.task(self.sink).stage(table, key)]

    def commit(self, key: SinkKey, staged: list[Any]) -> int:
        driver = self.kind.driver(self.sink, OUTPUT)
        try:
            return driver.commit(key, staged)
        finally:
            driver.close()


def row(k: str | None, n: int | None, **headers: str) -> dict[str, Any]:
    return {"k": k, "n": n, "h": list(headers.items())}


def numbers(topics: Topics, topic: str) -> list[int]:
    return sorted(json.loads(m.value())["n"] for m in topics.read(topic))


def test_rows_become_messages_with_key_headers_and_value(topics: Topics, tmp_path: Path) -> None:
    topic = topics.make(partitions=3)
    writer = Writer(topics.address, topic, tmp_path, key="k", headers="h")
    assert writer.commit(*writer.stage(0, row("a", 1, x="y"), row(None, 2), row("b", None))) == 3
    found = {m.value(): (m.key(), m.headers() or []) for m in topics.read(topic)}
    assert found == {
        b'{"k":"a","n":1}': (b"a", [("x", b"y")]),
        b'{"n":2}': (None, []),
        b'{"k":"b"}': (b"b", []),
    }


def test_equal_keys_go_to_one_partition(topics: Topics, tmp_path: Path) -> None:
    topic = topics.make(partitions=4)
    writer = Writer(topics.address, topic, tmp_path, key="k", headers="h", key_in_value="false")
    for epoch in range(2):
        writer.commit(*writer.stage(epoch, *(row(f"k{i % 10}", i) for i in range(100))))
    places: dict[bytes, set[int]] = {}
    for m in topics.read(topic):
        places.setdefault(m.key(), set()).add(m.partition())
        assert set(json.loads(m.value())) == {"n"}
    assert len(places) == 10 and all(len(p) == 1 for p in places.values())
    assert len(set.union(*places.values())) > 1


def test_the_broker_knows_which_instances_have_written(topics: Topics, tmp_path: Path) -> None:
    writer = Writer(topics.address, topics.make(), tmp_path)
    key, staged = writer.stage(3, row("a", 1))
    writer.commit(key, staged)
    driver = writer.kind.driver(writer.sink, OUTPUT)
    assert isinstance(driver, KnowsWriters)
    assert driver.writers(lambda instance: ("c", "other")) == {("c", 1)}
    assert driver.writers(lambda instance: ("other",)) == set()
    driver.close()


def test_an_epoch_that_is_committed_again_is_there_once(topics: Topics, tmp_path: Path) -> None:
    topic = topics.make()
    writer = Writer(topics.address, topic, tmp_path)
    first = writer.stage(0, row("a", 1))
    assert writer.commit(*first) == 1
    assert writer.commit(*writer.stage(0, row("a", 1))) == 1
    writer.commit(*writer.stage(1, row("a", 2)))
    assert numbers(topics, topic) == [1, 2]
    with pytest.raises(EpochMismatch):
        writer.commit(*writer.stage(1, row("a", 9), digest="another"))


@pytest.mark.parametrize("place", ["before the commit", "after the commit"])
def test_a_hub_that_dies_around_the_commit_leaves_the_epoch_once(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    topic = topics.make()
    writer = Writer(topics.address, topic, tmp_path)
    writer.commit(*writer.stage(0, row("a", 1)))

    class Death(BaseException):
        pass

    def die(name: str) -> None:
        if name == ("between-messages-and-marker" if place == "before the commit" else "between-delivery-and-cleanup"):
            raise Death

    with monkeypatch.context() as patch:
        patch.setattr("headrace.sinks.kafka_target.fault_point", die)
        patch.setattr("headrace.sinks.staged_sink.fault_point", die)
        key, staged = writer.stage(1, row("a", 2), row("a", 3))
        with pytest.raises(Death):
            writer.kind.driver(writer.sink, OUTPUT).commit(key, staged)  # its producer is never closed
    assert numbers(topics, topic) == ([1] if place == "before the commit" else [1, 2, 3])
    assert writer.commit(*writer.stage(1, row("a", 2), row("a", 3))) == 2
    assert numbers(topics, topic) == [1, 2, 3]


def test_a_broker_that_restarts_is_waited_for(
    topics: Topics, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.make()
    writer = Writer(topics.address, topic, tmp_path, **{"kafka.transaction.timeout.ms": "4000"})
    driver = writer.kind.driver(writer.sink, OUTPUT)
    driver.commit(*writer.stage(0, row("a", 1)))
    monkeypatch.setattr(kafka_target, "PATIENCE", 3.0)
    key, staged = writer.stage(1, row("a", 2))
    broker.kill()
    try:
        with pytest.raises(SinkUnavailable):
            driver.commit(key, staged)
    finally:
        broker.start()
    monkeypatch.setattr(kafka_target, "PATIENCE", 60.0)
    assert driver.commit(key, []) == 1
    driver.close()
    assert numbers(topics, topic) == [1, 2]


def test_text_messages_are_one_column_as_it_is(topics: Topics, tmp_path: Path) -> None:
    topic = topics.make()
    sink = SinkDef(
        "out", "kafka",
        Writer(topics.address, topic, tmp_path, key="n", format="text").sink.options,
    )  # fmt: skip
    output = Schema((Field("v", STRING), Field("n", BIGINT)))
    SINKS["kafka"].require_output(sink, output)
    table = pa.Table.from_pylist([{"v": "a\nb", "n": 1}, {"v": None, "n": 2}], schema=output.arrow)
    key = SinkKey("c", 1, 0)
    driver = SINKS["kafka"].driver(sink, output)
    driver.commit(key, [SINKS["kafka"].task(sink).stage(table, key)])
    driver.close()
    assert [(m.key(), m.value()) for m in topics.read(topic)] == [(b"1", b"a\nb"), (b"2", None)]


def test_mistakes_are_coded(topics: Topics, broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    topic = topics.make()
    for wrong, code in (
        ({"topic": "none-such"}, UnknownTopic),
        ({"kafka.no.such.setting": "1"}, BadOption),
    ):
        with pytest.raises(code):
            settle_sink(Writer(topics.address, **{"topic": topic, "staging": tmp_path, **wrong}).sink)  # type: ignore[arg-type]
    monkeypatch.setattr("headrace.sinks.kafka_sink.ANSWER_SECONDS", 1.0)
    with pytest.raises(BrokerUnreachable):
        settle_sink(Writer("127.0.0.1:1", topic, tmp_path).sink)
    assert settle_sink(Writer("127.0.0.1:1", topic, tmp_path).sink, known=True).name == "out"
    for options in ({"key": "none"}, {"headers": "k"}, {"format": "text"}):
        with pytest.raises(SinkMismatch):
            SINKS["kafka"].require_output(Writer(topics.address, topic, tmp_path, **options).sink, OUTPUT)
    login = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": USER}
    monkeypatch.setattr(kafka_target, "PATIENCE", 3.0)
    writer = Writer(broker.guarded, topic, tmp_path, **login, **{"kafka.sasl.password": "wrong"})
    with pytest.raises(SinkRefused):
        writer.commit(*writer.stage(0, row("a", 1)))


def test_kafka_to_kafka_through_a_hub_with_a_password(mini: Mini, topics: Topics, broker: Broker) -> None:
    source, target = topics.make(partitions=2), topics.make(partitions=2)
    server = (
        f"kafka.bootstrap.servers = '{broker.guarded}', kafka.security.protocol = 'SASL_PLAINTEXT', "
        f"kafka.sasl.mechanism = 'PLAIN', kafka.sasl.username = '{USER}', kafka.sasl.password = '{PASSWORD}'"
    )
    mini.hub.sql(
        "CREATE STREAM s (a BIGINT, key STRING METADATA) WITH "
        f"(source = 'kafka', format = 'json', topics = '{source}', {server});"
        f"CREATE SINK k WITH (type = 'kafka', topic = '{target}', key = 'key', {server});"
        "CREATE PIPELINE p INTO k AS SELECT key, a * 2 AS n FROM s WHERE a % 3 <> 0"
    )
    for i in range(20):
        topics.write(source, [{"a": i}], partition=i % 2, key=f"k{i}".encode())
    for _ in range(20):
        mini.drain()
        if len(topics.read(target)) >= 13:
            break
    wanted = sorted((f"k{i}".encode(), 2 * i) for i in range(20) if i % 3)
    assert sorted((m.key(), json.loads(m.value())["n"]) for m in topics.read(target)) == wanted
    asked = ("DESCRIBE SINK k", "SHOW CREATE SINK k", "EXPLAIN PIPELINE p")
    shown = " ".join(str(mini.hub.sql(question)) for question in asked)
    assert PASSWORD not in shown and "exactly once" in shown


def test_a_permission_that_is_withdrawn_makes_the_sink_wait_and_nothing_is_lost(
    topics: Topics, broker: Broker, tmp_path: Path
) -> None:
    login = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    login |= {"kafka.sasl.username": USER, "kafka.sasl.password": PASSWORD}
    topic = topics.make()
    writer = Writer(broker.guarded, topic, tmp_path, **login)
    driver = writer.kind.driver(writer.sink, OUTPUT)
    assert driver.commit(*writer.stage(0, row("a", 0))) == 1
    topics.allow(topic, USER, "DESCRIBE")
    key, staged = writer.stage(1, row("a", 1))
    for _ in range(2):
        with pytest.raises(SinkUnavailable):
            driver.commit(key, staged)
    topics.allow(topic, USER, "WRITE", "READ")  # the marker is read as the offset of a group

    def delivered() -> bool:
        try:
            return driver.commit(key, staged) == 1
        except SinkUnavailable:  # the broker needs a moment to know
            return False

    until(delivered, "the epoch is sent")
    assert driver.commit(*writer.stage(2, row("a", 2))) == 1
    driver.close()
    assert numbers(topics, topic) == [0, 1, 2]


@pytest.mark.parametrize("place", ["stage", "commit"])
def test_a_full_disk_under_the_staging_directory_makes_the_stream_wait_and_nothing_is_lost(
    mini: Mini, topics: Topics, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.stream.supervisor.RetryPolicy", lambda: RetryPolicy(first=600, longest=600))
    disk, topic = Disk(monkeypatch), topics.make()
    disk.place = place
    (tmp_path / "in").mkdir()
    mini.hub.sql(
        f"CREATE STREAM f (n BIGINT) WITH (source = 'files', format = 'json', path = '{tmp_path}/in');"
        f"CREATE SINK k WITH (type = 'kafka', topic = '{topic}', kafka.bootstrap.servers = '{topics.address}', "
        "retries = '0'); CREATE PIPELINE p INTO k AS SELECT n FROM f"
    )
    put(tmp_path / "in" / "0.json", [json.dumps({"n": i}) for i in range(10)])
    mini.drain()
    disk.full = {"staging"}
    put(tmp_path / "in" / "1.json", [json.dumps({"n": i}) for i in range(10, 20)])
    mini.drain()
    for _ in range(2):
        status = mini.hub.streams["f"].status()
        assert status.state == "retrying" and "SINK_UNAVAILABLE" in str(status)
        assert not list(tmp_path.rglob("*.staged")), "tries must not fill the disk"
        mini.hub.runtime("f").supervisor.try_now()
        mini.drain()
    disk.full = set()
    mini.hub.runtime("f").supervisor.try_now()
    mini.drain()
    assert numbers(topics, topic) == list(range(20))


def test_the_example_runs_on_a_broker(mini: Mini, topics: Topics) -> None:
    text = (Path(__file__).parents[2] / "examples" / "kafka" / "readings.sql").read_text()
    for name in ("readings", "hot", "minutes"):
        text = text.replace(f" = '{name}'", f" = '{topics.make()}'")
    mini.hub.sql(text.replace("localhost:9092", topics.address))
    assert set(mini.hub.pipelines) == {"hot_readings", "by_minute"}
