"""A partition whose leader moves to another broker: in a crash, and back while both run. Nothing is lost or doubled."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.connectors.broker import Broker
from tests.connectors.test_kafka_source import look
from tests.connectors.topics import Topics
from tests.shared.mini import Mini

pytestmark = pytest.mark.slow
LIMIT = 180.0


def until(fact: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT
    while not fact():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def test_a_leader_that_moves_is_followed_by_source_and_sink(
    mini: Mini, topics: Topics, broker: Broker, tmp_path: Path
) -> None:
    """Partitions of both topics are led by a second broker, which dies. Then they go back to it."""
    second = Broker(tmp_path / "second", joins=broker.controller).start()
    try:
        until(lambda: len(topics.admin.list_topics(timeout=30).brokers) == 2, "the second broker joins")
        source, copy = topics.make_on([2, 1]), topics.make_on([2, 1])

        def in_sync() -> bool:
            """Both brokers say that both have everything."""
            return all(t.in_sync(name) == {1, 2} for t in (topics, Topics(second.address)) for name in (source, copy))

        until(in_sync, "both brokers have everything")
        where = f"kafka.bootstrap.servers = '{broker.address},{second.address}'"
        mini.hub.sql(
            f"CREATE STREAM s (a BIGINT) WITH (source = 'kafka', format = 'json', topics = '{source}', {where});"
            f"CREATE SINK copy WITH (type = 'kafka', topic = '{copy}', {where});"
            "CREATE PIPELINE p INTO copy AS SELECT a FROM s"
        )
        sent = 0

        def arrives() -> None:
            nonlocal sent
            topics.write(source, [{"a": i} for i in range(sent, sent + 50)])
            sent += 50
            deadline = time.monotonic() + LIMIT
            while mini.hub.streams["s"].status().rows < sent:
                assert time.monotonic() < deadline, mini.hub.streams["s"].status()
                look(mini)
            assert Counter(json.loads(m.value())["a"] for m in topics.read(copy)) == Counter(range(sent))

        def led_by(node: int) -> bool:
            return {topics.leader(source), topics.leader(copy)} == {node}

        assert led_by(2)
        arrives()
        second.kill()
        until(lambda: led_by(1), "the first broker leads")
        arrives()
        second.start()
        until(in_sync, "the second broker has caught up")
        topics.lead_by_first(source, copy)
        until(lambda: led_by(2), "the second broker leads again")
        arrives()
        topics.delete(source)
        topics.delete(copy)
    finally:
        mini.hub.close(drain=False)
        second.stop()
