"""The page "Differences from Spark", case by case: what Spark reads, what headrace reads, and that the option on the
page gives Spark's behavior."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import HeadraceError
from headrace.formats import FORMATS
from headrace.model.definitions import PipelineDef, SinkDef, StreamDef
from headrace.model.program import Expression, Meaning, PipelineProgram, Ring0Program
from headrace.model.schema import Field, Schema, View, parse_type
from tests.formats.test_json import same
from tests.ring0.tasks import Sent, task

Rows = list[tuple[Any, ...]]
INF, NAN, MARK = float("inf"), float("nan"), "\ufffd"


@dataclass(frozen=True)
class Case:
    """One difference. `way` are the options that give Spark's rows; None if there are none."""

    name: str
    fmt: str
    types: str  # with ; between
    data: str | bytes
    spark: Rows
    ours: Rows | str  # or the code of an error
    way: dict[str, str] | None = None
    options: dict[str, str] = field(default_factory=dict)  # for both, under Spark's name
    theirs: dict[str, str] = field(default_factory=dict)  # for Spark alone


def day(year: int, month: int = 1, of: int = 1) -> dt.date:
    return dt.date(year, month, of)


def moment(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.UTC)  # type: ignore[misc,arg-type]


def column(*values: Any) -> Rows:
    return [(v,) for v in values]


