"""What a task does with one batch of the Kafka client, without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.brokers.connection import KafkaConnection
from headrace.errors import BadOption
from headrace.formats import FORMATS
from headrace.formats.packing import MessageFormat
from headrace.model.schema import STRING, Field, Schema
from headrace.sources import kafka_reader
from headrace.sources.kafka_offsets import PartitionRange
from headrace.sources.kafka_reader import KafkaSplit, _SplitReader


def message(partition: int, offset: int, topic: str = "t", value: bytes | None = b"{}", end: bool = False) -> Any:
    """A message of the client, or the end of a partition."""
    error = confluent_kafka.KafkaError(confluent_kafka.KafkaError._PARTITION_EOF) if end else None
    kind: Any = confluent_kafka.Message
    return kind(topic=topic, partition=partition, offset=offset, value=None if end else value, error=error)


class Consumer:
    def incremental_unassign(self, partitions: list[Any]) -> None:
        """There is no broker."""


def made_for(*ranges: PartitionRange) -> _SplitReader:
    fmt = FORMATS["json"].make(Schema((Field("a", STRING),)), {})
    assert isinstance(fmt, MessageFormat)
    made = _SplitReader(KafkaSplit(KafkaConnection({}), "g", ranges, "fail"), fmt)
    made._consumer = Consumer()
    return made


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[_SplitReader]:
    ranges = (PartitionRange("t", 0, 0, 3), PartitionRange("t", 1, 0, 9))
    made = made_for(*ranges)
    monkeypatch.setattr(kafka_reader._SplitReader, "_error", lambda self, m: self._finish((m.topic(), m.partition())))
    yield made


def test_messages_before_the_end_of_their_partition_in_the_same_batch_are_kept(reader: _SplitReader) -> None:
    """Partition 0 ends at offset 3 by a transaction's marker: its last message has offset 1."""
    batch = [message(0, 3, end=True), message(0, 0), message(0, 1), message(1, 0)]
    chunks = list(reader._take(batch))
    assert [chunk.origin for chunk in chunks] == ["kafka:t/0"]
    assert chunks[0].packed is not None and len(chunks[0].packed.begins) == 2


@given(st.lists(st.tuples(st.sampled_from(["t", "u"]), st.integers(0, 3)), max_size=60), st.integers(1, 9))
def test_every_message_comes_to_its_own_partition_in_order(places: list[tuple[str, int]], size: int) -> None:
    """However the partitions of two topics take turns. The client may still have messages of partition 3, which
    another task has read."""
    keys = [(topic, partition) for topic in ("t", "u") for partition in range(3)]
    sent: dict[tuple[str, int], list[bytes]] = {key: [] for key in keys}
    messages: list[Any] = []
    for topic, partition in places:
        values = sent.get((topic, partition), [])
        values.append(b'{"a": "%d"}' % len(messages))
        messages.append(message(partition, len(values) - 1, topic, values[-1]))
    ranges = [PartitionRange(*key, 0, len(values)) for key, values in sent.items() if values]
    assume(len(ranges) > 1)
    made = made_for(*ranges)
    read: dict[str, list[bytes]] = {}
    for first in range(0, len(messages), size):
        for chunk in made._take(messages[first : first + size]):
            assert chunk.packed is not None
            bounds = zip(chunk.packed.begins, chunk.packed.stops, strict=True)
            read.setdefault(chunk.origin, []).extend(bytes(chunk.data[begin:stop]) for begin, stop in bounds)
            assert chunk.packed.number().tolist() == list(range(len(chunk.packed)))
    assert read == {f"kafka:{topic}/{partition}": values for (topic, partition), values in sent.items() if values}


def test_settings_that_exactly_once_depends_on_are_refused() -> None:
    with pytest.raises(BadOption) as caught:
        KafkaConnection({"bootstrap.servers": "127.0.0.1:1", "auto.offset.reset": "earliest"}).check("source 'kafka'")
    assert caught.value.params["option"] == "kafka.auto.offset.reset"
