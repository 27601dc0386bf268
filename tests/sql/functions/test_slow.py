"""What runs Python code for every row says so, in the list of functions and in EXPLAIN."""

from __future__ import annotations

import json
import re

import pytest

from headrace.errors import HeadraceError
from headrace.exec.kernels import KERNELS
from headrace.model.schema import parse_type
from headrace.sql import explain, explain_json
from headrace.sql.functions import FUNCTIONS, names_slow_kernel
from tests.sql.functions.cases import Case, scalar_cases
from tests.sql.functions.harness import plan_expressions
from tests.sql.functions.page import is_slow
from tests.sql.support import plan


def test_every_overload_that_calls_a_slow_kernel_is_marked() -> None:
    marked = {o.key for overloads in FUNCTIONS.values() for o in overloads if is_slow(o)}
    quick = {o.key for overloads in FUNCTIONS.values() for o in overloads if o.key not in marked}
    for case in scalar_cases():
        if case.key not in quick:
            continue
        (planned,) = plan_expressions(case.kinds, [case.text])
        if not isinstance(planned, HeadraceError):
            assert not _slow_kernels(planned[1]) or _is_slow_for(case), case


def test_no_cast_calls_a_slow_kernel() -> None:
    for case in scalar_cases():
        if case.key.startswith("cast("):
            (planned,) = plan_expressions(case.kinds, [case.text])
            assert isinstance(planned, HeadraceError) or not _slow_kernels(planned[1]), case


def _slow_kernels(sql: str) -> set[str]:
    return {name for name in re.findall(r"\bhr_\w+", sql) if names_slow_kernel(name)}


def _is_slow_for(case: Case) -> bool:
    """True if the entry is marked as slow for the types of the case: long decimals."""
    (overload,) = (o for o in FUNCTIONS[case.key.partition("(")[0]] if o.key == case.key)
    return overload.slow_for is not None and overload.slow_for([parse_type(kind) for kind in case.kinds])


@pytest.mark.parametrize(
    ("left", "right", "slow"),
    [("10,2", "10,2", ""), ("18,6", "3,0", ""), ("38,18", "38,18", "+ - * / %"), ("19,2", "19,2", "* /")],
)
def test_arithmetic_is_slow_only_where_the_exact_result_has_too_many_digits(left: str, right: str, slow: str) -> None:
    kinds = (f"DECIMAL({left})", f"DECIMAL({right})")
    for operator in "+-*/%":
        (planned,) = plan_expressions(kinds, [f"a {operator} b"])
        assert not isinstance(planned, HeadraceError)
        (overload,) = (o for o in FUNCTIONS[operator] if o.key == f"{operator}(DECIMAL, DECIMAL)")
        assert overload.slow_for is not None
        marked = overload.slow_for([parse_type(kind) for kind in kinds])
        assert marked == (operator in slow.split()) == bool(_slow_kernels(planned[1])), operator


def test_slow_kernels_are_known_by_name() -> None:
    slow = next(name for name, kernel in KERNELS.items() if kernel.slow)
    fast = next(name for name, kernel in KERNELS.items() if not kernel.slow)
    assert names_slow_kernel(f"length({slow}(c0))")
    assert not names_slow_kernel(f"length({fast}(c0))")


@pytest.mark.parametrize(
    ("query", "slow"),
    [
        ("SELECT soundex(k) AS r FROM s", ["soundex(k)"]),
        ("SELECT k FROM s WHERE k rlike '(?=a)b' AND upper(k) = 'A'", ["(k rlike '(?=a)b')"]),
        ("SELECT k FROM s WHERE k rlike 'a|b'", []),
        ("SELECT sha2(upper(soundex(k)), 512) AS r FROM s", ["sha2(upper(soundex(k)), 512)", "soundex(k)"]),
        ("SELECT sha2(k, 256) AS r FROM s", []),
        ("SELECT CAST(ts AS DECIMAL(20,2)) AS r FROM s", []),
        ("SELECT ts + CAST(k AS INTERVAL DAY) AS r FROM s", ["interval micros(k, 'DAY')"]),
        ("SELECT max(soundex(k)) AS r FROM s GROUP BY window(ts, '1 minute')", ["soundex(k)"]),
    ],
)
def test_explain_lists_the_slow_calls(query: str, slow: list[str]) -> None:
    planned = plan(query)
    assert json.loads(explain_json(planned, None))["slow"] == slow
    lines = [line.strip() for line in explain(planned, None).split("\n")]
    start = [i for i, line in enumerate(lines) if line.startswith("slow ")]
    assert len(start) == (1 if slow else 0)
    assert not slow or lines[start[0] + 1 : start[0] + 1 + len(slow)] == slow
