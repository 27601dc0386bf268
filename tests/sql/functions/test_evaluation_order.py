"""Which operands are evaluated: an operand that fails, beside one that is NULL, for every function and both engines."""

from __future__ import annotations

import math
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException

from headrace.errors import HeadraceError, UnsupportedOnShared
from headrace.model.schema import parse_type
from tests.sql.functions.edges import values_of
from tests.sql.functions.fuzz import session_for_fuzzing
from tests.sql.functions.harness import FAILED, TIME_ZONE, Duck, Outcome, Spark, plan_condition, plan_expressions
from tests.sql.functions.random_expressions import Generator, plain, replaced

BAD = "CAST(if(flag, 'no', '1') AS INT)"  # fails, where `flag` is true
# What makes an expression of a type fail.
FAILING = {
    "INT": "{0}", "BIGINT": "CAST({0} AS BIGINT)", "SMALLINT": "CAST({0} AS SMALLINT)",
    "TINYINT": "CAST({0} AS TINYINT)", "DOUBLE": "CAST({0} AS DOUBLE)", "FLOAT": "CAST({0} AS FLOAT)",
    "STRING": "CAST({0} AS STRING)", "BOOLEAN": "({0} > 0)", "DATE": "date_add(DATE '2024-01-01', {0})",
    "BINARY": "CAST(CAST({0} AS STRING) AS BINARY)", "ARRAY<INT>": "array({0})",
    "TIMESTAMP": "CAST(date_add(DATE '2024-01-01', {0}) AS TIMESTAMP)",
    "TIMESTAMP_NTZ": "CAST(date_add(DATE '2024-01-01', {0}) AS TIMESTAMP_NTZ)",
}  # fmt: skip


def _jobs(generator: Generator) -> list[str]:
    """For one case of every function, each pair of operands: one that is NULL, and one that fails."""
    names, found = generator.columns.names, []
    done: set[tuple[str, int]] = set()
    for key in generator.keys:
        for case in generator.roots[key]:
            count = len(case.kinds)
            if count < 2 or (key.partition("(")[0], count) in done:
                continue
            done.add((key.partition("(")[0], count))
            for null in range(count):
                for bad in range(count):
                    kind = plain(case.kinds[bad])
                    if null == bad or kind not in FAILING:
                        continue
                    used = [names[k] for k in case.kinds]
                    used[null] = f"n{names[case.kinds[null]]}"
                    used[bad] = FAILING[kind].format(BAD)
                    found.append(replaced(case.text, used))
    return found


def _row(generator: Generator) -> tuple[pa.Table, tuple[str, ...], list[str]]:
    """One row: for every kind of values a column that has one and a column that is NULL, and `flag`, which is true."""
    kinds, names, arrays = [], [], []
    for kind, name in generator.columns.names.items():
        values = [v for v in values_of(kind) if v is not None]
        for column, value in ((name, values[min(2, len(values) - 1)]), (f"n{name}", None)):
            kinds.append(plain(kind))
            names.append(column)
            arrays.append(pa.array([value], parse_type(plain(kind)).arrow))
    kinds.append("BOOLEAN")
    names.append("flag")
    arrays.append(pa.array([True]))
    return pa.table(dict(zip(names, arrays, strict=True))), tuple(kinds), names


@pytest.fixture(scope="module")
def generator() -> Generator:
    return Generator()


@pytest.mark.spark
@pytest.mark.slow
def test_an_operand_that_fails_beside_a_null_fails_where_it_does_in_spark(
    spark_of_the_run: Any, generator: Generator
) -> None:
    row, kinds, names = _row(generator)
    session = session_for_fuzzing(spark_of_the_run)
    session.conf.set("spark.sql.session.timeZone", TIME_ZONE)
    jobs = _jobs(generator)
    planned = plan_expressions(kinds, jobs, names)
    accepted = [(text, p) for text, p in zip(jobs, planned, strict=True) if not isinstance(p, HeadraceError)]
    assert len(accepted) > 300
    duck, different = Duck(row), []
    found = Spark(session, row, kinds, names).evaluate([text for text, _ in accepted])
    for (text, plan), theirs in zip(accepted, found, strict=True):
        if not isinstance(theirs, Outcome):
            continue
        ours = duck.evaluate(*plan)
        if (ours.values[0] == FAILED) != (theirs.values[0] == FAILED):
            different.append(f"{text}: {ours.values[0]!r} here, {theirs.values[0]!r} in Spark")
    assert not different, "\n".join(different)


