"""A file that cannot be read, with real Spark: the error names it, and its advice makes the stream continue."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from tests.e2e.support import put, rows_of, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]


def stream(place: Path, on_bad_file: str) -> str:
    return (
        "CREATE OR REPLACE STREAM s (a BIGINT) WITH (source = 'files', format = 'csv', header = 'true', "
        f"path = '{place}', on_bad_file = '{on_bad_file}')"
    )


def test_a_truncated_file_stops_the_stream_by_name_and_skip_takes_effect_on_the_logged_epoch(
    tmp_path: Path, spark: SparkSession
) -> None:
    inputs = tmp_path / "in"
    put(inputs / "0.csv", ["a", "1", "2"])
    numbers = range(100, 30_100)
    good = gzip.compress(b"a\n" + b"".join(b"%d\n" % n for n in numbers))  # longer than what a listing looks at
    bad = inputs / "1.csv.gz"
    with headrace.connect(tmp_path / "state", spark=spark, buckets=1) as hub:
        hub.sql(
            stream(inputs, "fail") + "; CREATE SINK m WITH (type = 'memory');"
            "CREATE PIPELINE p INTO m AS SELECT a FROM s; CREATE PIPELINE n INTO m AS SELECT count(*) AS n FROM s"
        )
        seen = hub.streams["s"]
        until(lambda: seen.status().rows == 2, "the first file")
        os.replace(_written(inputs / ".bad", good[:-20]), bad)
        until(lambda: "[DAMAGED_STREAM]" in seen.status().problem, "the error")
        assert str(bad) in seen.status().problem
        assert "on_bad_file = 'skip'" in seen.status().problem
        hub.sql(stream(inputs, "skip"))
        until(lambda: seen.status().skipped_files == 1, "the epoch is run again without the file")
        assert list(seen.status().bad_files) == [str(bad)]
        put(inputs / "2.csv", ["b", "3"])
        put(inputs / "3.csv", ["a", "4"])
        until(lambda: seen.status().rows == 3, "the file after another bad one")
        assert seen.status().skipped_files == 2
        os.replace(_written(inputs / ".good", good), bad)
        until(lambda: seen.status().rows == 3 + len(numbers), "the repaired file")
        assert sorted(rows_of(hub.pipelines["p"].results())) == [(n,) for n in (1, 2, 4, *numbers)]
        assert rows_of(hub.pipelines["n"].results())[-1] == (3 + len(numbers),)


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path
