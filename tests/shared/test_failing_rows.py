"""EVALUATION_FAILED names the expression, what it read, and where the record is, on the path of a user."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.exec import sizing, trying
from headrace.model.program import Meaning
from headrace.ring0 import failing_rows
from tests.e2e.support import put
from tests.shared.mini import Mini

LINES = [json.dumps({"id": i, "d": i % 5, "text": str(i) if i < 4 else "x"}) for i in range(6)]


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mini]:
    (tmp_path / "in").mkdir()
    mini = Mini(tmp_path / "state", monkeypatch)
    mini.hub.sql("CREATE SINK out WITH (type = 'kept')")
    path = tmp_path / "in"
    mini.hub.sql(
        f"CREATE STREAM s (id BIGINT, d INT, text STRING) WITH (source = 'files', path = '{path}', format = 'json')"
    )
    yield mini
    mini.hub.close()


@pytest.mark.parametrize(
    ("query", "expression", "row", "values"),
    [
        ("SELECT id, 10 / d AS r FROM s WHERE id > 1", "10 / d", 5, "d = 0"),
        ("SELECT id FROM s WHERE id > 2 AND 7 % d = 1 AND text <> ''", "7 % d = 1", 5, "d = 0"),
        ("SELECT id, CAST(text AS INT) AS n FROM s", "CAST(text AS INT)", 4, "text = 'x'"),
        ("SELECT d, sum(CAST(text AS INT)) AS n FROM s GROUP BY d", "CAST(text AS INT)", 4, "text = 'x'"),
        ("SELECT CAST(text AS INT) AS k, count(*) AS n FROM s GROUP BY 1", "CAST(text AS INT)", 4, "text = 'x'"),
        ("SELECT explode(array(10 / d)) AS e FROM s WHERE id > 1", "array(10 / d)", 5, "d = 0"),
        (
            "SELECT e FROM s LATERAL VIEW explode(array(1, CAST(text AS INT))) t AS e",
            "array(1, CAST(text AS INT))",
            4,
            "text = 'x'",
        ),
        ("SELECT 1.0D AS r FROM s UNION ALL SELECT 10 / d FROM s WHERE id > 1", "10 / d", 5, "d = 0"),
        (
            "SELECT id FROM s WHERE id > 4 UNION ALL SELECT id FROM s WHERE id > 1 AND 7 % d = 1",
            "7 % d = 1",
            5,
            "d = 0",
        ),
        (
            "SELECT id, d, sum(CAST(text AS INT)) AS n FROM s GROUP BY CUBE (id, d)",
            "CAST(text AS INT)",
            4,
            "text = 'x'",
        ),
        ("SELECT 10 / d AS k, count(*) AS n FROM s WHERE id > 0 GROUP BY ROLLUP (10 / d)", "10 / d", 5, "d = 0"),
        (  # here and below, the size of the value already fails
            "SELECT repeat(text, CAST(text AS INT)) AS r FROM s",
            "repeat(text, CAST(text AS INT))",
            4,
            "text = 'x'",
        ),
        (
            "SELECT id FROM s WHERE length(repeat('a', 7 % d)) > 0 AND id > 1",
            "length(repeat('a', 7 % d)) > 0",
            0,
            "d = 0",
        ),
        (
            "SELECT repeat('a', if(id > 3, raise_error('b'), 1)) AS r, count(*) AS n FROM s GROUP BY 1",
            "repeat('a', if(id > 3, raise_error('b'), 1))",
            4,
            "id = 4",
        ),
        ("SELECT if(id > 3, raise_error('a) b'), 1) AS r FROM s", "if(id > 3, raise_error('a) b'), 1)", 4, "id = 4"),
        (
            "SELECT id FROM s WHERE assert_true(id < 4, 'much') IS NULL",
            "assert_true(id < 4, 'much') IS NULL",
            4,
            "id = 4",
        ),
    ],
)
def test_the_failure_names_expression_values_and_record(
    mini: Mini, query: str, expression: str, row: int, values: str
) -> None:
    mini.hub.sql(f"CREATE PIPELINE p INTO out AS {query}")
    mini.hub.sql("CREATE PIPELINE other INTO out AS SELECT id FROM s")
    put(mini.directory.parent / "in" / "a.json", LINES)
    mini.drain()
    said = mini.hub.pipelines["p"].status().error
    offset = sum(len(line) + 1 for line in LINES[:row])
    assert said is not None and said.startswith(f"[EVALUATION_FAILED] the expression {expression} failed: ")
    assert f"a.json, line {row + 1}, offset {offset}\n" in said and values in said
    assert mini.output(mini.hub.record("other").definition.instance) == [(i,) for i in range(6)]


def test_the_reason_is_that_of_the_row_that_is_named(mini: Mini) -> None:
    mini.hub.sql("CREATE PIPELINE p INTO out AS SELECT 7 % (d + CAST(text AS INT) * 0) AS r FROM s")
    put(mini.directory.parent / "in" / "a.json", LINES)
    mini.drain()
    said = mini.hub.pipelines["p"].status().error  # the cast fails on line 5, and DuckDB evaluates it first
    assert said is not None and "a.json, line 1, offset 0\n" in said and "d = 0" in said
    assert "CAST_INVALID_INPUT" not in said


@pytest.mark.parametrize(
    ("query", "expression", "row", "values"),
    [
        (
            "SELECT 10 / x AS r FROM s LATERAL VIEW explode(array(1, d)) t AS x WHERE id > 1",
            "10 / x",
            5,
            "\n  where x = 0\n",
        ),
        ("SELECT 10 / x AS r FROM (SELECT explode(sequence(d - 4, 9)) AS x FROM s)", "10 / x", 0, "x = 0"),
        (
            "SELECT x FROM (SELECT id, explode(array(d)) AS x FROM s) WHERE id > 2 AND 7 % x > 0",
            "7 % x > 0",
            5,
            "x = 0",
        ),
        (
            "SELECT a + CAST(b AS INT) AS n FROM s LATERAL VIEW inline(array(struct(id, text))) t AS a, b",
            "a + CAST(b AS INT)",
            4,
            "\n  where a = 4, b = 'x'\n",
        ),
        ("SELECT CAST(x AS INT) AS n FROM s LATERAL VIEW stack(2, '1', text) t AS x", "CAST(x AS INT)", 4, "x = 'x'"),
        (
            "SELECT CAST(x AS INT) + id AS n FROM s LATERAL VIEW json_tuple(to_json(struct(text)), 'text') t AS x",
            "CAST(x AS INT) + id",
            4,
            "\n  where id = 4, x = 'x'\n",
        ),
        (
            "SELECT x / y AS r FROM s LATERAL VIEW explode(array(id)) t AS x LATERAL VIEW explode(array(x, d)) u AS y "
            "WHERE x > 0",
            "x / y",
            5,
            "\n  where x = 5, y = 0\n",
        ),
        (
            "SELECT y FROM s LATERAL VIEW explode(array(id, d)) t AS x LATERAL VIEW explode(array(10 / x)) u AS y "
            "WHERE id > 1",
            "array(10 / x)",
            5,
            "\n  where x = 0\n",
        ),
        ("SELECT i / v AS r FROM s LATERAL VIEW posexplode(array(3, d)) t AS i, v WHERE id > 1", "i / v", 5, "v = 0"),
        ("SELECT d, sum(7 % x) AS n FROM s LATERAL VIEW explode(array(id)) t AS x GROUP BY d", "7 % x", 0, "x = 0"),
        ("SELECT 7 % x AS k, count(*) AS n FROM s LATERAL VIEW explode(array(id)) t AS x GROUP BY 1", "7 % x", 0, "x"),
        (
            "SELECT transform(array(1), y -> y / x) AS r FROM s LATERAL VIEW explode(array(d)) t AS x WHERE id > 0",
            "transform(array(1), y -> y / x)",
            5,
            "x = 0",
        ),
        (
            "SELECT 1 / x AS r FROM s LATERAL VIEW OUTER explode(filter(array(d), x -> id > 4)) t AS x",
            "1 / x",
            5,
            "x = 0",
        ),
        (
            "SELECT CASE WHEN n > 1 THEN 10 / (id - 5) ELSE 1 END AS r FROM s LATERAL VIEW explode(array(1, 2)) t AS n",
            "CASE WHEN n > 1 THEN 10 / (id - 5) ELSE 1 END",
            5,
            "\n  where id = 5, n = 2\n",
        ),
        # Here the size of the value cannot be computed either.
        (
            "SELECT repeat(text, 10 DIV x) AS r FROM s LATERAL VIEW explode(array(d)) t AS x WHERE id > 0",
            "repeat(text, 10 DIV x)",
            5,
            "x = 0",
        ),
        (
            "SELECT repeat(text, CAST(10 / d AS INT)) AS r FROM s WHERE id > 0",
            "repeat(text, CAST(10 / d AS INT))",
            5,
            "d = 0",
        ),
    ],
)
def test_the_failure_on_a_made_row_names_the_record_that_it_is_made_of(
    mini: Mini, query: str, expression: str, row: int, values: str
) -> None:
    test_the_failure_names_expression_values_and_record(mini, query, expression, row, values)


def test_the_failing_row_is_looked_for_in_pieces_of_the_made_rows(mini: Mini, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []

    def spied(meaning: Meaning, sql: str, rows: pa.Table) -> int | None:
        searched.append(rows.num_rows)
        return trying.first_failing(meaning, sql, rows)

    monkeypatch.setattr(failing_rows, "first_failing", spied)
    monkeypatch.setattr(sizing, "PASS_BYTES", 1)  # each row is a piece
    query = "SELECT repeat(text, 2) AS t, 10 / x AS r FROM s LATERAL VIEW explode(sequence(id - 5, 50)) t AS x"
    mini.hub.sql(f"CREATE PIPELINE p INTO out AS {query}")
    put(mini.directory.parent / "in" / "a.json", LINES[:2])
    mini.drain()
    said = mini.hub.pipelines["p"].status().error
    assert said is not None and "a.json, line 1, offset 0\n" in said and "\n  where x = 0\n" in said, said
    assert set(searched) == {1}, searched


def test_the_first_piece_that_fails_is_blamed_and_not_a_later_one(mini: Mini, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "PASS_BYTES", 1)
    made = "explode(array(text, CAST(10 / (id - 5) AS STRING)))"  # it fails on the row after the one that fails above
    query = f"SELECT try_divide(CAST(x AS DOUBLE), 2) AS r FROM s LATERAL VIEW {made} t AS x"
    mini.hub.sql(f"CREATE PIPELINE p INTO out AS {query}")
    put(mini.directory.parent / "in" / "a.json", LINES)
    mini.drain()
    said = mini.hub.pipelines["p"].status().error
    expression = "try_divide(CAST(x AS DOUBLE), 2)"
    assert said is not None and said.startswith(f"[EVALUATION_FAILED] the expression {expression} failed: CAST_"), said
    assert "a.json, line 5, " in said and "\n  where x = 'x'\n" in said, said


@pytest.mark.parametrize(
    ("query", "what", "key"),
    [
        ("SELECT d, 1 / (count(*) - 2) AS r FROM s GROUP BY d", "the expression of the column 'r'", "d = 0"),
        (
            "SELECT 1 / (count(*) - 2) FROM s GROUP BY d",
            "the expression of the column '(1 / (count(1) - 2))'",
            "key 1 = 0",
        ),
        ("SELECT d AS k, count(*) AS n FROM s GROUP BY d HAVING 1 / (count(*) - 2) > 5", "HAVING", "k = 0"),
    ],
)
def test_a_failure_after_an_aggregate_names_expression_and_group(mini: Mini, query: str, what: str, key: str) -> None:
    mini.hub.sql(f"CREATE PIPELINE p INTO out AS {query}")
    put(mini.directory.parent / "in" / "a.json", LINES)
    mini.drain()
    said = mini.hub.pipelines["p"].status().error
    assert said is not None and said.startswith(f"[EVALUATION_FAILED] {what} failed: DIVIDE_BY_ZERO")
    assert f"\n  where {key}\n" in said


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("SELECT 1 / (count(*) - 2) AS r, d AS k FROM s {groups}", "the expression of the column 'r'"),
        ("SELECT d AS k, count(*) AS n FROM s {groups} HAVING 1 / (count(*) - 2) > 5", "HAVING"),
        # HAVING keeps the group that fails, and leaves out an earlier one that would fail.
        (
            "SELECT d AS k, 10 / (sum(id) - 100) / (count(*) - 2) AS r FROM s {groups} HAVING sum(id) <> 100",
            "the expression of the column 'r'",
        ),
    ],
)
def test_a_failure_in_a_window_names_the_window_and_the_group(
    tmp_path: Path, mini: Mini, query: str, what: str
) -> None:
    (tmp_path / "timed").mkdir()
    mini.hub.sql(
        "CREATE STREAM timed (id BIGINT, d INT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL 0 SECONDS) "
        f"WITH (source = 'files', path = '{tmp_path / 'timed'}', format = 'json')"
    )
    groups = "GROUP BY d, window(t, '10 minutes')"
    mini.hub.sql(f"CREATE PIPELINE p INTO out AS {query.format(groups=groups).replace('FROM s', 'FROM timed')}")
    times = [(100, 3, 0), (1, 4, 1), (1, 5, 11), (2, 5, 12), (3, 6, 13), (4, 5, 45)]  # two rows of 5 at 00:10
    lines = [json.dumps({"id": i, "d": d, "t": f"2026-03-01T00:{m:02}:00Z"}) for i, d, m in times]
    put(tmp_path / "timed" / "a.json", lines)
    mini.drain()
    said = mini.hub.pipelines["p"].status().error
    assert said is not None and said.startswith(f"[EVALUATION_FAILED] {what} failed: DIVIDE_BY_ZERO"), said
    assert "\n  in the window from 2026-03-01 00:10:00 to 2026-03-01 00:20:00 (UTC)\n  where k = 5\n" in said
