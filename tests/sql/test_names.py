"""Names as Spark takes them: keywords that it does not reserve, backquotes, aliases of tables and select items."""

from __future__ import annotations

import time

import pytest

from headrace.errors import HeadraceError
from headrace.sql import CreateStream, Select, define_stream, parse_script, plan_pipeline
from headrace.state.catalog import Catalog
from tests.sql.support import MEANING, plan

KEYWORDS = [
    "end", "order", "group", "limit", "offset", "timestamp", "date", "interval", "left", "right", "full", "cross",
    "on", "using", "window", "first", "last", "value", "key", "partition", "comment", "sort", "cluster", "lateral",
    "union", "minus", "any", "current", "default", "row", "rows", "range", "set", "sets", "cube", "rollup",
    "grouping", "year", "month", "day", "hour", "minute", "second", "user", "table", "view", "values", "filter",
    "emit", "into", "metadata", "generated", "stream", "pipeline", "sink", "watermark", "a``b", "über", "1st",
]  # fmt: skip


@pytest.mark.parametrize("keyword", KEYWORDS)
def test_a_column_may_have_the_name_of_a_keyword(keyword: str) -> None:
    plain = keyword.isascii() and keyword.isidentifier()
    name = keyword if plain else f"`{keyword}`"
    (created,) = parse_script(
        f"CREATE STREAM x (id INT, {name} INT, t TIMESTAMP) WITH (source = 'generator', format = 'json')"
    )
    assert isinstance(created, CreateStream)
    names = Catalog().with_stream(define_stream(created, MEANING))
    wanted = keyword.replace("``", "`")
    for query in (
        f"SELECT {name} FROM x",
        f"SELECT id, {name} + 1 AS {name} FROM x WHERE {name} > 0 AND id = {name}",
        f"SELECT x.{name} FROM x",
        f"SELECT count(*) AS n, max({name}) AS {name} FROM x GROUP BY `{keyword}` HAVING max({name}) > 1",
        f"SELECT q.{name} FROM (SELECT `{keyword}` FROM x) q",
    ):
        (select,) = parse_script(query)
        assert isinstance(select, Select)
        planned = plan_pipeline(select, names, MEANING)
        assert planned.program.output.names[-1] == wanted, query
        assert 1 in planned.program.view.indexes(3)


@pytest.mark.parametrize("query", ["SELECT FROM s", "SELECT id, FROM s", "SELECT id FROM s WHERE GROUP BY id"])
def test_a_missing_expression_is_still_a_syntax_error(query: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        plan(query)
    assert caught.value.code == "SYNTAX_ERROR"


def test_an_alias_of_the_select_list_hides_no_column() -> None:
    outputs = plan("SELECT k AS id, id AS other, other + 1 AS third FROM s").program.ring0.outputs
    assert [o.sql for o in outputs[:2]] == ["c3", "c0"]
    assert "c0" in outputs[2].sql


def test_thousands_of_values_in_a_list_are_planned_in_time_that_grows_with_their_number() -> None:
    def seconds(count: int) -> float:
        began = time.process_time()
        plan(f"SELECT id FROM s WHERE id IN ({', '.join(map(str, range(count)))})")
        return time.process_time() - began

    seconds(100)
    few, many = min(seconds(1000) for _ in range(3)), min(seconds(8000) for _ in range(2))
    assert many < 8 * few * 3
