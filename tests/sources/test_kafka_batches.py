"""What a task does with one batch of the Kafka client, without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from headrace.brokers.connection import KafkaConnection
from headrace.errors import BadOption
from headrace.formats import FORMATS
from headrace.formats.packing import MessageFormat
from headrace.model.schema import STRING, Field, Schema
from headrace.sources import kafka_reader
from headrace.sources.kafka_offsets import PartitionRange
from headrace.sources.kafka_reader import KafkaSplit, _SplitReader


@dataclass
class Message:
    """A message of the client, or an event."""

    place: int
    number: int
    event: Any = None

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self.place

    def offset(self) -> int:
        return self.number

    def value(self) -> bytes:
        return b"{}"

    def error(self) -> Any:
        return self.event

    def __len__(self) -> int:
        return 2


class Consumer:
    def incremental_unassign(self, partitions: list[Any]) -> None:
        """There is no broker."""


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[_SplitReader]:
    fmt = FORMATS["json"].make(Schema((Field("a", STRING),)), {})
    assert isinstance(fmt, MessageFormat)
    ranges = (PartitionRange("t", 0, 0, 3), PartitionRange("t", 1, 0, 9))
    made = _SplitReader(KafkaSplit(KafkaConnection({}), "g", ranges, "fail"), fmt)
    made._consumer = Consumer()
    monkeypatch.setattr(kafka_reader._SplitReader, "_error", lambda self, m: self._finish((m.topic(), m.partition())))
    yield made


def test_messages_before_the_end_of_their_partition_in_the_same_batch_are_kept(reader: _SplitReader) -> None:
    """Partition 0 ends at offset 3 by a transaction's marker: its last message has offset 1."""
    batch = [Message(0, 3, event="end"), Message(0, 0), Message(0, 1), Message(1, 0)]
    chunks = list(reader._take(batch))
    assert [chunk.origin for chunk in chunks] == ["kafka:t/0"]
    assert chunks[0].packed is not None and len(chunks[0].packed.begins) == 2


def test_settings_that_exactly_once_depends_on_are_refused() -> None:
    with pytest.raises(BadOption) as caught:
        KafkaConnection({"bootstrap.servers": "127.0.0.1:1", "auto.offset.reset": "earliest"}).check("source 'kafka'")
    assert caught.value.params["option"] == "kafka.auto.offset.reset"
