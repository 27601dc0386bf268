"""NULL without a type in every place of every function: what is refused here as a mistake is refused by Spark, too."""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headrace.errors import HeadraceError
from tests.sql.functions.cases import scalar_cases
from tests.sql.functions.harness import plan_expressions
from tests.sql.functions.listed_reasons import arguments
from tests.sql.test_column_names import PLAIN, columns_here, columns_over_view

TOGETHER = 40
# Of nothing but NULL: no sink can store it, on any host.
NO_TYPE = "which no sink can store"


def calls_with_null() -> dict[tuple[str, ...], list[str]]:
    """One call of each entry of the list, with NULL in each place, by the types of its columns."""
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    known: set[str] = set()
    for case in scalar_cases():
        name, opened, _ = case.text.partition("(")
        given = arguments(case.text, len(name) + 1) if opened else []
        if case.key in known or not name.isidentifier() or case.text != f"{name}({','.join(given)})":
            continue
        known.add(case.key)
        kinds = tuple(kind.removeprefix("SMALL ") for kind in case.kinds)
        found[kinds] += [f"{name}({','.join([*given[:i], ' NULL', *given[i + 1 :]])})" for i in range(len(given))]
    return found


def in_spark(session: Any, texts: list[str]) -> list[Any]:
    """The column of each text in Spark, None if Spark refuses it."""
    try:
        return list(columns_over_view(session, PLAIN.replace("@", ", ".join(texts))))
    except (PySparkException, Py4JJavaError):
        if len(texts) == 1:
            return [None]
    middle = len(texts) // 2
    return in_spark(session, texts[:middle]) + in_spark(session, texts[middle:])


@pytest.mark.spark
def test_null_without_a_type_is_taken_as_in_spark_or_left_to_another_host(spark_of_the_run: Any) -> None:
    logging.getLogger("SQLQueryContextLogger").disabled = True
    session, problems = spark_of_the_run.newSession(), []
    for kinds, texts in calls_with_null().items():
        columns = dict(zip("abcdef", kinds, strict=False))
        here = {text: columns_here(columns, PLAIN.replace("@", text)) for text in dict.fromkeys(texts)}
        asked = [
            text
            for text, found in here.items()
            if not isinstance(found, str) or not (found.startswith("[UNSUPPORTED_ON_SHARED]") or NO_TYPE in found)
        ]
        ddl = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        session.createDataFrame([], ddl).createOrReplaceTempView("v")
        taken = [text for text in asked if not isinstance(here[text], str)]
        theirs: dict[str, Any] = {}
        for some, size in ((taken, TOGETHER), ([text for text in asked if text not in taken], 1)):
            for i in range(0, len(some), size):
                theirs.update(zip(some[i : i + size], in_spark(session, some[i : i + size]), strict=True))
        for text, wanted in theirs.items():
            found = here[text]
            kind = None if isinstance(found, str) else found[0][1]
            if kind != (None if wanted is None else wanted[1]) and "abbreviated" not in str(wanted):
                problems.append(f"{text} over {kinds}\n  here     {found}\n  in Spark {wanted}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    "text", ["exists(a, e -> NULL)", "forall(a, e -> NULL)", "filter(a, e -> NULL)", "map_filter(b, (k, v) -> NULL)"]
)
def test_a_condition_of_a_lambda_may_be_null_without_a_type(text: str) -> None:
    (planned,) = plan_expressions(("ARRAY<INT>", "MAP<STRING, INT>"), [text])
    assert not isinstance(planned, HeadraceError), planned


@pytest.mark.parametrize(
    "text",
    [
        "size(array_repeat(NULL, 2))",
        "size(transform(a, e -> NULL))",
        "size(array(NULL))",
        "size(map('x', NULL))",
        "CAST(aggregate(a, NULL, (x, e) -> x) AS INT)",
        "size(sequence(DATE '2024-01-01', NULL))",
        "element_at(b, NULL)",
        "filter(a, true)",
        "CAST(NULL.x AS INT)",
    ],
)
def test_a_null_without_a_type_goes_to_another_host(text: str) -> None:
    (planned,) = plan_expressions(("ARRAY<INT>", "MAP<STRING, INT>"), [text])
    assert isinstance(planned, HeadraceError) and planned.code == "UNSUPPORTED_ON_SHARED"
