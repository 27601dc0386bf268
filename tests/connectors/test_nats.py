"""NATS as source and sink, against a real server."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import (
    BadOption,
    BrokerDenied,
    BrokerUnreachable,
    SinkMismatch,
    SinkRefused,
    SinkUnavailable,
    UnknownTopic,
)
from headrace.model.definitions import SinkDef
from headrace.model.schema import BIGINT, STRING, Field, Schema
from headrace.sinks import SINKS, SinkKey, settle_sink
from headrace.sources import nats as nats_source
from tests.connectors.nats_server import PASSWORD, USER, NatsServer
from tests.shared.mini import Mini

OUTPUT = Schema((Field("t", STRING), Field("n", BIGINT)))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    made = NatsServer(tmp_path_factory.mktemp("nats"))
    yield made
    made.stop()


def declare(mini: Mini, url: str, columns: str = "a BIGINT", select: str = "a", **options: str) -> None:
    given = {"source": "nats", "format": "json", "url": url} | options
    listed = ", ".join(f"{name} = '{value}'" for name, value in given.items())
    mini.hub.sql(
        f"CREATE OR REPLACE STREAM s ({columns}) WITH ({listed});"
        f"CREATE PIPELINE IF NOT EXISTS p INTO out AS SELECT {select} FROM s"
    )


def rows(mini: Mini) -> list[Any]:
    return [row for values in mini.checkpoint.kept.values() for row in values]


def wait(mini: Mini, done: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, (rows(mini)[:20], mini.hub.streams["s"].status())
        mini.drain()
        time.sleep(0.05)


def numbers(first: int, last: int) -> list[str]:
    return [json.dumps({"a": i}) for i in range(first, last)]


def test_a_jetstream_stream_is_read_once_by_sequence_with_metadata(
    mini: Mini, server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_source, "SMALLEST_SPLIT", 50)  # several tasks
    monkeypatch.setattr(nats_source, "SHOW", 0.0)
    server.stream("ORDERS", "orders.>", "noise")
    server.send("orders.eu", ['{\n"a": 0\n}'], headers={"h": "v"})
    server.send("noise", ["1", "2"])
    columns = (
        "a BIGINT, subject STRING METADATA, seq BIGINT METADATA FROM 'sequence', at TIMESTAMP METADATA FROM "
        "'timestamp', headers MAP<STRING, STRING> METADATA"
    )
    declare(mini, server.url, columns, "*", stream="ORDERS", subject="orders.*")
    wait(mini, lambda: len(rows(mini)) == 1)
    (first,) = rows(mini)
    assert first[:3] == (0, "orders.eu", 1) and first[4] == [("h", "v")]
    assert abs(first[3] - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=5)
    server.send("orders.us", ["", *numbers(1, 300)])
    wait(mini, lambda: len(rows(mini)) == 300)
    assert Counter(row[0] for row in rows(mini)) == Counter(range(300))
    assert mini.hub.streams["s"].status().bad == {"empty_message": 1}
    mini.drain()
    info = server.run(lambda client: client.jsm().consumer_info("ORDERS", "headrace-s"))
    assert info.num_pending == 0


def test_a_server_that_restarts_is_waited_for_and_start_latest_skips(mini: Mini, tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "nats")
    try:
        server.stream("S", "s")
        server.send("s", numbers(0, 10))
        declare(mini, server.url, stream="S", start="latest")
        mini.drain()
        server.send("s", numbers(10, 20))
        wait(mini, lambda: len(rows(mini)) == 10)
        server.stop()
        mini.drain()
        server.start()
        server.send("s", numbers(20, 30))
        wait(mini, lambda: len(rows(mini)) == 20)
        assert Counter(a for (a,) in rows(mini)) == Counter(range(10, 30))
    finally:
        server.stop()


def test_messages_that_are_gone_fail_the_stream_or_are_counted(mini: Mini, server: NatsServer) -> None:
    server.stream("SHORT", "short", max_msgs=5)
    server.send("short", numbers(0, 3))
    declare(mini, server.url, stream="SHORT")
    wait(mini, lambda: len(rows(mini)) == 3)
    server.send("short", numbers(3, 20))  # 3 to 14 are gone
    time.sleep(nats_source.POLL)
    mini.drain()
    assert "[DATA_LOST]" in mini.hub.streams["s"].status().problem
    declare(mini, server.url, stream="SHORT", on_data_loss="skip")
    wait(mini, lambda: len(rows(mini)) == 8)
    assert sorted(a for (a,) in rows(mini)) == [0, 1, 2, *range(15, 20)]
    assert mini.hub.streams["s"].status().bad == {"data_lost": 12}


def test_core_nats_goes_through_the_journal(mini: Mini, server: NatsServer) -> None:
    declare(mini, server.url, "a BIGINT, subject STRING METADATA", "a, subject", source="nats_core", subjects="core.*")
    wait(mini, lambda: mini.hub.streams["s"].ingress().get("problem", "x") == "")
    server.publish("core.x", numbers(0, 100))
    server.publish("core.y", ["", '{\n"a": 100}'])
    wait(mini, lambda: len(rows(mini)) == 101)
    assert sorted(rows(mini)) == [*((i, "core.x") for i in range(100)), (100, "core.y")]
    assert mini.hub.streams["s"].status().bad == {"empty_message": 1}


def test_mistakes_are_coded(mini: Mini, server: NatsServer, tmp_path: Path) -> None:
    server.stream("WORK", "work", retention="workqueue")
    secured = NatsServer(tmp_path / "secured", login=True)
    try:
        for options, kind in (
            ({"url": "nats://127.0.0.1:1", "stream": "ORDERS"}, BrokerUnreachable),
            ({"url": "http://127.0.0.1", "stream": "ORDERS"}, BadOption),
            ({"stream": "ABSENT"}, UnknownTopic),
            ({"stream": "a.b"}, BadOption),
            ({"stream": "WORK"}, BadOption),
            ({"url": secured.url, "stream": "S", "user": USER, "password": "wrong"}, BrokerDenied),
            ({"url": secured.url, "source": "nats_core", "subjects": "a"}, BrokerDenied),
            ({"source": "nats_core", "subjects": "a..b"}, BadOption),
        ):
            with pytest.raises(kind):
                declare(mini, **({"url": server.url} | options))
        secured.stream("S", "s")
        secured.send("s", numbers(0, 2))
        declare(mini, secured.url, stream="S", user=USER, password=PASSWORD)
        wait(mini, lambda: len(rows(mini)) == 2)
        shown = mini.hub.sql("SHOW CREATE STREAM s; DESCRIBE STREAM s")
        assert "nats://" in str(shown) and PASSWORD not in str(shown)
    finally:
        secured.stop()


class Writer:
    """One pipeline's use of a sink."""

    def __init__(self, url: str, staging: Path, **options: str) -> None:
        self.sink = settle_sink(SinkDef("out", "nats", {"url": url, "staging": str(staging)} | options))

    def commit(self, epoch: int, *given: tuple[str, int]) -> int:
        key, kind = SinkKey("c", 1, epoch, "d"), SINKS["nats"]
        kind.require_output(self.sink, OUTPUT)
        table = pa.Table.from_pylist([{"t": t, "n": n} for t, n in given], schema=OUTPUT.arrow)
        driver = kind.driver(self.sink, OUTPUT)
        try:
            return driver.commit(key, [kind.task(self.sink).stage(table, key)])
        finally:
            driver.close()