@pytest.mark.spark
@pytest.mark.slow
def test_a_call_is_null_beside_a_written_null_where_sparks_optimizer_says_so(
    spark_of_the_run: Any, generator: Generator
) -> None:
    names, session = generator.columns.names, session_for_fuzzing(spark_of_the_run)
    rows, kinds = generator.columns.rows(5), tuple(generator.columns.kinds)
    Spark(session, rows, kinds, list(names.values()))
    texts = []
    for key in generator.keys:
        case = generator.roots[key][0]
        for null, kind in enumerate(case.kinds if len(case.kinds) > 1 else ()):
            used = [names[k] for k in case.kinds]
            used[null] = f"CAST(NULL AS {plain(kind)})"
            texts.append(replaced(case.text, used))
    assert len(texts) > 500
    different = []
    for i in range(0, len(texts), 50):
        some = texts[i : i + 50]
        selected = ", ".join(f"{text} AS r{n}" for n, text in enumerate(some))
        query = session.sql(f"SELECT {selected}, row_number FROM v")._jdf.queryExecution()
        outputs = query.optimizedPlan().projectList()
        for n, (text, planned) in enumerate(
            zip(some, plan_expressions(kinds, some, list(names.values())), strict=True)
        ):
            if isinstance(planned, HeadraceError):
                continue
            ours, theirs = planned[1].startswith("CAST(NULL AS "), outputs.apply(n).toString().startswith("null AS ")
            if theirs and not ours:  # a call of operands that cannot fail may be known to be NULL only here
                different.append(f"{text}: {planned[1]} here, {outputs.apply(n).toString()} in Spark")
    assert not different, "\n".join(different)


@pytest.mark.spark
@pytest.mark.slow
def test_a_null_without_a_type_is_taken_where_spark_takes_it_and_gives_sparks_type(
    spark_of_the_run: Any, generator: Generator
) -> None:
    names, kinds = generator.columns.names, tuple(generator.columns.kinds)
    session = session_for_fuzzing(spark_of_the_run)
    Spark(session, generator.columns.rows(5), kinds, list(names.values()))
    texts = set()
    for key in generator.keys:
        if key.startswith(("assert_true", "raise_error")):
            continue  # they have no type themselves
        case = generator.roots[key][0]
        for null in range(len(case.kinds)):
            used = [names[k] for k in case.kinds]
            used[null] = "NULL"
            texts.add(replaced(case.text, used))
    accepted = [
        (text, planned[0].ddl)
        for text, planned in zip(
            sorted(texts), plan_expressions(kinds, sorted(texts), list(names.values())), strict=True
        )
        if not isinstance(planned, HeadraceError)
    ]
    assert len(accepted) > 500

    def different(some: list[tuple[str, str]]) -> list[str]:
        try:
            selected = ", ".join(f"{text} AS r{i}" for i, (text, _) in enumerate(some))
            fields = session.sql(f"SELECT {selected} FROM v").schema.fields
        except AnalysisException as problem:
            if len(some) == 1:
                return [f"{some[0][0]}: Spark refuses it: {problem}"]
            middle = len(some) // 2
            return different(some[:middle]) + different(some[middle:])
        theirs = [parse_type(field.dataType.simpleString()).ddl for field in fields]
        return [f"{text}: {ours} here, {t} in Spark" for (text, ours), t in zip(some, theirs, strict=True) if ours != t]

    assert not [line for i in range(0, len(accepted), 50) for line in different(accepted[i : i + 50])]


