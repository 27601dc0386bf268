"""Generators in a task: rows of arrays, before filters and aggregates, and how much memory they may take."""

from __future__ import annotations

import pytest

from headrace.exec import sizing
from headrace.model.codec import dump, load
from headrace.model.program import PipelineProgram
from tests.ring0.tasks import SECOND, at, lines, task
from tests.ring0.test_sizes import pipelines

RECORDS = lines(*({"word": f"w{i % 3}", "n": i % 5, "x": i / 2, "ts": at(i)} for i in range(40)))
EACH = "LATERAL VIEW explode(sequence(1, n)) t AS i"
QUERIES = (
    f"SELECT word, n, i FROM s {EACH} WHERE i <> 2 AND n > 1",
    f"SELECT i, count(*) AS c, sum(n) AS s FROM s {EACH} GROUP BY i",
    f"SELECT word, i, count(*) AS c FROM s {EACH} WHERE i < 3 GROUP BY window(ts, '10 seconds'), word, i",
    "SELECT word, posexplode(array(word, repeat(word, n))) AS (p, w) FROM s WHERE length(repeat(word, n)) > 3",
)


def test_a_generator_makes_one_row_per_element_in_order() -> None:
    (only,) = pipelines(f"SELECT n, i FROM s {EACH}")
    records = lines({"n": 2, "ts": at(1)}, {"n": None, "ts": at(2)}, {"n": 1, "ts": at(3)})
    assert task([only], records).rows[1] == [{"n": 2, "i": 1}, {"n": 2, "i": 2}, {"n": 1, "i": 1}]


def test_json_tuple_makes_one_row_with_the_texts_of_the_fields() -> None:
    queries = (
        "SELECT json_tuple(word, 'a', 'b') FROM s",
        "SELECT n, p, q FROM s LATERAL VIEW json_tuple(word, 'b', 'c') t AS p, q",
    )
    records = lines({"word": '{"a":1.50,"b":[1, 2],"a":2}', "n": 1, "ts": at(1)}, {"word": "no", "n": 2, "ts": at(2)})
    sent = task(pipelines(*queries), records)
    assert sent.rows[1] == [{"c0": "2", "c1": "[1,2]"}, {"c0": None, "c1": None}]
    assert sent.rows[2] == [{"n": 1, "p": "[1,2]", "q": None}, {"n": 2, "p": None, "q": None}]


def test_a_row_without_elements_makes_a_row_of_nulls_if_outer() -> None:
    queries = ("SELECT n, explode(filter(array(n), e -> e > 1)) AS e FROM s",
               "SELECT n, explode_outer(filter(array(n), e -> e > 1)) AS e FROM s")  # fmt: skip
    records = lines({"n": 1, "ts": at(1)}, {"n": 2, "ts": at(2)})
    sent = task(pipelines(*queries), records)
    assert sent.rows[1] == [{"n": 2, "e": 2}]
    assert sent.rows[2] == [{"n": 1, "e": None}, {"n": 2, "e": 2}]


def test_made_rows_do_not_depend_on_the_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = pipelines(*QUERIES)
    whole = task(planned, RECORDS)
    assert not whole.errors
    monkeypatch.setattr(sizing, "PASS_BYTES", 300)
    pieces = task(planned, RECORDS)
    assert [pieces.of(p) for p in planned] == [whole.of(p) for p in planned]


def test_pipelines_with_the_same_filter_and_generator_run_beside_each_other() -> None:
    alone = [task([p], RECORDS).of(p) for p in pipelines(*QUERIES, *QUERIES)]
    together = pipelines(*QUERIES, *QUERIES)
    sent = task(together, RECORDS)
    assert [sent.of(p)["events"] for p in together] == [one["events"] for one in alone]
    assert [sent.of(p)["rows"] for p in together] == [one["rows"] for one in alone]


def test_a_row_that_would_make_too_many_bytes_fails_its_pipeline_alone() -> None:
    good, bad = pipelines("SELECT n FROM s", "SELECT spare, explode(sequence(1, n)) AS i FROM s")
    records = lines({"n": 900_000, "spare": "x" * 1000, "ts": at(1)})
    sent = task([good, bad], records)
    assert sent.rows[1] == [{"n": 900_000}]
    assert list(sent.errors) == [2] and "[VALUE_TOO_LARGE]" in sent.errors[2]


def test_a_long_row_that_the_filter_drops_does_no_harm() -> None:
    (only,) = pipelines("SELECT spare, explode(sequence(1, n)) AS i FROM s WHERE n < 3")
    records = lines({"n": 900_000_000, "spare": "x" * 1000, "ts": at(1)}, {"n": 1, "spare": "y", "ts": at(2)})
    sent = task([only], records)
    assert not sent.errors and sent.rows[1] == [{"spare": "y", "i": 1}]


def test_a_global_aggregate_over_no_made_rows_has_its_row() -> None:
    (only,) = pipelines("SELECT count(*) AS c, max(i) AS m FROM (SELECT explode(sequence(1, n)) AS i FROM s)")
    sent = task([only], lines({"n": None, "ts": at(1)}), ending=True)
    assert not sent.errors
    assert [event["p0"] for events in sent.events.values() for event in events] == [0]


def test_late_rows_are_counted_by_made_rows() -> None:
    (planned,) = pipelines(f"SELECT i, count(*) AS c FROM s {EACH} GROUP BY window(ts, '10 seconds'), i")
    assert planned.program.family is None
    sent = task([planned], lines({"n": 3, "ts": at(1)}, {"n": 2, "ts": at(95)}), watermark=60 * SECOND)
    assert sent.counts[1].late == 3
    assert sum(event["p0"] for events in sent.events.values() for event in events) == 2


def test_a_program_with_generators_is_stored_and_read_back() -> None:
    for planned in pipelines(*QUERIES):
        assert load(PipelineProgram, dump(planned.program)) == planned.program
