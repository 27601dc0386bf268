"""Limits on what a pipeline may make of a batch: it runs in pieces that fit, and fails alone if a value is too
large."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from headrace.errors import OutOfMemory, ValueTooLarge
from headrace.exec import sizing
from headrace.exec.aggregates import finish
from headrace.exec.failures import coded
from headrace.model.definitions import PipelineDef
from headrace.model.program import Meaning
from headrace.ring0 import runner
from headrace.sql import (
    CreatePipeline,
    CreateSink,
    CreateStream,
    define_sink,
    define_stream,
    parse_script,
    plan_on_shared_host,
)
from headrace.state.catalog import Catalog
from tests.ring0.tasks import at, lines, task

STREAM = """
CREATE STREAM s (word STRING, n INT, x DOUBLE, ts TIMESTAMP, spare STRING,
  WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS) WITH (source = 'generator', format = 'json');
CREATE SINK m WITH (type = 'memory')
"""
RECORDS = lines(*({"word": f"w{i}", "n": i, "x": i / 2, "ts": at(i)} for i in range(40)))
NEIGHBOURS = (
    "SELECT word, n FROM s",
    "SELECT word, count(*) AS c, max(word) AS m FROM s GROUP BY window(ts, '10 seconds'), word",
    "SELECT word, count(*) AS c FROM s WHERE n > 3 GROUP BY window(ts, '10 seconds'), word",
)
GUILTY = {
    "output": "SELECT repeat(word, n * 1000000) AS a FROM s",
    "what is never put out": "SELECT length(repeat(word, n * 1000000)) AS a FROM s",
    "filter": "SELECT n FROM s WHERE length(repeat(word, n * 1000000)) > 5",
    "key": "SELECT count(*) AS c FROM s GROUP BY window(ts, '10 seconds'), lpad(word, n * 1000000, 'x')",
    "aggregate": "SELECT word, max(repeat(word, n * 1000000)) AS c FROM s GROUP BY window(ts, '10 seconds'), word",
    "chain": "SELECT " + " || ".join(["repeat(word, 900000)"] * 20) + " AS a FROM s",
}
GROWING = (
    "SELECT repeat(word, n) AS a, n FROM s",
    "SELECT word || word AS a FROM s WHERE length(repeat(word, n)) > 5",
    "SELECT word, max(repeat(word, n)) AS c FROM s GROUP BY window(ts, '10 seconds'), word",
    "SELECT repeat(word, 3) AS w, count(*) AS c FROM s GROUP BY window(ts, '10 seconds'), repeat(word, 3)",
)


def pipelines(*queries: str) -> list[PipelineDef]:
    names = Catalog()
    made: list[PipelineDef] = []
    script = STREAM + "".join(f";CREATE PIPELINE p{i} INTO m AS {q}" for i, q in enumerate(queries))
    for statement in parse_script(script):
        if isinstance(statement, CreateStream):
            names = names.with_stream(define_stream(statement, Meaning()))
        elif isinstance(statement, CreateSink):
            names = names.with_sink(define_sink(statement))
        else:
            assert isinstance(statement, CreatePipeline)
            planned = plan_on_shared_host(statement, names, Meaning())
            made.append(PipelineDef(statement.name, len(made) + 1, planned.sinks, planned.program, 2))
    return made


@pytest.mark.parametrize("guilty", GUILTY)
def test_a_value_that_is_too_large_fails_its_pipeline_alone(guilty: str) -> None:
    neighbours = pipelines(*NEIGHBOURS)
    *same, bad = pipelines(*NEIGHBOURS, GUILTY[guilty])
    without, sent = task(neighbours, RECORDS), task([*same, bad], RECORDS)
    assert list(sent.errors) == [bad.instance]
    assert "[VALUE_TOO_LARGE]" in sent.errors[bad.instance]
    assert "repeat(word" in sent.errors[bad.instance] or "lpad(word" in sent.errors[bad.instance]
    for neighbour in neighbours:
        assert sent.of(neighbour) == without.of(neighbour)


def test_the_sizes_of_rows_that_a_condition_excludes_do_not_count() -> None:
    guarded = pipelines(
        "SELECT repeat(word, n * 1000000) AS a FROM s WHERE n = 1",
        "SELECT CASE WHEN n = 1 THEN repeat(word, n * 1000000) ELSE '' END AS a FROM s",
        "SELECT n FROM s WHERE n = 1 AND length(repeat(word, n * 1000000)) > 1",
        "SELECT n FROM s WHERE n <> 1 OR length(repeat(word, n * 1000000)) > 1",
        "SELECT max(repeat(word, n * 1000000)) FILTER (WHERE n = 1) AS m FROM s GROUP BY window(ts, '1 hour')",
    )
    assert task(guarded, RECORDS).errors == {}


@pytest.mark.parametrize("query", GROWING)
def test_pieces_give_the_same_result_as_one_pass(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (pipeline,) = pipelines(query)
    whole = task([pipeline], RECORDS)
    monkeypatch.setattr(sizing, "PASS_BYTES", 64)
    monkeypatch.setattr(runner, "MERGE_BYTES", 1)
    cut = task([pipeline], RECORDS)
    assert not whole.errors and not cut.errors
    assert cut.of(pipeline) == whole.of(pipeline)


def test_a_select_list_that_multiplies_a_column_is_cut_and_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = "SELECT " + ", ".join(f"spare AS a{i}" for i in range(200)) + " FROM s"
    (pipeline,) = pipelines(wide)
    monkeypatch.setattr(sizing, "PASS_BYTES", 1 << 20)
    records = lines(*({"word": "w", "spare": "x" * 4000, "ts": at(1)} for _ in range(5)))
    assert task([pipeline], records).errors == {}
    monkeypatch.setattr(sizing, "MAX_ROW", 500_000)
    assert "[VALUE_TOO_LARGE]" in task([pipeline], records).errors[1]
    (kept,) = pipelines(wide + " WHERE length(spare) < 10")
    assert task([kept], records).errors == {}, "rows that the filter drops are not looked at"


def test_the_output_of_groups_is_cut_into_pieces_and_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    (pipeline,) = pipelines("SELECT repeat(word, 5) AS w, count(*) AS n FROM s GROUP BY word HAVING count(*) > 0")
    program = pipeline.program.ring1
    assert program is not None
    groups = pa.table({"k0": [f"w{i}" for i in range(50)], "p0": pa.array(range(50), pa.int64())})
    whole = finish(program, Meaning(), groups)
    monkeypatch.setattr(sizing, "PASS_BYTES", 64)
    assert finish(program, Meaning(), groups).equals(whole)
    monkeypatch.setattr(sizing, "HELD_BYTES", 100)
    with pytest.raises(OutOfMemory):
        finish(program, Meaning(), groups)
    monkeypatch.setattr(sizing, "MAX_VALUE", 8)
    with pytest.raises(ValueTooLarge) as caught:
        finish(program, Meaning(), groups)
    assert caught.value.params["expression"] == "repeat(word, 5)"


def test_partials_that_a_task_cannot_hold_fail_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    (pipeline,) = pipelines(NEIGHBOURS[1])
    monkeypatch.setattr(runner, "MERGE_BYTES", 1)
    monkeypatch.setattr(sizing, "HELD_BYTES", 100)
    assert "[OUT_OF_MEMORY]" in task([pipeline], RECORDS, RECORDS).errors[1]


def test_running_out_of_memory_in_duckdb_has_its_own_code() -> None:
    import duckdb

    assert coded(duckdb.OutOfMemoryException("failed to allocate")).code == "OUT_OF_MEMORY"
    assert coded(MemoryError()).code == "OUT_OF_MEMORY"


PROGRAM = """
import resource, sys
from dataclasses import replace
from headrace.model.definitions import LateRows
from headrace.model.program import Expression
from headrace.model.schema import INT
from tests.ring0.test_sizes import pipelines, task
from tests.ring0.tasks import at, lines

