"""Fields of STRUCT columns: only those that some running pipeline reads are decoded, and only they can be bad."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.formats import FORMATS
from headrace.model.definitions import PipelineDef, StreamDef
from headrace.model.plan_version import PlanVersion
from headrace.model.program import Expression, Meaning, PipelineProgram, Ring0Program
from headrace.model.schema import NESTED, Field, Schema, View, field_at, nested_fields, parse_type
from headrace.ring0.decode import Decoder
from headrace.ring0.located import RecordLayout
from headrace.sources.source_kind import RawChunk
from tests.e2e.support import put
from tests.shared.mini import Mini
from tests.strategies import examples

COLUMNS = (
    "id BIGINT, pos STRUCT<lat: DOUBLE, lon: DOUBLE, at: STRUCT<day: DATE, `odd name`: STRING>>, "
    "tags ARRAY<STRUCT<k: STRING>>"
)


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mini]:
    (tmp_path / "in").mkdir()
    mini = Mini(tmp_path / "state", monkeypatch)
    mini.hub.sql("CREATE SINK out WITH (type = 'kept'); CREATE SINK lost WITH (type = 'kept')")
    yield mini
    mini.hub.close()


def stream(mini: Mini, *options: str, columns: str = COLUMNS) -> None:
    given = ", ".join([f"path = '{mini.directory.parent / 'in'}'", *options])
    mini.hub.sql(f"CREATE STREAM s ({columns}) WITH (source = 'files', format = 'json', {given})")


def pipeline(mini: Mini, query: str, name: str = "p") -> int:
    mini.hub.sql(f"CREATE PIPELINE {name} INTO out AS {query}")
    return mini.hub.record(name).definition.instance


def feed(mini: Mini, *records: Any, name: str = "a.json") -> None:
    put(mini.directory.parent / "in" / name, (r if isinstance(r, str) else json.dumps(r) for r in records))
    mini.drain()


def status(mini: Mini) -> Any:
    return mini.hub.streams["s"].status()


def test_the_union_of_fields_follows_the_pipelines_that_run(mini: Mini) -> None:
    stream(mini)
    pipeline(mini, "SELECT id, pos.lat FROM s WHERE pos.lat > 0")
    assert status(mini).decoding_columns == ["id", "pos.lat"]
    assert status(mini).subscribers == {"p": ["id", "pos.lat"]}
    pipeline(mini, "SELECT count(*) AS n, max(pos.at.day) AS newest FROM s GROUP BY pos.at.`odd name`", "q")
    assert status(mini).decoding_columns == ["id", "pos.lat", "pos.at.day", "pos.at.odd name"]
    pipeline(mini, "SELECT pos FROM s", "whole")
    assert "pos" in status(mini).decoding_columns
    mini.hub.sql("DROP PIPELINE whole; DROP PIPELINE q")
    mini.drain()
    assert status(mini).decoding_columns == ["id", "pos.lat"]
    shown = mini.hub.sql("EXPLAIN SELECT pos.lon, pos.lat FROM s")[0].render()
    assert "SOME [1 pos.lat, 1 pos.lon]" in shown
    assert "adding this pipeline: decode +1 column: pos.lon" in shown
    assert "pos.lat" in mini.hub.sql("DESCRIBE PIPELINE p")[0].render()


def test_the_values_are_those_of_the_whole_struct(mini: Mini) -> None:
    stream(mini)
    p = pipeline(mini, "SELECT id, pos.lat, pos.at.day, pos.at.`odd name` AS o FROM s WHERE id > 0")
    q = pipeline(mini, "SELECT id, pos.lat AS lat, pos.at.day AS day, pos.at.`odd name` AS o, pos FROM s", "q")
    pos = {"lat": 1.5, "lon": 2, "at": {"day": "2024-01-02", "odd name": "x", "more": [1]}}
    feed(mini, {"id": 1, "pos": pos}, {"id": 2, "pos": None}, {"id": 3}, {"id": 4, "pos": {"at": None}})
    assert mini.output(p) == [row[:4] for row in mini.output(q)]
    assert mini.output(p)[0][1] == 1.5
    assert [row[1:] for row in mini.output(p)[1:]] == [(None, None, None)] * 3


@pytest.mark.parametrize("policy", ["null", "skip", "dead_letter"])
def test_a_bad_value_in_a_field_affects_only_pipelines_that_read_the_field(mini: Mini, policy: str) -> None:
    stream(mini, f"on_error = '{policy}'", *(["dead_letter_sink = 'lost'"] if policy == "dead_letter" else []))
    lat = pipeline(mini, "SELECT id, pos.lat FROM s", "lats")
    lon = pipeline(mini, "SELECT id, pos.lon FROM s WHERE id < 9", "lons")
    whole = pipeline(mini, "SELECT id, pos FROM s", "whole")
    feed(mini, {"id": 1, "pos": {"lat": 1, "lon": "x"}}, {"id": 2, "pos": 7}, {"id": 9, "pos": {"lat": 3, "lon": []}})
    keeps = policy == "null"
    assert mini.output(lat) == [(1, 1.0), *([(2, None)] if keeps else []), (9, 3.0)]
    assert mini.output(lon) == ([(1, None), (2, None)] if keeps else [])
    assert mini.output(whole) == ([(1, None), (2, None), (9, None)] if keeps else [])
    assert [mini.hub.pipelines[n].status().bad for n in ("lats", "lons", "whole")] == [1, 2, 3]
    if policy == "dead_letter":
        wanted = {("pos.lon", "bad_number"), ("pos.lat", "bad_nested"), ("pos.lon", "bad_nested")}
        assert wanted <= {row[3:5] for row in mini.output(0)}


def test_fail_names_the_field(mini: Mini) -> None:
    stream(mini, "on_error = 'fail'")
    lat = pipeline(mini, "SELECT id, pos.lat FROM s", "lats")
    pipeline(mini, "SELECT id, pos.lon FROM s", "lons")
    feed(mini, {"id": 1, "pos": {"lat": 1, "lon": "x"}})
    assert mini.output(lat) == [(1, 1.0)]
    assert "pos.lon" in (mini.hub.pipelines["lons"].status().error or "")


def test_groups_windows_generators_and_the_end_of_input_read_fields(mini: Mini) -> None:
    columns = "pos STRUCT<lat: DOUBLE, lon: DOUBLE>, xs ARRAY<INT>, ts TIMESTAMP, WATERMARK FOR ts AS ts"
    stream(mini, columns=columns)
    total = pipeline(mini, "SELECT sum(pos.lat) AS total FROM s WHERE pos.lon > 0", "total")
    w = pipeline(mini, "SELECT pos.lat, count(*) AS n FROM s GROUP BY window(ts, '1 second'), pos.lat", "w")
    made = pipeline(mini, "SELECT x + pos.lat AS y FROM s LATERAL VIEW explode(xs) t AS x WHERE pos.lon > 0", "made")
    sides = pipeline(mini, "SELECT pos.lat AS v FROM s UNION ALL SELECT pos.lon FROM s", "sides")
    feed(mini, {"pos": {"lat": 1, "lon": 2}, "xs": [1, 2], "ts": "1970-01-01T00:00:00Z"})
    feed(mini, {"pos": {"lat": 4, "lon": -1}, "xs": [9], "ts": "1970-01-01T00:00:09Z"}, name="b.json")
    feed(mini, {"ts": "1970-01-01T00:00:10Z"}, name="c.json")
    assert mini.output(total)[-1] == (1.0,)
    assert mini.output(w)[0] == (1.0, 1)
    assert mini.output(made) == [(2.0,), (3.0,)]
    assert sorted(mini.output(sides), key=str) == [(-1.0,), (1.0,), (2.0,), (4.0,), (None,), (None,)]
    assert status(mini).decoding_columns == ["xs", "ts", "pos.lat", "pos.lon"]


QUERIES = {
    "one": "SELECT id, pos.lat AS lat FROM s WHERE pos.lon > 1.5",
    "deep": "SELECT id, pos.at.`odd name` AS o, pos.at.day AS day FROM s WHERE pos.at.day IS NOT NULL",
    "nulls": "SELECT id, pos IS NULL AS a, pos.at IS NULL AS b, pos.lat IS NULL AS c FROM s",
    "computed": "SELECT id, pos.lat * 2 + coalesce(pos.lon, 0) AS r FROM s",
}


@pytest.mark.spark
@pytest.mark.slow
def test_fields_have_the_values_that_spark_reads_from_the_same_records(mini: Mini, spark_of_the_run: Any) -> None:
    stream(mini)
    instances = {name: pipeline(mini, query, name) for name, query in QUERIES.items()}
    places = [None, {}, {"lat": 1.5}, {"lon": 2, "lat": -0.25}, {"lat": None, "lon": 1e3, "at": None},
              {"at": {"day": "2024-02-29"}, "lon": 7.5}, {"at": {"odd name": "é", "day": None}}]  # fmt: skip
    feed(mini, *({"id": i, "pos": place, "tags": []} for i, place in enumerate(places * 3)), {"id": 99})
    spark = spark_of_the_run.newSession()
    spark.read.schema(COLUMNS).json(str(mini.directory.parent / "in")).createOrReplaceTempView("s")
    for name, query in QUERIES.items():
        theirs = [tuple(row) for row in spark.sql(query).collect()]
        assert sorted(mini.output(instances[name]), key=repr) == sorted(theirs, key=repr), query


def test_a_computed_struct_is_evaluated_as_a_whole(mini: Mini) -> None:
    stream(mini, columns="id BIGINT, pos STRUCT<lat: DOUBLE, lon: DOUBLE>, two STRUCT<a: BIGINT, b: DOUBLE> AS "
           "named_struct('a', id + 1, 'b', pos.lat)")  # fmt: skip
    p = pipeline(mini, "SELECT two.a, two.b, pos.lon FROM s WHERE two.b > 0")
    feed(mini, {"id": 1, "pos": {"lat": 1, "lon": 2}}, {"id": 2, "pos": {"lat": -1, "lon": 2}})
    assert mini.output(p) == [(2, 1.0, 2.0)]


SCHEMA = Schema(
    (Field("id", parse_type("INT")), Field("s", parse_type("STRUCT<a: INT, b: STRUCT<c: INT, d: STRING>>")))
)
_ints = st.none() | st.integers(-3, 3) | st.just("x") | st.just([1]) | st.just({"c": 1})
_inner = st.none() | st.just(5) | st.dictionaries(st.sampled_from(["c", "d", "e"]), _ints, max_size=3)
_struct = st.none() | st.just("no") | st.fixed_dictionaries({}, optional={"a": _ints, "b": _inner, "z": _ints})
_records = st.lists(st.fixed_dictionaries({}, optional={"id": st.integers(0, 9), "s": _struct}), max_size=12)


@settings(max_examples=examples(60), deadline=None)
@given(records=_records, wanted=st.sets(st.sampled_from(range(4)), min_size=1))
def test_a_field_reads_as_in_a_stream_that_declares_nothing_else(
    records: list[dict[str, Any]], wanted: set[int]
) -> None:
    data = b"".join(json.dumps(r).encode() + b"\n" for r in records)
    declared = StreamDef("s", SCHEMA, None, 0, "files", "json", {})
    columns = sorted(NESTED + w for w in wanted)
    indexed = RecordLayout(declared).index(FORMATS["json"].make(SCHEMA, {}), RawChunk("x", 0, data), columns)
    found = indexed.parse(columns)
    for column in columns:
        path = nested_fields(SCHEMA)[column - NESTED].path
        ddl = field_at(SCHEMA, column).type.ddl
        for name in reversed(path):
            ddl = f"STRUCT<{name}: {ddl}>"
        alone = Schema((Field("s", parse_type(ddl)),))
        whole = FORMATS["json"].make(alone, {}).decode(data, [0], "x", 0)
        values = whole.columns[0].to_pylist()
        for name in path:
            values = [None if v is None else v[name] for v in values]
        assert found.columns[column].to_pylist() == values
        assert sorted((b.row, b.reason) for b in found.bad if b.column == column) == sorted(
            (b.row, b.reason) for b in whole.bad
        )


def test_the_fields_that_nobody_reads_are_not_parsed() -> None:
    schema = Schema((Field("pos", parse_type("STRUCT<lat: DOUBLE, lon: DOUBLE, far: STRUCT<x: INT, y: INT>>")),))
    declared = StreamDef("s", schema, None, 0, "files", "json", {})
    line = json.dumps({"pos": {"lat": 1.5, "lon": "not a number", "far": {"x": 1, "y": "bad"}}}).encode() + b"\n"

    def cells(*columns: int) -> tuple[int, int]:
        outputs = tuple(Expression(f"o{c}", field_at(schema, c).type, f"c{c}") for c in columns)
        program = PipelineProgram("s", View.some(columns), Ring0Program(None, outputs), None, schema, Meaning())
        plan = PlanVersion(1, declared, (PipelineDef("p", 1, (), program, 1),))
        batch = Decoder(plan).decode(RawChunk("x", 0, line * 10))
        return batch.values, len(batch.cells)

    assert cells(NESTED) == (10, 0)  # pos.lat: one cell of each record
    assert cells(NESTED, NESTED + 1) == (20, 10)  # and pos.lon
    assert cells(NESTED + 3) == (10, 0)  # pos.far.x
    assert cells(0) == (60, 10)  # pos: itself, its three fields, and two more


def test_a_computed_column_reads_only_the_fields_that_it_names(mini: Mini) -> None:
    computed = "north BOOLEAN AS (pos.lat > 2), area DOUBLE AS (pos['lat'] * pos.lon)"
    stream(mini, "on_error = 'null'", columns=f"id BIGINT, pos STRUCT<lat: DOUBLE, lon: DOUBLE>, {computed}")
    p = pipeline(mini, "SELECT id, north FROM s")
    places = ({"lat": 1.5, "lon": "bad"}, {"lat": "bad", "lon": 2.5}, None, {"lat": 4.0, "lon": 8.0})
    feed(mini, *({"id": i, "pos": pos} for i, pos in enumerate(places)))
    assert mini.output(p) == [(0, False), (1, None), (2, None), (3, True)]
    assert status(mini).decoding_columns == ["id", "north", "pos.lat"]
    q, every = pipeline(mini, "SELECT area FROM s", "q"), pipeline(mini, "SELECT * FROM s", "every")
    feed(mini, {"id": 4, "pos": places[-1]}, name="b.json")
    assert mini.output(q) == [(32.0,)]
    assert mini.output(every) == [(4, {"lat": 4.0, "lon": 8.0}, True, 32.0)]
