"""The files that the parquet and jsonl sinks write."""

from __future__ import annotations

import gzip
import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.errors import BadOption, MissingOption, UnknownSinkKind
from headrace.model.definitions import SinkDef
from headrace.model.schema import Field, Schema, parse_type
from headrace.sinks import SINKS, SinkKey, settle_sink

TYPES = {
    "text": "STRING",
    "flag": "BOOLEAN",
    "small": "TINYINT",
    "big": "BIGINT",
    "single": "FLOAT",
    "double": "DOUBLE",
    "price": "DECIMAL(38,2)",
    "day": "DATE",
    "at": "TIMESTAMP",
    "wall": "TIMESTAMP_NTZ",
    "raw": "BINARY",
    "pos": "STRUCT<lat: DOUBLE, name: STRING>",
    "tags": "ARRAY<STRING>",
    "attrs": "MAP<STRING, INT>",
}
OUTPUT = Schema(tuple(Field(name, parse_type(ddl)) for name, ddl in TYPES.items()))
FULL = {
    "text": 'quote " slash \\ newline \n é 😀 \x01',
    "flag": True,
    "small": -128,
    "big": -(2**63),
    "single": 1.1,
    "double": 1e300,
    "price": Decimal("999999999999999999999999999999999999.30"),
    "day": date(2024, 2, 29),
    "at": datetime(2024, 2, 29, 12, 0, 0, 123456, UTC),
    "wall": datetime(1969, 12, 31, 23, 59, 59, 7000),
    "raw": b"\x00\xffab",
    "pos": {"lat": -0.5, "name": None},
    "tags": ["a", None, ""],
    "attrs": [("k", 1), ("n", None)],
}
EMPTY = dict.fromkeys(TYPES)
TABLE = pa.Table.from_pylist([FULL, EMPTY], schema=OUTPUT.arrow)


def write(kind: str, table: pa.Table, root: Path, **options: str) -> Path:
    """The one file that a commit of `table` makes."""
    sink = SinkDef("s", kind, {"path": str(root), **options})
    key = SinkKey("c", 1, 0)
    task, driver = SINKS[kind].task(sink), SINKS[kind].driver(sink, OUTPUT)
    assert driver.commit(key, [task.stage(table, key)]) == table.num_rows
    (path,) = root.glob("part-*")
    return path


@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "lz4", "none"])
def test_parquet_gives_back_every_type_and_the_asked_compression(tmp_path: Path, compression: str) -> None:
    path = write("parquet", TABLE, tmp_path, compression=compression)
    assert pq.read_table(path).cast(OUTPUT.arrow).equals(TABLE)
    used = pq.ParquetFile(path).metadata.row_group(0).column(0).compression
    assert used == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())


def test_parquet_instants_are_microseconds_in_utc(tmp_path: Path) -> None:
    schema = pq.ParquetFile(write("parquet", TABLE, tmp_path)).schema
    logical = {schema.column(i).path: str(schema.column(i).logical_type) for i in range(len(schema))}
    assert "isAdjustedToUTC=true, timeUnit=microseconds" in logical["at"]
    assert "isAdjustedToUTC=false, timeUnit=microseconds" in logical["wall"]


def test_jsonl_writes_every_type_in_sparks_form_and_leaves_nulls_out(tmp_path: Path) -> None:
    first, second = write("jsonl", TABLE, tmp_path).read_text(encoding="utf-8").splitlines()
    assert second == "{}"
    assert '"price":999999999999999999999999999999999999.30' in first
    assert '"single":1.1,' in first
    parsed = json.loads(first)
    assert list(parsed) == list(TYPES)
    assert parsed["text"] == FULL["text"]
    assert (parsed["flag"], parsed["small"], parsed["big"], parsed["double"]) == (True, -128, -(2**63), 1e300)
    assert (parsed["day"], parsed["raw"]) == ("2024-02-29", "AP9hYg==")
    assert (parsed["at"], parsed["wall"]) == ("2024-02-29T12:00:00.123456Z", "1969-12-31T23:59:59.007")
    assert parsed["pos"] == {"lat": -0.5}
    assert parsed["tags"] == ["a", None, ""]
    assert parsed["attrs"] == {"k": 1, "n": None}


def test_jsonl_keeps_nulls_when_asked(tmp_path: Path) -> None:
    first, second = write("jsonl", TABLE, tmp_path, ignore_nulls="false").read_text(encoding="utf-8").splitlines()
    assert json.loads(second) == EMPTY
    assert json.loads(first)["pos"] == {"lat": -0.5, "name": None}


def test_jsonl_writes_nan_and_infinities_as_text(tmp_path: Path) -> None:
    table = pa.table(
        {"d": pa.array([math.nan, math.inf, -math.inf, -0.0]), "f": pa.array([math.nan] * 4, pa.float32())}
    )
    lines = [json.loads(line) for line in write("jsonl", table, tmp_path).read_text().splitlines()]
    assert [line["d"] for line in lines] == ["NaN", "Infinity", "-Infinity", -0.0]
    assert lines[0]["f"] == "NaN"


@pytest.mark.parametrize("digits", [2, 38])
def test_jsonl_writes_decimals_below_one_with_a_leading_zero(tmp_path: Path, digits: int) -> None:
    kind = pa.decimal128(digits, digits)
    values = [Decimal("0.05"), Decimal("-0.05"), Decimal("0")]
    table = pa.table({"x": pa.array(values, kind), "m": pa.array([[(v, v)] for v in values], pa.map_(kind, kind))})
    found = [json.loads(line, parse_float=Decimal) for line in write("jsonl", table, tmp_path).read_text().splitlines()]
    assert [row["x"] for row in found] == values
    zero = "0" * (digits - 2)
    assert [list(row["m"]) for row in found] == [["0.05" + zero], ["-0.05" + zero], ["0.00" + zero]]


def test_jsonl_writes_any_column_name(tmp_path: Path) -> None:
    names = ["it's", 'a "b"', "c\\d", "e\nf", "", "É"]
    table = pa.table([pa.array([i]) for i in range(len(names))], names=names)
    assert json.loads(write("jsonl", table, tmp_path).read_text(encoding="utf-8")) == {
        n: i for i, n in enumerate(names)
    }


def test_jsonl_of_many_rows_keeps_their_order(tmp_path: Path) -> None:
    numbers = range(200_000)
    path = write("jsonl", pa.table({"x": pa.array(numbers, pa.int64())}), tmp_path)
    assert path.read_text() == "".join(f'{{"x":{x}}}\n' for x in numbers)


def test_jsonl_can_be_compressed(tmp_path: Path) -> None:
    path = write("jsonl", pa.table({"x": [1, 2]}), tmp_path, compression="gzip")
    assert path.name.endswith(".jsonl.gz")
    assert gzip.decompress(path.read_bytes()) == b'{"x":1}\n{"x":2}\n'


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_bad_options_are_coded_errors(kind: str) -> None:
    with pytest.raises(MissingOption):
        SINKS[kind].check({})
    with pytest.raises(BadOption):
        SINKS[kind].check({"path": "x", "compression": "rar"})


def test_a_settled_sink_means_the_same_from_any_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settled = settle_sink(SinkDef("s", "jsonl", {"path": "out/here", "compression": "gzip"}))
    assert settled.options == {"path": str(tmp_path / "out" / "here"), "compression": "gzip"}
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_kind_of_sink_is_refused_with_the_closest_name() -> None:
    with pytest.raises(UnknownSinkKind) as caught:
        settle_sink(SinkDef("s", "parqet", {}))
    assert caught.value.params["did_you_mean"] == "parquet"
