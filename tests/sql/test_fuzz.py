"""Any text gets a plan or a coded error with a position, never a crash."""

from __future__ import annotations

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headrace.errors import InternalError, SqlError
from tests.sql.support import apply_script

_WORDS = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "HAVING",
    "WITH",
    "AS",
    "AND",
    "OR",
    "NOT",
    "IN",
    "IS",
    "NULL",
    "BETWEEN",
    "LIKE",
    "RLIKE",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "CAST",
    "UNION",
    "ALL",
    "EMIT",
    "CHANGES",
    "CREATE",
    "STREAM",
    "SINK",
    "PIPELINE",
    "INTO",
    "DROP",
    "SHOW",
    "EXPLAIN",
    "INTERVAL",
    "DATE",
    "TIMESTAMP",
    "DISTINCT",
    "FILTER",
    "s",
    "plain",
    "id",
    "temp",
    "k",
    "ok",
    "n",
    "ts",
    "pos",
    "price",
    "day",
    "tags",
    "attrs",
    "lat",
    "window",
    "session_window",
    "count",
    "sum",
    "avg",
    "first",
    "upper",
    "substring",
    "TUMBLE",
    "TABLE",
    "DESCRIPTOR",
    "MINUTE",
    "SECONDS",
    "INT",
    "STRING",
    "DECIMAL",
    "ARRAY",
    "MAP",
    "1",
    "2.5",
    "-3",
    "1e9",
    "10L",
    "'a'",
    "'it''s'",
    "'1",
    "minute'",
    "`q`",
    "(",
    ")",
    ",",
    ".",
    ";",
    "*",
    "+",
    "-",
    "/",
    "%",
    "=",
    "<",
    ">",
    "<=",
    "<=>",
    "!=",
    "||",
    "[",
    "]",
    "::",
    ":",
    "",
    "!",
    "~",
    "&",
    "|",
    "^",
    "->",
    "=>",
    "@",
    "#",
    "$",
    "\\",
    '"',
    "'",
    "`",
    "/*",
    "*/",
    "--",
    "é",
    "😀",
    "\n",
]


@settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(_WORDS), max_size=25).map(" ".join))
@example("SELECT window(ts).start FROM s GROUP BY window()")
@example("SELECT s.* EXCEPT (id FROM s")
@example("SELECT a[ FROM s")
@example("CREATE STREAM x (a ARRAY<STRUCT<b: INT>) WITH (source = 'generator')")
@example("CREATE STREAM x (a STRUCT<>) WITH (source = 'generator', format = 'json')")
@example("SELECT count(*) FILTER (WHERE) FROM s")
@example("SELECT first() FROM s")
@example("SELECT tags['a'] AS x, attrs[1] AS y FROM s")
@example("SELECT INTERVAL 1 DAY + INTERVAL 1 DAY AS x FROM s")
@example("SELECT - INTERVAL 1 DAY AS x FROM s")
@example("SELECT sum(INTERVAL 1 DAY) AS x FROM s")
@example("SELECT NULL + NULL AS x, NULL = NULL AS y, coalesce(NULL) AS z FROM s")
@example("SELECT max(NULL) AS x FROM s")
@example("SELECT upper(NULL) AS x, substring(k, NULL, 2) AS y FROM s")
@example("SELECT CASE WHEN NULL THEN NULL END AS x FROM s")
@example("SELECT id IN (NULL) AS x, k LIKE NULL AS y FROM s")
@example("SELECT pos AS p, count(*) AS c FROM s GROUP BY pos")
@example("SELECT * FROM s GROUP BY k")
@example("SELECT count(*) FROM s GROUP BY ()")
def test_any_text_gets_an_answer(text: str) -> None:
    try:
        apply_script(text)
    except SqlError as problem:
        assert not isinstance(problem, InternalError)
        assert problem.render()


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.text(max_size=40))
def test_any_characters_get_an_answer(text: str) -> None:
    for script in (
        text,
        f"SELECT {text} FROM s",
        f"SELECT '{text}' AS x FROM s",
        f"CREATE SINK x WITH (type = {text})",
    ):
        try:
            apply_script(script)
        except SqlError as problem:
            assert problem.render()
