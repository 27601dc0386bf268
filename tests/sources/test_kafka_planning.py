"""What the planner makes of a cluster's answers, without a broker."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
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
        self.first = 0
        self.shown: list[set[str]] = []

    def topics(self, names: Any, pattern: Any) -> dict[str, TopicPlace]:
        return {name: TopicPlace(id, (0,) * len(ends)) for name, (id, ends) in self.state.items()}

    def ends(self, topics: dict[str, TopicPlace]) -> Place:
        return Place({name: TopicPlace(*self.state[name]) for name in topics if name in self.state})

    def begins(self, topics: dict[str, TopicPlace]) -> Place:
        there = {name: self.state[name] for name in topics if name in self.state}
        return Place({name: TopicPlace(id, (self.first,) * len(ends)) for name, (id, ends) in there.items()})

    def message_bytes(self, topic: str, partition: int, offset: int) -> float:
        return 100.0

    def show_progress(self, place: Place) -> None:
        self.shown.append(set(place.topics))


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


def test_a_start_offset_after_the_end_is_refused(tmp_path: Path) -> None:
    cluster, clock = FakeCluster(t=("id", (5, 7))), Clock()
    given = {"start": "offsets", "start_offsets": '{"t": {"0": 5, "1": 8}}'}
    with pytest.raises(BadOption) as caught:
        source(tmp_path, cluster, clock, **given).initial()
    assert caught.value.params["option"] == "start_offsets"
    given["start_offsets"] = '{"t": {"0": 5, "1": 7}}'
    assert source(tmp_path, cluster, clock, **given).initial() == {"topics": {"t": {"id": "id", "next": [5, 7]}}}


def away(planned: kafka.KafkaTopics, end: Any, cluster: FakeCluster, clock: Clock) -> Any:
    """Hide all topics until the planner counts them as lost. Returns its offset then."""
    cluster.state = {}
    for _ in range(2):
        clock.now += kafka.INVISIBLE + 1
        later = planned.latest(end, None)
    return later


def read(planned: kafka.KafkaTopics, start: Any, end: Any) -> tuple[list[tuple[str, int, int, int]], int]:
    """The ranges that the tasks of an epoch read, and how many lost ones they count."""
    splits: list[Any] = list(planned.splits(start, end, 4))
    return [(r.topic, r.partition, r.begin, r.end) for s in splits for r in s.ranges], sum(s.lost for s in splits)


def test_a_topic_that_stays_away_is_lost_once_and_keeps_its_place(tmp_path: Path) -> None:
    cluster, clock = FakeCluster(t=("id", (5,))), Clock()
    planned = source(tmp_path, cluster, clock, on_data_loss="skip")
    end = planned.latest(planned.initial(), None)
    later = away(planned, end, cluster, clock)
    assert later == {"topics": {"t": {"id": "id", "next": [5], "gone": int(clock.now)}}}
    assert read(planned, end, later) == ([], 1)
    clock.now += 1000
    assert planned.latest(later, None) == later
    assert planned.exhausted(later)
    assert cluster.shown[-1] == set()  # the group gets no offsets of a topic that is hidden
    failing = source(tmp_path, cluster, clock)
    assert failing.latest(end, None) == end  # it may be a broker that has just started
    clock.now += kafka.INVISIBLE
    with pytest.raises(DataLost):
        failing.latest(end, None)


def test_a_topic_that_comes_back_is_read_from_where_it_was(tmp_path: Path) -> None:
    cluster, clock = FakeCluster(t=("id", (5, 7)), u=("u-id", (1,))), Clock()
    planned = source(tmp_path, cluster, clock, on_data_loss="skip")
    end = planned.latest(planned.initial(), None)
    later = away(planned, end, cluster, clock)
    planned = source(tmp_path, cluster, clock, on_data_loss="skip")  # after a restart, too
    cluster.state = {"t": ("id", (8, 7)), "u": ("u-id", (1,))}
    clock.now += kafka.TOPICS + 1
    back = planned.latest(later, None)
    assert back == {"topics": {"t": {"id": "id", "next": [8, 7]}, "u": {"id": "u-id", "next": [1]}}}
    assert read(planned, later, back) == ([("t", 0, 5, 8)], 0)
    del cluster.state["u"]
    clock.now += kafka.TOPICS + 1
    bounded = planned.latest(later, 200)  # keeps the mark of the other topic
    assert read(planned, later, bounded) == ([("t", 0, 5, 7)], 0)
    assert bounded["topics"]["u"] == later["topics"]["u"]


def test_another_topic_of_the_same_name_begins_at_its_beginning(tmp_path: Path) -> None:
    cluster, clock = FakeCluster(t=("id", (5,))), Clock()
    planned = source(tmp_path, cluster, clock, on_data_loss="skip")
    end = planned.latest(planned.initial(), None)
    later = away(planned, end, cluster, clock)
    cluster.state = {"t": ("other", (3,))}
    clock.now += kafka.TOPICS + 1
    assert read(planned, later, planned.latest(later, None)) == ([("t", 0, 0, 3)], 0)  # it is counted already
    assert read(planned, end, planned.latest(end, None)) == ([("t", 0, 0, 3)], 1)
    with pytest.raises(DataLost):
        source(tmp_path, cluster, clock).latest(later, None)


def test_an_epoch_waits_for_a_topic_that_is_not_listed_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, clock = FakeCluster(t=("id", (5,))), Clock()
    planned = source(tmp_path, cluster, clock, on_data_loss="skip")
    start = planned.initial()
    end = planned.latest(start, None)
    there, cluster.state = cluster.state, {}
    time = Clock()
    waits: list[float] = []

    def wait(seconds: float) -> None:
        time.now += seconds
        waits.append(seconds)
        cluster.state = there if len(waits) == 3 else {}

    monkeypatch.setattr("headrace.sources.kafka.time", SimpleNamespace(sleep=wait, monotonic=time))
    assert read(planned, start, end) == ([("t", 0, 0, 5)], 0)
    cluster.state, there = {}, {}
    assert read(planned, start, end) == ([], 5)  # it does not come back
    assert sum(waits[3:]) == kafka.INVISIBLE

    def slowly(topics: dict[str, TopicPlace]) -> Place:
        time.now += 9.0
        return Place({})

    monkeypatch.setattr(cluster, "begins", slowly)
    begun = time.now
    assert read(planned, start, end) == ([], 5)
    assert time.now - begun < kafka.INVISIBLE + 10, "the time that the cluster takes for its answers counts"


def test_an_epoch_never_reads_another_topic_of_the_same_name(tmp_path: Path) -> None:
    cluster, clock = FakeCluster(t=("id", (5,))), Clock()
    planned = source(tmp_path, cluster, clock, on_data_loss="skip")
    start = planned.initial()
    end = planned.latest(start, None)
    cluster.state = {"t": ("other", (9,))}
    again = source(tmp_path, cluster, clock, on_data_loss="skip")  # runs the epoch again after a restart
    assert read(again, start, end) == ([], 5)


def test_a_topic_that_is_new_to_the_stream_begins_where_its_messages_begin(tmp_path: Path) -> None:
    cluster, clock = FakeCluster(t=("id", (5,))), Clock()
    planned = source(tmp_path, cluster, clock)
    end = planned.latest(planned.initial(), None)
    cluster.state, cluster.first = {"t": ("id", (5,)), "old": ("o", (9,))}, 4
    clock.now += kafka.TOPICS + 1
    noted = planned.latest(end, 100)  # no DataLost, however small the epoch
    assert read(planned, end, noted) == ([], 0) and not planned.exhausted(end)
    assert read(planned, noted, planned.latest(noted, None)) == ([("old", 0, 4, 9)], 0)
    assert planned.exhausted(planned.latest(noted, None))


@pytest.mark.parametrize("later", ["before it is read", "before its epoch runs again"])
def test_messages_of_a_new_topic_that_go_before_they_are_read_are_counted(tmp_path: Path, later: str) -> None:
    cluster, clock = FakeCluster(t=("id", (5,))), Clock()
    planned = source(tmp_path, cluster, clock, on_data_loss="skip")
    first = planned.latest(planned.initial(), None)
    cluster.state = {"t": ("id", (5,)), "new": ("o", (9,))}
    clock.now += kafka.TOPICS + 1
    noted = planned.latest(first, None)
    end = planned.latest(noted, None)
    if later == "before its epoch runs again":
        assert read(planned, noted, end) == ([("new", 0, 0, 9)], 0)
    cluster.first = 4
    assert read(source(tmp_path, cluster, clock, on_data_loss="skip"), noted, end) == ([("new", 0, 4, 9)], 4)
    with pytest.raises(DataLost):
        read(source(tmp_path, cluster, clock), noted, end)


def test_an_epoch_of_an_earlier_version_that_reads_a_new_topic_is_read_again(tmp_path: Path) -> None:
    cluster, clock = FakeCluster(t=("id", (5,)), new=("o", (9,))), Clock()
    planned, end = source(tmp_path, cluster, clock), {"topics": {"new": {"id": "o", "next": [9]}}}
    assert read(planned, {"topics": {}}, end) == ([("new", 0, 0, 9)], 0)


def test_an_offset_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """Earlier versions left out a topic that was gone, also in an epoch that is run again."""
    cluster, clock = FakeCluster(t=("id", (5,))), Clock()
    planned = source(tmp_path, cluster, clock, on_data_loss="skip")
    old = {"topics": {"t": {"id": "id", "next": [2]}}}
    assert Place.parse(old).stored() == old
    assert read(planned, old, planned.latest(old, None)) == ([("t", 0, 2, 5)], 0)
    assert read(planned, old, {"topics": {}}) == ([], 1)


def test_only_the_newest_of_many_topics_that_are_gone_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.kafka_offsets.KEEP_GONE", 2)
    at = {name: TopicPlace(name, (1,), gone) for name, gone in (("a", 30), ("b", 10), ("c", 20), ("d", None))}
    left = Place(at).forgetting()
    assert set(left.topics) == {"a", "c", "d"}
    assert not any(place.lost_at(left.topics.get(name)) for name, place in at.items())
