"""The end-to-end tests pass the one Spark session of the test run to their hubs, as a user would."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.two_streams import Streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(spark_of_the_run: SparkSession) -> SparkSession:
    """Three task slots, so that an epoch has three tasks."""
    return spark_of_the_run


@pytest.fixture
def crashes(crash_file: Path) -> Iterator[Path]:
    """Pipelines on a line of this file kill the workers that run them."""
    crash_file.unlink(missing_ok=True)
    yield crash_file
    crash_file.unlink(missing_ok=True)


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Iterator[Streams]:
    """Two streams in directories of their own, and a session with one shuffle partition."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    yield Streams(tmp_path, session)
