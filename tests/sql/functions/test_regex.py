"""Java's regular expressions on RE2 and on Python's `re`."""

from __future__ import annotations

import re

import duckdb
import pytest

from headrace.errors import UnsupportedOnShared
from headrace.sql.functions.regex import (
    nullable,
    parse_replacement,
    python_replacement,
    re2_replacement,
    to_python,
    to_re2,
)
from headrace.sql.functions.regex_parser import PatternRefused, parse
from tests.sql.functions.harness import plan_expressions


@pytest.mark.parametrize("pattern", ["(?=a)b", "a++", "(a)\\1", "(?>a)", "(?m)^a", "a$b", "(a*)*", "a{1001}"])
def test_what_re2_lacks_runs_in_python(pattern: str) -> None:
    assert to_re2(parse(pattern), whole_match=False) is None
    assert re.compile(to_python(parse(pattern)))


@pytest.mark.parametrize(
    "pattern",
    ["[a", "(a", "a)", "*a", "a**", "a{,2}", "[z-a]", "[]a]", "[a&&&b]", "\\y", "\\G", "(?u)a", "(?x)a", "(?<=a+)b",
     "\\2(a)", "\\k<n>", "\\p{IsGreek}", "a\\", "(?i)(a)\\1", "[a-\\d]"],
)  # fmt: skip
def test_what_no_engine_can_run_is_refused(pattern: str) -> None:
    with pytest.raises(PatternRefused):
        to_python(parse(pattern))


def test_a_refused_pattern_is_an_error_of_the_statement() -> None:
    (refused,) = plan_expressions(("STRING",), ["a rlike '(?x)a'"])
    assert isinstance(refused, UnsupportedOnShared)


@pytest.mark.parametrize(("pattern", "empty"), [("a$", False), ("b*", True), ("(?:a|)b?", True), ("(?=a)", True)])
def test_patterns_that_may_match_nothing_are_known(pattern: str, empty: bool) -> None:
    assert nullable(parse(pattern).root) is empty


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [("a.c", "a\rc", False), ("a$", "a\n", True), ("^a|b", "xb", True), ("[^x]", "x", False), ("a$", "a\r\n", True),
     ("\\s", "\x0b", True), ("(?i)k", "\u212a", False), ("[\\w-.]", "-", True), ("[a-c&&[^b]]", "b", False)],
)  # fmt: skip
def test_both_engines_find_what_java_finds(pattern: str, text: str, found: bool) -> None:
    fast = to_re2(parse(pattern), whole_match=False)
    assert duckdb.execute("SELECT regexp_matches(?, ?)", [text, fast]).fetchone() == (found,)
    assert (re.search(to_python(parse(pattern)), text) is not None) is found


@pytest.mark.parametrize(
    ("replacement", "fast", "slow"),
    [
        ("$1-$0", "\\1-\\0", "\\g<1>-\\g<0>"),
        ("\\$1", "$1", "$1"),
        ("$12", "\\12", "\\g<1>2"),
    ],
)
def test_replacements_name_groups_as_in_java(replacement: str, fast: str, slow: str) -> None:
    parts = parse_replacement(replacement, parse("(a)(?<n>b)"))
    assert re2_replacement(parts) == fast
    assert python_replacement(parts) == slow


@pytest.mark.parametrize("replacement", ["$3", "$", "${m}", "a\\"])
def test_a_replacement_without_its_group_is_refused(replacement: str) -> None:
    with pytest.raises(PatternRefused):
        parse_replacement(replacement, parse("(a)(?<n>b)"))
