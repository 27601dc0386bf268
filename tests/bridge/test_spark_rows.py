"""Rows that are staged for Spark queries: few travel in messages, many in files, and their width is known."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headrace.bridge.spark_rows import INLINE_BYTES, rows_in_messages, stage_rows
from headrace.spark.staged_input import NARROW_BYTES, are_narrow, is_large


def wide(rows: int, width: int) -> pa.Table:
    return pa.table({"x": pa.array(["x" * width] * rows)})


def test_few_rows_travel_in_messages_and_many_in_files(tmp_path: Path) -> None:
    few, many = wide(10, 8), wide(INLINE_BYTES // 8, 8)
    inside = stage_rows(1, few, str(tmp_path))
    assert not is_large(inside)
    assert rows_in_messages(inside, few.schema).equals(few)
    assert is_large(stage_rows(1, many, str(tmp_path)))
    assert [p.suffix for p in tmp_path.iterdir()] == [".parquet"]


@pytest.mark.parametrize(("width", "narrow"), [(NARROW_BYTES // 2, True), (NARROW_BYTES * 2, False)])
@pytest.mark.parametrize("large", [False, True])
def test_a_batch_of_wide_rows_keeps_its_limit_in_bytes(tmp_path: Path, width: int, narrow: bool, large: bool) -> None:
    """Values that repeat are no smaller in Spark, so a file must not be."""
    rows = INLINE_BYTES // width * 2 if large else 20
    staged = stage_rows(1, wide(rows, width), str(tmp_path))
    assert is_large(staged) == large
    assert are_narrow(staged) == narrow
