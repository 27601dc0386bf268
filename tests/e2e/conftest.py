"""One Spark session for all end-to-end tests that run in this process; hubs are given it as a user's session."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def crash_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of `headrace.faults.crash_point`. Workers know its name from the start, because they inherit it."""
    return tmp_path_factory.mktemp("crashes") / "pipelines"


@pytest.fixture
def crashes(crash_file: Path) -> Iterator[Path]:
    """Pipelines on a line of this file kill the workers that run them."""
    crash_file.unlink(missing_ok=True)
    yield crash_file
    crash_file.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def spark(crash_file: Path) -> Iterator[SparkSession]:
    """A session such as a user brings along: nothing of it is made for headrace but the time zone. Three task slots,
    so that an epoch is cut in three."""
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(find_java())
    os.environ["HEADRACE_CRASH"] = str(crash_file)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "3",
        "spark.log.level": "ERROR",
    }
    builder: Any = SparkSession.builder.master("local[3]").appName("headrace tests")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    yield session
    session.stop()
