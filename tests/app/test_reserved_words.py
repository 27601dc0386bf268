"""A reserved word that is meant as a name: the error shows the backquotes, and with them the statement works."""

from __future__ import annotations

import pytest

from headrace.app.check import check_script
from headrace.errors import HeadraceError

DECLARED = """CREATE STREAM s (`case` INT, `not` INT, `from` INT, `when` INT, k STRING)
WITH (source = 'generator', format = 'json'); CREATE SINK out WITH (type = 'memory');
"""


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        ("CREATE PIPELINE p INTO out AS SELECT case + 1 AS n FROM s", "case"),
        ("CREATE PIPELINE p INTO out AS SELECT k FROM s WHERE when IS NULL", "when"),
        ("CREATE PIPELINE p INTO out AS SELECT k FROM s WHERE from IN (1)", "from"),
        ("CREATE PIPELINE p INTO out AS SELECT k FROM s WHERE 1 = case", "case"),
        ("CREATE PIPELINE p INTO out AS SELECT left.k FROM s AS left WHERE k > 'a'", "left"),
        ("CREATE PIPELINE select INTO out AS SELECT k FROM s", "select"),
        ("CREATE SINK union WITH (type = 'memory')", "union"),
        ("CREATE STREAM order (k STRING) WITH (source = 'generator', format = 'json')", "order"),
    ],
)
def test_the_advice_names_the_backquotes_that_make_it_work(statement: str, word: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        check_script(DECLARED + statement)
    assert caught.value.code == "SYNTAX_ERROR"
    assert f"`{word}`" in str(caught.value.advice)
    before, _, after = statement.rpartition(f" {word} ") if f" {word} " in statement else (statement, "", "")
    check_script(
        f"{DECLARED}{before} `{word}` {after}" if after else f"{DECLARED}{statement.removesuffix(word)}`{word}`"
    )


def test_a_comma_too_many_is_named() -> None:
    with pytest.raises(HeadraceError) as caught:
        check_script(DECLARED + "CREATE PIPELINE p INTO out AS SELECT k, FROM s")
    assert "comma" in str(caught.value.advice)
