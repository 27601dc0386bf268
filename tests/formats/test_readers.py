"""headrace reads the input that the readers of pyarrow and Spark accept, with the same result."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.formats import FORMATS
from headrace.model.schema import Field, Schema, parse_type
from tests.formats.test_json import same

TYPES = {
    "i": "BIGINT", "d": "DOUBLE", "s": "STRING", "b": "BOOLEAN", "l": "ARRAY<BIGINT>",
    "o": "STRUCT<x: BIGINT, y: STRING>",
}  # fmt: skip
FLAT = {k: v for k, v in TYPES.items() if k in "ids"}


def schema(types: dict[str, str]) -> Schema:
    return Schema(tuple(Field(n, parse_type(t)) for n, t in types.items()))


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\x00"), max_size=12)
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "i": st.none() | st.integers(-(2**63), 2**63 - 1),
        "d": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "s": st.none() | WORDS, "b": st.none() | st.booleans(),
        "l": st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=3),
        "o": st.none()
        | st.fixed_dictionaries({}, optional={"x": st.none() | st.integers(-9, 9), "y": st.none() | WORDS}),
        "extra": st.integers(),
    },
)  # fmt: skip


@settings(deadline=None, max_examples=80)
@given(st.lists(ROWS, min_size=1, max_size=8), st.booleans())
def test_json_is_read_as_pyarrow_reads_it(rows: list[dict[str, Any]], ascii_only: bool) -> None:
    data = "".join(json.dumps(r, ensure_ascii=ascii_only) + "\n" for r in rows).encode()
    s = schema(TYPES)
    options = pa_json.ParseOptions(explicit_schema=s.arrow, unexpected_field_behavior="ignore")
    expected = pa_json.read_json(io.BytesIO(data), parse_options=options)
    decoded = FORMATS["json"].make(s, {}).decode(data, range(len(s)), "o", 0)
    assert len(decoded.bad) == 0
    for i, field in enumerate(s):
        assert same(decoded.columns[i].to_pylist(), expected.column(field.name).to_pylist()), field.name


@settings(deadline=None, max_examples=80)
@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), WORDS), min_size=1, max_size=8))
def test_csv_is_read_as_pyarrow_reads_it(rows: list[tuple[int, float, str]]) -> None:
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerows(rows)
    data = out.getvalue().encode()
    s = schema(FLAT)
    expected = pa_csv.read_csv(
        io.BytesIO(data), read_options=pa_csv.ReadOptions(column_names=list(s.names)),
        convert_options=pa_csv.ConvertOptions(
            column_types=s.arrow, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )  # fmt: skip
    decoded = FORMATS["csv"].make(s, {}).decode(data, range(3), "o", 0)
    assert len(decoded.bad) == 0
    for i in range(3):
        assert same(decoded.columns[i].to_pylist(), expected.column(i).to_pylist())


@pytest.fixture(scope="module")
def spark(spark_of_the_run: Any) -> Any:
    return spark_of_the_run.newSession()


# type -> JSON texts; CSV gets the same without quotes. Spark may refuse some: then nothing is asked of us.
CASES = {
    "BOOLEAN": ["true", "false"],
    "TINYINT": ["127", "-128"],  # Spark's JSON reader wraps 128 round to -128: here it is out_of_range
    "INT": ["0", "-2147483648", "2147483648", "1.0"],
    "BIGINT": ["9223372036854775807", "-9223372036854775808", "9223372036854775808"],
    "FLOAT": ["1.5", "3.4e38", "16777217", "0.1", "1e-46"],
    "DOUBLE": ["0.1", "1e308", "4.9e-324", "123456789012345678901234567890", "1.7976931348623157e308", '"NaN"',
               '"-Infinity"'],
    "STRING": ['"plain"', '"h\u00e9llo \U0001f600"', '"tab\\tquote\\""', '"\\u00e9\\ud83d\\ude00"', "17", "true"],
    "BINARY": ['"aGVsbG8="', '""'],
    "DATE": ['"2024-02-29"', '"1969-12-31"', '"0001-01-01"'],
    "TIMESTAMP": ['"2024-02-29T12:34:56.789Z"', '"2024-02-29T12:34:56+05:30"', '"2024-02-29 12:34:56.123456"',
                  '"1969-12-31T23:59:59Z"'],
    "TIMESTAMP_NTZ": ['"2024-02-29T12:34:56.789"', '"2024-02-29 12:34:56"'],
    "DECIMAL(9,2)": ["1.25", "1.255", "-9999999.99", "12345678.9", "0.005"],
    "DECIMAL(38,10)": ["12345678901234567890.0123456789", "1e-11", "5e10"],
    "ARRAY<INT>": ["[1,2,null]", "[]"],
    "MAP<STRING, DOUBLE>": ['{"a":1.5,"b":null}', "{}"],
    "STRUCT<a: INT, b: STRING>": ['{"b":"x","a":1,"c":2}', "{}"],
}  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize("fmt", ["json", "csv"])
def test_what_spark_accepts_is_read_the_same(spark: Any, tmp_path: Path, fmt: str) -> None:
    compared = 0
    for kind, texts in CASES.items():
        if fmt == "csv" and ("<" in kind or kind == "BINARY"):
            continue
        s = Schema((Field("k", parse_type("INT")), Field("v", parse_type(kind))))
        plain = [json.loads(t) if t.startswith('"') else t for t in texts]
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.{fmt}"
        if fmt == "json":
            path.write_text("".join(f'{{"k":{i},"v":{t}}}\n' for i, t in enumerate(texts)), encoding="utf-8")
        else:
            out = io.StringIO(newline="")
            csv.writer(out, lineterminator="\n").writerows(enumerate(plain))
            path.write_text(out.getvalue(), encoding="utf-8")
        reader = spark.read.schema(s.ddl)
        frame = reader.json(str(path)) if fmt == "json" else reader.option("escape", '"').csv(str(path))
        theirs = frame.toArrow().sort_by("k").column("v").cast(s[1].type.arrow).to_pylist()
        column: pa.Array[Any] = FORMATS[fmt].make(s, {}).decode(path.read_bytes(), [0, 1], "o", 0).columns[1]
        for text, mine, spark_value in zip(texts, column.to_pylist(), theirs, strict=True):
            if spark_value is not None:
                assert same(mine, spark_value), (kind, text, mine, spark_value)
                compared += 1
    assert compared > 25
