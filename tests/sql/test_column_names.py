"""Names and types of columns without an alias, compared with Spark's: Spark plans them, and runs no job."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError, UnknownType
from headrace.model.definitions import StreamDef
from headrace.model.program import Meaning
from headrace.model.schema import DataType, Field, Schema, parse_type
from headrace.sql import Select, parse_script, plan_on_shared_host
from headrace.sql.functions import ALIASES
from headrace.sql.functions.aggregate_functions import AGGREGATE_ALIASES
from headrace.state.catalog import Catalog
from tests.sql.functions import aggregate_cases
from tests.sql.functions.cases import scalar_cases

COLUMNS = {
    "i": "INT", "l": "BIGINT", "s": "STRING", "d": "DOUBLE", "f": "FLOAT", "m": "DECIMAL(10,2)", "t": "TINYINT",
    "dt": "DATE", "ts": "TIMESTAMP", "nt": "TIMESTAMP_NTZ", "a": "ARRAY<INT>", "mp": "MAP<STRING, INT>",
    "st": "STRUCT<x: INT, y: STRING>", "b": "BOOLEAN", "x": "BINARY", "aas": "ARRAY<STRUCT<x: INT, y: STRING>>",
    "deep": "STRUCT<p: STRUCT<q: INT, r: MAP<STRING, INT>>, z: ARRAY<STRUCT<w: STRING>>>",
    "ms": "MAP<STRING, STRUCT<x: INT>>", "mi": "MAP<INT, STRING>", "am": "ARRAY<MAP<STRING, INT>>", "Big Name": "INT",
    "sa": "ARRAY<STRING>", "k": "STRING",
}  # fmt: skip
PLAIN = "SELECT @ FROM v"
ONE_BY_ONE = "one by one: "
ZONE = "America/New_York"
Columns = list[tuple[str, DataType]]


def expressions(file: str = "column_names.txt") -> dict[str, list[str]]:
    """The expressions of a file by the query around them, where they stand for @."""
    found: dict[str, list[str]] = {}
    for line in (Path(__file__).parent / file).read_text("utf-8").splitlines():
        if line.startswith("== "):
            some = found.setdefault(line.removeprefix("== "), [])
        else:
            some.append(line)
    return found


def columns_here(columns: Mapping[str, str], query: str) -> Columns | str:
    """The columns that our planner gives a query, or why it refuses it."""
    fields = tuple(Field(name, parse_type(kind)) for name, kind in columns.items())
    time = list(columns.values()).index("TIMESTAMP") if "TIMESTAMP" in columns.values() else None
    names = Catalog().with_stream(StreamDef("v", Schema(fields), time, 0, "generator", "json", {}))
    try:
        (statement,) = parse_script(query)
        assert isinstance(statement, Select)
        output = plan_on_shared_host(statement, names, Meaning(time_zone=ZONE)).program.output
    except HeadraceError as problem:
        return str(problem).split("\n")[0]
    return [(field.name, field.type) for field in output.fields]


def columns_in_spark(session: Any, columns: Mapping[str, str], query: str) -> Columns:
    """The columns that Spark gives a query."""
    ddl = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
    session.createDataFrame([], ddl).createOrReplaceTempView("v")
    return columns_over_view(session, query)


def columns_over_view(session: Any, query: str) -> Columns:
    """The columns that Spark gives a query over the view v."""
    return [(field.name, _kind(field.dataType.simpleString())) for field in session.sql(query).schema.fields]


def _kind(text: str) -> DataType:
    """A type of Spark. One that Spark abbreviates is of no use."""
    try:
        return parse_type(text)
    except UnknownType:
        return parse_type("STRUCT<abbreviated: INT>")


def different(session: Any, columns: Mapping[str, str], query: str, texts: Iterable[str]) -> list[str]:
    """How the columns of each expression differ from Spark's, which plans all expressions in one query."""
    texts, together = list(dict.fromkeys(texts)), not query.startswith(ONE_BY_ONE)
    query = query.removeprefix(ONE_BY_ONE)
    theirs = columns_in_spark(session, columns, query.replace("@", ", ".join(texts))) if together else []
    others = len(theirs) - len(texts)  # items before the expressions
    problems = []
    for i, text in enumerate(texts):
        one = query.replace("@", text)
        wanted = [*theirs[:others], theirs[others + i]] if together else columns_in_spark(session, columns, one)
        found = columns_here(columns, one)
        abbreviated = [name for name, kind in wanted if "abbreviated" in str(kind)]
        same_names = not isinstance(found, str) and [name for name, _ in found] == [name for name, _ in wanted]
        if found != wanted and not (abbreviated and same_names):
            problems.append(f"{one}\n  here     {_shown(found)}\n  in Spark {_shown(wanted)}")
    return problems


