"""The offset of a Kafka stream: how far each partition is read. Pure arithmetic, no broker.

As JSON: {"topics": {"orders": {"id": "lUg28Go6RqGOlZo084VDmA", "next": [120, 118]}}}. `next` is the first offset that
was not read, for each partition. `id` distinguishes a topic from one that was created again under the same name. A
topic that the broker no longer lists keeps its place, with the time at which it counted as lost: {"id": ..., "next":
[120, 118], "gone": 1767225600}. If the same topic comes back, it is read from that place on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from headrace.sources.source_kind import SourceOffset

PartitionKey = tuple[str, int]  # topic and partition
KEEP_GONE = 1000  # topics; the offset would grow without end under a pattern whose topics come and go


@dataclass(frozen=True, slots=True)
class TopicPlace:
    """How far a topic is read. `gone` is when it was counted as lost (seconds since 1970); None if it is there."""

    id: str
    next: tuple[int, ...]
    gone: int | None = None

    @staticmethod
    def parse(stored: Mapping[str, Any]) -> TopicPlace:
        return TopicPlace(stored["id"], tuple(stored["next"]), stored.get("gone"))

    def stored(self) -> dict[str, Any]:
        return {"id": self.id, "next": list(self.next)} | ({} if self.gone is None else {"gone": self.gone})

    def lost_at(self, end: TopicPlace | None) -> bool:
        """True if an epoch that ends at `end` is the one that counts this topic as lost: it is gone, created again, or
        shorter than it was."""
        if end is None or end.id != self.id or end.gone is not None:
            return self.gone is None
        return any(e < n for e, n in zip(end.next, self.next, strict=False))


@dataclass(frozen=True, slots=True)
class Place:
    """How far a stream is read, by topic."""

    topics: Mapping[str, TopicPlace] = field(default_factory=dict)

    @staticmethod
    def parse(offset: SourceOffset) -> Place:
        return Place({name: TopicPlace.parse(one) for name, one in offset["topics"].items()})

    def stored(self) -> SourceOffset:
        """The offset as Spark logs it."""
        return {"topics": {name: one.stored() for name, one in sorted(self.topics.items())}}

    @property
    def there(self) -> Place:
        """The place without the topics that are gone."""
        return Place({name: one for name, one in self.topics.items() if one.gone is None})

    def forgetting(self) -> Place:
        """The place without the topics that are gone for the longest time, if there are more than KEEP_GONE."""
        gone = sorted((at.gone, name) for name, at in self.topics.items() if at.gone is not None)
        old = {name for _, name in gone[: max(0, len(gone) - KEEP_GONE)]}
        return Place({name: at for name, at in self.topics.items() if name not in old}) if old else self

    def with_new(self, end: Place) -> Place:
        """The place with the topics of `end` that it does not have, at their place in `end`."""
        return Place({**end.topics, **self.topics})

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
            topic: replace(at, next=tuple(cut.get((topic, p), stop) for p, stop in enumerate(at.next)))
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
