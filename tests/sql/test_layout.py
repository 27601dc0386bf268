"""Formatting a script: the same tokens, comments kept, and nothing left to format."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.sql import parse_script
from headrace.sql.parse.layout import formatted

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(
    [*(ROOT / "examples").rglob("*.sql"), *(ROOT / "src").rglob("*.sql"), *(ROOT / "tests" / "sql").rglob("*.sql")]
)


def without_case_and_space(text: str) -> str:
    return re.sub(r"\s+", "", text).lower()


def test_every_script_of_the_repository_is_formatted_once_and_means_the_same() -> None:
    assert len(SCRIPTS) > 20
    for path in SCRIPTS:
        text = path.read_text(encoding="utf-8")
        try:
            before = parse_script(text)
        except HeadraceError:
            continue
        made = formatted(text)
        assert without_case_and_space(made) == without_case_and_space(text), path
        assert formatted(made) == made, path
        assert [type(s) for s in parse_script(made)] == [type(s) for s in before], path


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("select a as `Select`,'From  where' from s", "SELECT a AS `Select`, 'From  where'\nFROM s\n"),
        ("select window.end, left(a,2), -1, a - -1 from s", "SELECT window.end, left(a, 2), -1, a - -1\nFROM s\n"),
        ("select a -- why\n, b from s", "SELECT a -- why\n, b\nFROM s\n"),
        (
            "select first(a), replace(a,'x','y'), json, last from s",
            "SELECT first(a), replace(a, 'x', 'y'), json, last\nFROM s\n",
        ),
        ("alter pipeline p set(a=1); select set from s", "ALTER PIPELINE p SET (a = 1);\n\nSELECT set\nFROM s\n"),
        (
            "create pipeline p into spark reader, spark as select reader from s",
            "CREATE PIPELINE p INTO SPARK READER, spark AS\n  SELECT reader\n  FROM s\n",
        ),
        ("stop pipeline p now; drop sink o", "STOP PIPELINE p NOW;\n\nDROP SINK o\n"),
        ("", ""),
        ("/* a /* b */ c */ select a from s", "/* a /* b */ c */\nSELECT a\nFROM s\n"),
        ("-- only this", "-- only this\n"),
        ("select a from s where b in(1,2) and c<3", "SELECT a\nFROM s\nWHERE b IN (1, 2) AND c < 3\n"),
    ],
)
def test_what_is_quoted_or_a_name_stays_as_it_is(text: str, made: str) -> None:
    assert formatted(text) == made
    assert formatted(made) == made


def test_literals_with_a_prefix_stay_one_literal() -> None:
    text = "SELECT a FROM s WHERE b = X'AB' AND a RLIKE r'^\\d+$'"
    assert without_case_and_space(formatted(text)) == without_case_and_space(text)
    assert "X'AB'" in formatted(text) and "r'^\\d+$'" in formatted(text)
