"""`partition_by` of the file sinks: the layout that Spark, pyarrow and DuckDB read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.definitions import SinkDef
from headrace.model.schema import BIGINT, STRING, Field, Schema
from headrace.sinks import SINKS, SinkKey
from headrace.sinks.partitions import by_partition, directory_of

OUTPUT = Schema((Field("k", STRING), Field("b", BIGINT), Field("n", BIGINT)))
ROWS = [("a/b", 1, 10), ("", 1, 11), (None, 2, 12), ("a/b", None, 13), ("a/b", 1, 14), ("ä =%", -3, 15)]


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return pa.table([pa.array(c, f.type.arrow) for c, f in zip(columns, OUTPUT, strict=True)], names=list(OUTPUT.names))


def write(root: Path, kind: str, epoch: int, rows: list[tuple[Any, ...]]) -> int:
    sink, key = SinkDef("s", kind, {"path": str(root), "partition_by": "k,b"}), SinkKey("c", 1, epoch)
    staged = [SINKS[kind].task(sink).stage(table(rows), key)]
    return SINKS[kind].driver(sink, OUTPUT).commit(key, staged)


def test_parquet_partitions_are_read_back_by_pyarrow_and_duckdb(tmp_path: Path) -> None:
    assert write(tmp_path, "parquet", 0, ROWS[:4]) == 4
    assert write(tmp_path, "parquet", 1, ROWS[4:]) == 2
    wanted = sorted(((k or None, b, n) for k, b, n in ROWS), key=lambda row: row[2])
    columns: Any = [("k", pa.string()), ("b", pa.int64())]
    layout = ds.partitioning(pa.schema(columns), flavor="hive", dictionaries=None)
    found = ds.dataset(tmp_path, format="parquet", partitioning=layout, exclude_invalid_files=False).to_table()
    assert [tuple(r.values()) for r in found.select(["k", "b", "n"]).sort_by("n").to_pylist()] == wanted
    query = f"SELECT k, b, n FROM read_parquet('{tmp_path}/*/*/*.parquet', hive_partitioning = true) ORDER BY n"
    with duckdb.connect() as connection:
        assert connection.execute(query).fetchall() == wanted


def test_jsonl_partitions_have_their_values_in_the_path(tmp_path: Path) -> None:
    write(tmp_path, "jsonl", 0, ROWS)
    found = []
    for path in tmp_path.glob("k=*/b=*/part-*.jsonl"):
        k, b = (unquote(part.partition("=")[2]) for part in path.parts[-3:-1])
        found += [(k, b, json.loads(line)) for line in path.read_text().splitlines()]
    null = "__HIVE_DEFAULT_PARTITION__"
    wanted = [(k or null, null if b is None else str(b), {"n": n}) for k, b, n in ROWS]
    assert sorted(found, key=lambda row: row[2]["n"]) == wanted


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_an_epoch_that_runs_again_and_a_rewind_reach_every_partition(tmp_path: Path, kind: str) -> None:
    for epoch in (0, 1, 1, 2):
        assert write(tmp_path, kind, epoch, ROWS) == len(ROWS)
    count = len(list(tmp_path.rglob("part-*")))
    sink = SINKS[kind].driver(SinkDef("s", kind, {"path": str(tmp_path), "partition_by": "k,b"}), OUTPUT)
    assert sink.ahead(SinkKey("c", 1, 0)) >= count * 2 / 3
    sink.rewind(SinkKey("c", 1, 0))
    assert (len(list(tmp_path.rglob("part-*"))), sink.ahead(SinkKey("c", 1, 0))) == (count / 3, 0)


KEYS = st.sampled_from(["x", "y", "", None])


@given(st.lists(st.tuples(KEYS, st.integers(0, 2) | st.none(), st.integers(0, 999)), min_size=1, max_size=12))
def test_every_row_is_in_the_partition_of_its_values_and_in_order(rows: list[tuple[Any, Any, int]]) -> None:
    wanted: dict[tuple[Any, Any], list[int]] = {}
    for k, b, n in rows:
        wanted.setdefault((k, b), []).append(n)
    found = [
        (directory_of(["k", "b"], values), part.column("n").to_pylist())
        for values, part in by_partition(table(rows), ["k", "b"])
    ]
    expected = [
        (directory_of(["k", "b"], (k, None if b is None else str(b))), numbers) for (k, b), numbers in wanted.items()
    ]
    assert sorted(found) == sorted(expected)
