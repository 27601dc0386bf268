"""One Spark session for all end-to-end tests that run in this process; hubs are given it as a user's session."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from headrace.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session such as a user brings along: nothing of it is made for headrace but the time zone. Three task slots,
    so that an epoch is cut in three."""
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(find_java())
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