NONE2: tuple[None, None] = (None, None)
CASES = [
    Case("csv-quoted-empty", "csv", "STRING; INT", '"",1\n,2\n', [(None, 1), (None, 2)], [("", 1), (None, 2)]),
    Case("csv-text-after-quote", "csv", "STRING; STRING", '"a"b,2\nc,d\n', [('"a"b', "2"), ("c", "d")], [("c", "d")]),
    Case("csv-open-quote", "csv", "STRING; STRING", '"abc,3\nc,d\n', [("abc,3", None), ("c", "d")], [("c", "d")]),
    Case("csv-doubled-quote", "csv", "STRING; INT", '"a""b",1\n', [('"a""b"', 1)], [('a"b', 1)]),
    Case("csv-escape", "csv", "STRING; INT", '"a\\"b",1\n"c\\\\d",2\n', [('a"b', 1), ("c\\d", 2)], [("c\\\\d", 2)],
         {"escape": "\\"}),
    Case("csv-blank-after-quote", "csv", "STRING; INT", '"a" ,1\nb,2\n', [("a", 1), ("b", 2)], [("b", 2)]),
    Case("csv-field-count", "csv", "INT; INT", "1\n2,3,4\n5,6\n", [(1, None), (2, 3), (5, 6)], [(5, 6)],
         {"mode": "PERMISSIVE"}),
    Case("csv-header-names", "csv", "INT; INT", "b,a\n1,2\n", [(1, 2)], "HEADER_MISMATCH", None, {"header": "true"}),
    Case("csv-blank-line", "csv", "STRING; STRING", "a,b\n  \nc,d\n", [("a", "b"), ("c", "d")],
         [("a", "b"), ("  ", None), ("c", "d")], None, {"mode": "PERMISSIVE"}),
    Case("csv-carriage-return", "csv", "INT; INT", "1,2\r3,4\r", [(1, 2), (3, 4)], [], {"record_delimiter": "\\r"}),
    Case("csv-not-utf8", "csv", "STRING; INT", b"a\xffb,1\n", [(f"a{MARK}b", 1)], [(None, 1)], {"utf8": "replace"}),
    Case("csv-binary", "csv", "BINARY", "aGk=\nhi\n", column(b"aGk=", b"hi"), column(b"hi", None), {"binary": "raw"}),
    Case("csv-number-spellings", "csv", "DOUBLE", " 1.5\n1.5 \n1.5d\n1.5F\n0x1p3\n+NaN\n",
         column(1.5, 1.5, 1.5, 1.5, 8.0, NAN), column(*[None] * 6)),
    Case("csv-nan-spellings", "csv", "DOUBLE", "nan\ninf\n+Inf\nINF\ninfinity\n", column(*[None] * 5),
         column(NAN, INF, INF, INF, INF)),
    Case("csv-decimal-commas", "csv", "DECIMAL(9,2)", '"1,000"\n', column(Decimal("1000.00")), column(None)),
    Case("csv-other-digits", "csv", "INT", "\u0663\n", column(3), column(None)),
    Case("date-spellings", "csv", "DATE", "2024-1-2\n2024\n2024-02\n2024-01-01T10:00\n 2024-01-01\n",
         column(day(2024, 1, 2), day(2024), day(2024, 2), day(2024), day(2024)), column(*[None] * 5)),
    Case("timestamp-spellings", "csv", "TIMESTAMP",
         "2024-2-9 1:2:3\n2024\n2024-02\n2024-02-29T12\n2024-02-29 12:34:56.1234567891\n 2024-02-29\n",
         column(moment(2024, 2, 9, 1, 2, 3), moment(2024, 1, 1), moment(2024, 2, 1), moment(2024, 2, 29, 12),
                moment(2024, 2, 29, 12, 34, 56, 123456), moment(2024, 2, 29)), column(*[None] * 6)),
    Case("timestamp-zones", "csv", "TIMESTAMP",
         "2024-02-29 12:34:56 UTC\n2024-02-29 12:34:56 Europe/Berlin\n2024-02-29 12:34:56+1\n",
         column(moment(2024, 2, 29, 12, 34, 56), *[moment(2024, 2, 29, 11, 34, 56)] * 2), column(*[None] * 3)),
    Case("timestamp-oddities", "csv", "TIMESTAMP",
         "2024-02-29 12:34:56 +01:00\n2024-02-29 12:34:56GMT+1\n2024-02-29 12:34:56.\n",
         column(*[moment(2024, 2, 29, 11, 34, 56)] * 2, moment(2024, 2, 29, 12, 34, 56)), column(*[None] * 3)),
    Case("timestamp-session-zone", "csv", "TIMESTAMP", "2024-02-29 12:34:56\n", column(moment(2024, 2, 29, 3, 34, 56)),
         column(moment(2024, 2, 29, 12, 34, 56)), theirs={"timeZone": "Asia/Tokyo"}),
    Case("date-years", "csv", "DATE", "12024-01-02\n+12024-01-02\n0000-01-01\n-0001-01-01\n",
         column(3672149, 3672149, -719528, -719893), column(*[None] * 4)),
    Case("timestamp-years", "csv", "TIMESTAMP", "12024-01-02\n0000-01-01\n",
         column(317273673600000000, -62167219200000000), column(None, None)),
    Case("json-date-days", "json", "DATE", '{"c0":"1"}\n', column(day(1970, 1, 2)), column(None)),
    Case("json-bad-base64", "json", "BINARY; INT", '{"c0":"1","c1":1}\n', [NONE2], [(None, 1)]),
    Case("json-bad-record", "json", "INT; STRING", '{"c0":1,"c1":"a"}\n{"c0":2\nnonsense\n7\n{"c0":"x","c1":"b"}\n',
         [(1, "a"), NONE2, NONE2, NONE2, (None, "b")], [(1, "a"), (None, "b")], {"mode": "PERMISSIVE"}),
    Case("json-array", "json", "INT", '[{"c0":5},{"c0":6}]\n{"c0":1}\n', column(5, 6, 1), column(1)),
    Case("json-after-object", "json", "INT", '{"c0":2} x\n{"c0":3}{"c0":4}\n{"c0":1}\n', column(2, 3, 1), column(1)),
    Case("json-single-quotes", "json", "INT", "{'c0':1}\n{\"c0\":2}\n", column(1, 2), column(2)),
    Case("json-carriage-return", "json", "INT", '{"c0":1}\r{"c0":2}\r', column(1, 2), []),
    Case("json-not-utf8", "json", "STRING; INT", b'{"c0":"a\xffb","c1":1}\n', [NONE2], [(None, 1)]),
    Case("json-half-surrogate", "json", "STRING", '{"c0":"x\\ud800"}\n', column("x?"), column(None)),
    Case("json-tinyint", "json", "TINYINT", '{"c0":128}\n', column(-128), column(None)),
    Case("json-nan-spellings", "json", "DOUBLE", '{"c0":"nan"}\n{"c0":"INF"}\n{"c0":"inf"}\n', column(*[None] * 3),
         column(NAN, INF, INF)),
    Case("json-decimal-commas", "json", "DECIMAL(9,2)", '{"c0":"1,000"}\n', column(Decimal("1000.00")), column(None)),
    Case("json-epoch", "json", "TIMESTAMP", '{"c0":1709210096}\n', column(moment(2024, 2, 29, 12, 34, 56)),
         column(None), {"timestamp_format": "epoch_s"}),
    Case("json-struct-parts", "json", "STRUCT<a: INT, b: STRING>", '{"c0":{"a":"x","b":"y"}}\n',
         column({"a": None, "b": "y"}), column(None)),
    Case("json-equal-map-keys", "json", "MAP<STRING, INT>", '{"c0":{"a":1,"a":2}}\n', column([("a", 1), ("a", 2)]),
         column([("a", 2)])),
    Case("json-depth", "json", "INT", '{"c0":1,"x":' + "[" * 300 + "]" * 300 + '}\n{"c0":2}\n', column(1, 2),
         column(2)),
    Case("json-long-number", "json", "DOUBLE", '{"c0":' + "1" * 1200 + "}\n", column(None), column(INF)),
]  # fmt: skip


def schema(types: str) -> Schema:
    return Schema(tuple(Field(f"c{i}", parse_type(t.strip())) for i, t in enumerate(types.split(";"))))


def raw(case: Case) -> bytes:
    return case.data if isinstance(case.data, bytes) else case.data.encode()


