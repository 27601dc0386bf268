"""Arguments that Spark casts implicitly although their values may not fit, and calls that only Spark takes."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import HeadraceError
from headrace.model.schema import parse_type
from tests.sql.functions.fuzz import session_for_fuzzing
from tests.sql.functions.harness import TIME_ZONE, Duck, Outcome, Spark, differences, plan_expressions

_TIME = dt.datetime(2024, 3, 5, 6, 7, 8, 901234, tzinfo=dt.UTC)
COLUMNS: dict[str, tuple[str, list[Any]]] = {
    "i": ("INT", [1, 7, None, -8, 2]),
    "l": ("BIGINT", [2**40, None, -(2**63), 3, 1]),
    "s": ("STRING", ["12", None, "", "a-b", " 2.5 "]),
    "w": ("STRING", ["12", None, "7", "-1", "0"]),
    "d": ("DOUBLE", [1.5, None, 1e300, -2.9, float("nan")]),
    "f": ("FLOAT", [0.25, 1.5, None, -0.0, 2.0]),
    "p": ("DECIMAL(10,2)", [Decimal("1.99"), None, Decimal("-0.50"), Decimal("99999999.99"), Decimal("2.00")]),
    "b": ("BOOLEAN", [True, False, None, True, False]),
    "x": ("BINARY", [b"ab", None, b"", b"\x7f", b"Zz"]),
    "y": ("DATE", [dt.date(2024, 3, 10), None, dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(1, 1, 1)]),
    "t": ("TIMESTAMP", [_TIME, None, dt.datetime(1970, 1, 1, tzinfo=dt.UTC), _TIME.replace(month=11), _TIME]),
    "u": ("TIMESTAMP", [_TIME.replace(hour=1), _TIME, None, _TIME, _TIME.replace(day=7, microsecond=1)]),
    "m": ("MAP<STRING, INT>", [{"x": 1}, None, {}, {"X": 2, "x": None}, {"y": 3}]),
    "c": ("ARRAY<STRING>", [["p", None, "q"], [None], [""], [], None]),
    "n": ("ARRAY<INT>", [[1, None], [None], [3], [], None]),
    "r": (
        "STRUCT<g: INT, h: STRUCT<k: STRING>>",
        [{"g": 1, "h": {"k": "v"}}, None, {"g": None, "h": None}, {"g": 2, "h": {"k": None}}, {"g": 3, "h": {"k": ""}}],
    ),
}
TEXTS = (
    "from_unixtime(d)", "from_unixtime(p)", "from_unixtime(w)", "from_unixtime(i / 1000)", "chr(d)", "bin(p)",
    "bin(w)", "factorial(l)", "factorial(d)", "space(d)", "date_from_unix_date(l)", "date_from_unix_date(f)",
    "sqrt(s)", "sin(w)", "exp(s)", "ln(w)", "abs(s)", "abs(w)", "negative(w)", "round(s)", "ceil(w)", "floor(s)",
    "sign(w)", "isnan(w)", "degrees(w)", "log10(w)", "power(w, 2)", "atan2(w, i)", "lower(b)", "upper(x)",
    "initcap(b)", "length(b)", "trim(b)", "concat(s, b)", "s || b", "hex(b)", "ascii(x)", "replace(b, 'r', 'x')",
    "instr(b, 'u')", "startswith(b, 't')", "url_encode(b)", "reverse(b)", "translate(b, 'r', x)", "substring(s, l)",
    "substring(s, d, 1.7)", "repeat(s, d)", "repeat(s, w)", "repeat(s, least(l, 3L))", "lpad(s, least(p, 7), '0')",
    "left(s, d)", "right(s, w)", "split_part(s, '-', w)", "locate('2', s, d)", "overlay(s, 'zz', p)", "date_add(y, w)",
    "date_sub(y, '1')", "add_months(y, d)", "add_months(y, w)", "make_date(2024, p, w)", "make_date(l, 1, 1)",
    "slice(n, w, d)", "shiftleft(i, l)", "shiftright(l, d)", "bit_get(i, l)", "width_bucket(w, 0, 9, 3)",
    "conv(i, 10.5D, '2')", "elt(l, s, 'z')", "elt(d, s, 'z')", "get(n, l)", "convert_timezone('Europe/Berlin', t)",
    "convert_timezone('UTC', 'Asia/Tokyo', y)", "convert_timezone('UTC', 'Asia/Tokyo', t)", "months_between(y, t)",
    "concat_ws('-', b, x)", "contains(b, 'u')", "m.x", "m.X", "r.h.k", "to_json(struct(i, r.*))", "hash(i, r.*)",
    "concat_ws('-', c, i, b)", "concat_ws('-', c, n)", "struct(r.h.*, 1 AS z).k", "coalesce(r.h.*, s)",
    "CAST(t - u AS BIGINT)", "CAST(t - u AS INT)", "CAST(t - u AS TINYINT)", "CAST(y - DATE '2024-01-01' AS INT)",
    "CAST(CAST(i AS INTERVAL DAY) AS STRING)", "CAST(CAST(l AS INTERVAL SECOND) AS STRING)",
    "CAST(CAST(i AS INTERVAL DAY TO SECOND) AS STRING)", "CAST(CAST(i AS INTERVAL HOUR TO MINUTE) AS STRING)",
    "t + CAST(i AS INTERVAL DAY TO HOUR)", "y + CAST(i AS INTERVAL YEAR TO MONTH)",
    "t + CAST(i AS INTERVAL HOUR)", "y + CAST(i AS INTERVAL MONTH)", "y + i::INTERVAL YEAR",
    "CAST(CAST(t - u AS INTERVAL DAY) AS STRING)", "CAST(CAST(t - u AS INTERVAL HOUR TO MINUTE) AS STRING)",
    "CAST(CAST(t - u AS INTERVAL SECOND) AS STRING)", "t - u > CAST(1 AS INTERVAL DAY)",
    "CAST(INTERVAL '1-5' YEAR TO MONTH AS INT) + i",
    "CAST(CAST(INTERVAL '1-5' YEAR TO MONTH AS INTERVAL YEAR) AS STRING)", "CAST(CAST(l AS INTERVAL YEAR) AS STRING)",
    "i + y", "1 + y", "CAST(i AS TINYINT) + y", "CAST(t - '2024-03-01' AS STRING)", "CAST('2024-03-01' - t AS STRING)",
    "CAST(y - '2024-03-01' AS STRING)", "CAST('2024-03-01' - y AS STRING)", "t - s > INTERVAL 1 DAY",
    "decode(s, 'UTF-8')", "decode(w, 'UTF-16BE')", "y + INTERVAL 24 HOURS", "y - INTERVAL '1 00' DAY TO HOUR",
    "INTERVAL 24 HOURS + y", "y + INTERVAL 1 DAY", "struct(m['x'])", "array(r)['g']", "array(r, r)['h'].k",
    "s IS NOT DISTINCT FROM w", "try_add(s, 1)", "try_divide(s, 2)", "try_subtract(1, s)", "try_mod(s, i)",
    "try_multiply(s, 2.5D)", "try_add(w, i)",
    "CAST(CAST(w AS INTERVAL DAY) AS STRING)", "CAST(TRY_CAST(s AS INTERVAL YEAR) AS STRING)",
    "t + CAST('1 02:03:04.5' AS INTERVAL DAY TO SECOND)", "t - TRY_CAST(s AS INTERVAL HOUR)",
    "y + CAST('-1-2' AS INTERVAL YEAR TO MONTH)", "t + CAST(p AS INTERVAL SECOND)", "y + CAST(p AS INTERVAL MONTH)",
    "CAST(t - u AS DECIMAL(20, 6))", "TRY_CAST(t - u AS TINYINT)", "TRY_CAST(t - u AS DECIMAL(4, 1))",
    "t + TRY_CAST(l AS INTERVAL DAY)", "y + TRY_CAST(i AS INTERVAL MONTH)", "t + CAST(NULL AS INTERVAL DAY)",
    "t - u > CAST(NULL AS INTERVAL DAY TO SECOND)", "y - CAST(NULL AS INTERVAL YEAR TO MONTH)",
    "CAST(CAST(NULL AS INTERVAL HOUR) AS STRING)", "CAST(TRY_CAST(NULL AS INTERVAL MONTH) AS INT)",
    "CASE WHEN b THEN t - u ELSE CAST(NULL AS INTERVAL DAY TO SECOND) END > INTERVAL 1 DAY",
)  # fmt: skip
# Spark refuses these.
REFUSED = (
    "timestamp_millis(w)", "timestamp_micros(d)", "timestamp_seconds(w)", "date_add(y, l)", "date_sub(y, d)",
    "element_at(n, l)", "array_repeat(s, l)", "n[d]", "n[w]", "soundex(i)", "mask(i)", "json_array_length(i)",
    "unix_timestamp(i)", "md5(i)", "unix_date(i)", "unix_seconds(i)", "concat_ws('-', c, r)", "concat_ws('-', m)",
    "upper(n)", "sqrt(b)", "chr(b)", "from_unixtime(t)", "CAST(d AS INTERVAL DAY)", "NOT i", "sqrt(x)", "i AND b",
    "CAST(t - u AS DOUBLE)", "convert_timezone('UTC', i)", "~d", "bit_count(d)",
    "y + l", "y - 1L", "l + y", "sequence(s, s)", "s + NULL", "NULL * t", "bitmap_count(NULL)",
)  # fmt: skip
# Spark takes these: they go to another host.
ONLY_SPARK = (
    "CAST(NULL AS INTERVAL)", "CAST(s AS INTERVAL)", "CAST(CAST(p AS DECIMAL(38, 18)) AS INTERVAL DAY)",
    "instr(s, 'a', 1)", "instr(s, 'a', 1, 2)", "format_number(d, '#,###.00')",
    "ceil(p, 1)", "floor(d, 1)", "trim(x)", "lpad(x, 3)", "to_json(r, map('ignoreNullFields', 'false'))",
    "make_timestamp(y)", "concat_ws('-')", "format_string('a')",
    "size(NULL)", "from_json(s, '{\"type\":\"struct\",\"fields\":[]}')",
    "schema_of_json('[{\"col\":01}]', map('allowNumericLeadingZeros', 'true'))", "NOT w", "array_max(NULL)",
    "sequence(i, w)", "sequence(1, NULL)", "y + NULL", "n[NULL]", "array_join(NULL, ',')", "s + INTERVAL 1 DAY",
    "t - NULL > INTERVAL 1 DAY", "arrays_zip(n, NULL)", "months_between(t, u, s)",
    "transform(array(r), r -> struct(r.*))", "try_add(s, i / i)",
)  # fmt: skip


def _rows() -> pa.Table:
    return pa.table({n: pa.array(values, parse_type(kind).arrow) for n, (kind, values) in COLUMNS.items()})


def _planned(texts: tuple[str, ...]) -> list[Any]:
    return plan_expressions(tuple(kind for kind, _ in COLUMNS.values()), list(texts), list(COLUMNS))


def compared(session: Any) -> list[str]:
    """The differences between the two engines, a line each."""
    kinds, names = tuple(kind for kind, _ in COLUMNS.values()), list(COLUMNS)
    session.conf.set("spark.sql.session.timeZone", TIME_ZONE)
    rows = _rows()
    different, duck = [], Duck(rows)
    spark = Spark(session, rows, kinds, names)
    for text, planned, theirs in zip(TEXTS, _planned(TEXTS), spark.evaluate(list(TEXTS)), strict=True):
        if isinstance(planned, HeadraceError) or not isinstance(theirs, Outcome):
            different.append(f"{text}: {planned} here, {theirs} in Spark")
        else:
            different += [f"{text}: {line}" for line in differences(duck.evaluate(*planned), theirs, rows)]
    different += [
        f"{text}: Spark does not refuse it" for text, found in _each(spark, REFUSED) if isinstance(found, Outcome)
    ]
    different += [
        f"{text}: {found} in Spark" for text, found in _each(spark, ONLY_SPARK) if not isinstance(found, Outcome)
    ]
    return different


def _each(spark: Spark, texts: tuple[str, ...]) -> list[tuple[str, Outcome | str]]:
    return list(zip(texts, spark.evaluate(list(texts)), strict=True))


@pytest.mark.spark
def test_implicit_casts_agree_with_spark(spark_of_the_run: Any) -> None:
    different = compared(session_for_fuzzing(spark_of_the_run))
    assert not different, "\n".join(different)


@pytest.mark.parametrize("text", REFUSED)
def test_what_spark_does_not_cast_is_refused_as_a_mistake(text: str) -> None:
    (problem,) = _planned((text,))
    assert isinstance(problem, HeadraceError)
    assert problem.code in ("TYPE_MISMATCH", "WRONG_ARGUMENTS"), problem


@pytest.mark.parametrize("text", ONLY_SPARK)
def test_a_call_that_only_spark_takes_goes_to_another_host(text: str) -> None:
    (problem,) = _planned((text,))
    assert isinstance(problem, HeadraceError)
    assert problem.code == "UNSUPPORTED_ON_SHARED", problem


@pytest.mark.parametrize("text", TEXTS)
def test_the_shared_host_takes_implicit_casts(text: str) -> None:
    (planned,) = _planned((text,))
    assert not isinstance(planned, HeadraceError), planned
