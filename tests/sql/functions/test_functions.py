"""The verified list: every entry returns in DuckDB what it returns in Spark.

One Spark session serves all comparisons. HEADRACE_REWRITE=1 writes the list and docs/functions.md from what agreed.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from headrace.errors import HeadraceError, UnsupportedOnShared
from headrace.exec.kernels.session_zone import MACROS
from headrace.model.schema import parse_type
from headrace.sql.functions import FUNCTIONS, verified
from headrace.sql.functions.aggregate_functions import AGGREGATES
from headrace.sql.functions.casts import CASTS
from headrace.sql.functions.nested_casts import NESTED_CASTS
from tests.sql.functions.aggregate_cases import AggregateCase, cases, close, ours, table
from tests.sql.functions.cases import Case, scalar_cases
from tests.sql.functions.edges import frame
from tests.sql.functions.harness import (
    TIME_ZONE,
    TOGETHER,
    Duck,
    Spark,
    differences,
    plan_expressions,
    rows_for_spark,
)
from tests.sql.functions.missing import MISSING, SCALARS_BY_NAME, SUPPORTED
from tests.sql.functions.page import functions_page

ROOT = Path(__file__).parents[3]
LIST = ROOT / "src/headrace/sql/functions/verified.txt"
PAGE = ROOT / "docs/functions.md"
REWRITE = os.environ.get("HEADRACE_REWRITE") == "1"
HEADER = "# Functions, casts and aggregates that agreed with Spark over edge values; written by tests/sql/functions.\n"


def _registered() -> set[str]:
    scalars = {o.key for overloads in FUNCTIONS.values() for o in overloads}
    return (
        scalars | {f"cast({a} -> {b})" for a, b in (*CASTS, *NESTED_CASTS)} | {a.key for a in AGGREGATES} | {"count(*)"}
    )


@pytest.fixture(scope="module")
def spark(spark_of_the_run: Any) -> Any:
    logging.getLogger("SQLQueryContextLogger").disabled = True
    session = spark_of_the_run.newSession()
    session.conf.set("spark.sql.session.timeZone", TIME_ZONE)
    # Spark would compute constant rows while it plans, and fail there
    rule = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
    session.conf.set("spark.sql.optimizer.excludedRules", rule)
    # Each expression is evaluated once per question, and not worth compiling
    session.conf.set("spark.sql.subexpressionElimination.enabled", "false")
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return session


@pytest.fixture(scope="module")
def disagreements(spark: Any) -> dict[str, list[str]]:
    """For each entry of the registry, how the engines differ; empty lists are agreement."""
    found: dict[str, list[str]] = {}
    frames: dict[tuple[str, ...], list[Case]] = {}
    for case in scalar_cases():
        frames.setdefault(case.kinds, []).append(case)
    for kinds, group in frames.items():
        _compare_frame(spark, kinds, group, found)
    kinds_of: dict[str, list[AggregateCase]] = {}
    for aggregate in cases():
        kinds_of.setdefault(aggregate.kind, []).append(aggregate)
    for kind, aggregates in kinds_of.items():
        _compare_aggregates(spark, kind, aggregates, found)
    return found


def _compare_frame(
    spark: Any, kinds: tuple[str, ...], group: list[Case], found: dict[str, list[str]], zone: str = TIME_ZONE
) -> None:
    rows = frame(kinds)
    duck, theirs = Duck(rows, zone), Spark(spark, rows, kinds)
    compared: list[tuple[Case, Any]] = []
    plans = plan_expressions(kinds, [c.text for c in group], time_zone=zone)
    for case, planned in zip(group, plans, strict=True):
        if isinstance(planned, UnsupportedOnShared) and case.key in _registered():
            continue  # refusing these argument types (a decimal too long) is safe; another case must agree
        verdict = found.setdefault(case.key, [])
        if isinstance(planned, HeadraceError):
            verdict.append(f"{case.text}: {planned.message}")
        else:
            compared.append((case, planned))
    for (case, planned), outcome in zip(compared, theirs.evaluate([c.text for c, _ in compared]), strict=True):
        if isinstance(outcome, str):
            found[case.key].append(f"{case.text}: {outcome}")
            continue
        found[case.key] += [f"{case.text}: {d}" for d in differences(duck.evaluate(*planned), outcome, rows, case.ulps)]


def _compare_aggregates(spark: Any, kind: str, group: list[AggregateCase], found: dict[str, list[str]]) -> None:
    rows = table(kind)
    data = rows_for_spark(rows, ("INT", "TIMESTAMP", kind, "INT"))
    spark.createDataFrame(data, f"g INT, t TIMESTAMP, a {kind}, b INT").coalesce(1).createOrReplaceTempView("v")
    plain = [case for case in group if "DISTINCT" not in case.spark]
    batches = [plain[i : i + TOGETHER] for i in range(0, len(plain), TOGETHER)]
    # Spark plans several DISTINCT at once as one row per column, and fails for listagg among them
    batches += [[case] for case in group if "DISTINCT" in case.spark]
    for some in batches:
        selected = ", ".join(f"{case.spark} AS r{i}" for i, case in enumerate(some))
        frame = spark.sql(f"SELECT g, {selected} FROM v GROUP BY g")
        kinds = [parse_type(field.dataType.simpleString()).ddl for field in frame.schema.fields[1:]]
        theirs = {row["g"]: row for row in frame.toArrow().to_pylist()}
        for seed in range(2):
            here = ours(kind, [case.text for case in some], rows, seed)
            for i, (case, (type_here, values)) in enumerate(zip(some, here, strict=True)):
                verdict = found.setdefault(case.key, [])
                if type_here != kinds[i]:
                    verdict.append(f"{case.text}: {type_here} here, {kinds[i]} in Spark")
                for g, row in theirs.items():
                    if not close(values[g], row[f"r{i}"], case.error):
                        verdict.append(f"{case.text} of group {g}: {values[g]!r} here, {row[f'r{i}']!r} in Spark")


@pytest.mark.spark
@pytest.mark.slow
def test_every_entry_of_the_list_agrees_with_spark(disagreements: dict[str, list[str]]) -> None:
    if REWRITE:
        agreed = sorted(key for key, found in disagreements.items() if not found)
        LIST.write_text(HEADER + "\n".join(agreed) + "\n", "utf-8")
        verified.cache_clear()
    differing = {key: found[:3] for key, found in disagreements.items() if found}
    assert not differing, "\n".join(f"{key}: {line}" for key, lines in differing.items() for line in lines)
    missing = verified() - disagreements.keys()
    assert not missing, f"nothing compares {sorted(missing)}"


@pytest.mark.spark
@pytest.mark.slow
def test_what_is_computed_without_kernels_in_utc_agrees_with_spark_there(spark: Any) -> None:
    frames: dict[tuple[str, ...], list[Case]] = {}
    for case in scalar_cases():
        (planned,) = plan_expressions(case.kinds, [case.text])
        if not isinstance(planned, HeadraceError) and set(re.findall(r"\bhr_\w+", planned[1])) & MACROS:
            frames.setdefault(case.kinds, []).append(case)
    assert len(frames) > 20
    found: dict[str, list[str]] = {}
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        for kinds, group in frames.items():
            _compare_frame(spark, kinds, group, found, "UTC")
    finally:
        spark.conf.set("spark.sql.session.timeZone", TIME_ZONE)
    assert not (lines := [line for some in found.values() for line in some]), "\n".join(lines[:100])


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("text", ["sum(a)", "sum(a) FILTER (WHERE b IS NOT NULL)"])
def test_a_sum_that_does_not_fit_fails_in_both_engines(spark: Any, text: str) -> None:
    wide = pa.table({"g": pa.array([1, 1], pa.int32()), "t": pa.array([1, 2], pa.timestamp("us", "UTC")),
                     "a": pa.array([2**63 - 1, 1], pa.int64()), "b": pa.array([1, 2], pa.int32())})  # fmt: skip
    with pytest.raises(duckdb.Error):
        ours("BIGINT", [text], wide, seed=1)
    spark.createDataFrame([(1, 2**63 - 1, 1), (1, 1, 2)], "g INT, a BIGINT, b INT").createOrReplaceTempView("v")
    with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
        spark.sql(f"SELECT {text} AS r FROM v").collect()


def test_the_list_has_exactly_the_entries_of_the_registry() -> None:
    assert verified() == _registered()


def test_the_list_has_more_than_a_hundred_entries_without_counting_types() -> None:
    assert len({entry.partition("(")[0] for entry in verified() if not entry.startswith("cast(")}) >= 100


@pytest.mark.spark
def test_every_function_of_spark_is_on_the_list_or_missing_for_a_reason(spark: Any) -> None:
    names = {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    assert names <= SUPPORTED | MISSING and names >= MISSING
    assert not SUPPORTED & MISSING
    assert len(names & SCALARS_BY_NAME) >= 330


def test_the_page_of_functions_follows_the_list() -> None:
    if REWRITE:
        PAGE.write_text(functions_page(), "utf-8")
    assert PAGE.read_text("utf-8") == functions_page()
