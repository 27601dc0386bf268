"""What every test run shares: the settings of hypothesis (new examples at home, the same ones in CI) and one Spark
session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SLOW_IS_FINE = (HealthCheck.too_slow, HealthCheck.data_too_large)
settings.register_profile("home", deadline=None, suppress_health_check=_SLOW_IS_FINE)
settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=_SLOW_IS_FINE)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "home")


@pytest.fixture(scope="session")
def crash_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of `headrace.base.faults.crash_point`. Workers know its name from the start, because they inherit it."""
    return tmp_path_factory.mktemp("crashes") / "pipelines"


@pytest.fixture(scope="session")
def spark_of_the_run(crash_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one embedded session of the run: a JVM takes longer to start than most tests. Tests that set something take a
    `newSession()` of it, which has settings and views of its own."""
    from headrace.model.program import Meaning
    from headrace.spark.session import start

    os.environ["HEADRACE_CRASH"] = str(crash_file)
    engine = start("local[3]", tmp_path_factory.mktemp("spark") / "spark.log", Meaning())
    engine.spark.conf.set("spark.sql.shuffle.partitions", "3")
    yield engine.spark
    engine.stop()
