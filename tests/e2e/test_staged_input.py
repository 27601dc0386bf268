"""Staged rows as Spark sees them: each once, wherever the files are, and whether a query reads anything else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from headrace.bridge.spark_rows import INLINE_BYTES, stage_rows
from headrace.model.schema import BIGINT, Field, Schema
from headrace.spark.jvm_plans import parse_query, query_over, reads_nothing_else
from headrace.spark.staged_input import is_large, staged_input

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]
COLUMNS = Schema((Field("x", BIGINT),))


@pytest.mark.parametrize("name", ["staged", "the [state] of {a} *hub*"])
def test_rows_in_several_files_and_in_messages_are_read_once(spark: SparkSession, tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    rows = INLINE_BYTES // 8 + 1
    parts = [pa.table({"x": pa.array(range(n * rows, (n + 1) * rows), pa.int64())}) for n in range(3)]
    parts.append(pa.table({"x": pa.array([-1], pa.int64())}))
    staged = [s for part in parts for s in stage_rows(1, part, str(tmp_path / name))]
    assert [bool(s.file) for s in staged] == [True, True, True, False]
    assert is_large(staged)
    found = staged_input(spark, COLUMNS, staged).selectExpr("count(*)", "sum(x)").collect()
    assert [tuple(row) for row in found] == [(3 * rows + 1, sum(range(3 * rows)) - 1)]


@pytest.mark.parametrize(
    ("query", "alone"),
    [
        ("SELECT x + 1 FROM s WHERE x > (SELECT 3)", True),
        ("SELECT explode(array(x, 1)) FROM s", True),
        ("SELECT x FROM s JOIN wide USING (x)", False),
        ("SELECT x FROM s UNION ALL SELECT x FROM wide", False),
    ],
)
def test_a_query_that_reads_another_table_is_recognized(spark: SparkSession, query: str, alone: bool) -> None:
    session = spark.newSession()
    session.range(3).selectExpr("id AS x").createOrReplaceTempView("wide")
    rows = session.range(5).selectExpr("id AS x")
    assert reads_nothing_else(query_over(session, parse_query(session, query), "s", rows), rows) == alone