def test_rows_become_messages_and_an_epoch_that_is_sent_again_is_stored_once(
    server: NatsServer, tmp_path: Path
) -> None:
    server.stream("OUT", "out.*")
    assert Writer(server.url, tmp_path / "a", subject_column="t").commit(0, ("out.a", 1), ("out.b", 2)) == 2
    Writer(server.url, tmp_path / "b", subject_column="t").commit(0, ("out.a", 1), ("out.b", 2))  # it lost its staging
    Writer(server.url, tmp_path / "a", subject_column="t").commit(1, ("out.a", 3))
    assert server.messages("OUT") == [("out.a", b'{"n":1}'), ("out.b", b'{"n":2}'), ("out.a", b'{"n":3}')]


def test_mistakes_of_the_sink_are_coded(server: NatsServer, tmp_path: Path) -> None:
    for options, kind in (
        ({"subject": "a.*"}, BadOption),
        ({}, BadOption),
        ({"subject": "a", "subject_column": "t"}, BadOption),
    ):
        with pytest.raises(kind):
            Writer(server.url, tmp_path, **options)
    with pytest.raises(BrokerUnreachable):
        Writer("nats://127.0.0.1:1", tmp_path, subject="a")
    with pytest.raises(SinkMismatch):
        Writer(server.url, tmp_path, subject_column="n").commit(0, ("a", 1))
    with pytest.raises(SinkRefused):
        Writer(server.url, tmp_path / "x", subject="nobody.takes.this").commit(0, ("a", 1))
    with pytest.raises(SinkRefused):
        Writer(server.url, tmp_path / "y", subject_column="t").commit(0, ("no subject", 1))
    away = Writer(server.url, tmp_path / "z", subject="out.z")
    away.sink.options["url"] = "nats://127.0.0.1:1"
    with pytest.raises(SinkUnavailable):
        away.commit(0, ("a", 1))
