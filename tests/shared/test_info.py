"""The columns that a stream decodes and the status that it shows while pipelines join and leave."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import InUse, StopTimeout
from headrace.hub.reconciler import Reconciler
from headrace.model.status import StreamStatus
from tests.e2e.support import put, until
from tests.shared.mini import Crash, Mini

ALL = ["a", "b", "c", "d"]


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mini]:
    (tmp_path / "in").mkdir()
    mini = Mini(tmp_path / "state", monkeypatch)
    mini.hub.sql(
        "CREATE STREAM s (a BIGINT, b STRING, c INT, d STRING) WITH (source = 'files', format = 'json', "
        f"path = '{tmp_path / 'in'}'); CREATE SINK out WITH (type = 'kept')"
    )
    yield mini
    mini.hub.close()


def feed(mini: Mini, low: int, high: int) -> None:
    rows = [{"a": i, "b": f"b{i}", "c": i % 3, "d": f"d{i}"} for i in range(low, high)]
    put(mini.directory.parent / "in" / f"{low:03}.json", map(json.dumps, rows))
    mini.drain()


def create(mini: Mini, **queries: str) -> None:
    mini.hub.sql(";".join(f"CREATE PIPELINE {name} INTO out AS SELECT {q}" for name, q in queries.items()))


def output(mini: Mini, name: str) -> list[Any]:
    return mini.output(mini.hub.record(name).definition.instance)


def info(mini: Mini) -> StreamStatus:
    return mini.hub.streams["s"].status()


def test_disjoint_columns_are_both_right(mini: Mini) -> None:
    create(mini, one="a FROM s", two="d FROM s")
    feed(mini, 0, 5)
    assert output(mini, "one") == [(i,) for i in range(5)]
    assert output(mini, "two") == [(f"d{i}",) for i in range(5)]
    assert info(mini).decoding_columns == ["a", "d"]


def test_all_some_and_none_are_three_things_and_leaving_goes_back_to_the_others(mini: Mini) -> None:
    create(mini, none="count(*) AS n FROM s")
    assert info(mini).decoding_columns == []
    create(mini, some="b FROM s WHERE c > 0")
    assert info(mini).decoding_columns == ["b", "c"]
    create(mini, whole="* FROM s", other="s.* FROM s")
    assert info(mini).decoding_columns == ALL
    assert info(mini).subscribers == {"none": [], "some": ["b", "c"], "whole": ["*"], "other": ["*"]}
    mini.hub.sql("DROP PIPELINE whole")
    assert info(mini).decoding_columns == ALL
    mini.hub.sql("DROP PIPELINE other")
    assert info(mini).decoding_columns == ["b", "c"]
    mini.hub.sql("STOP PIPELINE some")
    mini.drain()
    assert info(mini).decoding_columns == []
    feed(mini, 0, 3)
    assert output(mini, "none") == [(3,)]


def test_a_pipeline_that_fails_releases_its_columns_and_closing_releases_all(mini: Mini) -> None:
    create(mini, fails="10 / (c - 2) AS q, d FROM s", fine="a FROM s")
    assert info(mini).decoding_columns == ["a", "c", "d"]
    feed(mini, 0, 5)
    assert mini.hub.pipelines["fails"].status().state == "failed"
    assert info(mini).decoding_columns == ["a"]
    assert output(mini, "fine") == [(i,) for i in range(5)]
    mini.hub.close()
    mini.open()
    assert info(mini).decoding_columns == ["a"]


def test_the_last_pipeline_leaving_stops_the_query_and_the_next_continues_from_the_last_offset(mini: Mini) -> None:
    create(mini, p="a FROM s")
    feed(mini, 0, 5)
    with pytest.raises(InUse) as refused:
        mini.hub.sql("DROP STREAM s")
    assert refused.value.params["users"] == ["p"]
    mini.hub.sql("DROP PIPELINE p")
    assert not info(mini).running
    assert (info(mini).decoding_columns, info(mini).subscribers) == ([], {})
    create(mini, q="a FROM s")
    feed(mini, 5, 8)
    assert output(mini, "q") == [(5,), (6,), (7,)]


def test_python_describe_and_explain_say_the_same_and_only_what_happened(mini: Mini) -> None:
    create(
        mini, one="a, count(*) AS n FROM s WHERE c = 1 GROUP BY a", two="a, max(c) AS m FROM s WHERE c = 1 GROUP BY a"
    )
    feed(mini, 0, 6)
    put(mini.directory.parent / "in" / "bad.json", ["{", json.dumps({"a": "x", "c": 1})])
    mini.drain()
    status = info(mini)
    assert (status.rows, status.bad, status.epoch) == (8, {"bad_json": 1, "bad_integer": 1}, 2)
    assert status.projection_version == mini.hub.runtime("s").progress.plan
    table = mini.hub.sql("DESCRIBE STREAM s")[0].table
    assert table is not None
    facts = dict(zip(*(table.column(i).to_pylist() for i in (0, 1)), strict=True))
    for fact in ("epoch", "projection_version", "rows", "bytes", "lag_bytes"):
        assert facts[fact] == str(getattr(status, fact)), fact
    assert facts["decoding_columns"] == ", ".join(status.decoding_columns)
    assert facts["bad"] == ", ".join(f"{reason} {count}" for reason, count in status.bad.items())
    assert (facts["source"], facts["format"]) == ("files", "json")
    assert "watermark" not in facts
    assert (facts["subscriber one"], facts["subscriber two"]) == ("a, c", "a, c")
    foot = json.loads(str(mini.hub.sql("EXPLAIN JSON PIPELINE one")[0]))["stream"]
    for fact in ("epoch", "rows", "bytes", "bad", "lag_bytes"):
        assert foot[fact] == getattr(status, fact), fact
    assert set(foot["subscribers"]) == {"one", "two"}
    assert foot["applied"]["version"] == status.projection_version
    assert foot["runs"] == {"filter": "same filter as two", "shares_windowing_with": ["two"]}


def test_rows_that_a_stopped_pipeline_misses_are_shown_while_it_is_stopped_and_after_its_start(mini: Mini) -> None:
    create(mini, p="a FROM s", other="b FROM s")
    feed(mini, 0, 5)
    mini.hub.sql("STOP PIPELINE p")
    feed(mini, 5, 12)
    away = mini.hub.pipelines["p"].status()
    assert (away.state, away.missed_rows, away.gaps) == ("stopped", 7, [])
    mini.hub.sql("START PIPELINE p")
    feed(mini, 12, 14)
    mini.hub.close()
    mini.open()
    back = mini.hub.pipelines["p"].status()
    assert (back.missed_rows, [g.rows for g in back.gaps]) == (7, [7])
    assert output(mini, "p") == [(i,) for i in (*range(5), 12, 13)]
    shown = mini.hub.sql("SHOW PIPELINES")[0].table
    assert shown is not None
    assert {row["name"]: row["missed"] for row in shown.to_pylist()} == {"p": 7, "other": 0}
    assert "Gap(" in str(mini.hub.sql("DESCRIBE PIPELINE p")[0])


def test_a_plan_that_names_an_end_twice_drops_state_once(mini: Mini) -> None:
    """STOP, DROP and CREATE of the same name between two epochs: the new one inherits nothing."""
    create(mini, n="c, count(*) AS n FROM s GROUP BY c", other="a FROM s")
    feed(mini, 0, 6)
    mini.hub.sql(
        "STOP PIPELINE n; DROP PIPELINE n; CREATE PIPELINE n INTO out AS SELECT c, count(*) AS n FROM s GROUP BY c"
    )
    feed(mini, 6, 9)
    assert sorted(output(mini, "n")) == [(0, 1), (1, 1), (2, 1)]


def test_a_pipeline_that_keeps_too_much_state_is_stopped_and_its_neighbour_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mini = Mini(tmp_path / "state", monkeypatch)
    mini.hub.sql(
        "CREATE STREAM s (a BIGINT, c INT) WITH (source = 'generator', format = 'json', rows = '5000', "
        "cardinality = '5000', pipeline_state_budget = '4KB'); CREATE SINK out WITH (type = 'kept')"
    )
    create(mini, dear="a, count(*) AS n FROM s GROUP BY a", cheap="count(*) AS n FROM s")
    mini.drain()
    dear, cheap = (mini.hub.pipelines[name].status() for name in ("dear", "cheap"))
    assert (dear.state, cheap.state) == ("failed", "running")
    assert "[OVER_BUDGET]" in dear.error
    shown = mini.hub.sql("SHOW PIPELINES")[0].table
    assert shown is not None
    row = {r["name"]: r for r in shown.to_pylist()}["cheap"]
    assert 0 < int(row["state_bytes"]) < 4_000
    assert float(row["epoch_ms"]) >= 0
    mini.hub.close()


def test_a_crash_just_after_a_failed_pipeline_is_started_again_leaves_it_started(mini: Mini) -> None:
    create(mini, fails="10 / (c - 2) AS q FROM s", kills="a FROM s", fine="a FROM s")
    mini.checkpoint.killers = {"kills"}
    put(mini.directory.parent / "in" / "000.json", ['{"a": 1, "c": 2}'])
    while mini.hub.pipelines["fails"].status().state != "failed":
        assert mini.step() or mini.step()
    assert mini.hub.pipelines["kills"].status().state == "failed"
    assert mini.hub.pipelines["fine"].status().state == "running"
    mini.checkpoint.killers.clear()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Crash):
        patch.setattr(Reconciler, "reconcile", _crash)  # right after the catalog is saved
        mini.hub.sql("START PIPELINE fails; START PIPELINE kills")
    mini.crash()
    feed(mini, 6, 8)
    until(lambda: {p.status().state for p in mini.hub.pipelines.values()} == {"running"}, "all run")
    assert output(mini, "kills") == [(6,), (7,)]


def test_a_pipeline_that_was_stopped_at_once_brings_nothing_of_an_epoch_that_is_run_again(mini: Mini) -> None:
    create(mini, stays="a FROM s", goes="a FROM s")
    feed(mini, 0, 5)
    put(mini.directory.parent / "in" / "005.json", [json.dumps({"a": i}) for i in range(5, 9)])
    mini.checkpoint.crash = "logged"  # the epoch is planned with both
    with pytest.raises(Crash):
        mini.drain()
    mini.hub.sql("STOP PIPELINE goes NOW")
    mini.crash()
    mini.drain()
    assert output(mini, "stays") == [(i,) for i in range(9)]
    assert output(mini, "goes") == [(i,) for i in range(5)]
    assert mini.hub.pipelines["goes"].status().state == "stopped"
    mini.hub.sql("START PIPELINE goes")
    feed(mini, 9, 12)
    assert output(mini, "goes") == [(i,) for i in [*range(5), *range(9, 12)]]


def _crash(*given: object, **more: object) -> None:
    raise Crash


@pytest.mark.parametrize("how", ["CLOSE WINDOWS", ""])
def test_a_pipeline_that_kills_its_worker_while_it_leaves_is_found_and_leaves_without_its_state(
    mini: Mini, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("headrace.hub.rollout.DRAIN_SECONDS", 0.05)
    create(mini, dear="c, count(*) AS n FROM s GROUP BY c", other="count(*) AS n FROM s", fine="a FROM s")
    feed(mini, 0, 5)
    mini.checkpoint.killers_at_end = {"dear"}
    before = output(mini, "dear")
    with pytest.raises(StopTimeout):
        mini.hub.sql(f"STOP PIPELINE dear {how}")
    feed(mini, 5, 8)
    assert {n: p.status().state for n, p in mini.hub.pipelines.items()} == {
        "dear": "failed",
        "other": "running",
        "fine": "running",
    }
    assert "[WORKER_DIED]" in mini.hub.pipelines["dear"].status().error
    assert output(mini, "dear") == before
    assert output(mini, "fine") == [(i,) for i in range(8)]
    assert mini.hub.runtime("s").progress.epoch == len(mini.checkpoint.epochs) - 1
    mini.hub.sql("START PIPELINE dear")
    feed(mini, 8, 9)
    assert output(mini, "dear")[len(before) :] == [(2, 1)], "it starts without state"


def test_describe_has_the_options_in_force_a_reason_for_each_state_and_real_times(mini: Mini) -> None:
    def facts(name: str) -> dict[str, str]:
        table = mini.hub.sql(f"DESCRIBE {name}")[0].table
        assert table is not None
        rows = [(str(row["fact"]), str(row["value"])) for row in table.to_pylist()]
        assert len(dict(rows)) == len(rows)  # nothing twice
        assert not [row for row in rows if "1970" in f"{row}"]
        return dict(rows)

    assert facts("s")["reason"] == "no pipeline reads it"
    create(mini, p="c, count(*) AS n FROM s GROUP BY c", q="a FROM s")
    feed(mini, 0, 4)
    stream = facts("s")
    assert (stream["source"], stream["format"], stream["column 0"]) == ("files", "json", "a BIGINT")
    assert stream["option max_epoch_bytes"] == "512 MiB (by default)"
    assert stream["option path"].endswith("in")
    assert (stream["state"], stream["reason"]) == ("running", "read by p, q")
    assert "ring" not in " ".join(stream)
    assert facts("p")["reason"]
    mini.hub.sql("STOP PIPELINE p NOW")
    stopped = facts("p")
    assert (stopped["state"], stopped["reason"]) == ("stopped", mini.hub.pipelines["p"].status().changes[-1].reason)
    assert stopped["reason"]
