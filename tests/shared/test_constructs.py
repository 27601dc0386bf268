"""Constructs of SQL on the path of a user, where Spark's batch SQL is no oracle: CHAR columns and late rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.support import put
from tests.shared.mini import Mini


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mini]:
    (tmp_path / "in").mkdir()
    mini = Mini(tmp_path / "state", monkeypatch)
    mini.hub.sql("CREATE SINK out WITH (type = 'kept')")
    yield mini
    mini.hub.close()


def stream(mini: Mini, columns: str) -> None:
    path = mini.directory.parent / "in"
    mini.hub.sql(f"CREATE STREAM s ({columns}) WITH (source = 'files', format = 'json', path = '{path}')")


def pipeline(mini: Mini, query: str, name: str = "p") -> int:
    mini.hub.sql(f"CREATE PIPELINE {name} INTO out AS {query}")
    return mini.hub.record(name).definition.instance


def feed(mini: Mini, *records: dict[str, object], name: str = "a.json") -> None:
    put(mini.directory.parent / "in" / name, map(json.dumps, records))
    mini.drain()


def test_char_columns_are_padded_and_varchar_columns_are_not(mini: Mini) -> None:
    stream(mini, "c CHAR(4), v VARCHAR(3), n INT")
    p = pipeline(mini, "SELECT c, v, length(c) AS l FROM s WHERE c = 'ab  ' OR n > 1")
    feed(mini, {"c": "ab", "v": "ab", "n": 1}, {"c": "äöüßé", "v": "abcdef", "n": 2}, {"c": None, "v": "", "n": 3})
    assert mini.output(p) == [("ab  ", "ab", 4), ("äöüßé", "abcdef", 5), (None, "", None)]


def test_unions_and_grouping_sets_keep_their_rows_after_a_restart(mini: Mini) -> None:
    stream(mini, "k STRING, v INT")
    p = pipeline(mini, "SELECT k, v FROM s WHERE v > 1 UNION ALL SELECT upper(k), -v FROM s")
    q = pipeline(mini, "SELECT k, grouping_id() AS g, sum(v) AS total FROM s GROUP BY ROLLUP(k)", "q")
    mini.crash()
    feed(mini, {"k": "a", "v": 1}, {"k": "b", "v": 2})
    feed(mini, {"k": None, "v": 4}, name="b.json")
    assert sorted(mini.output(p), key=str) == [("A", -1), ("B", -2), ("b", 2), (None, -4), (None, 4)]
    assert {row[:2]: row[2] for row in mini.output(q)} == {
        ("a", 0): 1, ("b", 0): 2, (None, 0): 4, (None, 1): 7,
    }  # fmt: skip
