"""CREATE OR REPLACE and ALTER of a pipeline: no epoch missed or doubled, and state only where it means the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.bridge.messages import STREAM_LANE
from headrace.bridge.pools import POOL
from headrace.errors import UnknownPipeline
from headrace.hub import draft_pipelines
from headrace.hub.redeclaring import replaced_pipeline
from headrace.model.definitions import PipelineDef
from tests.e2e.support import put
from tests.shared.mini import Crash, Mini, lanes_with_state

COUNT = "SELECT k, count(*) AS n FROM s{where} GROUP BY k"


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mini]:
    (tmp_path / "in").mkdir()
    mini = Mini(tmp_path / "state", monkeypatch)
    mini.hub.sql(
        "CREATE STREAM s (id BIGINT, k STRING) WITH (source = 'files', format = 'json', "
        f"path = '{tmp_path / 'in'}'); CREATE SINK out WITH (type = 'kept'); CREATE SINK copy WITH (type = 'kept')"
    )
    yield mini
    mini.hub.close()


def feed(mini: Mini, low: int, high: int) -> None:
    put(mini.directory.parent / "in" / f"{low:03}.json", [f'{{"id": {i}, "k": "k{i % 2}"}}' for i in range(low, high)])
    mini.drain()


def pipeline(mini: Mini, query: str, sinks: str = "out") -> int:
    mini.hub.sql(f"CREATE OR REPLACE PIPELINE p INTO {sinks} AS {query}")
    return mini.hub.record("p").definition.instance


def test_a_pipeline_with_the_same_ring_1_program_continues_with_the_state(mini: Mini) -> None:
    first = pipeline(mini, COUNT.format(where=""))
    feed(mini, 0, 10)
    second = pipeline(mini, COUNT.format(where=" WHERE id <> 11"))
    feed(mini, 10, 14)
    third = pipeline(mini, COUNT.format(where=" WHERE id <> 11"), "out, copy")
    feed(mini, 14, 16)
    assert len({first, second, third}) == 3
    assert dict(mini.output(first)) == {"k0": 5, "k1": 5}
    assert dict(mini.output(second)) == {"k0": 7, "k1": 6}
    assert dict(mini.output(third)) == {"k0": 8, "k1": 7}
    # Its end is the end of the state that it took over.
    mini.hub.sql("CREATE PIPELINE other INTO out AS SELECT id FROM s; DROP PIPELINE p")
    mini.drain()
    assert not lanes_with_state(mini.checkpoint.state) & {first, second, third}


def test_the_successor_of_a_pipeline_of_an_earlier_release_finds_its_state(
    mini: Mini, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark keeps state by key, and pools of earlier releases have other keys."""

    def earlier(**fields: Any) -> PipelineDef:
        return PipelineDef(**fields | {"spread": False})

    with monkeypatch.context() as patched:
        patched.setattr(draft_pipelines, "PipelineDef", earlier)
        first = pipeline(mini, COUNT.format(where=""))
    feed(mini, 0, 10)
    assert {lane for lane, _ in mini.checkpoint.state} - {STREAM_LANE} == {POOL}
    assert pipeline(mini, COUNT.format(where="")) == first  # declared again, it is the same
    second = pipeline(mini, COUNT.format(where=" WHERE id <> 11"))
    feed(mini, 10, 14)
    assert dict(mini.output(second)) == {"k0": 7, "k1": 6}
    assert {lane for lane, _ in mini.checkpoint.state} - {STREAM_LANE} == {POOL}


def test_a_pipeline_with_another_ring_1_program_begins_with_empty_state(mini: Mini) -> None:
    pipeline(mini, COUNT.format(where=""))
    feed(mini, 0, 10)
    second = pipeline(mini, COUNT.format(where="").replace("count(*)", "count(*) + 1"))
    feed(mini, 10, 14)
    assert dict(mini.output(second)) == {"k0": 3, "k1": 3}


def test_alter_changes_one_part_and_says_what_became_of_the_state(mini: Mini) -> None:
    pipeline(mini, COUNT.format(where=""))
    feed(mini, 0, 10)
    (answer,) = mini.hub.sql("ALTER PIPELINE p INTO out, copy")
    assert answer == replaced_pipeline(mini.hub.record("p").definition, kept_state=True)
    (answer,) = mini.hub.sql(f"ALTER PIPELINE p AS {COUNT.format(where=' WHERE id <> 11')}")
    altered = mini.hub.record("p").definition
    assert answer == replaced_pipeline(altered, kept_state=True)
    feed(mini, 10, 14)
    assert ([s.name for s in altered.sinks], dict(mini.output(altered.instance))) == (
        ["out", "copy"],
        {"k0": 7, "k1": 6},
    )
    (answer,) = mini.hub.sql("ALTER PIPELINE p AS SELECT k, max(id) AS n FROM s GROUP BY k")
    emptied = replaced_pipeline(mini.hub.record("p").definition, kept_state=False)
    assert answer == emptied
    (answer,) = mini.hub.sql("ALTER PIPELINE p AS SELECT id FROM s")
    stateless = replaced_pipeline(mini.hub.record("p").definition, kept_state=False)
    assert answer == stateless
    assert len({emptied.text, stateless.text, replaced_pipeline(altered, kept_state=True).text}) == 3
    (shown,) = mini.hub.sql("SHOW CREATE PIPELINE p")
    assert shown.text == "CREATE OR REPLACE PIPELINE p INTO out, copy AS SELECT id FROM s;"
    with pytest.raises(UnknownPipeline):
        mini.hub.sql("ALTER PIPELINE q INTO out")


def test_one_that_failed_passes_nothing_on(mini: Mini) -> None:
    pipeline(mini, "SELECT k, sum(1 / (id - 12)) AS n FROM s GROUP BY k")
    feed(mini, 0, 10)
    feed(mini, 10, 14)
    assert mini.hub.record("p").desired == "failed"
    second = pipeline(mini, "SELECT k, sum(1 / (id - 12)) AS n FROM s WHERE id <> 12 GROUP BY k")
    feed(mini, 14, 15)
    assert mini.output(second) == [("k0", 0.5)]


@pytest.mark.parametrize("place", ["logged", "tasks", "lanes", "committed"])
def test_no_epoch_is_missed_or_doubled_between_the_two_wherever_the_process_dies(mini: Mini, place: str) -> None:
    first = pipeline(mini, "SELECT id FROM s")
    feed(mini, 0, 10)
    put(mini.directory.parent / "in" / "010.json", [f'{{"id": {i}, "k": "x"}}' for i in range(10, 14)])
    mini.checkpoint.crash = place
    with pytest.raises(Crash):
        pipeline(mini, "SELECT id + 0 AS id FROM s")
    mini.crash()
    second = mini.hub.record("p").definition.instance
    feed(mini, 14, 20)
    rows = [row for instance in {first, second} for row in mini.output(instance)]
    assert sorted(rows) == [(i,) for i in range(20)]
    assert mini.output(first) == [(i,) for i in range(10)]
