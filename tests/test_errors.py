"""Every error has its own code, says it the same way everywhere, survives a process boundary and is documented."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
from functools import cache

import pytest

from headrace import errors
from headrace.errors import HeadraceError, Span, SyntaxProblem
from tests.code import ROOT, SOURCE, modules, tree

ABSTRACT = {
    errors.HeadraceError,
    errors.UserError,
    errors.SqlError,
    errors.DataError,
    errors.ExternalError,
}
CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, HeadraceError) and kind not in ABSTRACT
]


def documented() -> list[str]:
    """The codes that docs/errors.md has an entry for, in its order."""
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    return re.findall(r"^### ([A-Z_]+)$", text, re.MULTILINE)


def test_every_code_is_documented_once_and_nothing_else_is() -> None:
    entries = documented()
    assert sorted(entries) == sorted({*entries})
    assert set(entries) == {kind.code for kind in CLASSES}


def test_codes_are_unique_and_declared_by_their_own_class() -> None:
    assert [kind.__name__ for kind in CLASSES if "code" not in vars(kind)] == []
    assert len({kind.code for kind in CLASSES}) == len(CLASSES)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.code)
def test_every_error_is_used_outside_its_module(kind: type[HeadraceError]) -> None:
    assert kind.__name__ in called_or_passed()


@cache
def called_or_passed() -> frozenset[str]:
    """Every name outside of `errors` that is called, or passed to a call such as `unknown(UnknownSink, ...)`."""
    outside = (path for path in modules() if SOURCE / "errors" not in path.parents)
    calls = (n for path in outside for n in ast.walk(tree(path)) if isinstance(n, ast.Call))
    parts = [part for call in calls for part in (call.func, *call.args)]
    named = [part.id for part in parts if isinstance(part, ast.Name)]
    return frozenset([*named, *(part.attr for part in parts if isinstance(part, ast.Attribute))])


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.code)
def test_every_error_travels_between_processes(kind: type[HeadraceError]) -> None:
    params: dict[str, object] = {"errors": ()} if kind is errors.ScriptErrors else {"name": "x", "lines": [1, 2]}
    before = kind("what", advice="do this", span=Span("SELECT x", 7, 8, 3), **params)
    after = pickle.loads(pickle.dumps(before))
    assert type(after) is kind
    assert (after.message, after.advice, after.span, after.params) == ("what", "do this", before.span, params)
    assert after.render() == before.render()


def test_every_error_names_the_public_module() -> None:
    assert {kind.__module__ for kind in CLASSES} == {"headrace.errors"}


def test_an_error_in_sql_says_statement_line_and_column_and_points_at_it() -> None:
    text = "SELECT 1;\nSELECT a,\n       nope FROM t"
    shown = SyntaxProblem("no such column", span=Span(text, 27, 31, 2), advice="try another").render()
    lines = shown.split("\n")
    assert lines[0].startswith("[SYNTAX_ERROR]")
    assert "statement 2, line 3, column 8" in lines[1]
    assert lines[2].index("nope") == lines[3].index("^^^^")
    assert lines[3].count("^") == 4


@pytest.mark.parametrize("word", ["shared host", "epoch host", "lanes", "Ring 0"])
def test_an_error_explains_a_word_that_only_we_use(word: str) -> None:
    lines = HeadraceError(f"this is about the {word} of a planet").render().split("\n")
    assert len(lines) == 2 and "see docs/" in lines[1]
