"""Metadata columns of Kafka messages."""

from __future__ import annotations

import datetime as dt

import pytest

from headrace.errors import TypeMismatch, UnknownMetadata
from tests.connectors.test_kafka_source import declare, look, rows, status
from tests.connectors.topics import Topics
from tests.shared.mini import Mini

EVERY = (
    "topic STRING METADATA, a BIGINT, part INT METADATA FROM 'partition', `offset` BIGINT METADATA, b STRING, "
    "at TIMESTAMP METADATA FROM 'timestamp' VIRTUAL, kind STRING METADATA FROM 'timestamp_type', "
    "key STRING METADATA, headers MAP<STRING, STRING> METADATA, "
    "pairs ARRAY<STRUCT<key: STRING, value: BINARY>> METADATA FROM 'headers'"
)
MOMENT = dt.datetime(2026, 11, 17, 4, 30, tzinfo=dt.UTC)


@pytest.mark.parametrize("fmt", ["json", "csv"])
def test_metadata_columns_hold_what_the_broker_knows(mini: Mini, topics: Topics, fmt: str) -> None:
    topic = topics.make(partitions=2)
    values = ['{"a": 1, "b": "x"}', '{"a": 2}'] if fmt == "json" else ["1,x", "2,"]
    millis = int(MOMENT.timestamp() * 1000)
    topics.write(topic, values[:1], partition=1, key=b"k", timestamp=millis, headers=[("h", b"v"), ("h", b"w")])
    topics.write(topic, [None, *values[1:]], partition=1, timestamp=millis + 1)
    declare(mini, topics.address, topic, columns=EVERY, select="*", format=fmt)
    look(mini)
    later = MOMENT + dt.timedelta(milliseconds=1)
    pairs = [{"key": "h", "value": b"v"}, {"key": "h", "value": b"w"}]
    assert sorted(rows(mini)) == [
        (topic, 1, 1, 0, "x", MOMENT, "create", "k", [("h", "w")], pairs),
        (topic, 2, 1, 2, None, later, "create", None, [], []),
    ]


def test_a_filter_on_metadata_skips_the_values_of_the_other_messages(mini: Mini, topics: Topics) -> None:
    topic = topics.make()
    topics.write(topic, [{"a": i, "b": f"b{i}"} for i in range(100)])
    declare(
        mini, topics.address, topic, columns="a BIGINT, b STRING, o BIGINT METADATA FROM 'offset'",
        select="b FROM s WHERE o >= 98 AND o < 1000 --",
    )  # fmt: skip
    look(mini)
    assert rows(mini) == [("b98",), ("b99",)]


def test_a_metadata_timestamp_may_be_the_event_time(mini: Mini, topics: Topics) -> None:
    topic = topics.make()
    for minute in (0, 1, 5):
        at = MOMENT + dt.timedelta(minutes=minute)
        topics.write(topic, [{"a": minute}], timestamp=int(at.timestamp() * 1000))
    declare(
        mini, topics.address, topic, columns="a BIGINT, at TIMESTAMP METADATA FROM 'timestamp', WATERMARK FOR at AS at",
        select="window.start AS start, count(*) AS n FROM s GROUP BY window(at, '1 minute') --",
    )  # fmt: skip
    look(mini)
    topics.write(topic, [{"a": 9}], timestamp=int((MOMENT + dt.timedelta(minutes=9)).timestamp() * 1000))
    look(mini)
    assert [r[0] for r in sorted(rows(mini))] == [MOMENT + dt.timedelta(minutes=m) for m in (0, 1, 5)]


def test_a_key_that_is_no_text_is_a_bad_value(mini: Mini, topics: Topics) -> None:
    topic = topics.make()
    topics.write(topic, [{"a": 1}], key=b"\xff")
    topics.write(topic, [{"a": 2}], key=b"k")
    declare(mini, topics.address, topic, columns="a BIGINT, key STRING METADATA", select="a, key", on_error="skip")
    look(mini)
    assert rows(mini) == [(2, "k")]
    assert status(mini).bad == {"bad_utf8": 1}


def test_wrong_metadata_is_coded(mini: Mini, topics: Topics) -> None:
    topic = topics.make()
    for columns, code in (
        ("a BIGINT, x STRING METADATA", UnknownMetadata),
        ("a BIGINT, key INT METADATA", TypeMismatch),
    ):
        with pytest.raises(code):
            declare(mini, topics.address, topic, columns=columns, select="a")