ROWS = pa.table({
    "a": pa.array([2**31 - 1, None, 5], pa.int32()),
    "b": pa.array([None, 0, 2], pa.int32()),
    "c": pa.array(["x", None, "7"], pa.string()),
    "d": pa.array([None, 1.5, 2.0], pa.float64()),
})  # fmt: skip
KINDS = ("INT", "INT", "STRING", "DOUBLE")
NO_NUMBER = "CAST(TRY_CAST(-32768 AS TINYINT) AS INT)"  # a constant that happens to be NULL


def _values(text: str) -> list[Any]:
    (planned,) = plan_expressions(KINDS, [text])
    assert not isinstance(planned, HeadraceError), planned
    return Duck(ROWS).evaluate(*planned).values


@pytest.mark.parametrize(
    "text, values",
    [
        ("d * (1 / b)", [None, FAILED, 1.0]),
        ("(1 / b) * d", [None, FAILED, 1.0]),
        ("a + 1 > 0", [FAILED, None, True]),
        ("(a + 1) IS NULL", [FAILED, True, False]),
        ("b = CAST(c AS INT)", [None, None, False]),
        ("a = CAST(c AS INT)", [FAILED, None, False]),
        ("a IN (b, a + 1)", [FAILED, None, False]),
        ("a IN (a, a + 1)", [True, None, True]),
        ("nullif(b, a + 1)", [None, 0, 2]),
        ("coalesce(a, a + 1)", [2**31 - 1, None, 5]),
        ("concat(b, CAST(c AS INT))", [None, None, "27"]),
        ("a + 1 + b", [None, None, 8]),
        ("b + (a + 1)", [None, None, 8]),
        ("CAST(c AS INT) + b + a", [FAILED, None, 14]),
        ("coalesce(b, CAST('none' AS INT))", [FAILED, 0, 2]),
        ("a + 1 + -1", [2**31 - 1, None, 5]),
        ("a + -1 + b + 1", [None, None, 7]),
        ("try_add(a + a, 1)", [None, None, 11]),
        ("CAST('x' AS INT) + a", [FAILED, FAILED, FAILED]),
        ("CAST(CAST(a AS FLOAT) AS DOUBLE)", [2147483647.0, None, 5.0]),
        ("try_multiply(-CAST('x' AS INT), a)", [FAILED, FAILED, FAILED]),
        ("map(1.5D, a)[bround(double('nan'), 2)]", [None, None, None]),
        ("2 * (a * 0)", [0, None, 0]),
        ("2 * (0 * try_multiply(2, a))", [0, None, 0]),
        ("timestampadd(DAY, 1 DIV b, to_timestamp(c, 'yyyy')) IS NULL", [True, FAILED, FAILED]),
        ("array_except(array(CAST(c AS INT)), array_append(CAST(NULL AS ARRAY<INT>), 1))", [FAILED, None, None]),
        ("try_element_at(from_json('{\"a\": 1}', 'ARRAY<INT>'), b) < 0", [None, None, None]),
        ("TRY_CAST(CAST(concat('294248-01-0', b + 1) AS DATE) AS TIMESTAMP) IS NULL", [True, True, True]),
        ("sha2(CAST(1 / b AS STRING), 5)", [None, FAILED, None]),
        ("CAST(c AS INT) > try_mod(a, 0)", [FAILED, None, None]),
        ("bit_length(concat(CAST(CAST(c AS INT) AS STRING), concat(nullif('', ''), c)))", [FAILED, None, None]),
        ("(-(a + b)) = 1", [None, None, False]),
        ("(-(-a - 1)) = 1", [FAILED, None, False]),
        ("CAST(c AS INT) | try_subtract(round(CAST(NULL AS INT), -2), a)", [FAILED, None, None]),
        ("CAST(c AS INT) + round(CAST(NULL AS INT))", [FAILED, None, None]),
        ("d <=> if(1 / b > 0, d, d)", [True, True, True]),
        ("coalesce(assert_true(b > 1, CAST(1 / b AS STRING)), 'x')", [FAILED, FAILED, "x"]),
        ("map(1, a, 1, CAST(c AS INT))[1]", [2**31 - 1, None, 5]),
        ("element_at(array(CAST(c AS INT), a), 2)", [FAILED, None, 5]),
        ("(-a - 2) <= (CAST(TRY_CAST('x' AS TINYINT) AS INT) | (a + a))", [FAILED, None, None]),
        ("(CAST(TRY_CAST('x' AS TINYINT) AS INT) | (a + a)) IS NULL", [True, True, True]),
        ("array_union(array(CAST(c AS INT)), concat(array(b), CAST(NULL AS ARRAY<INT>)))", [FAILED, None, None]),
        ("a + 1 > 0 AND isnotnull(CAST(NULL AS INT))", [FAILED, False, False]),
        ("a + 1 < 0 OR isnull(CAST(NULL AS INT))", [FAILED, True, True]),
        ("bround(nanvl(CAST('-inf' AS DOUBLE), d), 1)", [-math.inf] * 3),
        ("bround(coalesce(CAST('-inf' AS DOUBLE), d), 1)", [-math.inf] * 3),
        ("bround(CAST(elt(2, c, '-inf') AS DOUBLE), 1)", [-math.inf] * 3),
        ("make_timestamp_ntz(2024, 2, a, 1, 1, 1e20D) IS NULL", [FAILED, True, FAILED]),
        (f"(b % b) > try_mod(b, {NO_NUMBER})", [None, FAILED, None]),
        (f"(b % b) > try_divide(b, {NO_NUMBER})", [None, FAILED, None]),
        (f"(b % b) > try_mod({NO_NUMBER}, b)", [None, FAILED, None]),
        (f"try_mod(b % b, {NO_NUMBER})", [None, None, None]),
        (f"try_mod({NO_NUMBER}, b % b)", [None, FAILED, None]),
        ("array(1 / b) > array_prepend(CAST(NULL AS ARRAY<DOUBLE>), d)", [None, FAILED, None]),
        ("element_at(array(a), b + 1) != array_max(array_append(CAST(NULL AS ARRAY<INT>), a))", [None, None, FAILED]),
        ("array_prepend(CAST(NULL AS ARRAY<DOUBLE>), d) > array(1 / b)", [None, None, None]),
        ("try_mod(CAST(c AS INT), nullif(b, CAST(NULL AS INT) ^ b) * 0)", [None, None, None]),
    ],
)
def test_operands_are_evaluated_like_in_spark(text: str, values: list[Any]) -> None:
    assert _values(text) == values


