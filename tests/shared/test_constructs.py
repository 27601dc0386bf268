"""Constructs of SQL on the path of a user, where Spark's batch SQL is no oracle: CHAR columns, restarts, and ties."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


TOP = (
    "SELECT e, k, n FROM (SELECT window.end AS e, k, count(*) AS n, "
    "row_number() OVER (PARTITION BY window{by} ORDER BY count(*) DESC) AS r FROM s "
    "GROUP BY window(ts, '10 seconds'), k{by}) WHERE r <= 2"
)


@pytest.mark.parametrize("buckets", [1, 3])
@pytest.mark.parametrize("by", ["", ", side"])
def test_the_top_of_each_window_is_the_same_for_every_cut_and_ties_go_by_the_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buckets: int, by: str
) -> None:
    chance = random.Random(4)
    rows: list[dict[str, Any]] = [
        {"k": chance.choice(["a", "b", "c", "d", None]), "side": chance.choice("lr"), "second": second // 4}
        for second in range(160)
    ]
    counts: dict[tuple[int, str], Counter[str | None]] = {}
    for row in rows:
        part = (row["second"] // 10, row["side"] if by else "")
        counts.setdefault(part, Counter())[row["k"]] += 1
    wanted = [
        (window, k, n)
        for (window, _), found in counts.items()
        for k, n in sorted(found.items(), key=lambda one: (-one[1], one[0] is not None, one[0] or ""))[:2]
    ]
    for cut in (1, 5):
        (tmp_path / f"{cut}/in").mkdir(parents=True)
        mini = Mini(tmp_path / f"{cut}/state", monkeypatch, buckets=buckets)
        mini.hub.sql("CREATE SINK out WITH (type = 'kept')")
        stream(mini, "k STRING, side STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts")
        p = pipeline(mini, TOP.format(by=by))
        for number in range(cut):
            some = rows[number * len(rows) // cut : (number + 1) * len(rows) // cut]
            timed = ({**row, "ts": f"1970-01-01T00:00:{row['second']:02}Z"} for row in some)
            feed(mini, *timed, name=f"{number}.json")
        feed(mini, {"ts": "1970-01-01T00:05:00Z"}, name="last.json")
        feed(mini, {"ts": "1970-01-01T00:05:01Z"}, name="more.json")
        found = [(int(e.timestamp()) // 10 - 1, k, n) for e, k, n in mini.output(p)]
        assert sorted(found, key=str) == sorted(wanted, key=str)
        mini.hub.close()
