"""The grammar of statements."""

from __future__ import annotations

import time

import pytest

from headrace.errors import ScriptErrors, Span, SyntaxProblem
from headrace.errors.span import ELLIPSIS, WIDEST
from headrace.model.schema import Decimal, parse_type
from headrace.sql import (
    AlterPipeline,
    CreatePipeline,
    CreateSink,
    CreateStream,
    Describe,
    Drop,
    Explain,
    Select,
    Show,
    ShowCreate,
    StartPipeline,
    Statement,
    StopPipeline,
    altered,
    define_sink,
    define_stream,
    parse_script,
)
from headrace.sql.parse.script import parse_each
from tests.sql.support import MEANING, plan

STREAM = """CREATE STREAM IF NOT EXISTS `odd name` (
  id BIGINT, price DECIMAL(12,3) COMMENT 'in euros', nested STRUCT<a: ARRAY<INT>, b: MAP<STRING, DOUBLE>>,
  ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1 minute 30 seconds'
) WITH (source = 'generator', format = 'json', max_epoch_bytes = 1000000)"""


def one(text: str) -> Statement:
    (statement,) = parse_script(text)
    return statement


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("SET (max_groups = 5)", "CREATE PIPELINE p INTO a, b WITH (max_groups = 5) AS -- why\n SELECT x FROM s"),
        ("INTO c", "CREATE PIPELINE p INTO c AS -- why\n SELECT x FROM s"),
        ("AS SELECT y FROM t EMIT CHANGES", "CREATE PIPELINE p INTO a, b AS -- why\n SELECT y FROM t EMIT CHANGES"),
    ],
)
def test_alter_pipeline_changes_one_part_of_the_declaration(change: str, text: str) -> None:
    statement = one(f"ALTER PIPELINE p {change}")
    assert isinstance(statement, AlterPipeline)
    made = altered("CREATE PIPELINE p INTO a, b AS -- why\n SELECT x FROM s", statement)
    assert (made.sql, made.or_replace) == (text, True)


def test_alter_pipeline_sets_an_option_in_its_place_or_after_the_others() -> None:
    before = "CREATE PIPELINE p INTO a WITH (max_groups = 5, late_sink = 'l') AS SELECT x FROM s"
    statement = one("ALTER PIPELINE p SET (MAX_GROUPS = '7', static_refresh = 'once')")
    assert isinstance(statement, AlterPipeline)
    made = altered(before, statement)
    assert made.options == {"max_groups": "7", "late_sink": "l", "static_refresh": "once"}
    assert made.sql.index("'7'") < made.sql.index("late_sink") < made.sql.index("static_refresh")


@pytest.mark.parametrize("text", ["ALTER STREAM s SET (a = 1)", "ALTER PIPELINE p", "ALTER PIPELINE p SET ()"])
def test_alter_needs_a_pipeline_and_a_change(text: str) -> None:
    with pytest.raises(SyntaxProblem):
        one(text)


def test_create_stream_has_schema_event_time_delay_and_options() -> None:
    statement = one(STREAM)
    assert isinstance(statement, CreateStream)
    assert statement.name == "odd name"
    assert statement.if_not_exists and not statement.or_replace
    assert statement.schema.names == ("id", "price", "nested", "ts")
    assert statement.schema[1].type == Decimal(12, 3)
    assert statement.schema[2].type == parse_type("STRUCT<a: ARRAY<INT>, b: MAP<STRING, DOUBLE>>")
    assert (statement.event_time, statement.delay_us) == (3, 90_000_000)
    assert statement.options == {"source": "generator", "format": "json", "max_epoch_bytes": "1000000"}
    assert statement.sql == STREAM


def test_define_stream_takes_source_and_format_out_of_the_options() -> None:
    statement = one(STREAM)
    assert isinstance(statement, CreateStream)
    stream = define_stream(statement, MEANING)
    assert (stream.source, stream.format) == ("generator", "json")
    assert stream.options == {"max_epoch_bytes": "1000000"}
    assert stream.sql == STREAM


def test_option_names_may_have_dots_and_values_quotes() -> None:
    statement = one("CREATE OR REPLACE SINK x WITH (type = 'memory', a.b = 'it''s', c = -5)")
    assert isinstance(statement, CreateSink)
    assert statement.options == {"type": "memory", "a.b": "it's", "c": "-5"}
    assert statement.or_replace


def test_define_sink_keeps_the_kind_apart() -> None:
    statement = one("CREATE SINK x WITH (type = 'MEMORY')")
    assert isinstance(statement, CreateSink)
    assert (define_sink(statement).kind, define_sink(statement).options) == ("memory", {})


