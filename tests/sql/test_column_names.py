"""Names and types of columns without an alias, compared with Spark's."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.model.definitions import StreamDef
from headrace.model.program import Meaning
from headrace.model.schema import Field, Schema, parse_type
from headrace.sql import Select, parse_script, plan_pipeline
from headrace.state.catalog import Catalog

COLUMNS = {
    "i": "INT", "l": "BIGINT", "s": "STRING", "d": "DOUBLE", "f": "FLOAT", "m": "DECIMAL(10,2)", "t": "TINYINT",
    "dt": "DATE", "ts": "TIMESTAMP", "a": "ARRAY<INT>", "mp": "MAP<STRING, INT>", "st": "STRUCT<x: INT, y: STRING>",
    "b": "BOOLEAN",
}  # fmt: skip

TEXTS = (
    "i + 1 * 2", "(i + 1) * 2", "-i", "- 5", "i = 1", "i == 1", "i != 1", "i <> 1", "NOT b", "b AND b OR b",
    "i IS NULL", "i IS NOT NULL", "s LIKE 'a%'", "s NOT LIKE 'a%'", "s RLIKE 'a'", "s REGEXP 'a'", "s ILIKE 'a'",
    "i IN (1, 2)", "i NOT IN (1, 2)", "i BETWEEN 1 AND 2", "i NOT BETWEEN 1 AND 2", "CAST(i AS STRING)",
    "CAST(i + 1 AS STRING)", "TRY_CAST(s AS INT)", "i::string", "CASE WHEN i > 1 THEN 'a' ELSE 'b' END",
    "CASE i WHEN 1 THEN 'a' END", "if(i > 1, 'a', 'b')", "'lit'", "1.5", "1.5D", "1e3", "1e10", "2.5e-7", "5L", "2S",
    "DATE '2024-01-31'", "TIMESTAMP '2024-01-31 10:00:00'", "TIMESTAMP_NTZ '2024-01-31 10:00:00'",
    "ts + INTERVAL 1 DAY", "ts + INTERVAL '1' HOUR", "ts - INTERVAL 90 MINUTES", "dt + INTERVAL 1 MONTH",
    "dt - INTERVAL 1 YEAR", "ts + INTERVAL 1.5 SECONDS", "extract(year FROM ts)", "date_part('year', ts)",
    "substring(s FROM 1 FOR 2)", "trim(s)", "trim(BOTH 'x' FROM s)", "trim(LEADING FROM s)", "position('b' IN s)",
    "position('b', s)", "overlay(s PLACING 'a' FROM 1)", "a[0]", "mp['a']", "mp.a", "st.x", "element_at(a, 1)",
    "CAST(i AS INTERVAL DAY) > INTERVAL 1 DAY", "from_unixtime(d)",
    "transform(a, x -> x + 1)", "array(1, i)", "struct(i, s)", "named_struct('p', i)", "map('a', i)", "nvl(i, 2)",
    "nvl2(i, 1, 2)", "ucase(s)", "len(s)", "pow(i, 2)", "power(i, 2)", "ceil(d)", "ceiling(d)", "mod(i, 2)", "i % 2",
    "i DIV 2", "sign(d)", "dateadd(dt, 1)", "date_diff(dt, dt)", "date_format(ts, 'yyyy')", "string(i)", "boolean(i)",
    "regexp_like(s, 'a')", "regexp(s, 'a')", "timestampdiff(SECOND, ts, ts)", "timestampadd(DAY, 1, ts)",
    "split(s, ',')[0]", "round(d)", "round(d, 2)", "round(i)", "round(f)", "round(t)", "i & 1", "~i", "i <=> 1",
    "i << 2", "i >> 1 + 1", "l >>> 2 & 1", "i << 1 << t",
    "s || 'a' || s", "b IS TRUE", "b IS NOT TRUE", "nullif(i, d)", "nullif(m, 1)", "m + NULL", "NULL + m", "m / 3",
    "m / i", "l * m", "m % 2", "m DIV 2", "CAST(m AS DECIMAL(38,18)) * CAST(m AS DECIMAL(38,18))",
    "CAST(m AS DECIMAL(38,2)) + CAST(m AS DECIMAL(38,18))", "CASE WHEN b THEN m ELSE l END", "m + '1.5'", "i + NULL",
    "sqrt(d)", "floor(d)", "atan2(d, d)", "pi()", "isnull(i)", "isnotnull(i)", "ltrim('x', s)", "replace(s, 'a')",
    "unix_timestamp(ts)", "from_unixtime(l)", "months_between(ts, ts)", "regexp_replace(s, 'a', 'b')",
    "regexp_extract(s, '(a)')", "mask(s)", "mask(s, 'Q')", "substring(s, 2)", "substr(s, 2)", "lpad(s, 5)",
    "str_to_map(s)", "sort_array(a)", "s LIKE 'a/%' ESCAPE '/'", "s ILIKE 'a/%' ESCAPE '/'",
    "ts + make_dt_interval(1)", "ts - make_ym_interval(1)", "string(i + 1)",
    "ts + make_interval()", "ts - make_interval(0, 1, 0, i)", "make_interval(0, 1, 2, 3, 4, 5, 6.5) + ts",
    "dt - try_make_interval(i)", "MAKE_INTERVAL(i) + dt", "(ts + make_interval(i)) + try_make_interval(l, 2.0)",
    "string(INTERVAL '1 2' DAY TO HOUR)", "from_json(s, 'x INT')", "from_json(s, 'MAP<STRING, INT>')",
    "s LIKE ANY ('a%', 'b%')", "s NOT LIKE ANY ('a%', 'b%')", "s LIKE ALL ('a%')", "s NOT LIKE ALL ('a%', 'b%')",
    "s ILIKE SOME ('a%', 'B%')", "st['x']", "st['X']", "dt + 1", "dt - 1",
    "timestampadd(day, 1, ts)", "try_make_timestamp(2024, 1, 1, 1, 1, 1, 'UTC')", "hash(X'0a0b')", "array_sort(a)",
    "s LIKE ALL ('a%', NULL)", "from_json(s, 'a INT, b STRING').b", "named_struct('p', i).p", "(st).x",
    "aggregate(a, 0, (p, q) -> p + q)", "to_char(ts, 'yyyy')", "to_char(CAST(s AS BINARY), 'hex')",
    "to_varchar(CAST(s AS BINARY), 'base64')", "to_char(CAST(s AS BINARY), 'utf-8')", "to_varchar(ts, 'yyyy')",
    "coalesce(assert_true(b), 1)", "coalesce(raise_error(s), 1)",
    "count(*)", "count(1)", "sum(i + 1)", "count(DISTINCT i)", "count(i) FILTER (WHERE i > 1)", "avg(m)",
    "percentile(i, 0.5)", "percentile_cont(0.5) WITHIN GROUP (ORDER BY i)", "first(i, true)", "mean(i)", "std(i)",
)  # fmt: skip


@pytest.mark.spark
def test_a_column_without_an_alias_has_sparks_name_and_type(spark_of_the_run: Any) -> None:
    fields = tuple(Field(name, parse_type(kind)) for name, kind in COLUMNS.items())
    names = Catalog().with_stream(StreamDef("v", Schema(fields), 8, 0, "generator", "json", {}))
    session = spark_of_the_run.newSession()
    session.createDataFrame([], ", ".join(f"{n} {k}" for n, k in COLUMNS.items())).createOrReplaceTempView("v")
    different = []
    for text in TEXTS:
        (field,) = session.sql(f"SELECT {text} FROM v").schema.fields
        (statement,) = parse_script(f"SELECT {text} FROM v")
        assert isinstance(statement, Select)
        (ours,) = plan_pipeline(statement, names, Meaning()).program.output.fields
        theirs = (field.name, parse_type(field.dataType.simpleString()))
        if (ours.name, ours.type) != theirs:
            different.append(f"{text}: {ours.name!r} {ours.type} here, {theirs[0]!r} {theirs[1]} in Spark")
    assert not different, "\n".join(different)
