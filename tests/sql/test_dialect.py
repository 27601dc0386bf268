"""Spellings of Spark SQL: a query that the shared host runs is one that Spark accepts, with the same columns, and one
that no host runs is one that Spark refuses. What goes to another host is Spark's own decision. dialect.txt has the
queries."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headrace.errors import HeadraceError
from headrace.model.definitions import StreamDef
from headrace.model.program import Meaning
from headrace.model.schema import Field, Schema, parse_type
from headrace.spark.query_checker import QueryChecker
from headrace.sql import Select, parse_script, plan_pipeline
from headrace.sql.functions.aggregate_functions import AGGREGATE_ALIASES, AGGREGATE_NAMES
from headrace.sql.parse.syntax import Apply, ForeignQuery, parts_of
from headrace.state.catalog import Catalog
from tests.sql.test_column_names import (
    COLUMNS,
    PLAIN,
    ZONE,
    Columns,
    columns_here,
    columns_over_view,
    different,
    expressions,
)

TOGETHER = 40  # select items in one query of Spark
# What Spark takes and no host does, by a part of the message here.
ONLY_IN_SPARK = (
    "which no sink can store",  # a NULL without a type, an interval
    "two output columns are named",
    "is not a BIGINT",  # a text that fails on every row
    "is not a BOOLEAN",
    "'10:00' is not a timestamp",  # Spark adds today's date
    "the length of a CHAR or VARCHAR is at least 1",
    "DECIMAL(0,0) is out of range",
    "COMMENT 'c', y: STRING>\" is not a type",
)
# WHERE as the name of a table, and statements that are no queries of a stream.
ONLY_IN_SPARK_QUERIES = ("SELECT i FROM v WHERE", "TABLE v", "VALUES (1)")


def in_spark(session: Any, query: str) -> Columns | str:
    """The columns that Spark gives a query, or why it refuses it."""
    try:
        return columns_over_view(session, query)
    except (PySparkException, Py4JJavaError) as problem:  # Spark fails with internal errors, too
        return " ".join(str(problem).split())[:160] or "a syntax error"


def accepted_by_both(session: Any, texts: list[str]) -> list[str]:
    """How the columns of select items that we accept differ from Spark's, which plans many at once."""
    try:
        return different(session, COLUMNS, PLAIN, texts)
    except (PySparkException, Py4JJavaError):
        if len(texts) == 1:
            return [f"{texts[0]}\n  is accepted here; in Spark {in_spark(session, PLAIN.replace('@', texts[0]))}"]
    middle = len(texts) // 2
    return accepted_by_both(session, texts[:middle]) + accepted_by_both(session, texts[middle:])


def problem_of(session: Any, query: str, here: Columns | str) -> str | None:
    """How a query that is asked alone is taken otherwise in Spark."""
    if isinstance(here, str) and (query in ONLY_IN_SPARK_QUERIES or any(part in here for part in ONLY_IN_SPARK)):
        return None
    theirs = in_spark(session, query)
    if isinstance(here, str) and isinstance(theirs, str):
        return None
    return None if here == theirs else f"{query}\n  here     {here}\n  in Spark {theirs}"


def is_aggregate(query: str) -> bool:
    """True if a query has an aggregate, which cannot stand beside columns."""
    (statement,) = parse_script(query)
    assert isinstance(statement, Select) and not isinstance(statement.query, ForeignQuery)
    calls = (part.name for part in parts_of(statement.query) if isinstance(part, Apply))
    return any(AGGREGATE_ALIASES.get(name, name) in AGGREGATE_NAMES for name in calls)


@pytest.fixture
def session(spark_of_the_run: Any) -> Any:
    logging.getLogger("SQLQueryContextLogger").disabled = True
    session = spark_of_the_run.newSession()
    session.conf.set("spark.sql.session.timeZone", ZONE)
    ddl = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())
    session.createDataFrame([], ddl).createOrReplaceTempView("v")
    return session