records = lines(*({"word": "w" * 10, "n": 100_000, "ts": at(1)} for i in range(1_000)))
few = pipelines("SELECT word FROM s")
task(few, records)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
made = pipelines(sys.argv[1])
if made[0].program.ring0.window is not None:
    made = [replace(made[0], late=LateRows(made[0].sinks[0], (Expression("n", INT, "c1"),)))]
sent = task(made, records, watermark=3_600_000_000)
print("grown:", (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, *sent.errors.values())
"""


def grown(query: str) -> tuple[int, str]:
    """By how many megabytes a process grew, and the errors."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM, query], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    _, _, printed = ran.stdout.partition("grown: ")  # DuckDB may show its progress before
    size, *errors = printed.split(maxsplit=1)
    return int(size), "".join(errors).strip()


def test_a_worker_stays_small_whatever_a_pipeline_makes_of_its_rows() -> None:
    # 1,000 values of 1 MB each: DuckDB would evaluate all of them at once.
    size, error = grown("SELECT n FROM s WHERE length(repeat(word, n)) > 5")
    assert error == ""
    assert size < 600


def test_a_worker_stays_small_while_the_row_that_failed_is_looked_for() -> None:
    size, error = grown("SELECT CAST(repeat(word, n) AS INT) AS a FROM s")
    assert "EVALUATION_FAILED" in error
    assert "where word = 'wwwwwwwwww', n = 100000" in error
    assert size < 600


def test_a_worker_stays_small_while_it_looks_for_late_rows() -> None:
    query = "SELECT count(*) AS c FROM s WHERE length(repeat(word, n)) > 5 GROUP BY window(ts, '10 seconds')"
    size, error = grown(query)
    assert error == ""
    assert size < 600