def test_the_divisor_fails_also_where_all_dividends_are_null() -> None:
    table = pa.table({"a": pa.array([None, None], pa.int32()), "b": pa.array(["x", "y"])})
    for text in ("a % CAST(b AS INT)", "crc32(CAST(a AS STRING)) % CAST(b AS INT)", "a / CAST(b AS INT)"):
        (planned,) = plan_expressions(("INT", "STRING"), [text])
        assert not isinstance(planned, HeadraceError)
        assert Duck(table).evaluate(*planned).values == [FAILED, FAILED], text


def test_a_null_replacement_of_mask_keeps_the_characters() -> None:
    assert _values("mask(c, 'X', NULL)") == ["x", None, "n"]
    assert _values("mask(c, NULL, NULL, NULL)") == ["x", None, "7"]


def test_a_sign_before_null_makes_it_a_double() -> None:
    for text in ("+ NULL", "- NULL"):
        (planned,) = plan_expressions(KINDS, [text])
        assert not isinstance(planned, HeadraceError) and planned[0].ddl == "DOUBLE", text


def test_an_attempt_that_would_hide_the_failure_of_its_operand_is_refused() -> None:
    (planned,) = plan_expressions(KINDS, ["try_to_binary(CAST(1 / b AS STRING))"])
    assert isinstance(planned, UnsupportedOnShared)


TOO_LATE = "weekday(to_timestamp('+2024-01-01', 'yyyy-MM-dd HH:mm O'))"


