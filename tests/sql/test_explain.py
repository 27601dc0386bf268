"""EXPLAIN on a running hub: which pipeline needs which column, and the effect of one more pipeline."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.formats import FORMATS
from headrace.model.definitions import PipelineDef, SinkDef, StreamDef
from headrace.model.plan_version import PlanVersion
from headrace.model.schema import STRING, Field, Schema, View
from headrace.model.status import StreamStatus
from headrace.sources.files import FILES
from headrace.sql import (
    CreateStream,
    LiveStream,
    Select,
    define_stream,
    explain,
    explain_json,
    parse_script,
    plan_on_shared_host,
)
from headrace.sql.explain.live_stream import batch_policy, impact_of
from headrace.state.catalog import Catalog
from tests.sql.support import MEANING, plan

BY_K = "SELECT k, avg(temp) AS t FROM s WHERE ok GROUP BY window(ts, '1 minute'), k"


STATUS = StreamStatus(
    name="s",
    running=True,
    epoch=17,
    projection_version=4,
    decoding_columns=[],
    columns_declared=14,
    subscribers={},
    rows=1234,
    bytes=5678,
    bad={"bad_json": 2},
    watermark=datetime(2026, 1, 1, tzinfo=UTC),
    lag_bytes=9,
    epoch_ms=None,
    rows_per_s=0.0,
    mb_per_s=0.0,
)


def _live() -> LiveStream:
    schema = plan("SELECT * FROM s").stream.schema
    indexes = [i for i, f in enumerate(schema) if f.name in ("temp", "k", "ok", "ts")]
    return LiveStream(4, View.some(indexes), {"p3": plan(BY_K).program})


def test_the_impact_has_new_columns_the_shared_pass_and_whether_the_filter_is_new() -> None:
    query = (
        "CREATE PIPELINE q INTO out AS SELECT k, max(hum) AS h, max(pos.lat) AS l FROM s WHERE id > 1 "
        "GROUP BY window(ts, '1 minute'), k"
    )
    change = impact_of(plan(query), _live())
    assert change.decode == ("id", "hum", "pos.lat")
    assert change.shares_with == ("p3",)
    assert change.filter == "filter of its own"
    assert "decode +3 columns: id, hum, pos.lat; filter of its own; shares windowing with p3" in explain(
        plan(query), _live()
    )


def test_the_impact_is_empty_when_all_columns_are_decoded_and_the_filter_runs_already() -> None:
    change = impact_of(plan("SELECT temp FROM s WHERE ok"), _live())
    assert (change.decode, change.filter, change.shares_with) == ((), "same filter as p3", ())


def test_explain_names_the_family_that_tasks_fold_in_one_pass() -> None:
    queries = {
        "a": "SELECT k, avg(temp) AS x FROM s WHERE ok GROUP BY window(ts, '1 minute'), k",
        "b": "SELECT k, count(*) AS x FROM s GROUP BY window(ts, '1 minute'), k",
        "c": "SELECT k, count(*) AS x FROM s GROUP BY window(ts, '2 minutes'), k",
        "d": "SELECT k, count(*) AS x FROM s GROUP BY session_window(ts, '1 minute'), k",
        "e": "SELECT k, count(*) AS x FROM s GROUP BY session_window(ts, '1 minute'), k",
        "f": "SELECT k, max(n) AS x FROM s GROUP BY window(ts, '1 minute'), k",
        "g": "SELECT k, max(n) AS x FROM s GROUP BY k",
        "h": "SELECT k, min(n) AS x FROM s GROUP BY k",
        "i": "SELECT k FROM s",
    }
    planned = {name: plan(f"CREATE PIPELINE {name} INTO out AS {query}") for name, query in queries.items()}
    running = [PipelineDef(name, i, p.sinks, p.program, 1) for i, (name, p) in enumerate(planned.items())]
    for alone in ((), (1,), (0, 1)):
        version = PlanVersion(1, planned["a"].stream, tuple(running), alone=alone)
        live = LiveStream(1, View.none(), {p.name: p.program for p in running}, alone=frozenset("ab"[i] for i in alone))
        families = {frozenset(running[i].name for i in members) for members in version.families}
        for name, one in planned.items():
            shared = impact_of(one, live).shares_with
            assert (frozenset({name, *shared}) in families) == bool(shared), (name, alone)
            assert bool(shared) == any(name in members for members in families), (name, alone)


def test_the_foot_names_the_pipelines_that_need_each_decoded_column() -> None:
    foot = json.loads(explain_json(plan("SELECT id FROM s"), _live()))["stream"]
    stream = plan("SELECT id FROM s").stream
    assert foot["applied"]["version"] == 4
    assert foot["applied"]["asked_by"][str(stream.schema.index("temp"))] == ["p3"]
    assert set(foot["subscribers"]["p3"]["columns"].values()) == {"temp", "k", "ok", "ts"}
    assert foot["adding"]["decode"] == ["id"]


def test_a_pipeline_that_runs_adds_nothing() -> None:
    planned = plan(f"CREATE PIPELINE p3 INTO out AS {BY_K}")
    assert "adding" not in json.loads(explain_json(planned, _live()))["stream"]
    assert "this pipeline runs: filter of its own" in explain(planned, _live())


def test_a_running_pipeline_shows_its_sharing_and_the_progress_of_the_stream() -> None:
    one = plan(f"CREATE PIPELINE p3 INTO out AS {BY_K}")
    live = replace(_live(), pipelines={"p3": one.program, "p4": one.program}, status=STATUS)
    text = explain(one, live)
    assert "this pipeline runs: same filter as p4; shares windowing with p4" in text
    for line in ("epoch: 17", "rows: 1234", "bytes: 5678", "bad: bad_json 2", "lag_bytes: 9"):
        assert f"  {line}\n" in text
    assert "watermark: 2026-01-01T00:00:00" in text
    foot = json.loads(explain_json(one, live))["stream"]
    assert foot["runs"] == {"filter": "same filter as p4", "shares_windowing_with": ["p4"]}
    assert (foot["epoch"], foot["rows"], foot["bad"]) == (17, 1234, {"bad_json": 2})


def test_without_a_hub_the_foot_has_the_view_only() -> None:
    foot = json.loads(explain_json(plan("SELECT id FROM s"), None))["stream"]
    assert foot["view"] == {"kind": "SOME", "columns": {"0": "id"}}
    assert "applied" not in foot


def test_explain_marks_emit_changes_as_implied_without_a_window() -> None:
    implied = json.loads(explain_json(plan("SELECT k, count(*) AS c FROM s GROUP BY k"), None))["ring1"]
    asked = json.loads(explain_json(plan("SELECT k, count(*) AS c FROM s GROUP BY k EMIT CHANGES"), None))["ring1"]
    assert (implied["emit"], implied["emit_implied"]) == ("changes", True)
    assert (asked["emit"], asked["emit_implied"]) == ("changes", False)


def test_verbose_lists_every_rule() -> None:
    planned = plan("SELECT id FROM s")
    text = explain(planned, None, "verbose")
    for name, _ in planned.trace:
        assert f"  {name}:" in text
    assert "fold_constants: no change" in text


@pytest.mark.parametrize(
    ("fmt", "options", "said"),
    [
        ("csv", {}, "cut among the tasks; compressed files each in order, by one task"),
        ("csv", {"codec": "none"}, "cut among the tasks"),
        (
            "csv",
            {"multiline": "true"},
            "each file in order, by one task (multiline: quoted fields may contain newlines)",
        ),
        ("csv", {"codec": "gzip"}, "each file in order, by one task (codec gzip cannot be cut)"),
        ("csv", {"record_delimiter": ";;"}, "each file in order, by one task (the record delimiter can begin inside"),
        ("length_prefixed", {}, "each file in order, by one task (the beginning of a record"),
        ("native", {}, "each file in order, by one task (rows with STRING or BINARY values differ in size)"),
    ],
)
def test_explain_says_how_files_are_divided_among_tasks_and_why(fmt: str, options: dict[str, str], said: str) -> None:
    stream = StreamDef("s", Schema((Field("a", STRING),)), None, 0, "files", fmt, {"path": "in", **options})
    (select,) = parse_script("SELECT a FROM s")
    assert isinstance(select, Select)
    declared = Catalog().with_stream(stream)
    planned = plan_on_shared_host(select, declared, MEANING)
    text = explain(planned, None)
    assert f"  read: source files, format {fmt}; {said}" in text
    assert f"  indexer: headrace.formats.{'native' if fmt == 'native' else 'kernels.scan_'}" in text
    assert "; unwanted fields are skipped" in text
    assert f"  delivery: {FILES.guarantee}" in text and FILES.guarantee.startswith("exactly once")
    facts = json.loads(explain_json(planned, None))["stream"]
    assert facts["read"].startswith(said) and facts["delivery"] == FILES.guarantee
    assert facts["skips_unwanted_fields"] is True
    assert (facts["in_order"] is None) == ("cut among" in said)


def test_explain_says_when_an_indexer_decodes_unwanted_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = FORMATS["json"]

    def build(schema: Schema, values: Mapping[str, Any]) -> Any:
        made: Any = kind.build(schema, values)
        made.skips = False
        return made

    monkeypatch.setitem(FORMATS, "json", replace(kind, build=build))
    assert "; all fields are decoded, wanted or not" in explain(plan("SELECT id FROM s"), None)


def test_explain_names_the_sink_of_dead_letters_and_its_guarantee() -> None:
    planned = plan("SELECT id FROM s")
    rejecting = replace(planned, stream=replace(planned.stream, dead_letters=SinkDef("lost", "console", {})))
    assert "  dead letters: lost, console, at least once" in explain(rejecting, None)
    assert json.loads(explain_json(rejecting, None))["stream"]["dead_letters"]["name"] == "lost"
    assert json.loads(explain_json(planned, None))["stream"]["dead_letters"] is None


def test_a_batch_policy_below_the_cost_of_an_epoch_is_accepted_with_a_warning() -> None:
    options = "source = 'generator', format = 'json', max_latency = '100ms', max_rows = 7"
    (statement,) = parse_script(f"CREATE STREAM s (k STRING) WITH ({options})")
    assert isinstance(statement, CreateStream)
    declared = define_stream(statement, MEANING)
    policy = "epochs: cut at max_rows 7 or after max_latency 100 milliseconds"
    assert batch_policy(declared, None) == [policy]
    assert batch_policy(declared, LiveStream(1, View.none(), {}, replace(STATUS, epoch_ms=99.0))) == [policy]
    slow = batch_policy(declared, LiveStream(1, View.none(), {}, replace(STATUS, epoch_ms=101.0)))
    assert slow[0] == policy and slow[1].startswith("warning")
    plain = replace(declared, options={})
    assert batch_policy(plain, LiveStream(1, View.none(), {}, replace(STATUS, epoch_ms=101.0))) == []
