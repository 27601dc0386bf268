"""A commit that hangs in a sink for ever holds up the other pipelines only until its pipeline is dropped or stopped."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import StateUnavailable
from headrace.hub import rollout
from headrace.hub.hub import Hub
from headrace.sinks.file_sink import FileSink
from headrace.sinks.sink_kind import SinkKey, Staged
from headrace.spark.hanging import HangingSinks
from headrace.stream.inflight import epoch_limit
from tests.e2e.support import put
from tests.shared.chain import record
from tests.shared.hanging import Queries, Sink, lines, until
from tests.shared.test_restored_sinks import written

SCRIPT = """
CREATE STREAM raw (ts TIMESTAMP, k STRING, v BIGINT) WITH (source = 'files', format = 'json', path = '{path}/in');
CREATE SINK f WITH (type = 'jsonl', path = '{path}/out');
CREATE SINK h WITH (type = 'jsonl', path = '{path}/hangs');
CREATE SINK m WITH (type = 'memory');
CREATE PIPELINE first INTO f AS SELECT k, v FROM raw;
CREATE PIPELINE bad INTO h AS SELECT k, v FROM raw;
CREATE PIPELINE last INTO m AS SELECT k, v FROM raw
"""


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr(rollout, "STUCK_SECONDS", 0.5)
    put(tmp_path / "in" / "0.json", [record(1, k="a", v=1)])
    hub = Hub(tmp_path / "state", Queries(), buckets=2, start_timeout=60.0)
    yield hub
    hub.close(drain=False)


@pytest.mark.parametrize("method", ["commit", "committed", "verify"])
@pytest.mark.parametrize("statement", ["DROP PIPELINE bad", "STOP PIPELINE bad NOW"])
def test_the_others_go_on_when_a_pipeline_whose_sink_hangs_is_dropped_or_stopped(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, statement: str
) -> None:
    sink = Sink(monkeypatch, method)
    hub.sql(SCRIPT.format(path=tmp_path))
    assert sink.entered.wait(30)
    hub.sql(statement)
    until(lambda: written(tmp_path) == [("a", 1)])
    put(tmp_path / "in" / "1.json", [record(2, k="b", v=2)])
    until(lambda: written(tmp_path) == [("a", 1), ("b", 2)])
    until(lambda: len(hub.pipelines["last"].results()) == 2)
    sink.answers.set()
    assert sink.returned.wait(30)
    put(tmp_path / "in" / "2.json", [record(3, k="c", v=3)])
    until(lambda: written(tmp_path) == [("a", 1), ("b", 2), ("c", 3)])
    until(lambda: len(hub.pipelines["last"].results()) == 3)
    if statement.startswith("STOP"):
        hub.sql("START PIPELINE bad")
        put(tmp_path / "in" / "3.json", [record(4, k="d", v=4)])
        until(lambda: "d" in "".join(p.read_text() for p in (tmp_path / "hangs").glob("part-*")))


@pytest.mark.parametrize("method", ["commit", "verify"])
def test_a_time_limit_stops_the_pipeline_whose_sink_hangs_and_no_other(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    sink = Sink(monkeypatch, method)
    looks = list[int]()

    def sometimes(*given: Any) -> float | None:
        looks.append(1)
        if len(looks) == 2:
            raise StateUnavailable("a file of the state cannot be read for a moment", path=str(tmp_path))
        return epoch_limit(*given)

    monkeypatch.setattr("headrace.stream.managed_query.epoch_limit", sometimes)
    hub.sql(SCRIPT.format(path=tmp_path).replace("'json',", "'json', max_epoch_time = '1s',"))
    assert sink.entered.wait(30)
    until(lambda: hub.pipelines["bad"].status().state == "failed")
    assert len(looks) > 2
    reason = hub.pipelines["bad"].status().changes[-1].reason
    assert "[EPOCH_TIMEOUT]" in reason
    assert "sink h of pipeline bad" in reason
    put(tmp_path / "in" / "1.json", [record(2, k="b", v=2)])
    until(lambda: written(tmp_path) == [("a", 1), ("b", 2)])
    until(lambda: len(hub.pipelines["last"].results()) == 2)
    sink.answers.set()
    assert sink.returned.wait(30)
    hub.sql("START PIPELINE bad")
    put(tmp_path / "in" / "2.json", [record(3, k="c", v=3)])
    until(lambda: "c" in "".join(p.read_text() for p in (tmp_path / "hangs").glob("part-*")))
    until(lambda: written(tmp_path) == [("a", 1), ("b", 2), ("c", 3)])
    assert {hub.pipelines[name].status().state for name in ("first", "last", "bad")} == {"running"}


def test_one_commit_at_a_time_uses_a_sink_although_the_one_that_hung_answers_while_it_is_given_up(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, hold, commit = Sink(monkeypatch, "commit"), HangingSinks.hold, FileSink.commit
    next_one, inside, most = threading.Event(), list[int](), list[int]()

    def committing(sink: FileSink, key: SinkKey, staged: list[Staged]) -> int:
        if sink.paths.sink != "n":
            return commit(sink, key, staged)
        inside.append(key.epoch)
        most.append(len(inside))
        next_one.set()
        time.sleep(1.0 if len(most) == 1 else 0.0)  # so that another commit could come
        try:
            return commit(sink, key, staged)
        finally:
            inside.pop()

    def holding(hanging: HangingSinks, token: object, instance: int, name: str, whole: bool) -> None:
        hold(hanging, token, instance, name, whole)
        if whole:
            sink.answers.set()
            next_one.wait(1)

    monkeypatch.setattr(FileSink, "commit", committing)
    monkeypatch.setattr(HangingSinks, "hold", holding)
    script = SCRIPT.format(path=tmp_path).replace("INTO m AS", "INTO n AS")
    hub.sql(
        script.replace(
            "CREATE SINK m WITH (type = 'memory')", f"CREATE SINK n WITH (type = 'jsonl', path = '{tmp_path}/n')"
        )
    )
    assert sink.entered.wait(30)
    hub.sql("DROP PIPELINE bad")
    until(lambda: lines(tmp_path / "n") == [("a", 1)])
    put(tmp_path / "in" / "1.json", [record(2, k="b", v=2)])
    until(lambda: lines(tmp_path / "n") == [("a", 1), ("b", 2)])
    assert max(most) == 1


def test_a_pipeline_whose_commit_hangs_keeps_its_sinks(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other objects for the same files would write them at the same time: timers join files in their own thread."""
    sink = Sink(monkeypatch, "commit")
    sink.answers.set()
    script = SCRIPT.replace("CREATE PIPELINE first", "CREATE SINK n WITH (type = 'memory');\nCREATE PIPELINE first")
    hub.sql(script.replace("INTO h AS", "INTO h, n AS").format(path=tmp_path))
    until(lambda: hub.pipelines["bad"].results().num_rows == 1)
    sink.answers.clear()
    put(tmp_path / "in" / "1.json", [record(2, k="b", v=2)])
    assert sink.entered.wait(30)
    hub.sql("STOP PIPELINE bad NOW")
    until(lambda: hub.pipelines["last"].results().num_rows == 2)
    assert hub.pipelines["bad"].results().num_rows == 2  # the epoch is in the other sink when that answers
    sink.answers.set()
    assert sink.returned.wait(30)


def test_a_dropped_pipeline_is_forgotten_when_its_sink_has_answered(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Sink(monkeypatch, "commit")
    hub.sql(SCRIPT.format(path=tmp_path))
    assert sink.entered.wait(30)
    hub.sql("DROP PIPELINE bad")
    rows = [("a", 1)]
    for i in (1, 2, 3):  # none of these epochs can name it
        until(lambda: written(tmp_path) == rows)
        put(tmp_path / "in" / f"{i}.json", [record(i, k="b", v=i)])
        rows.append(("b", i))
    until(lambda: written(tmp_path) == rows)
    sink.answers.set()
    assert sink.returned.wait(30)
    manifests, number = tmp_path / "hangs" / "_headrace" / "manifests", itertools.count(4)
    assert list(manifests.iterdir())

    def forgotten() -> bool:
        put(tmp_path / "in" / f"{next(number)}.json", [record(9, k="c", v=9)])
        time.sleep(0.1)
        return not list(manifests.iterdir())

    until(forgotten)
