"""Error cases: the SQL in each file of errors/ must fail with the code and at the position in its header."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.errors import HeadraceError, ScriptErrors, SqlError
from headrace.sql import parse_script
from tests.sql.support import REWRITE, apply_script, golden_files

ERRORS = golden_files("errors")
_HEADER = re.compile(r"-- error: (\w+)\n-- at: (.*)\n")


@pytest.mark.parametrize("path", ERRORS, ids=lambda p: p.stem)
def test_the_script_fails_with_the_code_and_position_of_its_header(path: Path) -> None:
    text = path.read_text("utf-8")
    header = _HEADER.match(text)
    assert header is not None, "a case starts with `-- error: CODE` and `-- at: line:column`"
    body = text[header.end() :]
    with pytest.raises(HeadraceError) as caught:
        apply_script(body)
    assert caught.value.code == header[1]
    assert path.stem.startswith(header[1].lower()), "the file is named after its code"
    place = _place(caught.value)
    if REWRITE:
        path.write_text(f"-- error: {header[1]}\n-- at: {place}\n{body}", "utf-8")
    else:
        assert place == header[2]


def _place(problem: HeadraceError) -> str:
    if isinstance(problem, ScriptErrors):
        return ", ".join(f"{e.code} {_place(e)}" for e in problem.errors)
    assert problem.span is not None, "an SQL error has a position"
    return f"{problem.span.line}:{problem.span.column}"


@pytest.mark.parametrize("path", ERRORS, ids=lambda p: p.stem)
def test_every_error_says_what_to_do(path: Path) -> None:
    with pytest.raises(SqlError) as caught:
        apply_script(path.read_text("utf-8"))
    problems = caught.value.errors if isinstance(caught.value, ScriptErrors) else (caught.value,)
    for problem in problems:
        if problem.code != "SYNTAX_ERROR":
            assert problem.advice
        assert "^" in problem.render()


# The hub raises these, or they need a clock: other tests cover them.
_ELSEWHERE = {
    "ALREADY_EXISTS", "SPARK_REFUSED", "BAD_NAME", "HUB_NOT_RUNNING", "IN_USE", "NO_SINK", "PLANNING_TIMEOUT",
    "RECURSIVE_VIEW", "STREAM_IDLE", "UNKNOWN_PIPELINE", "UNKNOWN_VIEW", "CYCLIC_STREAMS", "UNFINISHED_ROWS",
    "SCHEMA_CHANGED",
}  # fmt: skip


def test_every_error_code_of_the_planner_has_a_case() -> None:
    found = {path.stem.partition("-")[0].upper() for path in ERRORS}
    assert _codes(SqlError) - _ELSEWHERE <= found


def _codes(kind: type[HeadraceError]) -> set[str]:
    return {code for child in kind.__subclasses__() for code in (child.code, *_codes(child))}


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("SELECT k FROM s WHRE v > 1", "WHERE"),
        ("SELECT k, count(*) FROM s GRUOP BY k", "GROUP"),
        ("SELECT count(*) AS n FROM s t HAVNG n > 1", "HAVING"),
    ],
)
def test_a_misspelt_clause_is_recognized_although_it_reads_like_an_alias(query: str, hint: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse_script(query)
    assert caught.value.code == "SYNTAX_ERROR"
    assert f"Did you mean {hint}?" in caught.value.advice
