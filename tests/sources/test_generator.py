"""The source `generator`: the same rows for the same seed, whatever the splits."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import BadOption, UnknownFormat, UnknownOption, UnknownSource
from headrace.formats import FORMATS
from headrace.model.definitions import StreamDef
from headrace.model.schema import Field, Schema, parse_type
from headrace.sources import SOURCES, check_stream
from headrace.sources.source_kind import StreamSource

TYPES = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BINARY", "DATE", "TIMESTAMP",
    "TIMESTAMP_NTZ", "DECIMAL(8,2)", "DECIMAL(20,0)", "DECIMAL(3,3)",
)  # fmt: skip
NESTED = ("STRUCT<x: INT, y: STRING>", "ARRAY<DOUBLE>", "MAP<STRING, INT>", "ARRAY<STRUCT<t: TIMESTAMP>>")


def sensors(fmt: str = "json", types: tuple[str, ...] = TYPES, **options: str) -> StreamDef:
    fields = [Field("device", parse_type("STRING")), Field("ts", parse_type("TIMESTAMP"))]
    fields += [Field(f"c{i}", parse_type(t)) for i, t in enumerate(types)]
    return StreamDef("sensors", Schema(tuple(fields)), 1, 0, "generator", fmt, options)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def make(stream: StreamDef, tmp_path: Path, clock: Clock | None = None) -> StreamSource:
    check_stream(stream)
    return SOURCES["generator"].make(stream, tmp_path, clock or Clock())


def text(stream: StreamDef, source: StreamSource, begin: int, end: int, parallelism: int) -> bytes:
    fmt = FORMATS[stream.format].make(stream.schema, stream.options)
    splits = source.splits({"row": begin}, {"row": end}, parallelism)
    return b"".join(bytes(chunk.data) for split in splits for chunk in split.read(fmt))


@pytest.mark.parametrize("fmt", ["json", "csv"])
def test_rows_do_not_depend_on_how_they_are_split(tmp_path: Path, fmt: str) -> None:
    stream = sensors(fmt, rows="9000", disorder="0.2", nulls="0.1")
    source = make(stream, tmp_path)
    whole = text(stream, source, 0, 9000, 1)
    assert whole.count(b"\n") == 9000
    parts = [text(stream, source, a, b, 3) for a, b in ((0, 1), (1, 4097), (4097, 9000))]
    assert b"".join(parts) == whole
    assert text(sensors(fmt, rows="9000", seed="2"), make(sensors(fmt, seed="2"), tmp_path), 0, 9000, 1) != whole


@pytest.mark.parametrize(("fmt", "types"), [("json", TYPES + NESTED), ("csv", TYPES)])
def test_every_type_is_written_so_that_its_format_reads_it(tmp_path: Path, fmt: str, types: tuple[str, ...]) -> None:
    stream = sensors(fmt, types, nulls="0.2")
    data = text(stream, make(stream, tmp_path), 0, 500, 1)
    decoded = FORMATS[fmt].make(stream.schema, stream.options).decode(data, range(len(stream.schema)), "g", 0)
    assert len(decoded.bad) == 0
    assert decoded.rows == 500
    for i, field in enumerate(stream.schema):
        column = decoded.columns[i]
        assert column.type == field.type.arrow
        assert column.null_count == 0 if i == 1 else 20 < column.null_count < 250
    if fmt == "json":
        assert all(json.loads(line) for line in data.splitlines())


def test_event_time_advances_by_step_and_disorder_makes_some_rows_late(tmp_path: Path) -> None:
    stream = sensors(step="1s", start="2026-03-01T00:00:00Z")
    column = _times(stream, tmp_path)
    assert column[1].as_py().isoformat() == "2026-03-01T00:00:01+00:00"
    disordered = _times(sensors(step="1s", disorder="0.3", spread="1min"), tmp_path)
    steps = [b.value - a.value for a, b in itertools.pairwise(disordered)]
    assert 100 < sum(s < 0 for s in steps) < 500
    assert min(steps) >= -61_000_000


def _times(stream: StreamDef, tmp_path: Path) -> pa.Array[Any]:
    data = text(stream, make(stream, tmp_path), 0, 1000, 1)
    return FORMATS["json"].make(stream.schema, stream.options).decode(data, [1], "g", 0).columns[1]


def test_a_rate_makes_rows_due_as_time_passes_and_owes_nothing_for_a_pause(tmp_path: Path) -> None:
    clock = Clock()
    source = make(sensors(rate="1000"), tmp_path, clock)
    start = source.initial()
    assert source.latest(start, None) == {"row": 1000}, "a second's worth is there at once"
    clock.now += 2
    assert source.latest(start, None) == {"row": 3000}
    assert source.backlog({"row": 500}) > 0
    clock.now += 3600
    again = make(sensors(rate="1000"), tmp_path, clock)
    assert again.latest({"row": 2000}, None) == {"row": 2000}


def test_a_finite_generator_ends(tmp_path: Path) -> None:
    source = make(sensors(rows="10"), tmp_path)
    assert source.latest({"row": 0}, None) == {"row": 10}
    assert not source.exhausted({"row": 9})
    assert source.exhausted({"row": 10})
    assert source.latest({"row": 10}, None) == {"row": 10}
    assert source.backlog({"row": 10}) == 0


def test_an_epoch_is_bounded_by_bytes(tmp_path: Path) -> None:
    stream = sensors()
    source = make(stream, tmp_path)
    end = source.latest({"row": 0}, 100_000)
    assert 50_000 < len(text(stream, source, 0, end["row"], 1)) < 150_000


def test_key_like_columns_have_few_values(tmp_path: Path) -> None:
    stream = sensors(cardinality="7")
    data = text(stream, make(stream, tmp_path), 0, 1000, 1)
    decoded = FORMATS["json"].make(stream.schema, {}).decode(data, [0], "g", 0)
    assert set(decoded.columns[0].to_pylist()) == {f"device-{i}" for i in range(7)}


def test_unknown_names_and_options_are_refused() -> None:
    good = sensors()
    with pytest.raises(UnknownSource) as source:
        check_stream(StreamDef("s", good.schema, 1, 0, "genrator", "json", {}))
    assert source.value.params["did_you_mean"] == "generator"
    with pytest.raises(UnknownFormat):
        check_stream(StreamDef("s", good.schema, 1, 0, "generator", "jsn", {}))
    with pytest.raises(UnknownOption):
        check_stream(sensors(path="/data"))
    with pytest.raises(BadOption):
        check_stream(sensors(rate="fast"))
    with pytest.raises(BadOption):
        check_stream(sensors("csv", NESTED))
    for option in ({"timestamp_format": "epoch_ms"}, {"binary": "hex"}):
        with pytest.raises(BadOption):
            check_stream(sensors("json", TYPES, **option))
    with pytest.raises(BadOption):
        check_stream(sensors("csv", header="true"))


def test_csv_is_written_with_the_delimiter_of_the_stream(tmp_path: Path) -> None:
    stream = sensors("csv", ("INT", "DOUBLE"), delimiter="\\t")
    data = text(stream, make(stream, tmp_path), 0, 100, 1)
    decoded = FORMATS["csv"].make(stream.schema, stream.options).decode(data, range(4), "g", 0)
    assert (decoded.rows, len(decoded.bad)) == (100, 0)
