"""EVALUATION_FAILED names the expression, what it read, and where the record is, on the path of a user."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

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


def test_a_failure_that_depends_on_a_made_row_is_not_blamed_on_another(mini: Mini) -> None:
    query = "SELECT CASE WHEN n > 1 THEN 10 / (id - 5) ELSE 1 END AS r FROM s LATERAL VIEW explode(array(1, 2)) t AS n"
    mini.hub.sql(f"CREATE PIPELINE p INTO out AS {query}")
    put(mini.directory.parent / "in" / "a.json", LINES)
    mini.drain()
    said = mini.hub.pipelines["p"].status().error
    assert said is not None and said.startswith("[EVALUATION_FAILED] an expression failed on some row: DIVIDE_BY_ZERO")


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


def test_an_expression_after_a_generator_fails_without_its_place(mini: Mini) -> None:
    mini.hub.sql("CREATE PIPELINE p INTO out AS SELECT 1 / e AS r FROM s LATERAL VIEW explode(array(d)) t AS e")
    put(mini.directory.parent / "in" / "a.json", LINES)
    mini.drain()
    assert (mini.hub.pipelines["p"].status().error or "").startswith("[EVALUATION_FAILED] ")