@pytest.mark.parametrize(
    "text",
    [
        f"array_distinct(array_prepend(e, a))[{TOO_LATE}]",
        f"e[{TOO_LATE}]",
        "e[2147483647 + 1]",
        "element_at(e, 2147483647 + 1)",
        "try_element_at(e, 2147483647 + 1)",
        "get(e, abs(-2147483647 - 1))",
        "e[if(true, 2147483647 + 1, 1)]",
        "if(a > 100, e[2147483647 + 1], 1)",
        "transform(e, x -> array(x)[2147483647 + 1])",
    ],
)
@pytest.mark.spark
def test_a_constant_index_that_fails_is_refused_where_spark_fails_without_elements(
    spark_of_the_run: Any, text: str
) -> None:
    (planned,) = plan_expressions(INDEXED, [text], "ace")
    assert isinstance(planned, UnsupportedOnShared) and "an index that always fails" in planned.message
    session = session_for_fuzzing(spark_of_the_run)
    Spark(session, _no_arrays(), INDEXED, list("ace"))
    with pytest.raises(PySparkException):
        session.sql(f"SELECT {text} AS r FROM v").collect()


@pytest.mark.parametrize(
    "text",
    [
        "e[1 % 0]",
        "element_at(e, CAST('no' AS INT))",
        "e[if(false, 2147483647 + 1, 1)]",
        "e[coalesce(1, 2147483647 + 1)]",
        "e[coalesce(a, 2147483647 + 1)]",
        "e[CAST(c AS INT)]",
        "slice(e, 2147483647 + 1, 1)[0]",
        "map(a, 2)[2147483647 - 1]",
    ],
)
@pytest.mark.spark
def test_other_indexes_are_evaluated_where_spark_does(spark_of_the_run: Any, text: str) -> None:
    (planned,) = plan_expressions(INDEXED, [text], "ace")
    assert not isinstance(planned, HeadraceError), planned
    theirs = Spark(session_for_fuzzing(spark_of_the_run), _no_arrays(), INDEXED, list("ace")).by_row(text)
    assert Duck(_no_arrays()).evaluate(*planned).values == theirs.values == [None, None]


INDEXED = ("INT", "STRING", "ARRAY<INT>")


def _no_arrays() -> pa.Table:
    arrays = pa.array([None, None], pa.list_(pa.int32()))
    return pa.table({"a": pa.array([5, 7], pa.int32()), "c": pa.array(["x", "y"]), "e": arrays})


def test_a_filter_fails_where_its_value_does() -> None:
    (planned,) = plan_expressions(KINDS, ["a + 1 > 0"])
    assert not isinstance(planned, HeadraceError)
    with pytest.raises(duckdb.Error, match="Overflow"):
        Duck(ROWS).connection.sql(f"SELECT 1 FROM rows WHERE {planned[1]}").fetchall()


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("a + 1 > 0 AND b = 2", FAILED),
        ("b = 2 AND a + 1 > 0", [2]),
        ("(b > 0) = NULL AND a + 1 > 0", []),
        ("a + 1 > 0 AND CAST(NULL AS BOOLEAN)", []),
        ("NOT (a + 1 > 0 OR NULL)", []),
        ("a + 1 > 0 AND TRY_CAST('x' AS BOOLEAN)", FAILED),
    ],
)
def test_a_filter_evaluates_its_parts_in_order_up_to_one_that_is_not_true(
    condition: str, kept: list[int] | str
) -> None:
    planned, parts = plan_condition(KINDS, condition, "abcd", TIME_ZONE)
    duck = Duck(ROWS)
    assert duck.filtered(planned) == kept == duck.passing(parts)


def test_a_comparison_after_like_needs_parentheses() -> None:
    for text in ("c LIKE ANY ('a', 'b') = true", "a IS NULL = true", "a IN (1) <=> true", "a BETWEEN 1 AND b < 3"):
        (planned,) = plan_expressions(KINDS, [text])
        assert isinstance(planned, UnsupportedOnShared), text
    assert _values("(c LIKE ANY ('a', '7')) = true") == [False, None, True]


