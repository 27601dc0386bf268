"""The grammar of one statement: CREATE is in `headrace.sql.parse.create_statements`, the others are here."""

from __future__ import annotations

from dataclasses import replace

from headrace.sql.parse.clauses import Clauses
from headrace.sql.parse.commands import refuse_command
from headrace.sql.parse.create_statements import KINDS, parse_create
from headrace.sql.parse.cursor import FIRST_WORDS, Cursor
from headrace.sql.parse.dialect import Token
from headrace.sql.parse.statements import (
    AlterPipeline,
    CreatePipeline,
    Describe,
    Drop,
    Explain,
    ExplainMode,
    Select,
    Show,
    ShowCreate,
    ShowKind,
    StartPipeline,
    Statement,
    StopMode,
    StopPipeline,
    TakeSavepoint,
)

_SHOWN: dict[str, ShowKind] = {"STREAMS": "streams", "SINKS": "sinks", "PIPELINES": "pipelines", "VIEWS": "views"}
_QUERY_WORDS = ("SELECT", "WITH", "FROM", "(")


def parse_tokens(text: str, tokens: list[Token], number: int) -> Statement:
    """The statement that `tokens` are, up to their end token. `number` is its place in the script, from 1."""
    cursor = Cursor(text, tokens, number)
    clauses = Clauses(cursor)
    if cursor.token.upper in _QUERY_WORDS:
        parsed: Statement = _bare_select(clauses)
    else:
        refuse_command(cursor)
        word = cursor.one_of("a statement", *FIRST_WORDS)
        parsed = {
            "CREATE": parse_create,
            "ALTER": _alter,
            "DROP": _drop,
            "SHOW": _show,
            "DESCRIBE": _describe,
            "DESC": _describe,
            "START": _start_pipeline,
            "STOP": _stop_pipeline,
            "SAVEPOINT": _savepoint,
            "EXPLAIN": _explain,
        }[word](clauses)
    clauses.finish()
    return parsed


def options_at_end(tokens: list[Token]) -> int | None:
    """Where WITH (...) begins at the end of a statement, after a query."""
    if len(tokens) < 7 or tokens[-2].upper != ")":
        return None
    opened = max((i for i, t in enumerate(tokens[:-2]) if t.upper == "("), default=0)
    return opened - 1 if opened > 1 and tokens[opened - 1].upper == "WITH" else None


def _bare_select(clauses: Clauses) -> Select:
    """A SELECT with options after it: SELECT ... LIMIT 5 WITH (timeout = '30s')."""
    cursor = clauses.cursor
    begin = options_at_end(cursor.tokens)
    if begin is None:
        return clauses.select()
    last = cursor.tokens[begin - 1].end
    query = Clauses(Cursor(cursor.text, [*cursor.tokens[:begin], Token("end", "", last, last)], cursor.statement))
    found = query.select()
    query.finish()
    cursor.move_to(begin)
    options, spans = clauses.options()
    return replace(found, sql=clauses.sql(), span=clauses.whole(), options=options, spans=spans)


def _alter(clauses: Clauses) -> AlterPipeline:
    cursor = clauses.cursor
    if cursor.token.upper in ("STREAM", "SINK", "VIEW"):
        kind = cursor.token.upper
        cursor.fail(f"a {kind.lower()} cannot be altered", advice=f"Use CREATE OR REPLACE {kind}.")
    cursor.expect("PIPELINE", "after ALTER")
    name = cursor.name("the name of the pipeline")
    part, start = cursor.one_of("what to change", "SET", "INTO", "AS"), cursor.token.start
    made = AlterPipeline(clauses.sql(), clauses.whole(), name)
    if part == "SET":
        options, spans = clauses.listed_options()
        if not options:
            cursor.fail("there is no option to set", advice="Write SET (option = 'value').")
        return replace(made, options=options, spans=spans)
    if part == "INTO":
        clauses.outlets()
        return replace(made, sinks=cursor.text[start : cursor.previous_end])
    clauses.query()
    return replace(made, query=cursor.text[start : clauses.stop])


