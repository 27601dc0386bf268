"""The limits of planning, and the bounds on the size of values."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import HeadraceError, PlanningTimeout, Span, ValueTooLarge
from headrace.exec import duck, sizing
from headrace.model.program import Meaning
from headrace.sql.functions.evaluate import evaluate
from headrace.sql.plan import limits
from tests.sql.support import plan
from tests.strategies import examples

DOUBLING = ", ".join(
    ["t0 AS (SELECT k || k AS k FROM s)", *(f"t{i} AS (SELECT k || k AS k FROM t{i - 1})" for i in range(1, 40))]
)
HARD = {
    "a subquery that doubles a column at every step": (f"WITH {DOUBLING} SELECT k FROM t39", "UNSUPPORTED_ON_SHARED"),
    "the same over a constant": (
        f"WITH {DOUBLING.replace('k || k AS k FROM s', repr('xxxx') + ' AS k FROM s')} SELECT k FROM t39",
        "UNSUPPORTED_ON_SHARED",
    ),
    "many ORs": ("SELECT k FROM s WHERE " + " OR ".join(f"n = {i}" for i in range(10_000)), "SYNTAX_ERROR"),
    "many parentheses": ("SELECT " + "(" * 10_000 + "1" + ")" * 10_000 + " AS a FROM s", "SYNTAX_ERROR"),
    "many minus signs": ("SELECT " + "- " * 10_000 + "n AS a FROM s", "SYNTAX_ERROR"),
    "many NOTs": ("SELECT k FROM s WHERE " + "NOT " * 10_000 + "ok", "SYNTAX_ERROR"),
    "many subqueries": ("SELECT k FROM " + "(SELECT * FROM " * 2_000 + "s" + ")" * 2_000, "SYNTAX_ERROR"),
    "a long sum": ("SELECT " + " + ".join(["n"] * 2_000) + " AS a FROM s", "SYNTAX_ERROR"),
    "a number of 5,000 digits": ("SELECT " + "9" * 5_000 + " AS a FROM s", "BAD_LITERAL"),
    "a power of ten": ("SELECT 1e999999999BD AS a FROM s", "BAD_LITERAL"),
}


@pytest.mark.parametrize("case", HARD)
def test_a_query_that_would_take_too_long_to_plan_gets_a_coded_error(case: str) -> None:
    query, code = HARD[case]
    with pytest.raises(HeadraceError) as caught:
        plan(query)
    assert caught.value.code == code


def test_planning_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PLANNING_SECONDS", 0.0)
    with pytest.raises(PlanningTimeout) as caught:
        plan("SELECT k || k AS k FROM s WHERE n > 1")
    assert caught.value.span is not None
    monkeypatch.undo()
    assert plan("SELECT k || k AS k FROM s WHERE n > 1")


# DuckDB takes 8 s on a busy core for this one function call, in which nothing interrupts it.
SLOW = f"regexp_extract(repeat('a', 8000), '{'(?:aa?a?a?){200}' * 36}(b)', 1)"


@pytest.mark.parametrize("query", [f"SELECT {SLOW} AS a FROM s", f"SELECT k FROM s WHERE {SLOW} = 'x' OR {SLOW} = k"])
def test_the_time_limit_ends_planning_in_the_middle_of_a_constant(monkeypatch: pytest.MonkeyPatch, query: str) -> None:
    plan("SELECT 1 + 1 AS a FROM s")
    monkeypatch.setattr(limits, "PLANNING_SECONDS", 0.2)
    began = time.monotonic()
    with pytest.raises(PlanningTimeout):
        plan(query)
    assert time.monotonic() - began < 3
    monkeypatch.undo()
    (output,) = plan("SELECT 1 + 1 AS a FROM s").program.ring0.outputs
    assert output.sql == "2::INTEGER"


# Python's `re` takes years for this match, and no other thread of its process runs meanwhile.
ENDLESS = "regexp_replace('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab', '(a+)+$', 'x')"


@pytest.mark.parametrize("query", [f"SELECT {ENDLESS} AS a FROM s", f"SELECT k FROM s WHERE k = {ENDLESS}"])
def test_a_match_that_never_ends_stops_no_other_thread(monkeypatch: pytest.MonkeyPatch, query: str) -> None:
    (output,) = plan("SELECT regexp_replace('aab', '(a+)+$|b', 'x') AS a FROM s").program.ring0.outputs
    assert output.sql == "'aax'"
    monkeypatch.setattr(limits, "PLANNING_SECONDS", 0.5)
    began = time.monotonic()
    with pytest.raises(PlanningTimeout):
        plan(query)
    assert time.monotonic() - began < 5
    monkeypatch.undo()
    with pytest.raises(duckdb.InvalidInputException):
        evaluate("hr_regex_replace('ab', 'b(?=', 'x', 1)", "UTC")
    assert evaluate("hr_regex_replace('ab', 'b$', 'x', 1)", "UTC") == "ax"


EXITS = """
import sys
from headrace.errors import PlanningTimeout, Span
from headrace.sql.functions import evaluate
from headrace.sql.plan.limits import planning_time
evaluate.EXIT_SECONDS = float(sys.argv[2])
try:
    with planning_time(Span("", 0, 0), 0.2):
        evaluate.evaluate(sys.argv[1], "UTC")
