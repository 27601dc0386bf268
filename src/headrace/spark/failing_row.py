"""Finds the row on which the Spark query of a pipeline fails: runs the query over fewer and fewer of its staged rows.

Spark names the expression or the line of the user's function, but not the row. The rows of the epoch are still staged
when a query has failed, so they are there to be tried. Functions of the user see some of them several times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from headrace.base.python_values import python_value
from headrace.bridge.spark_rows import RowsForSpark, rows_in_messages
from headrace.model.schema import Schema
from headrace.spark.staged_input import spark_schema, staged_input

SECONDS = 10.0  # the other pipelines of the epoch wait for the search
_COLUMNS, _CHARACTERS = 12, 60  # what an error shows of a row

Fails = Callable[[DataFrame], bool]


def failing_row(
    spark: SparkSession, columns: Schema, staged: Sequence[RowsForSpark], fails: Fails, go_on: Callable[[], bool]
) -> pa.Table | None:
    """The first row, as a table, on which the query `fails`. None if it fails on no row alone, or if the search may not
    `go_on`."""
    for part in staged:
        if not go_on():
            return None
        if len(staged) == 1 or fails(staged_input(spark, columns, [part])):
            return _among(_rows(part, columns), lambda rows: fails(_frame(spark, columns, rows)), go_on)
    return None


def described(row: pa.Table) -> str:
    """The values of a row: `id = 7, k = 'k1'`."""
    names = row.column_names[:_COLUMNS]
    values = [f"{name} = {_short(python_value(row.column(name)[0]))}" for name in names]
    return ", ".join(values) + (", ..." if len(names) < row.num_columns else "")


def _among(rows: pa.Table, fails: Callable[[pa.Table], bool], go_on: Callable[[], bool]) -> pa.Table | None:
    while rows.num_rows > 1:
        if not go_on():
            return None
        half = rows.num_rows // 2
        first = rows.slice(0, half)
        rows = first if fails(first) else rows.slice(half)
    return rows if fails(rows) else None


def _rows(part: RowsForSpark, columns: Schema) -> pa.Table:
    if not part.file:
        return rows_in_messages([part], columns.arrow)
    return pq.read_table(part.file).cast(columns.arrow)


def _frame(spark: SparkSession, columns: Schema, rows: pa.Table) -> DataFrame:
    return spark.createDataFrame(rows, spark_schema(columns))


def _short(value: Any) -> str:
    text = "NULL" if value is None else repr(value)
    return text if len(text) <= _CHARACTERS else text[:_CHARACTERS] + "..."