def _drop(clauses: Clauses) -> Drop:
    cursor = clauses.cursor
    kind = cursor.one_of("STREAM, SINK, PIPELINE or VIEW after DROP", *KINDS)
    if_exists = cursor.accept("IF", "EXISTS")
    name = cursor.name(f"the name of the {kind.lower()}")
    if kind == "SINK" and cursor.at("CASCADE"):
        cursor.fail("DROP SINK has no CASCADE", advice="Drop the pipelines that write to the sink first.")
    cascade = cursor.accept("CASCADE")
    return Drop(
        sql=clauses.sql(), span=clauses.whole(), kind=KINDS[kind], name=name, if_exists=if_exists, cascade=cascade
    )


def _show(clauses: Clauses) -> Show | ShowCreate:
    cursor = clauses.cursor
    if cursor.accept("CREATE"):
        kind = cursor.one_of("STREAM, SINK, PIPELINE or VIEW after SHOW CREATE", *KINDS)
        return ShowCreate(clauses.sql(), clauses.whole(), KINDS[kind], cursor.name("a name"))
    shown = cursor.one_of("what to show", *_SHOWN, "CREATE")
    return Show(clauses.sql(), clauses.whole(), _SHOWN[shown])


def _describe(clauses: Clauses) -> Describe:
    cursor = clauses.cursor
    kind = None
    if cursor.token.upper in KINDS and cursor.peek().kind != "end":
        kind = KINDS[cursor.advance().upper]
    return Describe(clauses.sql(), clauses.whole(), kind, cursor.name("the name of a stream, sink, pipeline or view"))


def _start_pipeline(clauses: Clauses) -> StartPipeline:
    cursor = clauses.cursor
    cursor.expect("PIPELINE", "after START")
    return StartPipeline(clauses.sql(), clauses.whole(), cursor.name("the name of the pipeline"))


def _stop_pipeline(clauses: Clauses) -> StopPipeline:
    cursor = clauses.cursor
    cursor.expect("PIPELINE", "after STOP")
    name = cursor.name("the name of the pipeline")
    mode: StopMode = "now" if cursor.accept("NOW") else "graceful"
    close = False
    if mode == "graceful":
        cursor.accept("GRACEFUL")
        close = cursor.accept("CLOSE")
        if close or cursor.accept("KEEP"):
            cursor.expect("WINDOWS", "after CLOSE or KEEP")
    return StopPipeline(sql=clauses.sql(), span=clauses.whole(), name=name, mode=mode, close_windows=close)


def _savepoint(clauses: Clauses) -> TakeSavepoint:
    cursor = clauses.cursor
    name = cursor.name("a name for the savepoint")
    stream = None
    if cursor.accept("OF"):
        cursor.expect("STREAM", "after OF")
        stream = cursor.name("the name of the stream")
    return TakeSavepoint(clauses.sql(), clauses.whole(), name, stream)


def _explain(clauses: Clauses) -> Explain:
    cursor = clauses.cursor
    mode: ExplainMode = "plain"
    if cursor.accept("VERBOSE"):
        mode = "verbose"
    elif cursor.accept("JSON"):
        mode = "json"
    elif cursor.accept("FORMATTED"):
        mode = "formatted"
    start = cursor.token.start
    if cursor.at("PIPELINE") and cursor.peek().kind != "end":
        cursor.advance()
        return Explain(
            sql=clauses.sql(),
            span=clauses.whole(),
            mode=mode,
            target=None,
            pipeline=cursor.name("the name of the pipeline"),
        )
    if cursor.at("CREATE"):
        inner = Clauses(cursor)
        cursor.advance()
        target = parse_create(inner)
        if not isinstance(target, CreatePipeline):
            cursor.fail("EXPLAIN takes a query, a pipeline's name or CREATE PIPELINE")
        return Explain(clauses.sql(), clauses.whole(), mode, target)
    if cursor.token.upper not in _QUERY_WORDS:
        refuse_command(cursor)
        cursor.fail("expected a query, CREATE PIPELINE or PIPELINE and a name after EXPLAIN")
    return Explain(clauses.sql(), clauses.whole(), mode, clauses.select(start))