@pytest.mark.spark
def test_no_query_runs_here_that_spark_refuses_and_none_is_refused_that_spark_takes(session: Any) -> None:
    items: dict[bool, list[str]] = {False: [], True: []}
    problems: list[str | None] = []
    for frame, texts in expressions("dialect.txt").items():
        for text in texts:
            query = frame.replace("@", text) if frame != "@" else text
            here = columns_here(COLUMNS, query)
            if isinstance(here, str) and here.startswith("[UNSUPPORTED_ON_SHARED]"):
                continue
            if frame == PLAIN and not isinstance(here, str) and len(here) == 1:
                items[is_aggregate(query)].append(text)
            else:
                problems.append(problem_of(session, query, here))
    for some in items.values():
        for i in range(0, len(some), TOGETHER):
            problems += accepted_by_both(session, some[i : i + TOGETHER])
    found = [problem for problem in problems if problem is not None]
    assert not found, "\n".join(found)


def planned(session: Any, query: str) -> str:
    """The host of a query that Spark may check, or the code of the error."""
    fields = tuple(Field(name, parse_type(kind)) for name, kind in COLUMNS.items())
    names = Catalog().with_stream(StreamDef("v", Schema(fields), None, 0, "generator", "json", {}))
    (statement,) = parse_script(query)
    assert isinstance(statement, Select)
    try:
        return plan_pipeline(statement, names, Meaning(time_zone=ZONE), QueryChecker(lambda: session, True)).choice.host
    except HeadraceError as problem:
        return problem.code


@pytest.mark.spark
def test_spark_decides_about_what_the_shared_host_does_not_take(session: Any) -> None:
    wanted = {
        "SELECT (* EXCEPT (i)) FROM v": "epoch",
        "SELECT size(array_repeat(NULL, i)) AS n FROM v": "epoch",
        "SELECT size(transform(a, e -> NULL)) AS n FROM v": "epoch",
        "SELECT CAST(i AS VARIANT) IS NULL AS n FROM v": "epoch",
        "SELECT overlay(x PLACING x FROM 1) AS o FROM v": "epoch",
        "SELECT DATE 'today' AS d FROM v": "epoch",
        "SELECT CAST(current_time AS STRING) AS t, CAST(current_time(3) AS STRING) AS u FROM v": "epoch",
        "SELECT CAST(localtime AS STRING) AS t, CAST(localtime(0) AS STRING) AS u FROM v": "epoch",
        "SELECT CAST(current_time(7) AS STRING) AS t FROM v": "SPARK_REFUSED",
        "SELECT i FROM v WHERE s COLLATE UTF8_LCASE = 'a'": "epoch",
        "SELECT date_format(ts, 'F z') AS f FROM v": "epoch",
        "SELECT localtimestamp AS t FROM v": "UNKNOWN_COLUMN",
        "SELECT 0x1F AS n FROM v": "UNKNOWN_COLUMN",
        "SELECT count(v.*) AS n FROM v": "WRONG_ARGUMENTS",
        "SELECT i FROM v GROUP BY i HAVING count(v.*) > 1": "WRONG_ARGUMENTS",
        "SELECT soundex(s) AS s, localtimestamp AS t FROM v": "UNKNOWN_COLUMN",
        "SELECT bitmap_count(NULL) AS n FROM v": "TYPE_MISMATCH",
        "SELECT soundex(s) AS s, 123456789012345678901234567890123456789 AS n FROM v": "BAD_LITERAL",
        "SELECT i FROM v WHERE s COLLATE UTF8_LCASE = 123456789012345678901234567890123456789": "SPARK_REFUSED",
        "SELECT current_timestamp(3) AS t FROM v": "WRONG_ARGUMENTS",
        "SELECT s COLLATE nosuch AS s FROM v": "SPARK_REFUSED",
    }
    assert {query: planned(session, query) for query in wanted} == wanted
