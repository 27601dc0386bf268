"""The advice for functions of Spark that the shared host does not have."""

from __future__ import annotations

import re

import pytest

from headrace.errors import HeadraceError
from headrace.sql.functions.instead import _OTHERS as OTHERS
from headrace.sql.functions.instead import instead_of
from tests.sql.functions.harness import plan_expressions
from tests.sql.functions.missing import MISSING, SUPPORTED

# Nothing does the work of these, or they are no functions of rows.
WITHOUT = frozenset(
    ["from_protobuf", "java_method", "measure", "python_worker_logs", "range", "reflect", "sql_keywords", "st_asbinary",
     "st_geogfromwkb", "st_geomfromwkb", "st_setsrid", "st_srid", "to_avro", "to_protobuf", "try_reflect",
     "window_time"]
)  # fmt: skip


def test_every_missing_function_has_an_advice_or_a_reason_to_have_none() -> None:
    assert {name for name in MISSING if instead_of(name) is None} == WITHOUT


def test_the_advice_names_only_functions_that_work() -> None:
    for name in MISSING:
        for called in re.findall(r"\b(\w+)\(", instead_of(name) or ""):
            if called not in ("CAST", "row_number"):  # a syntax of its own, and a rank over the groups of a window
                assert called in SUPPORTED, f"{name}: {called}"


def test_every_function_of_another_database_names_one_that_works() -> None:
    for name, same in OTHERS.items():
        assert name not in MISSING and name not in SUPPORTED, name
        for called in re.findall(r"\b(\w+)\(", same):
            if called not in ("extract", "window", "if", "count", "explode", "boolean", "double"):  # not in the list
                assert called in SUPPORTED, f"{name}: {called}"


@pytest.mark.parametrize(
    ("text", "named"),
    [("strpos(a, 'x')", "instr"), ("iff(a = 'x', 1, 2)", "if()"), ("safe_divide(1, 2)", "try_divide")],
)
def test_a_function_of_another_database_does_not_exist(text: str, named: str) -> None:
    (planned,) = plan_expressions(("STRING",), [text])
    assert isinstance(planned, HeadraceError)
    assert planned.code == "UNKNOWN_FUNCTION" and planned.advice is not None and named in planned.advice


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("parse_json(a)", "from_json"),
        ("make_interval(1)", "make_dt_interval"),
        ("xpath_string(a, 'b')", "regexp_extract"),
        ("user()", "literal"),
    ],
)
def test_the_error_says_what_to_write_instead(text: str, named: str) -> None:
    (planned,) = plan_expressions(("STRING",), [text])
    assert isinstance(planned, HeadraceError)
    assert planned.code == "UNSUPPORTED_ON_SHARED" and planned.advice is not None and named in planned.advice