def test_a_choice_among_values_without_a_type_is_refused() -> None:
    for text in ("coalesce(NULL, raise_error(c))", "CASE WHEN a > 0 THEN NULL ELSE raise_error(c) END"):
        (planned,) = plan_expressions(KINDS, [text])
        assert isinstance(planned, UnsupportedOnShared), text


def test_a_long_chain_of_operands_that_may_fail_stays_short() -> None:
    (planned,) = plan_expressions(KINDS, [" + ".join(["CAST(c AS INT)"] * 30)])
    assert not isinstance(planned, HeadraceError)
    assert len(planned[1]) < 40_000


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("(1 / b) + NULL", "CAST(NULL AS DOUBLE)"),
        ("NULL / (1 / b)", "CAST(NULL AS DOUBLE)"),
        ("hour(CAST(NULL AS TIMESTAMP)) * (1 / b)", "CAST(NULL AS DOUBLE)"),
        ("array(1 / b) IS NULL", "FALSE"),
        ("hash(1 / b) + 1 IS NOT NULL", "TRUE"),
        ("isnan(CAST(NULL AS DOUBLE))", "FALSE"),
        ("(1 / b) + CASE WHEN false THEN 1 END", "CAST(NULL AS DOUBLE)"),
        ("isnull(unix_timestamp('no', 'yyyy'))", "FALSE"),
        ("isnotnull(coalesce(to_date(c, 'yyyy'), to_date('no', 'yyyy')))", "TRUE"),
        ("isnull(format_string('%s', CAST(1 / b AS STRING)))", "FALSE"),
        ("unix_timestamp('no', 'yyyy') <=> NULL", "FALSE"),
        ("(1 / b) + nullif(NULL, d)", "CAST(NULL AS DOUBLE)"),
        ("(1 / b) + nullif(5, 5)", "CAST(NULL AS DOUBLE)"),
        ("isnull(a > unix_timestamp('no', 'yyyy'))", "(CAST(c0 AS BIGINT) IS NULL)"),
        ("isnotnull(unix_timestamp('no', 'yyyy') <= a)", "(CAST(c0 AS BIGINT) IS NOT NULL)"),
        ("isnull(NOT (a < unix_timestamp('no', 'yyyy')))", "(CAST(c0 AS BIGINT) IS NULL)"),
        ("isnotnull(try_subtract(b, nullif(5, 5)) / b)", "FALSE"),
        ("(1 / b) + nullif(try_mod(a, NULL), 1.5)", "CAST(NULL AS DOUBLE)"),
        ("(1 / b) <=> (1 / b)", "TRUE"),
        ("1 / b > 0 AND a > 0 AND false", "FALSE"),
        ("1 / b > 0 OR (true OR a > 0)", "TRUE"),
        ("(1 / b) + CASE WHEN a > 0 AND false THEN 1 END", "CAST(NULL AS DOUBLE)"),
        ("if(1 / b > 0, NULL, NULL) + 1", "CAST(NULL AS INTEGER)"),
        ("CASE WHEN 1 / b > 0 THEN CAST(NULL AS INT) END", "CAST(NULL AS INTEGER)"),
        ("CASE WHEN 1 / b > 0 THEN a WHEN 1 / b > 1 THEN a ELSE a END", "c0"),
        ("isnull(to_date(TRY_CAST(true AS STRING), 'yyyy'))", "FALSE"),
        ("(1 / b) + CASE WHEN isnull(hash(a)) THEN 1 END", "CAST(NULL AS DOUBLE)"),
        ("try_make_timestamp(a, 1, 1, 1, 1, d) <=> try_make_timestamp_ltz(a, 1, 1, 1, 1, d)", "TRUE"),
        ("hash(1 / b) > hash(1 / b)", "FALSE"),
        ("(1 / b) + CASE WHEN 3 <=> NULL THEN 1 END", "CAST(NULL AS DOUBLE)"),
        ("(1 / b) + CASE WHEN NOT (3 IS NOT NULL) THEN 1 END", "CAST(NULL AS DOUBLE)"),
        ("(1 / b) + CASE WHEN a > 0 AND 3 <=> NULL THEN 1 END", "CAST(NULL AS DOUBLE)"),
        ("(1 / b) + CASE WHEN a > 0 AND NULL THEN 1 END", "CAST(NULL AS DOUBLE)"),
        ("(1 / b) + CASE WHEN NOT (a > 0 OR NULL) THEN 1 END", "CAST(NULL AS DOUBLE)"),
        ("(1 / b) + named_struct('p', a, 'q', CAST(NULL AS INT)).q", "CAST(NULL AS DOUBLE)"),
        ("named_struct('p', 1 / b, 'q', a).q", "c0"),
        ("array(1 / b, d)[1]", "c3"),
        ("get(array(d, 1 / b), 0)", "c3"),
        ("hash(1 / b) != hash(1 / b)", "FALSE"),
        ("isnull(map_from_entries(map_entries(map(c, 1 / b))))", "FALSE"),
        ("isnotnull(transform_keys(map(c, 1 / b), (k, v) -> concat(k, '#')))", "TRUE"),
        ("isnull(zip_with(array(1 / b), array(a), (x, y) -> y))", "FALSE"),
        ("isnull(filter(array(1 / b), x -> x > 0))", "FALSE"),
        ("(1 / b) IN (NULL, CAST(NULL AS DOUBLE) + 1)", "CAST(NULL AS BOOLEAN)"),
    ],
)
def test_an_operand_that_sparks_optimizer_drops_is_not_evaluated(text: str, sql: str) -> None:
    (planned,) = plan_expressions(KINDS, [text])
    assert not isinstance(planned, HeadraceError) and planned[1] == sql