def test_create_pipeline_keeps_the_query_text_without_emit() -> None:
    statement = one("CREATE PIPELINE p INTO a, b AS\n  SELECT k, count(*) FROM s GROUP BY k EMIT CHANGES;")
    assert isinstance(statement, CreatePipeline)
    assert (statement.name, statement.sinks, statement.emit) == ("p", ("a", "b"), "changes")
    assert statement.query_sql == "SELECT k, count(*) FROM s GROUP BY k"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DROP STREAM IF EXISTS s", ("stream", "s", True)),
        ("drop pipeline p", ("pipeline", "p", False)),
        ("DROP SINK `my sink`", ("sink", "my sink", False)),
    ],
)
def test_drop_names_kind_and_condition(text: str, expected: tuple[str, str, bool]) -> None:
    statement = one(text)
    assert isinstance(statement, Drop)
    assert (statement.kind, statement.name, statement.if_exists) == expected


def test_show_describe_start_and_stop() -> None:
    script = """SHOW STREAMS; SHOW sinks; SHOW CREATE PIPELINE p; DESCRIBE s; DESC SINK x;
    START PIPELINE p; STOP PIPELINE p; STOP PIPELINE p NOW; STOP PIPELINE p GRACEFUL"""
    statements = parse_script(script)
    kinds = [Show, Show, ShowCreate, Describe, Describe, StartPipeline, StopPipeline, StopPipeline, StopPipeline]
    assert [type(s) for s in statements] == kinds
    assert [s.mode for s in statements if isinstance(s, StopPipeline)] == ["graceful", "now", "graceful"]
    assert [(s.kind, s.name) for s in statements if isinstance(s, Describe)] == [(None, "s"), ("sink", "x")]


def test_explain_takes_a_query_a_create_or_a_name() -> None:
    statements = parse_script(
        "EXPLAIN SELECT id FROM s; EXPLAIN VERBOSE CREATE PIPELINE p INTO o AS SELECT id FROM s;EXPLAIN JSON PIPELINE p"
    )
    explains = [s for s in statements if isinstance(s, Explain)]
    assert [s.mode for s in explains] == ["plain", "verbose", "json"]
    assert isinstance(explains[0].target, Select)
    assert isinstance(explains[1].target, CreatePipeline)
    assert (explains[2].target, explains[2].pipeline) == (None, "p")


def test_comments_and_empty_statements_vanish() -> None:
    script = "-- first; not a statement\n;;SELECT id /* ; */ FROM s -- end\n;\n"
    (statement,) = parse_script(script)
    assert statement.sql == "SELECT id /* ; */ FROM s"


def test_an_empty_script_has_no_statements() -> None:
    assert parse_script("  -- nothing\n") == ()


def test_an_error_names_the_statement_the_line_and_the_column() -> None:
    with pytest.raises(SyntaxProblem) as caught:
        parse_script("SHOW STREAMS;\nSHOW SINKS;\n  SELECT id FRM s;")
    span = caught.value.span
    assert span is not None
    assert (span.statement, span.line) == (3, 3)
    assert "^" in span.caret()


def test_all_statements_with_errors_are_reported_at_once() -> None:
    with pytest.raises(ScriptErrors) as caught:
        parse_script("SELEC 1;\nSHOW STREAMS;\nDROP THING x;\nSELECT FROM s")
    assert [e.span.statement for e in caught.value.errors if e.span is not None] == [1, 3, 4]
    assert caught.value.render().count("[SYNTAX_ERROR]") == 3


def test_an_error_survives_being_pickled() -> None:
    import pickle

    with pytest.raises(ScriptErrors) as caught:
        parse_script("SELEC 1; SELEC 2")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert [e.code for e in copy.errors] == ["SYNTAX_ERROR", "SYNTAX_ERROR"]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + "(" * 5000 + "1" + ")" * 5000 + " AS a FROM s",
        "SELECT " + "NOT " * 5000 + "ok AS a FROM s",
        "SELECT id FROM s WHERE " + " OR ".join(f"id = {i}" for i in range(5000)),
        "SELECT * FROM " + "(SELECT * FROM " * 500 + "s" + ")" * 500,
        "SELECT " + "-(" * 400 + "id" + ")" * 400 + " AS a FROM s",
    ],
    ids=["parentheses", "not", "or", "subqueries", "minus"],
)
def test_deep_nesting_is_a_syntax_error_and_not_a_crash(text: str) -> None:
    with pytest.raises(SyntaxProblem):
        plan(text)


def test_a_few_hundred_conditions_are_no_problem() -> None:
    planned = plan("SELECT id FROM s WHERE " + " OR ".join(f"id = {i}" for i in range(150)))
    assert planned.program.ring0.filter is not None


