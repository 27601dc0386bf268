"""Random queries: no rule and no division of the input changes their rows, and Spark returns the same rows."""

from __future__ import annotations

import logging
import random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings

from headrace.errors import UnsupportedOnShared
from headrace.sql import Planned
from headrace.sql.plan.logical import Plan
from tests.sql.data import rows_of
from tests.sql.execute import Row, bag, plain, run_plan, run_program
from tests.sql.random_queries import query
from tests.sql.support import MEANING, plan


def _planned(text: str) -> Planned:
    """Skips Spark SQL that the shared host refuses, such as a decimal with too many digits."""
    try:
        return plan(text)
    except UnsupportedOnShared:
        assume(False)
        raise


def _outcome(run: Any) -> list[str]:
    try:
        return bag(run())
    except duckdb.Error:
        return ["<error>"]


@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(query())
def test_rules_and_cuts_keep_the_rows_of_a_random_query(text: str) -> None:
    planned = _planned(text)
    rows = rows_of(planned.stream, 30, seed=len(text))
    if "session_window" in text:  # which rows form a session depends on the group: only the program can be run
        whole = _outcome(lambda: run_program(planned.program, rows))
        assert _outcome(lambda: run_program(planned.program, rows, random.Random(len(text)))) == whole
        return
    expected = _outcome(lambda: run_plan(planned.bound, rows, MEANING))
    for name, after in planned.trace:
        if isinstance(after, Plan):
            got = _outcome(lambda after=after: run_plan(after, rows, MEANING))
            assert got == expected, f"rule {name} changed the rows of {text}"
    assert _outcome(lambda: run_program(planned.program, rows)) == expected
    assert _outcome(lambda: run_program(planned.program, rows, random.Random(len(text)))) == expected


@pytest.fixture(scope="module")
def spark(spark_of_the_run: Any) -> Any:
    logging.getLogger("SQLQueryContextLogger").disabled = True
    session = spark_of_the_run.newSession()
    session.conf.set("spark.sql.session.timeZone", MEANING.time_zone)
    session.conf.set("spark.sql.shuffle.partitions", "1")
    planned = plan("SELECT * FROM s")
    rows = rows_of(planned.stream, 30, seed=17)
    values = [c.to_pylist() for c in rows.columns[: len(planned.stream.schema)]]
    maps = planned.stream.schema.index("attrs")
    assert maps is not None
    values[maps] = [None if v is None else dict(v) for v in values[maps]]
    frame = session.createDataFrame(list(zip(*values, strict=True)), planned.stream.schema.ddl)
    frame.coalesce(1).cache().createOrReplaceTempView("s")
    return session


@pytest.mark.spark
@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(query())
def test_spark_returns_the_same_rows_for_a_random_query(spark: Any, text: str) -> None:
    planned = _planned(text)
    rows = rows_of(planned.stream, 30, seed=17)
    try:
        frame = spark.sql(text)
        theirs: pa.Table | None = frame.toArrow()
    except Exception as problem:
        assert "SQLSTATE: 22" in str(problem), f"Spark refuses {text}: {problem}"  # a data error, not a refusal
        theirs = None
    try:
        ours = run_program(planned.program, rows, random.Random(3))
    except duckdb.Error:
        assert theirs is None, f"only DuckDB fails on {text}"
        return
    assert theirs is not None, f"only Spark fails on {text}"
    assert theirs.schema.types == planned.program.output.arrow.types, text
    ring1 = planned.program.ring1
    if not ours and ring1 is not None and not ring1.keys and ring1.window is None:
        return  # a global aggregate over nothing is a row in Spark; a stream has nothing to say yet
    assert bag(ours) == bag(_rows(theirs)), text


def _rows(table: pa.Table) -> list[Row]:
    return [tuple(plain(v) for v in row.values()) for row in table.to_pylist()]
