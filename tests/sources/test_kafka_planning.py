"""What the planner makes of a cluster's answers, without a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import BadOption, DataLost
from headrace.model.definitions import StreamDef
from headrace.model.schema import BIGINT, Field, Schema
from headrace.sources import kafka
from headrace.sources.kafka_offsets import Place, TopicPlace


class FakeCluster:
    """A cluster with these topics: name -> (id, ends of partitions)."""

    def __init__(self, **topics: tuple[str, tuple[int, ...]]) -> None:
        self.state = topics

    def topics(self, names: Any, pattern: Any) -> dict[str, TopicPlace]:
        return {name: TopicPlace(id, (0,) * len(ends)) for name, (id, ends) in self.state.items()}

    def ends(self, topics: dict[str, TopicPlace]) -> Place:
        return Place({name: TopicPlace(*self.state[name]) for name in topics if name in self.state})

    def begins(self, topics: dict[str, TopicPlace]) -> Place:
        return Place({name: TopicPlace(self.state[name][0], (0,) * len(self.state[name][1])) for name in topics})

    def show_progress(self, place: Place) -> None: ...


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def source(tmp_path: Path, cluster: FakeCluster, clock: Clock, **options: str) -> kafka.KafkaTopics:
    given = {"topics": "t", "kafka.bootstrap.servers": "x:1", **options}
    stream = StreamDef("s", Schema((Field("a", BIGINT),)), None, 0, "kafka", "json", given)
    made = kafka.KafkaTopics(stream, kafka.KAFKA.settings_of(stream), tmp_path, clock)
    made.__dict__["_cluster"] = cluster
    return made


def test_a_topic_that_is_not_listed_for_a_moment_keeps_its_place(tmp_path: Path) -> None:
    cluster, clock = FakeCluster(t=("id", (5, 7))), Clock()
    planned = source(tmp_path, cluster, clock, on_data_loss="skip")
    end = planned.latest(planned.initial(), None)
    there, cluster.state = cluster.state, {}
    for _ in range(4):
        clock.now += kafka.TOPICS + 1
        assert planned.latest(end, None) == end
    cluster.state = there
    clock.now += kafka.TOPICS + 1
    assert planned.latest(end, None) == end
    cluster.state = {"t": ("id", (6, 7))}
    clock.now += 1
    later = planned.latest(end, None)
    assert [(r.begin, r.end) for s in planned.splits(end, later, 4) for r in s.ranges] == [(5, 6)]  # type: ignore[attr-defined]


def test_start_offsets_may_only_name_what_exists() -> None:
    found = {"t": TopicPlace("id", (0, 0))}
    kafka._check_offsets({"t": {0: 5, 1: -2}}, found)
    for wrong in ({"u": {0: 1}}, {"t": {2: 1}}, {"t": {-1: 1}}):
        with pytest.raises(BadOption):
            kafka._check_offsets(wrong, found)


def test_a_topic_that_stays_away_is_lost(tmp_path: Path) -> None:
    cluster, clock = FakeCluster(t=("id", (5,))), Clock()
    planned = source(tmp_path, cluster, clock, on_data_loss="skip")
    end = planned.latest(planned.initial(), None)
    cluster.state = {}
    for _ in range(2):
        clock.now += kafka.INVISIBLE + 1
        later = planned.latest(end, None)
    assert later == {"topics": {}}
    (split,) = planned.splits(end, later, 4)
    assert split.lost == 1  # type: ignore[attr-defined]
    failing = source(tmp_path, cluster, clock)
    with pytest.raises(DataLost):
        failing.latest(end, None)