@pytest.mark.parametrize(
    "first",
    [
        "SELECT id FROM s",
        "SELECT id FROM s WHERE id > 3",
        "SELECT id FROM s LIMIT 3",
        "SELECT id FROM s ORDER BY id",
        "CREATE SINK k WITH (type = 'memory')",
        "CREATE PIPELINE p INTO k AS SELECT id FROM s EMIT CHANGES",
        "SHOW STREAMS",
        "DROP PIPELINE p",
    ],
)
def test_a_missing_semicolon_is_reported_at_the_end_of_the_statement_that_lacks_it(first: str) -> None:
    with pytest.raises(SyntaxProblem) as caught:
        parse_script(f"{first}  -- the first\nCREATE SINK other WITH (type = 'memory')")
    span = caught.value.span
    assert span is not None and (span.line, span.column) == (1, len(first) + 1)
    assert "';'" in caught.value.message


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id,\n  drop\nFROM s ORDER BY id",
        "SELECT id FROM s WHERE id >\n3 UNION SELECT id FROM s",
        "SELECT id FROM s\nUNION\nSELECT id FROM s ORDER BY 1",
        "SELECT id FROM s AS stop",
        "SELECT sum(id) OVER (PARTITION BY id ORDER BY id * 2\nDESC) AS a FROM s",
        "SELECT a FROM (SELECT id AS a FROM s ORDER BY 1\nDESC) AS t",
        "SELECT id FROM s ORDER BY 1\nDESC LIMIT 5",
        "SELECT id, sum(n) OVER (ORDER BY id) AS a FROM s GROUP BY id, 2\nWITH ROLLUP",
        "FROM s JOIN t ON s.id = 5 SELECT s.id",
        "SELECT s.id FROM s JOIN t ON s.id = t.id WHERE drop OR alter OR ok",
    ],
)
def test_a_query_over_several_lines_lacks_no_semicolon(query: str) -> None:
    (statement,) = parse_script(query)
    assert isinstance(statement, Select)


def test_the_names_of_statements_without_a_semicolon_between_them_are_not_reported_as_unknown() -> None:
    parsed = parse_each("CREATE SINK one WITH (type = 'memory')\nCREATE SINK two WITH (type = 'memory')")
    assert parsed.undeclared == {"one", "two"}


def test_an_error_shows_the_whole_line_up_to_a_width_and_marks_where_it_is_cut() -> None:
    line = "SELECT id, " + "a" * 400 + ", wrong, " + "b" * 400 + "end"
    for word, cut in (("id,", (False, True)), ("wrong", (True, True)), ("bbb", (True, True)), ("end", (True, False))):
        start = line.index(word)
        span = Span(f"one\n{line}\nthree", 4 + start, 4 + start + 3)
        shown, carets = span.caret().split("\n")
        source = shown.removeprefix("2 | ")
        assert len(source) == WIDEST
        assert (source[0] == ELLIPSIS, source[-1] == ELLIPSIS) == cut
        at = carets.index("^") - len("2 | ")
        assert source[at : at + 3] == line[start : start + 3]
    short = "x" * WIDEST
    assert Span(short, 3, 4).caret().split("\n")[0] == f"1 | {short}"


@pytest.mark.parametrize(
    "option",
    [
        "password = 'hunter2'",
        "'kafka.sasl.password' = 'hunter2'",
        'password = "hunter2"',
        "`kafka.ssl.key.passphrase` = 'hunter2'",
        "header.authorization = 'Bearer hunter2'",
        "'header.x-api-key' = 'hunter2'",
        "kafka.sasl.oauthbearer.config = 'secret=hunter2'",
        "password =\n'it\\'s hunter2'",
        "token = 'it''s hunter2'",
        "url = 'http://me:hunter2@host'",
    ],
)
def test_a_line_that_an_error_shows_has_stars_for_its_secrets(option: str) -> None:
    text = f"CREATE SINK k WITH ({option}, wrong = 1, header.`x-source` = 'plant')"
    start = text.index("wrong")
    shown, carets = Span(text, start, start + 5).caret().split("\n")
    assert "hunter2" not in shown and "*******" in shown and "'plant'" in shown
    assert shown[carets.index("^") :].startswith("wrong = 1")


def test_stars_for_secrets_take_no_time_in_long_texts() -> None:
    began = time.process_time()
    for text in ("a.b.token" * 20_000, "header.auth-" * 20_000, "x" * 200_000, "token = '" + "a" * 200_000):
        Span(text, 0, 1).caret()
    assert time.process_time() - began < 5
