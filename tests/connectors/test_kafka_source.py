"""The source `kafka` against a real broker, on the way a user meets it."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import pytest

from headrace.errors import BadOption, BrokerDenied, BrokerUnreachable, MissingOption, UnknownTopic
from headrace.model.status import StreamStatus
from headrace.sources.kafka import KafkaTopics
from tests.connectors.broker import PASSWORD, USER, Broker
from tests.connectors.topics import Topics
from tests.e2e.support import until
from tests.shared.mini import Mini

COLUMNS = "a BIGINT, b STRING"


def declare(
    mini: Mini, address: str, topics: str, columns: str = COLUMNS, select: str = "a, b", **options: str
) -> None:
    """A stream `s` of topics and a pipeline `p` of it; again to change options."""
    given = {"source": "kafka", "format": "json", "kafka.bootstrap.servers": address, "topics": topics} | options
    listed = ", ".join(f"{name.replace('__', '.')} = '{value}'" for name, value in given.items() if value)
    mini.hub.sql(
        f"CREATE OR REPLACE STREAM s ({columns}) WITH ({listed});"
        f"CREATE PIPELINE IF NOT EXISTS p INTO out AS SELECT {select} FROM s"
    )


def look(mini: Mini) -> None:
    """Run what there is to do, with fresh answers from the broker."""
    source = mini.query.planner.source if mini.query is not None else None
    if isinstance(source, KafkaTopics):
        source._news.topics_at = source._news.ends_at = float("-inf")
    mini.drain()


def rows(mini: Mini) -> list[Any]:
    return [row for values in mini.checkpoint.kept.values() for row in values]


def status(mini: Mini) -> StreamStatus:
    return mini.hub.streams["s"].status()


def test_messages_of_all_partitions_arrive_once_and_new_partitions_are_noticed(mini: Mini, topics: Topics) -> None:
    topic = topics.make(partitions=2)
    topics.write(topic, [{"a": i, "b": "x"} for i in range(5)], partition=0)
    topics.write(topic, [{"a": i, "b": "y"} for i in range(5, 9)], partition=1)
    declare(mini, topics.address, topic)
    look(mini)
    assert sorted(a for a, _ in rows(mini)) == list(range(9))
    topics.grow(topic, 3)
    topics.write(topic, [{"a": 9, "b": "z"}], partition=2)

    def found() -> list[int]:  # a busy broker needs a moment to show a new partition to all
        look(mini)
        return sorted(a for a, _ in rows(mini))

    until(lambda: len(found()) >= 10, "the new partition is read")
    assert found() == list(range(10))
    assert status(mini).rows == 10


def test_a_message_is_a_record_by_its_own_boundary(mini: Mini, topics: Topics) -> None:
    topic = topics.make()
    topics.write(
        topic, ['{\n  "a": 1,\n  "b": "x"\n}', '{"a": 2, "b": "two\\nlines"}', '{"a": 3}\n', '{"a": 4}\n{"a": 5}']
    )
    declare(mini, topics.address, topic)
    look(mini)
    assert rows(mini) == [(1, "x"), (2, "two\nlines"), (3, None)]
    assert status(mini).bad == {"bad_json": 1}


def test_csv_and_text_take_messages_with_newlines_too(mini: Mini, topics: Topics) -> None:
    topic = topics.make()
    topics.write(topic, ['1,"x\ny"', "2,z\r\n", "3,\n"])
    declare(mini, topics.address, topic, format="csv")
    look(mini)
    assert rows(mini) == [(1, "x\ny"), (2, "z"), (3, None)]


def test_a_text_message_is_one_value_even_if_it_is_empty(mini: Mini, topics: Topics) -> None:
    topic = topics.make()
    topics.write(topic, ["one\ntwo\n", "", None, "three"])
    declare(mini, topics.address, topic, columns="line STRING", select="line", format="text")
    look(mini)
    assert rows(mini) == [("one\ntwo\n",), ("",), ("three",)]
    assert status(mini).bad == {"tombstone": 1}


def test_tombstones_and_empty_messages_are_counted(mini: Mini, topics: Topics) -> None:
    topic = topics.make()
    topics.write(topic, [None, "", "  ", {"a": 1, "b": "x"}, None])
    declare(mini, topics.address, topic)
    look(mini)
    assert rows(mini) == [(1, "x")]
    assert status(mini).bad == {"tombstone": 2, "empty_message": 1, "no_record": 1}


def test_only_committed_transactions_are_read_and_markers_end_no_epoch(mini: Mini, topics: Topics) -> None:
    topic = topics.make()
    topics.transaction(topic, [b'{"a": 1}', b'{"a": 2}'])
    topics.transaction(topic, [b'{"a": 3}'], commit=False)
    topics.transaction(topic, [b'{"a": 4}'])
    declare(mini, topics.address, topic)
    look(mini)
    assert [a for a, _ in rows(mini)] == [1, 2, 4]
    topics.transaction(topic, [b'{"a": 5}'], commit=False)
    look(mini)
    assert [a for a, _ in rows(mini)] == [1, 2, 4]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, {0, 1, 2, 3}),
        ({"start": "latest"}, {3}),
        ({"start": "timestamp", "start_timestamp": "2026-01-02T00:00:00Z"}, {1, 2, 3}),
        ({"start": "offsets", "start_offsets": '{"TOPIC": {"0": 2}}'}, {2, 3}),
        ({"start": "offsets", "start_offsets": '{"TOPIC": {"0": -1}}'}, {3}),
    ],
)
def test_a_new_stream_begins_where_start_says(
    mini: Mini, topics: Topics, options: dict[str, str], wanted: set[int]
) -> None:
    topic = topics.make(retention_ms="-1")
    for day in range(3):  # 2026-01-01 and the days after it
        topics.write(topic, [{"a": day}], timestamp=1_767_225_600_000 + day * 86_400_000)
    declare(mini, topics.address, topic, **{k: v.replace("TOPIC", topic) for k, v in options.items()})
    topics.write(topic, [{"a": 3}])
    look(mini)
    assert {a for a, _ in rows(mini)} == wanted


def test_a_pattern_takes_topics_that_come_later(mini: Mini, topics: Topics) -> None:
    first = topics.make()
    declare(mini, topics.address, "", topic_pattern=f"{first}.*")
    topics.write(first, [{"a": 1}])
    look(mini)
    topics.write(topics.make(name=f"{first}-more"), [{"a": 2}])
    look(mini)
    assert [a for a, _ in rows(mini)] == [1, 2]


def test_the_group_shows_how_far_the_committed_epochs_are(mini: Mini, topics: Topics) -> None:
    topic = topics.make()
    topics.write(topic, [{"a": i} for i in range(7)])
    declare(mini, topics.address, topic, group=f"g-{topic}")
    look(mini)
    deadline = time.monotonic() + 10
    while topics.group(f"g-{topic}", topic) != [7]:  # the client commits in the background
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_deleted_messages_stop_the_stream_or_are_counted(mini: Mini, topics: Topics) -> None:
    topic = topics.make()
    declare(mini, topics.address, topic)
    topics.write(topic, [{"a": i} for i in range(10)])
    topics.trim(topic, 0, 4)
    look(mini)
    assert "[DATA_LOST]" in status(mini).problem
    declare(mini, topics.address, topic, on_data_loss="skip")
    look(mini)
    assert [a for a, _ in rows(mini)] == [4, 5, 6, 7, 8, 9]
    assert status(mini).bad == {"data_lost": 4}


def test_a_topic_that_was_created_again_is_read_from_its_beginning(mini: Mini, topics: Topics) -> None:
    topic = topics.make()
    topics.write(topic, [{"a": i} for i in range(3)])
    declare(mini, topics.address, topic, on_data_loss="skip")
    look(mini)
    topics.delete(topic)
    topics.make(name=topic)
    topics.write(topic, [{"a": i} for i in range(10, 15)])
    look(mini)
    assert [a for a, _ in rows(mini)] == [0, 1, 2, 10, 11, 12, 13, 14]
    assert status(mini).bad == {"data_lost": 1}


def test_a_message_of_10_mb_is_a_record_if_it_may_be(mini: Mini, topics: Topics) -> None:
    topic = topics.make()
    large = "x" * 10_000_000
    topics.write(topic, [{"a": 1, "b": large}, {"a": 2, "b": "y"}])
    declare(mini, topics.address, topic, select="a, length(b) AS b", max_record_bytes="16MB")
    look(mini)
    assert rows(mini) == [(1, 10_000_000), (2, 1)]


def test_a_message_longer_than_a_record_may_be_is_rejected(mini: Mini, topics: Topics) -> None:
    topic = topics.make()
    topics.write(topic, [{"a": 1, "b": "x" * 5_000_000}, {"a": 2, "b": "y"}])
    declare(mini, topics.address, topic)
    look(mini)
    assert rows(mini) == [(2, "y")]
    assert status(mini).bad == {"record_too_long": 1}


def test_one_large_partition_is_shared_among_the_tasks(mini: Mini, topics: Topics) -> None:
    topic = topics.make()
    topics.write(topic, [json.dumps({"a": i, "b": "x" * 500}) for i in range(2000)])
    declare(mini, topics.address, topic)
    assert mini.query is not None
    planner = mini.query.planner
    start = planner.source.initial()
    end = planner.source.latest(start, None)
    assert len(planner.source.splits(start, end, 4)) >= 3
    look(mini)
    assert Counter(a for a, _ in rows(mini)) == Counter(range(2000))


def test_mistakes_are_coded_at_create_stream(mini: Mini, topics: Topics, broker: Broker) -> None:
    topic = topics.make()
    for wrong, code in (
        ({"topics": f"{topic}, none-such"}, UnknownTopic),
        ({"kafka.sasl.jaas.config": "x"}, BadOption),
        ({"kafka.no.such.thing": "x"}, BadOption),
        ({"kafka.bootstrap.servers": ""}, MissingOption),
        ({"format": "length_prefixed"}, BadOption),
        ({"start": "timestamp"}, BadOption),
        ({"start": "offsets", "start_offsets": '{"none-such": {"0": 1}}'}, BadOption),
        ({"start": "offsets", "start_offsets": '{"TOPIC": {"7": 1}}'.replace("TOPIC", topic)}, BadOption),
        (
            {
                "topics": "",
                "topic_pattern": f"{topic}|gone-.*",
                "start": "offsets",
                "start_offsets": '{"gone-1": {"0": 1}}',
            },
            UnknownTopic,
        ),
        ({"topic_pattern": "x"}, MissingOption),
    ):
        columns = "b STRING" if "format" in wrong else COLUMNS
        with pytest.raises(code):
            declare(mini, topics.address, **{"topics": topic, "columns": columns, **wrong})


def test_no_broker_and_a_wrong_password_are_coded(
    mini: Mini, topics: Topics, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.sources.kafka_cluster.ANSWER_SECONDS", 2.0)
    with pytest.raises(BrokerUnreachable):
        declare(mini, "127.0.0.1:1", topics.make())
    login = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": USER}
    with pytest.raises(BrokerDenied):
        declare(mini, broker.guarded, topics.make(), **login, **{"kafka.sasl.password": "wrong"})


def test_a_password_is_used_and_never_shown(mini: Mini, topics: Topics, broker: Broker) -> None:
    login = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": USER}
    topic = topics.make()
    topics.write(topic, [{"a": 1}])
    declare(mini, broker.guarded, topic, **login, **{"kafka.sasl.password": PASSWORD})
    look(mini)
    assert [a for a, _ in rows(mini)] == [1]
    shown = str(mini.hub.sql("DESCRIBE STREAM s")) + str(mini.hub.sql("SHOW CREATE STREAM s"))
    assert PASSWORD not in shown and USER in shown
    for file in mini.directory.rglob("*"):
        if file.is_file() and file.name != "secrets.json":
            assert PASSWORD not in file.read_text(errors="replace"), file


def test_a_stream_that_is_declared_does_not_need_the_broker_to_be_declared_again(
    mini: Mini, topics: Topics, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.make()
    declare(mini, topics.address, topic)
    monkeypatch.setattr("headrace.sources.kafka_cluster.ANSWER_SECONDS", 1.0)
    broker.stop()
    try:
        declare(mini, topics.address, topic)
    finally:
        broker.start()
    topics.write(topic, [{"a": 1}])
    look(mini)
    assert [a for a, _ in rows(mini)] == [1]
