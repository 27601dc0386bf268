"""Reading ranges of partitions: the records do not depend on how ranges are cut, and survive a broker that dies."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.brokers.connection import KafkaConnection
from headrace.errors import BrokerUnreachable, DataLost
from headrace.formats import FORMATS
from headrace.formats.packing import MessageFormat
from headrace.model.schema import BIGINT, STRING, Field, Schema
from headrace.sources import kafka_reader
from headrace.sources.kafka_offsets import PartitionRange, Place, TopicPlace, limited, ranges, shared
from headrace.sources.kafka_reader import KafkaSplit
from tests.connectors.broker import Broker
from tests.connectors.topics import Topics

SCHEMA = Schema((Field("a", BIGINT), Field("b", STRING)))


def read(split: KafkaSplit) -> list[tuple[str, int, bytes]]:
    """(origin, offset, value) of every record of a split."""
    found = []
    for chunk in split.read(FORMATS["text"].make(Schema((Field("v", STRING),)), {})):
        if chunk.packed is not None:
            data, offsets = chunk.packed.data, chunk.packed.number().tolist()
            places = zip(chunk.packed.begins.tolist(), chunk.packed.stops.tolist(), offsets, strict=True)
            found += [(chunk.origin, offset, data[begin:stop]) for begin, stop, offset in places]
    return found


def split_of(topics: Topics, *parts: PartitionRange, on_loss: Any = "fail") -> KafkaSplit:
    return KafkaSplit(KafkaConnection({"bootstrap.servers": topics.address}), "g", parts, on_loss)


@pytest.fixture(scope="module")
def mixed(broker: Broker) -> tuple[Topics, str, list[tuple[str, int, bytes]]]:
    """Three partitions with gaps: transactions, some of them aborted, between plain messages."""
    topics = Topics(broker.address)
    topic = topics.make(partitions=3)
    chance = random.Random(7)
    for partition in range(3):
        for batch in range(4):
            values = [f"{partition}-{batch}-{i}".encode() * chance.randint(1, 30) for i in range(chance.randint(1, 60))]
            if chance.random() < 0.5:
                topics.transaction(topic, values, partition, commit=chance.random() < 0.6)
            else:
                topics.write(topic, values, partition)
    every = [(f"kafka:{topic}/{m.partition()}", m.offset(), m.value()) for m in topics.read(topic)]
    return topics, topic, sorted(every)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_records_do_not_depend_on_the_cut(
    mixed: tuple[Topics, str, list[tuple[str, int, bytes]]], data: st.DataObject
) -> None:
    topics, topic, every = mixed
    whole = Place({topic: TopicPlace("x", tuple(topics.end(topic, p) for p in range(3)))})
    middle = limited(Place(), whole, data.draw(st.integers(1, 400)))
    found = []
    for start, end in ((Place(), middle), (middle, whole)):
        for part in shared(list(ranges(start, end)), data.draw(st.integers(1, 7))):
            found += read(split_of(topics, *part))
    assert sorted(found) == every


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=6), st.integers(1, 9), st.integers(1, 200))
def test_cuts_lose_and_double_no_offset(bounds: list[tuple[int, int]], tasks: int, most: int) -> None:
    start = Place({"t": TopicPlace("x", tuple(min(b) for b in bounds))})
    end = Place({"t": TopicPlace("x", tuple(max(b) for b in bounds))})
    wanted = Counter((r.partition, o) for r in ranges(start, end) for o in range(r.begin, r.end))
    parts = shared(list(ranges(start, end)), tasks)
    assert Counter((r.partition, o) for part in parts for r in part for o in range(r.begin, r.end)) == wanted
    if parts:
        sizes = [sum(r.size for r in part) for part in parts]
        assert max(sizes) - min(sizes) <= max(1, -(-sum(sizes) // tasks))
    cut = limited(start, end, most)
    assert sum(r.size for r in ranges(start, cut)) <= most + len(bounds)  # every partition gets one at least
    assert bool(list(ranges(start, cut))) == bool(wanted)


@given(st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=20), st.integers(1, 200))
def test_packed_messages_are_decoded_as_each_alone(values: list[bytes], size: int) -> None:
    fmt = FORMATS["json"].make(SCHEMA, {})
    assert isinstance(fmt, MessageFormat)
    texts = [v if i % 3 else json.dumps({"a": i, "b": repr(v)}, indent=i % 2).encode() for i, v in enumerate(values)]
    alone: list[Any] = []
    for text in texts:
        one = fmt.index_packed(fmt.pack([text], lambda: None), (0, 1), "o")  # type: ignore[arg-type,return-value]
        alone += one.parse((0, 1)).columns[1].to_pylist()
    packed = fmt.pack(texts, lambda: np.arange(len(texts)))
    together: list[Any] = []
    for part in packed.cut(size):
        index = fmt.index_packed(part, (0, 1), "o")
        together += index.parse((0, 1)).columns[1].to_pylist()
        for bad in part.locate(index.bad):
            assert bad.raw.strip() == texts[bad.offset].strip() or len(bad.raw) < len(texts[bad.offset])
    assert together == alone


def test_a_broker_that_dies_while_a_task_reads_delays_it_only(topics: Topics, broker: Broker) -> None:
    topic = topics.make()
    values = [f"{i}:".encode() * 400 for i in range(20_000)]
    topics.write(topic, values)
    split = split_of(topics, PartitionRange(topic, 0, 0, 20_000))
    dying = threading.Thread(target=broker.restart)
    found, begun = [], False
    for chunk in split.read(FORMATS["text"].make(Schema((Field("v", STRING),)), {})):
        if not begun:
            dying.start()
            begun = True
            time.sleep(0.5)
        assert chunk.packed is not None
        found += chunk.packed.number().tolist()
    dying.join()
    assert found == list(range(20_000))


def test_a_task_gives_up_on_a_silent_broker(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_reader, "PATIENCE", 1.0)
    split = KafkaSplit(
        KafkaConnection({"bootstrap.servers": "127.0.0.1:1"}), "g", (PartitionRange("t", 0, 0, 5),), "fail"
    )
    with pytest.raises(BrokerUnreachable):
        read(split)


def test_messages_that_go_while_a_task_waits_are_lost_or_counted(topics: Topics) -> None:
    topic = topics.make()
    topics.write(topic, [f"{i}" for i in range(10)])
    topics.trim(topic, 0, 6)
    part = PartitionRange(topic, 0, 2, 9)
    with pytest.raises(DataLost):
        read(split_of(topics, part))
    chunks = list(split_of(topics, part, on_loss="skip").read(FORMATS["text"].make(Schema((Field("v", STRING),)), {})))
    assert [c.left_out for c in chunks if c.left_out] == [{"data_lost": 4}]
    assert [c.packed.number().tolist() for c in chunks if c.packed] == [[6, 7, 8]]