except PlanningTimeout as problem:
    print(problem.code, flush=True)
"""


@pytest.mark.parametrize(
    ("size", "patience"), [(8000, 60.0), (480000, 0.1)], ids=["ends soon", "takes more than a minute"]
)
def test_a_process_exits_while_an_abandoned_constant_is_still_evaluated(size: int, patience: float) -> None:
    slow = SLOW.replace("8000", str(size))
    command = [sys.executable, "-c", EXITS, slow, str(patience)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == PlanningTimeout.code
            assert process.wait(timeout=patience + 60) == 0
        finally:
            process.kill()


COMMAND = """
import sys, time
from headrace.app import entry
from headrace.sql.functions import evaluate
from headrace.sql.plan import limits
evaluate.EXIT_SECONDS, limits.PLANNING_SECONDS = 0.1, 0.2


class Late:
    def __del__(self, sleep=time.sleep):
        sleep(60)  # Python finalizes until the constant is evaluated


sys.modules["late"] = Late()
sys.argv = ["headrace", "check", sys.argv[1]]
entry.main()
"""


def test_a_constant_that_ends_while_the_command_exits_does_not_abort_it(tmp_path: Path) -> None:
    script = tmp_path / "slow.sql"
    script.write_text(
        "CREATE STREAM s (k STRING) WITH (source = 'generator', format = 'json', rows = '1');\n"
        "CREATE SINK o WITH (type = 'noop');\n"
        f"CREATE PIPELINE p INTO o AS SELECT {SLOW} AS a FROM s;\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", COMMAND, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert PlanningTimeout.code in ended.stdout + ended.stderr
    assert ended.returncode == 2


def test_a_process_that_has_evaluated_constants_ends_without_a_report_of_open_connections() -> None:
    script = "from headrace.sql.functions.evaluate import evaluate; print(evaluate('1 + 1', 'UTC'))"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert (ended.stdout.strip(), ended.stderr) == ("2", "")


# DuckDB takes about 2 s for it, and can be interrupted meanwhile.
LONG = "(SELECT count(*) FROM range(400000000) AS t(i) WHERE i % 7 = 3)"


def test_a_time_limit_of_one_caller_does_not_interrupt_the_constant_of_another() -> None:
    with ThreadPoolExecutor(1) as other:
        first = evaluate("1", "UTC")
        running = other.submit(evaluate, LONG, "UTC")
        time.sleep(0.3)  # it runs now
        with pytest.raises(PlanningTimeout), limits.planning_time(Span("", 0, 0), 0.1):
            evaluate("2", "UTC")
        assert not running.done()
        assert (first, running.result(60)) == (1, 57142857)


def test_a_long_constant_stays_out_of_the_plan() -> None:
    (output,) = plan("SELECT repeat('x', 100000) AS a FROM s").program.ring0.outputs
    assert len(output.sql) < 100
    (output,) = plan("SELECT repeat('x', 100) AS a FROM s").program.ring0.outputs
    assert output.sql == f"'{'x' * 100}'"


GROWING = (
    "repeat(k, id)", "repeat(k, 7)", "k || attrs['a'] || k", "concat(k, '-', k)", "concat_ws('..', k, k, 'é')",
    "lpad(k, id, 'é')", "rpad(k, id, k)", "replace(k, 'a', 'bcd')", "replace(k, 'ab', k)", "replace(k, k, 'é')",
    "regexp_replace(k, 'a|b', 'xyz')", "translate(k, 'ab', 'éü')", "upper(k) || lower(k)",
    "repeat(replace(k, 'a', 'bb'), id)", "CASE WHEN id > 3 THEN repeat(k, id) ELSE k END",
    "coalesce(repeat(k, id), k || k)", "left(repeat(k, 5), 3) || k", "repeat(CAST(n AS STRING), id)",
    "repeat(substring(k, 2), id) || tags[0]", "format_string('%1$s-%1$s%2$5d', k, id)",
    "overlay(k PLACING k FROM 2)", "hex(hex(hex(k)))", "url_encode(quote(upper(k)))", "array_join(split(k, 'a'), '--')",
    "repeat(split(k, 'a')[0], id)", "array_join(split(k, '\\\\.'), '--')",
)  # fmt: skip


@settings(max_examples=examples(25), deadline=None)
@given(
    st.lists(st.sampled_from(GROWING), min_size=1, max_size=4),
    st.lists(
        st.tuples(st.none() | st.text("abéß ", max_size=6), st.none() | st.integers(-3, 12)), min_size=1, max_size=8
    ),
)
def test_no_value_is_larger_than_its_bound(
    expressions: list[str], given_rows: list[tuple[str | None, int | None]]
) -> None:
    program = plan("SELECT " + ", ".join(f"{e} AS a{i}" for i, e in enumerate(expressions)) + " FROM s").program
    growth = program.ring0.growth
    rows = pa.table(
        {
            "c0": pa.array([n for _, n in given_rows], pa.int32()),
            "c3": pa.array([k for k, _ in given_rows], pa.string()),
            "c5": pa.array([n for _, n in given_rows], pa.int64()),
            "c9": pa.array([[k] for k, _ in given_rows], pa.list_(pa.string())),
            "c10": pa.array([[("a", k)] for k, _ in given_rows], pa.map_(pa.string(), pa.string())),
        }
    )
    bounds = ", ".join(f"({v.sql})" for v in growth.values) or "0"
    made = " + ".join(f"coalesce(strlen({o.sql}), 0)" for o in program.ring0.outputs)
    found = duck.run(
        Meaning(), f"SELECT list_sum([{bounds}]) + {growth.plain} AS bound, {made} AS made FROM rows", {"rows": rows}
    )
    for row in found.to_pylist():
        assert row["made"] <= row["bound"]
    if growth.columns is not None:  # the bound that looks at no row holds as well
        total = growth.fixed * rows.num_rows + sum(n * rows.column(c).nbytes for c, n in growth.columns.items())
        assert sum(row["made"] for row in found.to_pylist()) <= total


MULTIPLYING = (
    "length(hex(hex(hex(hex(k)))))", "length(url_encode(url_encode(url_encode(k))))", "size(split(k, ''))",
    "size(array_distinct(split(k, ',')))", "size(regexp_extract_all(k, '(.)', 1))", "length(to_json(split(k, '')))",
    "size(transform(split(k, ''), x -> x))", "transform(tags, x -> length(hex(hex(hex(k)))))",
    "CASE WHEN id > 0 THEN length(hex(hex(hex(hex(k))))) END",
    "size(from_json(k, 'x array<struct<a: string, b: string, c: string>>').x)",
)  # fmt: skip


@pytest.mark.parametrize("expression", MULTIPLYING)
@pytest.mark.parametrize("query", ["SELECT {} AS a FROM s", "SELECT k FROM s WHERE {} IS NOT NULL"])
def test_a_batch_is_cut_where_an_expression_takes_much_more_memory_than_its_result(expression: str, query: str) -> None:
    growth = plan(query.format(expression)).program.ring0.growth
    rows = pa.table(
        {
            "c0": pa.array([1] * 16, pa.int32()),
            "c3": pa.array([",\\é" * 262_144] * 16, pa.string()),
            "c9": pa.array([["x"] * 8] * 16, pa.list_(pa.string())),
        }
    )
    assert len(sizing.in_pieces(growth, Meaning(), "rows", rows)) > 1
    few = rows.slice(0, 1).set_column(1, "c3", pa.array(["a"], pa.string()))
    assert sizing.in_pieces(growth, Meaning(), "rows", few) == [few]


def test_a_row_whose_expression_may_take_much_memory_is_refused_only_where_that_is_very_much() -> None:
    growth = plan("SELECT length(to_json(split(k, ''))) AS a FROM s").program.ring0.growth
    one = pa.table({"c3": pa.array(["x" * 1_000_000], pa.string())})
    assert sizing.in_pieces(growth, Meaning(), "rows", one) == [one]
    growth = plan(f"SELECT length({'hex(' * 12}k{')' * 12}) AS a FROM s").program.ring0.growth
    with pytest.raises(ValueTooLarge):
        sizing.in_pieces(growth, Meaning(), "rows", one)


def test_texts_that_are_cut_again_and_again_take_no_more_memory_than_their_lists() -> None:
    expression = "k"
    for between in (",", ";", "[|]", ":", "=", "&"):
        expression = f"split({expression}, '{between}')[0]"
    growth = plan(f"SELECT {expression} AS a FROM s").program.ring0.growth
    assert len(growth.plain) < 20_000
    one = pa.table({"c3": pa.array(["x" * 4_000_000], pa.string())})
    assert sizing.in_pieces(growth, Meaning(), "rows", one) == [one]
    columns = ", ".join(f"split(k, '\\\\|')[{i}] AS a{i}" for i in range(30))
    growth = plan(f"SELECT {columns} FROM s").program.ring0.growth
    for text, pieces in (("x" * 1_000, 2), ("|" * 1_000, 16)):
        rows = pa.table({"c3": pa.array([text] * 2_000, pa.string())})
        assert len(sizing.in_pieces(growth, Meaning(), "rows", rows)) in range(pieces, 2 * pieces)


def test_a_list_that_is_null_takes_no_memory() -> None:
    growth = plan("SELECT split(nullif(k, lower(k)), ',') AS a, url_encode(k) AS b FROM s").program.ring0.growth
    rows = pa.table({"c3": pa.array(["x" * 500_000] * 80, pa.string())})
    assert len(sizing.in_pieces(growth, Meaning(), "rows", rows)) == 2


@pytest.mark.parametrize("expression", ["format_string('{}', k)", "length(format_string('{}', k))"])
def test_a_format_that_writes_a_text_again_and_again_makes_no_large_value(expression: str) -> None:
    growth = plan(f"SELECT {expression.format('%1$s' * 100)} AS a FROM s").program.ring0.growth
    large = pa.table({"c3": pa.array(["x" * 1_000_000], pa.string())})
    with pytest.raises(ValueTooLarge):
        sizing.in_pieces(growth, Meaning(), "rows", large)
    assert len(sizing.in_pieces(growth, Meaning(), "rows", pa.table({"c3": pa.array(["x"], pa.string())}))) == 1


@pytest.mark.parametrize(
    ("first", "level"),
    [("ok", "CASE WHEN NOT ({}) THEN id IS NULL ELSE ok END"), ("id", "map({}, id)[id]"), ("id", "map(id, id)[{}]")],
)
def test_nested_conditions_and_maps_take_no_time_that_doubles_with_each_level(first: str, level: str) -> None:
    text = first
    for _ in range(20):
        text = level.format(text)
    with limits.planning_time(Span("", 0, 0), 20.0):
        planned = plan(f"SELECT {text} AS x FROM s")
    assert planned.program.ring0.outputs
