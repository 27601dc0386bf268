"""Computed columns on the path of a user: evaluated when used, and their bad values judged like those of the format."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.exec import duck
from headrace.model.program import Meaning
from tests.e2e.support import put
from tests.shared.mini import Mini

COLUMNS = (
    "id BIGINT, raw STRING, ts TIMESTAMP AS to_timestamp(raw, 'dd/MMM/yyyy:HH:mm:ss Z') COMMENT 'event time', "
    "amount STRING, cents BIGINT GENERATED ALWAYS AS (CAST(amount AS BIGINT) * 100), note STRING, "
    "half DOUBLE AS (cents / 2), WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS"
)


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mini]:
    (tmp_path / "in").mkdir()
    mini = Mini(tmp_path / "state", monkeypatch)
    mini.hub.sql("CREATE SINK out WITH (type = 'kept'); CREATE SINK lost WITH (type = 'kept')")
    yield mini
    mini.hub.close()


def stream(mini: Mini, *options: str, fmt: str = "json", columns: str = COLUMNS) -> None:
    given = ", ".join([f"path = '{mini.directory.parent / 'in'}'", f"format = '{fmt}'", *options])
    mini.hub.sql(f"CREATE STREAM s ({columns}) WITH (source = 'files', {given})")


def pipeline(mini: Mini, query: str, name: str = "p") -> int:
    mini.hub.sql(f"CREATE PIPELINE {name} INTO out AS {query}")
    return mini.hub.record(name).definition.instance


def line(i: int, second: int | str, amount: Any = 1) -> str:
    raw = second if isinstance(second, str) else f"01/Jan/2024:00:00:{second:02} +0000"
    return json.dumps({"id": i, "raw": raw, "amount": amount, "note": "n"})


def feed(mini: Mini, *lines: str, name: str = "a.json") -> None:
    put(mini.directory.parent / "in" / name, lines)
    mini.drain()


def at(second: int) -> dt.datetime:
    return dt.datetime(2024, 1, 1, 0, 0, second, tzinfo=dt.UTC)


def status(mini: Mini) -> Any:
    return mini.hub.streams["s"].status()


def test_a_computed_column_is_used_like_any_other(mini: Mini) -> None:
    stream(mini)
    p = pipeline(mini, "SELECT id, ts, cents, half FROM s WHERE cents > 100")
    every = pipeline(mini, "SELECT * FROM s WHERE id = 2", "every")
    feed(mini, line(1, 1, "1"), line(2, 2, "2"), line(3, 3, None))
    assert mini.output(p) == [(2, at(2), 200, 100.0)]
    assert mini.output(every) == [(2, "01/Jan/2024:00:00:02 +0000", at(2), "2", 200, "n", 100.0)]


def test_it_is_decoded_only_while_some_pipeline_uses_it(mini: Mini) -> None:
    stream(mini)
    pipeline(mini, "SELECT id FROM s")
    feed(mini, line(1, 1, "bad"))
    assert status(mini).decoding_columns == ["id", "raw", "ts"]  # the event time is always needed
    assert status(mini).bad == {}
    pipeline(mini, "SELECT half FROM s", "halves")
    feed(mini, line(2, 2, "bad"), name="b.json")
    assert status(mini).decoding_columns == ["id", "raw", "ts", "amount", "half"]
    assert status(mini).bad == {"bad_computed": 1}
    mini.hub.sql("DROP PIPELINE halves")
    feed(mini, line(3, 3, "bad"), name="c.json")
    assert status(mini).decoding_columns == ["id", "raw", "ts"]
    assert status(mini).bad == {"bad_computed": 1}


def test_it_can_be_the_event_time_of_windows(mini: Mini) -> None:
    stream(mini)
    p = pipeline(mini, "SELECT window.end AS e, count(*) AS n FROM s GROUP BY window(ts, '10 seconds')")
    feed(mini, line(1, 1), line(2, 9), line(3, 10))
    feed(mini, line(4, 21), name="b.json")
    feed(mini, line(5, 5), name="c.json")  # late
    assert mini.output(p) == [(at(10), 2)]
    assert mini.hub.pipelines["p"].status().late == 1


@pytest.mark.parametrize("policy", ["null", "skip", "dead_letter"])
def test_a_bad_value_concerns_only_pipelines_that_read_the_column(mini: Mini, policy: str) -> None:
    stream(mini, f"on_error = '{policy}'", *(["dead_letter_sink = 'lost'"] if policy == "dead_letter" else []))
    plain = pipeline(mini, "SELECT id, amount FROM s")
    p = pipeline(mini, "SELECT id, cents FROM s", "cents")
    picky = pipeline(mini, "SELECT id, cents FROM s WHERE id <> 2", "picky")
    feed(mini, line(1, 1, "1"), line(2, 2, "x"), line(3, 3, None))
    kept = [(1, 100), (2, None), (3, None)]
    assert mini.output(plain) == [(1, "1"), (2, "x"), (3, None)]
    assert mini.output(p) == (kept if policy == "null" else [kept[0], kept[2]])
    assert mini.output(picky) == [kept[0], kept[2]]
    assert [mini.hub.pipelines[n].status().bad for n in ("p", "cents", "picky")] == [0, 1, 0]
    assert status(mini).bad == {"bad_computed": 1}
    letters = mini.output(0)
    assert [row[3:5] for row in letters] == ([("cents", "bad_computed")] if policy == "dead_letter" else [])


def test_fail_stops_the_pipeline_that_reads_it_and_names_column_and_line(mini: Mini) -> None:
    stream(mini, "on_error = 'fail'")
    plain = pipeline(mini, "SELECT id FROM s")
    pipeline(mini, "SELECT id, half FROM s", "halves")
    feed(mini, line(1, 1, "1"), line(2, 2, "x"))
    assert mini.output(plain) == [(1,), (2,)]
    said = mini.hub.pipelines["halves"].status().error or ""
    assert "[BAD_RECORD]" in said and "line 2" in said and "half" in said


def test_a_bad_computed_event_time_rejects_the_row_for_all(mini: Mini) -> None:
    stream(mini)
    p = pipeline(mini, "SELECT id FROM s")
    feed(mini, line(1, 1), line(2, "yesterday"), line(3, 3))
    assert mini.output(p) == [(1,), (3,)]
    assert status(mini).bad == {"bad_computed": 1}
    assert status(mini).rejected == 1


def test_a_bad_value_that_the_expression_reads_is_a_bad_computed_value(mini: Mini) -> None:
    stream(mini, "on_error = 'skip'", columns="id BIGINT, v INT, twice INT AS v * 2")
    plain = pipeline(mini, "SELECT id FROM s")
    p = pipeline(mini, "SELECT id, twice FROM s", "doubled")
    feed(mini, '{"id": 1, "v": 4}', '{"id": 2, "v": "x"}', '{"id": 3}', '{"id": 4, "v": 2000000000}')
    assert mini.output(plain) == [(1,), (2,), (3,), (4,)]
    assert mini.output(p) == [(1, 8), (3, None)]
    assert status(mini).bad == {"bad_integer": 1, "bad_computed": 1}


def test_the_columns_of_csv_records_keep_their_order_around_computed_ones(mini: Mini) -> None:
    columns = "up STRING AS upper(word), n INT, word STRING, at TIMESTAMP AS to_timestamp(day), day STRING"
    stream(mini, "header = 'true'", fmt="csv", columns=columns)
    p = pipeline(mini, "SELECT up, n, at FROM s WHERE up > 'A'")
    q = pipeline(mini, "SELECT word, day FROM s", "others")
    feed(mini, "n,word,day", "1,b,2024-01-01", "x,c,2024-01-02", "3,-,2024-01-03", name="a.csv")
    day = [dt.datetime(2024, 1, d, tzinfo=dt.UTC) for d in (1, 2)]
    assert mini.output(p) == [("B", 1, day[0]), ("C", None, day[1])]
    assert mini.output(q) == [("b", "2024-01-01"), ("c", "2024-01-02"), ("-", "2024-01-03")]
    assert status(mini).bad == {"bad_integer": 1}


def test_describe_show_create_and_explain_show_the_expression(mini: Mini) -> None:
    stream(mini)
    expression = "to_timestamp(raw, 'dd/MMM/yyyy:HH:mm:ss Z')"
    described = mini.hub.sql("DESCRIBE s")[0].render()
    assert f"ts TIMESTAMP AS {expression}\n" in described
    assert "cents BIGINT AS CAST(amount AS BIGINT) * 100\n" in described
    assert expression in mini.hub.sql("SHOW CREATE STREAM s")[0].render()
    pipeline(mini, "SELECT id FROM s")
    mini.drain()
    shown = mini.hub.sql("EXPLAIN SELECT half FROM s")[0].render()
    assert f"computed: ts = {expression}" in shown
    assert "computed: half = cents / 2" in shown
    assert "computed: cents" not in shown  # inlined
    assert "adding this pipeline: decode +2 columns: amount, half" in shown
    found = json.loads(str(mini.hub.sql("EXPLAIN JSON SELECT half FROM s")[0]))
    assert found["stream"]["computed"] == {"ts": expression, "half": "cents / 2"}


def test_it_survives_a_restart(mini: Mini) -> None:
    stream(mini)
    p = pipeline(mini, "SELECT id, half FROM s")
    mini.crash()
    feed(mini, line(1, 1, "3"))
    assert mini.output(p) == [(1, 150.0)]


@pytest.mark.parametrize("share", [1, 40, 120])
def test_any_number_of_rows_may_fail(mini: Mini, share: int) -> None:
    columns = "id BIGINT, v STRING, plain BIGINT AS CAST(v AS BIGINT), other BIGINT AS abs(CAST(v AS BIGINT)) + 1"
    stream(mini, columns=columns)
    p = pipeline(mini, "SELECT id, plain, other FROM s")
    texts = ["x" if i % share == 0 else None if i % 7 == 0 else str(-i) for i in range(120)]
    feed(mini, *(json.dumps({"id": i, "v": v}) for i, v in enumerate(texts)))
    wanted = [None if v in ("x", None) else int(v or 0) for v in texts]
    assert mini.output(p) == [(i, v, None if v is None else abs(v) + 1) for i, v in enumerate(wanted)]
    assert status(mini).bad == {"bad_computed": 2 * texts.count("x")}


def test_a_computed_char_column_is_padded_like_one_of_the_records(mini: Mini) -> None:
    stream(mini, columns="id BIGINT, v CHAR(3), w STRING, made CHAR(3) AS upper(w)")
    p = pipeline(mini, "SELECT v, made FROM s")
    feed(mini, *(json.dumps({"id": 1, "v": v, "w": v}) for v in ("a", "abcd", None)))
    assert mini.output(p) == [("a  ", "A  "), ("abcd", "ABCD"), (None, None)]


def test_many_bad_rows_are_found_in_one_pass(mini: Mini, monkeypatch: pytest.MonkeyPatch) -> None:
    queries: list[str] = []
    run = duck.run

    def counted(meaning: Meaning, sql: str, tables: Any) -> Any:
        queries.append(sql)
        return run(meaning, sql, tables)

    monkeypatch.setattr(duck, "run", counted)
    stream(mini, columns="id BIGINT, v INT, made DOUBLE AS 1 / v, odd STRING AS elt(v, 'error(''x'')')")
    p = pipeline(mini, "SELECT id, made, odd FROM s")
    feed(mini, *(json.dumps({"id": i, "v": i % 3}) for i in range(6000)))
    assert mini.output(p)[:3] == [(0, None, None), (1, 1.0, "error('x')"), (2, 0.5, None)]
    assert status(mini).bad == {"bad_computed": 2000 + 4000}
    assert len(queries) < 20


@pytest.mark.parametrize(
    ("columns", "code"),
    [
        ("a INT AS b + 1, b INT AS a + 1", "BAD_COMPUTED_COLUMN"),
        ("a INT AS a + 1, b INT", "BAD_COMPUTED_COLUMN"),
        ("a TIMESTAMP AS current_timestamp(), b INT", "BAD_COMPUTED_COLUMN"),
        ("a BIGINT AS count(b), b INT", "MISPLACED_AGGREGATE"),
        ("a INT AS rand(), b INT", "UNSUPPORTED_ON_SHARED"),
        ("a INT AS explode(b), b ARRAY<INT>", "UNSUPPORTED_ON_SHARED"),
        ("a INT AS upper(b), b STRING", "TYPE_MISMATCH"),
        ("a INT AS b, b BIGINT", "TYPE_MISMATCH"),
        ("a INT AS c, b INT", "UNKNOWN_COLUMN"),
        ("a AS b, b INT", "SYNTAX_ERROR"),
        ("a INT AS b b INT", "SYNTAX_ERROR"),
        ("a INT AS b, b INT, WATERMARK FOR a AS a", "BAD_WATERMARK"),
    ],
)
def test_a_wrong_computed_column_has_a_code(mini: Mini, columns: str, code: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        stream(mini, columns=columns)
    assert caught.value.code == code
    assert caught.value.span is not None


@pytest.mark.parametrize(
    ("columns", "good", "bad"),
    [
        (
            "id BIGINT, tags ARRAY<STRING>, made ARRAY<INT> AS CAST(tags AS ARRAY<INT>)",
            {"tags": ["7"]},
            {"tags": ["x"]},
        ),
        ("id BIGINT, b BINARY, made STRING AS CAST(b AS STRING)", {"b": "YQ=="}, {"b": "/w=="}),
    ],
)
def test_one_record_that_cannot_be_computed_is_one_bad_value(mini: Mini, columns: str, good: Any, bad: Any) -> None:
    """The lenient form of these casts does not show the failure, or fails itself."""
    stream(mini, columns=columns)
    used, other = pipeline(mini, "SELECT id, made FROM s"), pipeline(mini, "SELECT id FROM s", name="other")
    feed(mini, *(json.dumps({"id": i, **(bad if i == 1 else good)}) for i in range(3)))
    assert mini.output(other) == [(0,), (1,), (2,)]
    assert [made is None for _, made in mini.output(used)] == [False, True, False]
