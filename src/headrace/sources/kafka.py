"""The source `kafka`: the messages of topics. A message is a record by its own boundary.

The offset of every partition is in Spark's offset log, so an epoch that is run again reads the same messages. Ranges of
partitions are cut among the tasks by their number of offsets: one large partition uses all cores, and so do many small
ones. New partitions, and new topics under a pattern, are noticed while the stream runs. The offsets of committed epochs
are also committed to a consumer group, for tools that show lag; the stream never reads them back.

Unit of parallelism: a range of a partition. Delivery: exactly once into an epoch, replayable as long as the topic keeps
the messages.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from headrace.base.options import choice, option, text
from headrace.brokers.connection import KafkaConnection, client_settings
from headrace.errors import BadOption, BrokerUnreachable, MissingOption, UnknownTopic
from headrace.model.definitions import StreamDef
from headrace.model.stored import parsed, store_text
from headrace.sources.generator import instant
from headrace.sources.kafka_cluster import Cluster
from headrace.sources.kafka_facts import METADATA
from headrace.sources.kafka_offsets import PartitionRange, Place, TopicPlace, limited, ranges, shared
from headrace.sources.kafka_reader import KafkaSplit, lost
from headrace.sources.message_formats import check_message_format
from headrace.sources.source_kind import InputSplit, SourceKind, SourceOffset, WallClock

POLL = 0.1  # minimum seconds between two questions for the ends of partitions
TOPICS = 5.0  # seconds between two questions for topics and partitions
SIZES = 30.0  # seconds between two samples of the size of messages
SMALLEST_SPLIT = 256 << 10  # bytes; less is not worth a task
TYPICAL = 512.0  # bytes of a message, before one was seen
OUTAGE = 30.0  # seconds for which an unreachable broker counts as one without news
INVISIBLE = 30.0  # seconds after which a topic that the broker does not list counts as deleted
AGAIN = 1.0  # seconds between two questions for the beginning of a topic that is not listed
EARLIEST, LATEST = -2, -1  # offsets in start_offsets, as in Spark


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as problem:
        raise ValueError(f"a regular expression ({problem})") from None
    return value


def _names(value: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in value.split(",")))
    if not all(names):
        raise ValueError("names of topics, separated by commas")
    return names


def _offsets(value: str) -> dict[str, dict[int, int]]:
    try:
        found = {t: {int(p): int(o) for p, o in by.items()} for t, by in json.loads(value).items()}
    except (ValueError, AttributeError, TypeError):
        raise ValueError('JSON such as {"orders": {"0": 120, "1": -2}}; -2 is the beginning, -1 the end') from None
    if any(o < EARLIEST for by in found.values() for o in by.values()):
        raise ValueError("offsets from 0 on, -2 for the beginning, or -1 for the end")
    return found


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """The options of `source = 'kafka'`."""

    topics: tuple[str, ...] = option(_names, default=(), help="names of topics, separated by commas")
    topic_pattern: str | None = option(
        _pattern, help="a regular expression for whole names of topics, instead of topics; new topics are noticed"
    )
    start: Literal["earliest", "latest", "timestamp", "offsets"] = option(
        choice("earliest", "latest", "timestamp", "offsets"),
        default="earliest",
        help="where a new stream begins: with all messages, with those that come later, at start_timestamp, or at "
        "start_offsets",
    )
    start_timestamp: int | None = option(
        instant, help="with start = 'timestamp': the first message with this timestamp or a later one"
    )
    start_offsets: dict[str, dict[int, int]] | None = option(  # noqa: RUF009
        _offsets, help="with start = 'offsets': an offset for each partition, as JSON; -2 is the beginning, -1 the end"
    )
    group: str | None = option(
        text, help="the consumer group that shows the lag of the stream; headrace-STREAM if absent"
    )
    on_data_loss: Literal["fail", "skip"] = option(
        choice("fail", "skip"),
        default="fail",
        help="if messages are gone before they are read: fail stops the stream, skip counts them and continues",
    )
    kafka: dict[str, str] = client_settings(  # noqa: RUF009
        "any setting of the client library librdkafka; kafka.bootstrap.servers is required"
    )

    @property
    def connection(self) -> KafkaConnection:
        return KafkaConnection(self.kafka)

    def matches(self, topic: str) -> bool:
        """True if a topic of this name belongs to the stream."""
        return topic in self.topics or bool(self.topic_pattern and re.fullmatch(self.topic_pattern, topic))


@dataclass(slots=True)
class _News:
    """What the cluster said last, and when (by the clock of the source)."""

    topics: dict[str, TopicPlace] = field(default_factory=dict)
    ends: Place = field(default_factory=Place)
    missing: dict[str, float] = field(default_factory=dict)  # topics that were there, and since when they are not
    topics_at: float = float("-inf")
    ends_at: float = float("-inf")


class KafkaTopics:
    """Plans the epochs of a Kafka stream. `headrace.sources.source_kind.StreamSource` states the promises."""

    def __init__(self, stream: StreamDef, settings: KafkaSettings, state_dir: Path, clock: WallClock) -> None:
        self._settings, self._clock = settings, clock
        self._group = settings.group or f"headrace-{stream.name}"
        self._pattern = re.compile(settings.topic_pattern) if settings.topic_pattern else None
        self._start_file = state_dir / "start.json"
        self._news = _News()
        self._shown: Place | None = None
        self._message_bytes, self._sampled_at = TYPICAL, float("-inf")

    @cached_property
    def _cluster(self) -> Cluster:
        level = self._settings.kafka.get("isolation.level", "read_committed")
        return Cluster(self._settings.connection, self._group, committed=level == "read_committed")

    def initial(self) -> SourceOffset:
        """The same at every call: Spark may ask again after a crash, and messages that came in between must not be
        skipped."""
        if not self._start_file.exists():
            store_text(self._start_file, json.dumps(self._beginning().stored()))
        return parsed(self._start_file, json.loads) or Place().stored()

    def latest(self, start: SourceOffset, max_bytes: int | None) -> SourceOffset:
        at = Place.parse(start)
        self._show(at)
        self._ask()
        end = self._reachable(at)
        known = at.with_new(end)
        if max_bytes is not None and (waiting := list(ranges(known, end))):
            self._sample(waiting[0])
            end = limited(known, end, max(1, int(max_bytes / self._message_bytes)))
        return end.stored() if end != at else start

    def splits(self, start: SourceOffset, end: SourceOffset, parallelism: int) -> list[InputSplit]:
        found, gone = self._readable(Place.parse(start), Place.parse(end))
        size = sum(r.size for r in found) * self._message_bytes
        tasks = max(1, min(parallelism, int(-(-size // SMALLEST_SPLIT))))
        parts = shared(found, tasks) or ([()] if gone else [])
        return [self._split(part, gone if i == 0 else 0) for i, part in enumerate(parts)]

    def exhausted(self, at: SourceOffset) -> bool:
        self._ask(now=True)
        place = Place.parse(at)
        end = self._reachable(place)
        return end.topics.keys() <= place.topics.keys() and not any(ranges(place, end))

    def backlog(self, at: SourceOffset) -> int:
        self._ask()
        return int(sum(r.size for r in ranges(Place.parse(at), self._news.ends)) * self._message_bytes)

    def commit(self, end: SourceOffset) -> None:
        self._show(Place.parse(end))

    def _split(self, part: tuple[PartitionRange, ...], gone: int) -> KafkaSplit:
        settings = self._settings
        return KafkaSplit(
            connection=settings.connection, group=self._group, ranges=part, on_loss=settings.on_data_loss, lost=gone
        )

    def _beginning(self) -> Place:
        settings, cluster = self._settings, self._cluster
        topics = self._topics()
        missing = [name for name in settings.topics if name not in topics]
        if missing:
            raise _no_topic(missing, settings.connection.servers)
        if settings.start == "latest":
            return cluster.ends(topics)
        if settings.start == "timestamp":
            assert settings.start_timestamp is not None, "CREATE STREAM requires it"
            return cluster.at_time(topics, settings.start_timestamp // 1000)
        begins = cluster.begins(topics)
        if settings.start == "earliest":
            return begins
        assert settings.start_offsets is not None, "CREATE STREAM requires it"
        return _chosen(settings.start_offsets, begins, cluster.ends(topics))

    def _topics(self) -> dict[str, TopicPlace]:
        return self._cluster.topics(self._settings.topics, self._pattern)

    def _ask(self, now: bool = False) -> None:
        """Ask for topics and ends, unless that was done a moment ago. While the broker cannot be reached, the previous
        answers are used for a while."""
        news, clock = self._news, self._clock()
        try:
            if not news.topics_at <= clock < news.topics_at + TOPICS:
                news.topics, news.topics_at = self._topics(), clock
            if now or not news.ends_at <= clock < news.ends_at + POLL:
                news.ends, news.ends_at = self._cluster.ends(news.topics), clock
        except BrokerUnreachable:
            if not news.ends_at <= clock < news.ends_at + OUTAGE:
                raise

    def _reachable(self, at: Place) -> Place:
        """The end of what there is to read after `at`. Raises DataLost, or marks what is gone. A topic that the broker
        does not list counts as there for a while: a broker that has just started may not list all of them. Then it is
        marked, and keeps its place: it may be hidden from this user, and come back. A topic that is new to the stream
        ends at its beginning, and is read by the next epoch. So messages that are deleted after that are known to be
        lost."""
        ends, clock = dict(self._news.ends.topics), self._clock()
        if new := {name: topic for name, topic in ends.items() if name not in at.topics}:
            begins = self._cluster.begins(new).topics
            ends = {name: end for name, end in ends.items() if name not in new} | dict(begins)
        missing = {name: self._news.missing.get(name, clock) for name in at.topics if name not in ends}
        self._news.missing = missing
        for name, known in at.topics.items():
            found = ends.get(name)
            if found is None:
                ends[name] = known
                if known.gone is None and not missing[name] <= clock < missing[name] + INVISIBLE:
                    self._lost(f"the topic {name} was deleted, or this user may no longer see it", topic=name)
                    ends[name] = replace(known, gone=int(clock))
            elif found.id != known.id:
                self._lost(f"the topic {name} was deleted and created again", topic=name)
            else:
                behind = [p for p, (e, n) in enumerate(zip(found.next, known.next, strict=False)) if e < n]
                if behind:
                    self._lost(f"the partition {name}/{behind[0]} is shorter than what was read of it", topic=name)
        return Place(ends).forgetting()

    def _readable(self, start: Place, end: Place) -> tuple[list[PartitionRange], int]:
        """The ranges from `start` to `end` that still exist, and how many offsets are gone. A topic that is gone, was
        created again or cut counts as one: its number of messages is not known."""
        gone = sum(known.lost_at(end.topics.get(name)) for name, known in start.topics.items())
        wanted = list(ranges(start, end))
        begins = self._begins({name: at for name, at in end.topics.items() if any(r.topic == name for r in wanted)})
        found: list[PartitionRange] = []
        for r in wanted:
            first = begins.topics[r.topic].next[r.partition] if r.topic in begins.topics else r.end
            if first > r.begin:
                until = min(first, r.end)
                if r.topic in start.topics:  # else it is new to the stream: this epoch notes where it begins
                    self._lost(
                        f"the messages {r.begin} to {until - 1} of {r.topic}/{r.partition} are gone",
                        topic=r.topic,
                        partition=r.partition,
                        offset=r.begin,
                    )
                    gone += until - r.begin
                r = PartitionRange(r.topic, r.partition, until, r.end)
            if r.size:
                found.append(r)
        return found, gone

    def _begins(self, topics: Mapping[str, TopicPlace]) -> Place:
        """The first offsets of topics, without those that were created again. The end of an epoch cannot be changed any
        more. So a topic that is not listed is asked for again, for a while, before its messages count as lost."""
        self._ask()
        listed = self._news.topics
        same = {name: at for name, at in topics.items() if name not in listed or listed[name].id == at.id}
        deadline = time.monotonic() + INVISIBLE  # a question may itself take seconds
        while True:
            found = self._cluster.begins(same)
            if time.monotonic() >= deadline or same.keys() <= found.topics.keys():
                return found
            time.sleep(AGAIN)

    def _lost(self, what: str, **params: Any) -> None:
        if self._settings.on_data_loss == "fail":
            raise lost(what, **params)

    def _sample(self, waiting: PartitionRange) -> None:
        """Learn the average size of messages, from time to time."""
        clock = self._clock()
        if not self._sampled_at <= clock < self._sampled_at + SIZES:
            found = self._cluster.message_bytes(waiting.topic, waiting.partition, waiting.begin)
            self._sampled_at, self._message_bytes = clock, max(1.0, found or self._message_bytes)

    def _show(self, place: Place) -> None:
        """Everything before `place` is committed: an epoch is planned only when the one before it is in its sinks."""
        if place != self._shown and place.topics:
            self._cluster.show_progress(place.there)
            self._shown = place


def _chosen(wanted: dict[str, dict[int, int]], begins: Place, ends: Place) -> Place:
    """The offsets of `start_offsets`. Partitions that it does not name are read from the beginning."""
    topics = {}
    for name, at in begins.topics.items():
        chosen = wanted.get(name, {})
        special = {EARLIEST: at.next, LATEST: ends.topics[name].next}
        offsets = [chosen.get(p, EARLIEST) for p in range(len(at.next))]
        for p, (offset, end) in enumerate(zip(offsets, ends.topics[name].next, strict=True)):
            if offset > end:
                raise BadOption(
                    f"start_offsets begins {name}/{p} at {offset}, and it has offsets up to {end} only",
                    advice="Drop the stream and create it with a smaller offset; -1 is the end.",
                    option="start_offsets",
                )
        topics[name] = TopicPlace(at.id, tuple(special[o][p] if o in special else o for p, o in enumerate(offsets)))
    return Place(topics)


def _no_topic(missing: list[str], servers: str) -> UnknownTopic:
    return UnknownTopic(
        f"there is no topic {', '.join(missing)} at {servers}",
        advice="Create it, or correct topics. Topics may also be hidden from this user.",
        topics=missing,
    )


def _check(stream: StreamDef, settings: KafkaSettings) -> None:
    owner = "source 'kafka'"
    settings.connection.check(owner)
    if bool(settings.topics) == bool(settings.topic_pattern):
        raise MissingOption(
            f"{owner} needs either the option 'topics' or 'topic_pattern'",
            advice="topics = 'orders, payments' names topics; topic_pattern = 'orders-.*' is a regular expression.",
            option="topics",
            owner=owner,
        )
    for mode, name in (("timestamp", "start_timestamp"), ("offsets", "start_offsets")):
        if (settings.start == mode) != (getattr(settings, name) is not None):
            raise BadOption(
                f"start = '{mode}' and the option '{name}' need each other",
                advice=f"Give both, or choose another start and remove {name}.",
                option=name,
            )
    check_message_format(stream)
    found = Cluster(settings.connection, "headrace", committed=True).topics(
        settings.topics, re.compile(settings.topic_pattern) if settings.topic_pattern else None
    )
    if missing := [name for name in settings.topics if name not in found]:
        raise _no_topic(missing, settings.connection.servers)
    if absent := [name for name in settings.start_offsets or {} if name not in found and settings.matches(name)]:
        raise _no_topic(absent, settings.connection.servers)
    _check_offsets(settings.start_offsets or {}, found)


def _check_offsets(wanted: dict[str, dict[int, int]], found: dict[str, TopicPlace]) -> None:
    """Raise BadOption for topics and partitions in start_offsets that the stream does not have: they would have no
    effect."""
    for name, partitions in wanted.items():
        unknown = [p for p in partitions if name in found and not 0 <= p < len(found[name].next)]
        if name not in found or unknown:
            what = f"the partition {unknown[0]} of {name}" if unknown else f"the topic {name}"
            raise BadOption(
                f"start_offsets names {what}, which the stream does not have",
                advice=f"The stream has the topics {', '.join(sorted(found)) or 'none yet'}; partitions count from 0.",
                option="start_offsets",
            )


KAFKA = SourceKind(
    name="kafka",
    help="the messages of Kafka topics",
    settings=KafkaSettings,
    build=KafkaTopics,
    check_settings=_check,
    changeable=("on_data_loss", "group", "kafka"),
    metadata=METADATA,
    guarantee="exactly once into an epoch; the topic must keep the messages until they are read",
)