def _shown(columns: Columns | str) -> str:
    return columns if isinstance(columns, str) else ", ".join(f"{name!r} {kind}" for name, kind in columns)


def test_the_largest_and_smallest_literals_have_names() -> None:
    names = {
        "m + 12345678901234567890123456789012345": "(m + 12345678901234567890123456789012345)",
        "-1234567890123456789012345678901BD": "-1234567890123456789012345678901",
        "-0.0": "0.0",
        "-0BD": "0",
        "nt > TIMESTAMP_NTZ '0000-02-29 01:02:03.4'": "(nt > TIMESTAMP_NTZ '0000-02-29 01:02:03.4')",
        "nt > TIMESTAMP_NTZ '-0005-01-01'": "(nt > TIMESTAMP_NTZ '-0005-01-01 00:00:00')",
        "nt > TIMESTAMP_NTZ '-20005-12-31'": "(nt > TIMESTAMP_NTZ '-20005-12-31 00:00:00')",
        "nt > TIMESTAMP_NTZ '10000-01-01'": "(nt > TIMESTAMP_NTZ '+10000-01-01 00:00:00')",
        "ts > TIMESTAMP '0001-01-01 00:00:00Z'": "(ts > TIMESTAMP '0000-12-31 19:03:58')",
    }
    found = {text: columns_here(COLUMNS, PLAIN.replace("@", text)) for text in names}
    assert {text: c if isinstance(c, str) else c[0][0] for text, c in found.items()} == names


@pytest.fixture
def session(spark_of_the_run: Any) -> Any:
    session = spark_of_the_run.newSession()
    session.conf.set("spark.sql.session.timeZone", ZONE)
    return session


@pytest.mark.spark
def test_a_column_without_an_alias_has_sparks_name_and_type(session: Any) -> None:
    problems = [line for query, texts in expressions().items() for line in different(session, COLUMNS, query, texts)]
    assert not problems, "\n".join(problems)


@pytest.mark.spark
def test_calls_of_all_functions_have_sparks_names_and_types(session: Any) -> None:
    problems = [
        line
        for kinds, texts in calls_by_kinds().items()
        for line in different(session, dict(zip("abcdef", kinds, strict=False)), PLAIN, texts)
    ]
    assert not problems, "\n".join(problems)


def calls_by_kinds() -> dict[tuple[str, ...], list[str]]:
    """A call of each entry of the list and of each alias, by the types of its columns."""
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    known: set[str] = set()
    for case in scalar_cases():
        kinds = tuple(kind.removeprefix("SMALL ") for kind in case.kinds)
        aliases = [alias for alias, name in ALIASES.items() if case.text.startswith(f"{name}(")]
        columns = dict(zip("abcdef", kinds, strict=False))
        for key, text in ((case.key, case.text), *((f"{case.key} {a}", _renamed(case.text, a)) for a in aliases)):
            if key not in known and not isinstance(columns_here(columns, PLAIN.replace("@", text)), str):
                known.add(key)
                found[kinds].append(text)
    return found


def _renamed(text: str, name: str) -> str:
    return re.sub(r"^\w+", name, text)


@pytest.mark.spark
def test_aggregates_have_sparks_names_and_types(session: Any) -> None:
    by_kind: dict[str, list[str]] = defaultdict(list)
    for case in aggregate_cases.cases():
        names = [alias for alias, name in AGGREGATE_ALIASES.items() if case.text.startswith(f"{name}(")]
        by_kind[case.kind] += [case.text, *(_renamed(case.text, name) for name in names)]
    problems = [
        line
        for kind, texts in by_kind.items()
        for line in different(session, {"g": "INT", "t": "TIMESTAMP", "a": kind, "b": "INT"}, PLAIN, texts)
    ]
    assert not problems, "\n".join(problems)
