"""Every keyword of Spark as a name without quotes, in each place where a name may be: our parser against Spark's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace.errors import HeadraceError
from headrace.sql.parse.cursor import RESERVED, Cursor
from headrace.sql.parse.dialect import tokenize
from headrace.sql.parse.queries import parse_query
from headrace.sql.parse.stream_columns import parse_columns
from tests.sql.support import plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPERATORS = "AND BETWEEN DIV ILIKE LIKE OR RLIKE REGEXP"
CLAUSES = "AS FROM HAVING INTO SELECT WHERE WITH"
JOINS = "ANTI CROSS EXCEPT FULL INNER INTERSECT JOIN LATERAL LEFT MINUS NATURAL ON RIGHT SEMI UNION USING"
NO_COLUMNS = f"{OPERATORS} AS CASE ELSE EXCEPT FROM HAVING IN IS SELECT THEN WHEN WHERE"
# The words that we do not take in a place, although Spark does: the list of docs/sql.md.
REFUSED = {
    "SELECT 1 @ FROM s": f"{OPERATORS} AS",
    "SELECT id @, id FROM s": f"{OPERATORS} AS",
    "SELECT id, 1 + 1 @ FROM (SELECT id FROM s)": f"{OPERATORS} AS",
    "SELECT 1 AS @ FROM s": "",
    "SELECT @ FROM s": "",
    "SELECT id, @, 1 FROM s": "",
    "SELECT @ AS x FROM s": "",
    "SELECT @ x FROM s": NO_COLUMNS,
    "SELECT @ + 1 FROM s": "CASE SELECT",
    "SELECT max(@) FROM s": "",
    "SELECT s.@ FROM s": "",
    "SELECT @.id FROM s @ WHERE @.id > 1": CLAUSES,
    "SELECT id FROM s WHERE @ > 1 AND 1 < @ GROUP BY id": f"{NO_COLUMNS} DISTINCT NOT",
    "SELECT 1 FROM s GROUP BY @": f"{NO_COLUMNS} DISTINCT NOT",
    "SELECT 1 FROM s @": CLAUSES,
    "SELECT 1 FROM s AS @": "",
    "SELECT 1 FROM s AS t(a, @)": "",
    "SELECT 1 FROM @": f"{CLAUSES} {JOINS}",
    "WITH @ AS (SELECT 1 a FROM s) SELECT 1 FROM @": f"{CLAUSES} {JOINS}",
    "SELECT inline(a) AS (x, @) FROM s": "",
    "SELECT 1 FROM s LATERAL VIEW explode(a) t AS x, @": "",
    "SELECT 1 FROM s LATERAL VIEW explode(a) t @": f"{CLAUSES} {JOINS}",
    "SELECT 1 FROM s LATERAL VIEW explode(a) @ AS x": OPERATORS,
    "SELECT max(id) @ FROM s": f"{OPERATORS} AS",
    "(@ INT)": "",
    "(x STRUCT<@: INT>)": "",
}


@pytest.mark.spark
def test_a_keyword_is_a_name_where_it_is_one_in_spark(spark_of_the_run: SparkSession) -> None:
    words = {row[0] for row in spark_of_the_run.sql("SELECT keyword FROM sql_keywords()").collect()}
    assert len(words) > 400
    parser = spark_of_the_run._jsparkSession.sessionState().sqlParser()
    for place, listed in REFUSED.items():
        refused = {word for word in words if not _ours(place.replace("@", word))}
        assert set(listed.split()) & words <= refused <= RESERVED, place
        more = refused - set(listed.split())
        assert {word for word in more if _takes(parser, place.replace("@", word))} == set(), place


def _ours(text: str) -> bool:
    cursor = Cursor(text, tokenize(text), 0)
    try:
        if text.startswith("("):
            parse_columns(cursor)
        else:
            parse_query(cursor, len(text))
    except HeadraceError:
        return False
    return cursor.token.kind == "end"


def _takes(parser: Any, text: str) -> bool:
    from pyspark.errors import ParseException

    try:
        parser.parsePlan(f"CREATE TABLE t {text} USING parquet" if text.startswith("(") else text)
    except ParseException:
        return False
    return True


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("SELECT id end, k order FROM s", ["end", "order"]),
        (
            "SELECT id group, k limit, 1 + id in FROM s limit WHERE limit.id > 1 AND NOT +id = 3",
            ["group", "limit", "in"],
        ),
        ("SELECT order.id left FROM s order", ["left"]),
        ("SELECT q.then FROM (SELECT id then FROM s) q", ["then"]),
        (
            "SELECT case, not FROM (SELECT id AS case, k not FROM s) end WHERE end.case = 1 AND not = 'a'",
            ["case", "not"],
        ),
        ("WITH order AS (SELECT id FROM s) SELECT id FROM order", ["id"]),
        ("SELECT end FROM s LATERAL VIEW explode(array(id)) t end WHERE end > 1", ["end"]),
        ("SELECT CASE WHEN id > 1 THEN id END end, NOT id IN (1, 2) is FROM s", ["end", "is"]),
        ("SELECT DISTINCT id all FROM s", ["all"]),
    ],
)
def test_a_query_with_keywords_as_names_runs_on_the_shared_host(query: str, names: list[str]) -> None:
    assert list(plan(query).program.output.names) == names


@pytest.mark.parametrize("word", OPERATORS.split())
def test_an_operator_without_its_operand_hints_at_backquotes(word: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        plan(f"SELECT id {word} FROM s")
    assert f"`{word.lower()}`" in caught.value.advice or word not in RESERVED


@pytest.mark.parametrize(
    "query", ["SELECT id FROM s LIMIT 10", "SELECT id FROM s ORDER BY id", "SELECT id FROM s LIMIT 'a'"]
)
def test_a_clause_that_the_shared_host_lacks_is_still_named(query: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        plan(query)
    assert caught.value.code == "UNSUPPORTED_ON_SHARED"