def read_here(case: Case, options: dict[str, str]) -> Rows | str:
    declared = schema(case.types)
    try:
        fmt = FORMATS[case.fmt].make(declared, {**case.options, **options})
        begin = fmt.preamble(raw(case), True, True).passed
        decoded = fmt.decode(raw(case)[begin:], range(len(declared)), "o", begin)
    except HeadraceError as problem:
        return problem.code
    return list(zip(*(c.to_pylist() for c in decoded.columns.values()), strict=True))


@pytest.fixture(scope="module")
def spark(spark_of_the_run: Any) -> Any:
    return spark_of_the_run.newSession()


def read_by_spark(spark: Any, place: Path, case: Case) -> Rows:
    path = place / case.name
    path.write_bytes(raw(case))
    reader = spark.read.schema(schema(case.types).ddl).options(**case.options, **case.theirs)
    table = reader.csv(str(path)) if case.fmt == "csv" else reader.json(str(path))
    found: Any = table.toArrow()
    return list(zip(*map(values_of, found.columns), strict=True))


def values_of(column: Any) -> list[Any]:
    """Days and microseconds of dates and times that Python's datetime cannot represent."""
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except (OverflowError, ValueError):
        return column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64()).to_pylist()  # type: ignore[no-any-return]


def alike(one: Rows | str, other: Rows | str) -> bool:
    return same([list(r) for r in one], [list(r) for r in other]) if not isinstance(one, str) else one == other


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_what_is_read_here_is_what_the_page_says(case: Case) -> None:
    assert alike(read_here(case, {}), case.ours)
    assert not alike(case.ours, case.spark)
    if case.way is not None:
        assert alike(read_here(case, case.way), case.spark)


@pytest.mark.spark
def test_spark_reads_each_case_as_the_page_says(spark: Any, tmp_path: Path) -> None:
    found = {case.name: read_by_spark(spark, tmp_path, case) for case in CASES}
    assert {c.name: found[c.name] for c in CASES if not alike(found[c.name], c.spark)} == {}


@pytest.mark.spark
def test_a_time_alone_is_today_in_spark_and_a_bad_value_here(spark: Any, tmp_path: Path) -> None:
    case = Case("time", "csv", "TIMESTAMP", "12:34:56\nT12:34\n", [], column(None, None))
    assert read_here(case, {}) == case.ours
    assert all(found.minute == 34 for (found,) in read_by_spark(spark, tmp_path, case))


def test_an_empty_field_in_quotes_is_a_bad_value_of_other_types_than_string() -> None:
    found = FORMATS["csv"].make(schema("INT; STRING"), {}).decode(b'"",""\n,\n', [0, 1], "o", 0)
    assert found.bad.counts() == {"bad_integer": 1}


def test_the_page_lists_these_cases_and_their_options() -> None:
    text = (Path(__file__).parents[2] / "docs" / "differences.md").read_text(encoding="utf-8")
    listed = {name: set(re.findall(r"`(\w+) = ", options)) for options, name in _listed(text)}
    assert listed == {c.name: set(c.way or ()) for c in CASES}


def _listed(text: str) -> list[tuple[str, str]]:
    """(the cell with the options, the name of the case) of every row of the tables."""
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if re.search(r"\| `[\w-]+` \|$", line)]
    return [(row[-2], row[-1].strip(" `")) for row in cells]


BAD = {
    "csv": "1,2,a\n3\n4,5,b,6\nx,7,c\n8,9,d\n",
    "json": '{"c0":1,"c1":2,"c2":"a"}\n{"c0":3\n[1]\n\n{"c0":"x","c1":7,"c2":"c"}\n{"c0":8,"c1":9,"c2":"d"}\n',
}


def run(fmt: str, mode: str, **options: str) -> Sent:
    declared = schema("INT; INT; STRING")
    stream = StreamDef("s", declared, None, 0, "files", fmt, {"mode": mode, **options})
    outputs = tuple(Expression(f.name, f.type, f.name) for f in declared)
    program = PipelineProgram("s", View.all(), Ring0Program(None, outputs), None, declared, Meaning())
    pipeline = PipelineDef("p", 1, (SinkDef("out", "memory", {}),), program, 1)
    return task([pipeline], BAD[fmt].encode(), declared=stream)


@pytest.mark.spark
@pytest.mark.parametrize("fmt", ["csv", "json"])
def test_modes_mean_what_they_mean_in_spark(spark: Any, tmp_path: Path, fmt: str) -> None:
    (tmp_path / "f").write_text(BAD[fmt])
    reader = spark.read.schema("c0 INT, c1 INT, c2 STRING")
    for mode in ("PERMISSIVE", "DROPMALFORMED", "FAILFAST"):
        theirs = getattr(reader.option("mode", mode), fmt)(str(tmp_path / "f"))
        sent = run(fmt, mode)
        if mode == "FAILFAST":
            with pytest.raises(Exception, match="FAILFAST"):
                theirs.toArrow()
            assert "[BAD_RECORD]" in sent.errors[1]
        else:
            assert sent.rows[1] == theirs.toArrow().to_pylist()
            assert not sent.errors
