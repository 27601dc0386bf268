"""The example of `Hub.spark`, which needs Spark."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headrace
from headrace.hub.hub import Hub
from tests.examples import examples_of, run_example

pytestmark = pytest.mark.spark


def test_the_session_of_a_hub_can_be_used(spark_of_the_run: SparkSession, tmp_path: Path) -> None:
    session = spark_of_the_run.newSession()
    with headrace.connect(tmp_path / "state", session) as hub:
        assert hub.spark is session
        assert run_example(examples_of(inspect.getdoc(Hub.spark) or "", {"hub": hub}, "Hub.spark")) == ""
