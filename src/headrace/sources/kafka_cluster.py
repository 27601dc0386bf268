"""What the planner asks a Kafka cluster: topics, partitions, first and last offsets. And the group's offsets.

Every question has a time limit and ends in a coded error. One thread uses it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any

from headrace.brokers.connection import ANSWER_SECONDS, KafkaConnection, Noted, library
from headrace.errors import HeadraceError, UnknownTopic
from headrace.sources.kafka_offsets import PartitionKey, Place, TopicPlace

SAMPLE = 200  # messages whose size is taken for the size of all
SAMPLE_SECONDS = 2.0
_log = logging.getLogger(__name__)


class Cluster:
    """Answers about the topics of one stream."""

    def __init__(self, connection: KafkaConnection, group: str, committed: bool) -> None:
        """With `committed`, the end of a partition is that of its committed messages."""
        self._connection, self._group, self._committed = connection, group, committed
        self._lib = library()
        self._noted = Noted()
        self._admin = connection.admin(self._noted)
        self._consumer: Any = None

    def topics(self, names: Iterable[str], pattern: re.Pattern[str] | None) -> dict[str, TopicPlace]:
        """The topics of these names, or those that the pattern matches, with a zero for each partition. Topics that do
        not exist are left out."""
        self._noted.clear()
        if pattern is not None:
            with self._asking("list the topics"):
                found = self._admin.list_topics(timeout=ANSWER_SECONDS).topics
            names = [name for name in found if pattern.fullmatch(name) and not name.startswith("__")]
        described: dict[str, TopicPlace] = {}
        wanted = sorted(names)
        if not wanted:
            return described
        collection = self._lib.TopicCollection(wanted)
        with self._asking(f"describe the topics {', '.join(wanted[:5])}"):
            answers = self._admin.describe_topics(collection, request_timeout=ANSWER_SECONDS)
        for name, answer in answers.items():
            try:
                with self._asking(f"describe the topic {name}"):
                    topic = answer.result(ANSWER_SECONDS + 1)
                described[name] = TopicPlace(str(topic.topic_id), (0,) * len(topic.partitions))
            except UnknownTopic:
                continue
        return described

    def ends(self, topics: Mapping[str, TopicPlace]) -> Place:
        """The place after the last message of every partition."""
        return self._offsets(topics, self._lib.admin.OffsetSpec.latest())

    def begins(self, topics: Mapping[str, TopicPlace]) -> Place:
        """The place before the first message of every partition."""
        return self._offsets(topics, self._lib.admin.OffsetSpec.earliest())

    def at_time(self, topics: Mapping[str, TopicPlace], millis: int) -> Place:
        """The place before the first message with this timestamp or a later one. The end if there is none."""
        found, ends = self._offsets(topics, self._lib.admin.OffsetSpec.for_timestamp(millis)), self.ends(topics)
        return Place(
            {
                name: TopicPlace(
                    at.id, tuple(e if o < 0 else o for o, e in zip(at.next, ends.topics[name].next, strict=True))
                )
                for name, at in found.topics.items()
            }
        )

    def _offsets(self, topics: Mapping[str, TopicPlace], which: Any) -> Place:
        """Topics that were deleted meanwhile are left out."""
        keys = [(name, p) for name, at in topics.items() for p in range(len(at.next))]
        if not keys:
            return Place()
        level = self._lib.IsolationLevel
        wanted = {self._lib.TopicPartition(*key): which for key in keys}
        with self._asking("ask for offsets"):
            answers = self._admin.list_offsets(
                wanted,
                isolation_level=level.READ_COMMITTED if self._committed else level.READ_UNCOMMITTED,
                request_timeout=ANSWER_SECONDS,
            )
        offsets: dict[PartitionKey, int] = {}
        gone: set[str] = set()
        for partition, answer in answers.items():
            try:
                with self._asking(f"ask for the offsets of {partition.topic}/{partition.partition}"):
                    offsets[partition.topic, partition.partition] = answer.result(ANSWER_SECONDS + 1).offset
            except UnknownTopic:
                gone.add(partition.topic)
        return Place(
            {
                name: TopicPlace(at.id, tuple(offsets[name, p] for p in range(len(at.next))))
                for name, at in topics.items()
                if name not in gone
            }
        )

    def message_bytes(self, topic: str, partition: int, offset: int) -> float | None:
        """The average size of some messages from `offset` on; None if there are none."""
        consumer = self._group_consumer()
        consumer.assign([self._lib.TopicPartition(topic, partition, offset)])
        try:
            with self._asking(f"read {topic}/{partition}"):
                found = [m for m in consumer.consume(SAMPLE, SAMPLE_SECONDS / 10) if m.error() is None]
                found = found or [m for m in consumer.consume(1, SAMPLE_SECONDS) if m.error() is None]
        finally:
            consumer.unassign()
        return sum(len(m) for m in found) / len(found) if found else None

    def show_progress(self, place: Place) -> None:
        """Commit the place to the consumer group, for tools that show lag. Nothing depends on it, so a failure is only
        logged."""
        offsets = [
            self._lib.TopicPartition(name, p, offset)
            for name, at in place.topics.items()
            for p, offset in enumerate(at.next)
        ]
        if offsets:
            try:
                with self._asking(f"commit to the group {self._group}"):
                    self._group_consumer().commit(offsets=offsets, asynchronous=True)
                    self._group_consumer().poll(0)  # serves the result of the commit before
            except HeadraceError as problem:
                _log.warning("the lag of group %s is not up to date: %s", self._group, problem.message)

    def _group_consumer(self) -> Any:
        if self._consumer is None:
            settings = {
                "group.id": self._group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed" if self._committed else "read_uncommitted",
                "fetch.message.max.bytes": 64 << 10,
                "queued.max.messages.kbytes": 64,
                "on_commit": _committed,
            }
            self._consumer = self._connection.consumer(settings, self._noted)
        return self._consumer

    def _asking(self, what: str) -> Any:
        return self._connection.asking(what, self._noted, self._admin.poll)


def _committed(error: Any, partitions: Any) -> None:
    if error is not None:
        _log.warning("the lag of the group is not up to date: %s", error.str())
