"""Topics of the test broker: made, written and read with the plain client."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import confluent_kafka.admin
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.e2e.support import until

_admin: Any = confluent_kafka.admin  # it does not export its names in a way that mypy accepts


_ALLOW: Any = _admin.AclPermissionType.ALLOW


def _topic(name: str) -> tuple[Any, str, Any]:
    return _admin.ResourceType.TOPIC, name, _admin.ResourcePatternType.LITERAL


class Topics:
    """A client of the broker at `address`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.admin: Any = _admin.AdminClient({"bootstrap.servers": address, "log_level": 0})

    def make(self, partitions: int = 1, name: str = "", **config: str) -> str:
        """A new topic. Underscores in the names of settings stand for dots."""
        name = name or f"t-{uuid.uuid4().hex[:12]}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self.admin.create_topics([_admin.NewTopic(name, partitions, config=settings)])[name].result(30)
        until(lambda: self._led(name, partitions), f"a busy broker shows topic {name}")
        return name

    def _led(self, name: str, partitions: int) -> bool:
        """True if the topic is known, and all of its partitions have a leader."""
        known = self.admin.list_topics(timeout=30).topics.get(name)  # asked for by its name, it may be created
        return known is not None and [p.leader >= 0 for p in known.partitions.values()] == [True] * partitions

    def make_on(self, nodes: list[int]) -> str:
        """A new topic with one partition, whose replicas are on these nodes. The first one leads it."""
        name = f"t-{uuid.uuid4().hex[:12]}"
        self.admin.create_topics([_admin.NewTopic(name, 1, replica_assignment=[nodes])])[name].result(60)
        return name

    def leader(self, topic: str) -> int:
        """The node that leads partition 0; -1 while none does."""
        return int(self.admin.list_topics(topic, timeout=30).topics[topic].partitions[0].leader)

    def in_sync(self, topic: str) -> set[int]:
        """The nodes that have all messages of partition 0, as far as this broker knows."""
        partitions = self.admin.list_topics(topic, timeout=30).topics[topic].partitions
        return set(partitions[0].isrs) if partitions else set()

    def lead_by_first(self, *topics: str) -> None:
        """Make the first node of each topic its leader again, while both run."""
        wanted = [TopicPartition(topic, 0) for topic in topics]
        self.admin.elect_leaders(confluent_kafka.ElectionType.PREFERRED, wanted).result(60)

    def grow(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions([_admin.NewPartitions(topic, partitions)])[topic].result(30)

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(30)

    def allow(self, topic: str, user: str, *operations: str) -> None:
        """From now on only these operations (READ, DESCRIBE) of the topic are allowed to the user, and none to other
        users; the user of `address` may do everything. DESCRIBE hides no topic, and READ includes it."""
        self.open_to_all(topic)
        listed = [("User:nobody", "READ"), *((f"User:{user}", operation) for operation in operations)]
        at, kind = _topic(topic), _admin.AclOperation
        wanted = [_admin.AclBinding(*at, who, "*", kind[what], _ALLOW) for who, what in listed]
        for answer in self.admin.create_acls(wanted).values():
            answer.result(30)

    def open_to_all(self, topic: str) -> None:
        """Remove all rules about the topic."""
        every = _admin.AclBindingFilter(
            *_topic(topic), None, None, _admin.AclOperation.ANY, _admin.AclPermissionType.ANY
        )
        for answer in self.admin.delete_acls([every]).values():
            answer.result(30)

    def trim(self, topic: str, partition: int, before: int) -> None:
        """Delete the messages before an offset, as retention does."""
        at = TopicPartition(topic, partition, before)
        self.admin.delete_records([at])[at].result(30)

    def end(self, topic: str, partition: int = 0) -> int:
        at = TopicPartition(topic, partition)
        return int(self.admin.list_offsets({at: _admin.OffsetSpec.latest()})[at].result(30).offset)

    def write(
        self,
        topic: str,
        values: Iterable[bytes | str | Mapping[str, Any] | None],
        partition: int = 0,
        **more: Any,
    ) -> None:
        """Write messages: bytes and texts as they are, dictionaries as JSON. `more` are arguments of `produce`."""
        producer: Any = Producer(
            {"bootstrap.servers": self.address, "message.max.bytes": 20_000_000, "linger.ms": 2, "log_level": 0}
        )
        for value in values:
            data = json.dumps(value) if isinstance(value, Mapping) else value
            while True:
                try:
                    producer.produce(topic, data, partition=partition, **more)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(60) == 0

    def transaction(self, topic: str, values: Iterable[bytes], partition: int = 0, commit: bool = True) -> None:
        """Write messages in one transaction, which is committed or aborted."""
        producer: Any = Producer(
            {"bootstrap.servers": self.address, "transactional.id": uuid.uuid4().hex, "log_level": 0}
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(60) == 0
        producer.commit_transaction(60) if commit else producer.abort_transaction(60)

    def read(self, topic: str, committed: bool = True) -> list[Any]:
        """All messages of a topic."""
        consumer: Any = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": uuid.uuid4().hex,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "log_level": 0,
            }
        )
        count = len(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, p, 0) for p in range(count)])
        found, open_ones = [], set(range(count))
        while open_ones:
            for message in consumer.consume(10_000, 0.2):
                if message.error() is not None:
                    open_ones.discard(message.partition())
                else:
                    found.append(message)
        consumer.close()
        return found

    def group(self, name: str, topic: str, partitions: int = 1) -> list[int]:
        """What a consumer group has committed."""
        consumer: Any = Consumer({"bootstrap.servers": self.address, "group.id": name, "log_level": 0})
        found = consumer.committed([TopicPartition(topic, p) for p in range(partitions)], timeout=30)
        consumer.close()
        return [one.offset for one in found]
