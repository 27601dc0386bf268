"""The offset of a Kafka stream: how far each partition is read. Pure arithmetic, no broker.

As JSON: {"topics": {"orders": {"id": "lUg28Go6RqGOlZo084VDmA", "next": [120, 118]}}}. `next` is the first offset that
was not read, for each partition. `id` tells a topic from one that was created again under the same name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from headrace.sources.source_kind import SourceOffset

PartitionKey = tuple[str, int]  # topic and partition


@dataclass(frozen=True, slots=True)
class TopicPlace:
    """How far a topic is read."""

    id: str
    next: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """How far a stream is read, by topic."""

    topics: Mapping[str, TopicPlace] = field(default_factory=dict)

    @staticmethod
    def parse(offset: SourceOffset) -> Place:
        found = offset["topics"]
        return Place({name: TopicPlace(one["id"], tuple(one["next"])) for name, one in found.items()})

    def stored(self) -> SourceOffset:
        """The offset as Spark logs it."""
        return {"topics": {name: {"id": one.id, "next": list(one.next)} for name, one in sorted(self.topics.items())}}

    def begin_of(self, topic: str, id: str, partition: int) -> int:
        """The first offset to read of a partition. A partition that appeared later is read from its beginning."""
        known = self.topics.get(topic)
        if known is None or known.id != id or partition >= len(known.next):
            return 0
        return known.next[partition]


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Offsets [begin, end) of a partition."""

    topic: str
    partition: int
    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin


def ranges(start: Place, end: Place) -> Iterator[PartitionRange]:
    """The offsets from `start` to `end`, partition by partition. Partitions without any are left out."""
    for topic, at in end.topics.items():
        for partition, stop in enumerate(at.next):
            begin = start.begin_of(topic, at.id, partition)
            if stop > begin:
                yield PartitionRange(topic, partition, begin, stop)


def limited(start: Place, end: Place, most: int) -> Place:
    """`end`, or a place before it with about `most` offsets after `start`. Every partition gets its share, and one
    offset at least, so that no partition waits for another."""
    found = list(ranges(start, end))
    total = sum(r.size for r in found)
    if total <= most:
        return end
    cut = {(r.topic, r.partition): r.begin + max(1, r.size * most // total) for r in found}
    return Place(
        {
            topic: TopicPlace(at.id, tuple(cut.get((topic, p), stop) for p, stop in enumerate(at.next)))
            for topic, at in end.topics.items()
        }
    )


def shared(found: list[PartitionRange], tasks: int) -> list[tuple[PartitionRange, ...]]:
    """Cut ranges into parts with about as many offsets each, one for each task. A partition may be in several parts."""
    total = sum(r.size for r in found)
    cuts = [total * i // tasks for i in range(tasks + 1)]
    parts: list[tuple[PartitionRange, ...]] = []
    for low, high in pairwise(cuts):
        part, at = [], 0
        for r in found:
            begin, end = max(low, at), min(high, at + r.size)
            if begin < end:
                part.append(PartitionRange(r.topic, r.partition, r.begin + begin - at, r.begin + end - at))
            at += r.size
        parts.append(tuple(part))
    return [part for part in parts if part]
