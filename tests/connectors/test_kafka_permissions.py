"""A permission that a running Kafka stream loses and gets back: coded, nothing lost and nothing doubled."""

from __future__ import annotations

import pytest

from tests.connectors.broker import PASSWORD, USER, Broker
from tests.connectors.test_kafka_source import declare, look, rows, status
from tests.connectors.topics import Topics
from tests.e2e.support import until
from tests.shared.mini import Mini

LOGIN = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": USER,
    "kafka.sasl.password": PASSWORD,
}


@pytest.fixture
def topic(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> str:
    """A topic with three messages."""
    monkeypatch.setattr("headrace.sources.kafka.INVISIBLE", 0.5)
    made = topics.make()
    topics.write(made, [{"a": i} for i in range(3)])
    return made


def read(mini: Mini) -> list[int]:
    look(mini)
    return [a for a, _ in rows(mini)]


def bad(mini: Mini) -> dict[str, int]:
    look(mini)
    return dict(status(mini).bad)


def test_a_topic_that_is_hidden_and_shown_again_continues_where_it_was(
    mini: Mini, topics: Topics, topic: str, broker: Broker
) -> None:
    declare(mini, broker.guarded, "", topic_pattern=topic, on_data_loss="skip", **LOGIN)
    assert read(mini) == [0, 1, 2]
    topics.allow(topic, USER)
    topics.write(topic, [{"a": i} for i in range(3, 6)])
    until(lambda: bad(mini), "the topic counts as lost")
    assert read(mini) == [0, 1, 2]
    topics.open_to_all(topic)
    until(lambda: len(read(mini)) >= 6, "the topic is read again")
    topics.write(topic, [{"a": 6}])
    assert read(mini) == list(range(7))
    assert bad(mini) == {"data_lost": 1}


def test_a_hidden_topic_stops_a_stream_that_may_lose_nothing_and_it_continues_afterwards(
    mini: Mini, topics: Topics, topic: str, broker: Broker
) -> None:
    declare(mini, broker.guarded, "", topic_pattern=topic, **LOGIN)
    assert read(mini) == [0, 1, 2]
    topics.allow(topic, USER)
    topics.write(topic, [{"a": i} for i in range(3, 6)])

    def problem() -> str:
        look(mini)
        return status(mini).problem

    assert "[DATA_LOST]" in until(problem, "the stream stops")
    topics.open_to_all(topic)
    mini.hub.sql("START PIPELINE p")
    until(lambda: len(read(mini)) >= 6, "the topic is read again")
    assert read(mini) == list(range(6))
    assert bad(mini) == {}


@pytest.mark.parametrize("left", [(), ("DESCRIBE",)], ids=["nothing is allowed", "reading is not allowed"])
def test_a_revoked_permission_is_coded_and_the_stream_continues_when_it_is_granted_again(
    mini: Mini, topics: Topics, topic: str, broker: Broker, left: tuple[str, ...]
) -> None:
    declare(mini, broker.guarded, topic, **LOGIN)
    assert read(mini) == [0, 1, 2]
    topics.allow(topic, USER, *left)
    topics.write(topic, [{"a": i} for i in range(3, 6)])

    def denied() -> bool:
        look(mini)
        return status(mini).state == "retrying" and "[BROKER_DENIED]" in status(mini).problem

    until(denied, "the stream waits")
    topics.allow(topic, USER, "READ")
    until(lambda: len(read(mini)) >= 6, "the stream goes on by itself")
    assert read(mini) == list(range(6))
    assert bad(mini) == {}