@pytest.mark.parametrize(
    "text",
    [
        "isnull(1 / b)",
        "isnull(CAST(CAST(1 / b AS STRING) AS INT))",
        "(1 / b) > TRY_CAST(round(CAST(NULL AS BIGINT), -2) AS DOUBLE)",
        "nullif(1 / b, NULL)",
        "(1 / b) IN (1, NULL)",
        "coalesce(NULL, 1 / b)",
        "(1 / b) || NULL",
        "trim(NULL, CAST(1 / b AS STRING))",
        "mask(CAST(1 / b AS STRING), NULL)",
    ],
)
def test_other_operands_are_evaluated_beside_a_null(text: str) -> None:
    assert _values(text)[1] == FAILED


@pytest.mark.spark
def test_a_part_of_what_is_made_in_the_expression_is_evaluated_alone(spark_of_the_run: Any) -> None:
    parts = [
        "array(struct(1 / i AS p, i AS q)).q",
        "array(struct(1 / i AS p, i AS q), NULL).q",
        "array(struct(2D AS p, i AS q), struct(1 / i AS p, i AS q)).p",
        "array(struct(1 / i AS p, i AS q)).q[0]",
        "size(array(struct(1 / i AS p, i AS q)).q)",
        "array(struct(struct(1 / i AS p, i AS q) AS w)).w.q",
        "array(struct(1 / i AS p, struct(i AS x, 1 / i AS y) AS q)).q.x",
        "array(array(1 / i, i))[0][1]",
        "struct(array(1 / i, i) AS w).w[1]",
        "struct(map('a', 1 / i, 'b', i) AS w).w['b']",
        "coalesce(struct(1 / i AS p, i AS q), struct(2D AS p, 3 AS q)).q",
        "transform(array(i), e -> array(struct(1 / e AS p, e AS q)).q)",
        "transform(array(i), e -> struct(1 / e AS p, e AS q)).q",
        "filter(array(struct(1 / i AS p, i AS q)), e -> true).q",
    ]
    rows = pa.table({"i": pa.array([0, 1, None], pa.int32())})
    theirs = Spark(session_for_fuzzing(spark_of_the_run), rows, ("INT",), ["i"])
    duck, found = Duck(rows), {}
    for text, planned in zip(parts, plan_expressions(("INT",), parts, ["i"]), strict=True):
        assert not isinstance(planned, HeadraceError), text
        found[text] = duck.evaluate(*planned).values
    assert found == {text: theirs.by_row(text).values for text in parts}
