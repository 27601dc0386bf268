"""The grammar of statements. Reports the errors of all statements of a script at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.errors import (
    BadName,
    DuplicateName,
    HeadraceError,
    ScriptErrors,
    Span,
    SyntaxProblem,
    UnsupportedOnShared,
)
from headrace.model.program import Emit
from headrace.model.schema import Field, Schema
from headrace.sql.parse.cursor import Cursor
from headrace.sql.parse.data_types import char_length, parse_data_type
from headrace.sql.parse.dialect import Token, tokenize
from headrace.sql.parse.expression_parser import parse_expression
from headrace.sql.parse.queries import parse_query
from headrace.sql.parse.statements import (
    AlterPipeline,
    CreateDerivedStream,
    CreatePipeline,
    CreateSink,
    CreateStream,
    CreateView,
    Describe,
    Drop,
    DropKind,
    Explain,
    ExplainMode,
    Outlets,
    Select,
    Show,
    ShowCreate,
    ShowKind,
    StartPipeline,
    Statement,
    StopMode,
    StopPipeline,
    StreamOutlet,
    TakeSavepoint,
)
from headrace.sql.parse.syntax import ForeignQuery, Node, ParsedQuery
from headrace.sql.parse.watermarks import parse_derived_watermark, parse_watermark, resolve_watermark

MAX_NAME_BYTES = 255
_KINDS: dict[str, DropKind] = {"STREAM": "stream", "SINK": "sink", "PIPELINE": "pipeline", "VIEW": "view"}
_SHOWN: dict[str, ShowKind] = {"STREAMS": "streams", "SINKS": "sinks", "PIPELINES": "pipelines", "VIEWS": "views"}
_FIRST = (
    "CREATE",
    "ALTER",
    "DROP",
    "SHOW",
    "DESCRIBE",
    "DESC",
    "START",
    "STOP",
    "SAVEPOINT",
    "EXPLAIN",
    "SELECT",
    "WITH",
)


@dataclass(frozen=True, slots=True)
class ParsedScript:
    """The statements of a script that could be parsed, the errors of the others, and the names, in lower case, that the
    others would have declared."""

    statements: tuple[Statement, ...]
    errors: tuple[HeadraceError, ...]
    undeclared: frozenset[str]


def parse_script(text: str) -> tuple[Statement, ...]:
    """The statements of `text`. Raises the only error, or ScriptErrors with all of them."""
    parsed = parse_each(text)
    raise_all(list(parsed.errors))
    return parsed.statements


def parse_each(text: str) -> ParsedScript:
    """Parses statement by statement: one with an error does not hide the others. Raises an error of the tokens, which
    belongs to no statement."""
    statements: list[Statement] = []
    errors: list[HeadraceError] = []
    undeclared: set[str] = set()
    for number, tokens in enumerate(_split(tokenize(text)), start=1):
        try:
            statements.append(_Statements(Cursor(text, tokens, number)).statement())
            continue
        except HeadraceError as problem:
            errors.append(problem)
        except RecursionError:
            errors.append(too_deep(Span(text, tokens[0].start, tokens[-1].start, number)))
        undeclared |= _names_declared(tokens)
    return ParsedScript(tuple(statements), tuple(errors), frozenset(undeclared))


def _names_declared(tokens: list[Token]) -> set[str]:
    """The name after CREATE STREAM, SINK and the like, of a statement that is wrong somewhere."""
    words = [token.upper for token in tokens[:8]]
    if not words or words[0] != "CREATE":
        return set()
    kind = next((i for i, word in enumerate(words) if word in _KINDS), None)
    if kind is None:
        return set()
    name = kind + 4 if words[kind + 1 : kind + 4] == ["IF", "NOT", "EXISTS"] else kind + 1
    return {tokens[name].text.lower()} if name < len(tokens) else set()


def parse_statement(text: str, number: int) -> Statement:
    """The one statement that `text` is, without a semicolon."""
    (tokens,) = _split(tokenize(text))
    return _Statements(Cursor(text, tokens, number)).statement()


def too_deep(span: Span) -> SyntaxProblem:
    """The error for a statement that is nested too deeply to parse or plan."""
    advice = "Use IN (...) instead of many ORs, and WITH instead of nested subqueries."
    return SyntaxProblem("the statement is nested too deeply", advice=advice, span=span)


def raise_all(errors: list[HeadraceError]) -> None:
    """Raises the only error, or all of them as ScriptErrors. Does nothing without errors."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ScriptErrors(f"{len(errors)} statements have errors", errors=tuple(errors))


def _split(tokens: list[Token]) -> list[list[Token]]:
    """Splits the tokens at semicolons, and drops empty statements. Each part ends with an end token."""
    pieces: list[list[Token]] = []
    piece: list[Token] = []
    for token in tokens:
        if token.kind == "end" or token.upper == ";":
            if piece:
                pieces.append([*piece, Token("end", "", piece[-1].end, piece[-1].end)])
            piece = []
        else:
            piece.append(token)
    return pieces


def cut_limit(statement: Select) -> tuple[Select, int | None]:
    """A SELECT without its LIMIT and its options, and the limit. Positions stay those of the script."""
    text, start = statement.span.text, statement.span.start
    tokens = [t for t in tokenize(statement.sql) if t.kind != "end"]
    begin = _options_at_end([*tokens, Token("end", "", 0, 0)])
    tokens = tokens if begin is None else tokens[:begin]
    if len(tokens) < 3 or tokens[-2].upper != "LIMIT" or not tokens[-1].text.isdigit():
        return statement, None
    before = "".join(c if c == "\n" else " " for c in text[:start])
    cut = parse_statement(before + statement.sql[: tokens[-2].start], statement.span.statement or 1)
    assert isinstance(cut, Select)
    return cut, int(tokens[-1].text)


def _options_at_end(tokens: list[Token]) -> int | None:
    """Where WITH (...) begins at the end of a statement, behind a query."""
    if len(tokens) < 7 or tokens[-2].upper != ")":
        return None
    opened = max((i for i, t in enumerate(tokens[:-2]) if t.upper == "("), default=0)
    return opened - 1 if opened > 1 and tokens[opened - 1].upper == "WITH" else None


def _closed(tokens: list[str]) -> int:
    """The place of the parenthesis that closes the one at the start; the last token if none does."""
    depth = 0
    for place, token in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(token, 0)
        if depth == 0:
            return place
    return len(tokens) - 1


class _Statements:
    """Parses the one statement at the cursor."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.start = cursor.token.start
        self.stop = cursor.tokens[-1].start

    def statement(self) -> Statement:
        """Parses the whole statement. Remaining tokens are an error."""
        cursor = self.cursor
        if cursor.at("SELECT") or cursor.at("WITH") or cursor.at("("):
            parsed: Statement = self.bare_select()
        else:
            word = cursor.one_of("a statement", *_FIRST)
            parsed = {
                "CREATE": self.create,
                "ALTER": self.alter,
                "DROP": self.drop,
                "SHOW": self.show,
                "DESCRIBE": self.describe,
                "DESC": self.describe,
                "START": self.start_pipeline,
                "STOP": self.stop_pipeline,
                "SAVEPOINT": self.savepoint,
                "EXPLAIN": self.explain,
            }[word]()
        self.finish()
        return parsed

    def finish(self) -> None:
        if self.cursor.token.kind != "end":
            self.cursor.fail("expected the end of the statement", advice="Separate statements with a semicolon.")

    def sql(self, start: int | None = None) -> str:
        return self.cursor.text[self.start if start is None else start : self.stop]

    def whole(self, start: int | None = None) -> Span:
        return self.cursor.span((self.start if start is None else start, self.stop))

    def create(self) -> Statement:
        cursor = self.cursor
        or_replace = cursor.accept("OR", "REPLACE")
        for word in ("GLOBAL", "TEMPORARY", "TEMP"):
            if cursor.at(word):
                cursor.fail(f"a view of the hub is not {word}", advice="Write CREATE VIEW. DROP VIEW removes it.")
        kind = cursor.one_of("STREAM, SINK, PIPELINE or VIEW after CREATE", *_KINDS)
        if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
        if or_replace and if_not_exists:
            cursor.fail("OR REPLACE and IF NOT EXISTS cannot be combined")
        place = cursor.token
        name = cursor.name(f"the name of the {kind.lower()}")
        if len(name.encode()) > MAX_NAME_BYTES:
            raise BadName(
                f"the name of the {kind.lower()} has {len(name.encode())} bytes",
                advice=f"Use at most {MAX_NAME_BYTES} bytes.",
                span=cursor.span((place.start, place.end)),
                name=name,
            )
        if kind == "STREAM":
            if self.is_derived():
                return self.create_derived_stream(name, or_replace, if_not_exists)
            return self.create_stream(name, or_replace, if_not_exists)
        if kind == "SINK":
            options, spans = self.options()
            return CreateSink(
                sql=self.sql(),
                span=self.whole(),
                name=name,
                options=options,
                or_replace=or_replace,
                if_not_exists=if_not_exists,
                spans=spans,
            )
        if kind == "VIEW":
            return self.create_view(name, or_replace, if_not_exists)
        return self.create_pipeline(name, or_replace, if_not_exists)

    def create_view(self, name: str, or_replace: bool, if_not_exists: bool) -> CreateView:
        cursor = self.cursor
        columns: list[str] = []
        if cursor.accept("("):
            while True:
                place = cursor.span((cursor.token.start, cursor.token.end))
                columns.append(cursor.word("the name of a column"))
                if columns[-1].lower() in [c.lower() for c in columns[:-1]]:
                    raise DuplicateName(
                        f"column '{columns[-1]}' is named twice",
                        advice="Names ignore case. Rename one of the columns.",
                        span=place,
                        name=columns[-1],
                    )
                self.comment()
                if not cursor.accept(","):
                    break
            cursor.expect(")", "after the names of the columns")
        self.comment()
        cursor.expect("AS", "before the query")
        query_start = cursor.token.start
        query, query_sql, _, emit = self.query()
        if emit is not None:
            raise SyntaxProblem(
                "a view has no EMIT clause", advice="Write EMIT in the pipelines that read the view.", span=emit
            )
        return CreateView(
            sql=self.sql(),
            span=self.whole(),
            name=name,
            columns=tuple(columns),
            query=query,
            query_sql=query_sql,
            query_start=query_start,
            or_replace=or_replace,
            if_not_exists=if_not_exists,
        )

    def create_stream(self, name: str, or_replace: bool, if_not_exists: bool) -> CreateStream:
        cursor = self.cursor
        cursor.expect("(", "before the columns")
        fields: list[Field] = []
        seen: set[str] = set()
        computed: dict[int, Node] = {}
        padded: dict[int, int] = {}
        metadata: dict[int, tuple[str, Span]] = {}
        watermark: tuple[Token, int] | None = None
        while True:
            if cursor.at("WATERMARK", "FOR"):
                watermark = parse_watermark(cursor)
            else:
                token = cursor.token
                column = cursor.word("a column name")
                if column.lower() in seen:
                    raise DuplicateName(
                        f"column '{column}' is declared twice",
                        advice="Names ignore case. Rename one of the columns.",
                        span=cursor.span((token.start, token.end)),
                        name=column,
                    )
                seen.add(column.lower())
                if cursor.at("AS"):
                    cursor.fail("expected a type", advice=f"Write the type, too: {column} TIMESTAMP AS ...")
                length = char_length(cursor)
                if length is not None:
                    padded[len(fields)] = length
                fields.append(Field(column, parse_data_type(cursor)))
                self.comment()
                if cursor.accept("AS") or cursor.accept("GENERATED", "ALWAYS", "AS"):
                    computed[len(fields) - 1] = parse_expression(cursor)
                elif cursor.at("METADATA"):
                    metadata[len(fields) - 1] = self.metadata(column)
                self.comment()
            if not cursor.accept(","):
                break
        cursor.expect(")", "after the columns")
        schema = Schema(tuple(fields))
        if not fields:
            cursor.fail("a stream needs at least one column")
        event_time, delay = resolve_watermark(cursor, name, schema, watermark)
        options, spans = self.options()
        return CreateStream(
            sql=self.sql(),
            span=self.whole(),
            name=name,
            schema=schema,
            event_time=event_time,
            delay_us=delay,
            options=options,
            or_replace=or_replace,
            if_not_exists=if_not_exists,
            spans=spans,
            computed=computed,
            padded=padded,
            metadata=metadata,
        )

    def is_derived(self) -> bool:
        """True if AS PIPELINE follows, or only a watermark in parentheses and then that."""
        cursor = self.cursor
        if cursor.at("AS"):
            return True
        tokens = [t.upper for t in cursor.tokens[cursor.position :]]
        return tokens[:3] == ["(", "WATERMARK", "FOR"] and tokens[_closed(tokens) + 1 : _closed(tokens) + 2] == ["AS"]

    def create_derived_stream(self, name: str, or_replace: bool, if_not_exists: bool) -> CreateDerivedStream:
        cursor = self.cursor
        watermark = parse_derived_watermark(cursor)
        cursor.expect("AS", "before PIPELINE")
        if not cursor.accept("PIPELINE"):
            cursor.fail(
                "expected PIPELINE and the name of the pipeline that feeds the stream",
                advice=f"For the rows of a query, write CREATE PIPELINE ... INTO STREAM {name} AS SELECT ...",
            )
        place = cursor.span((cursor.token.start, cursor.token.end))
        pipeline = cursor.name("the name of the pipeline")
        options, spans = self.options() if cursor.at("WITH") else ({}, {})
        return CreateDerivedStream(
            sql=self.sql(),
            span=self.whole(),
            name=name,
            pipeline=pipeline,
            pipeline_span=place,
            watermark=watermark,
            options=options,
            or_replace=or_replace,
            if_not_exists=if_not_exists,
            spans=spans,
        )

    def comment(self) -> None:
        """Skips the COMMENT of a column, if there is one."""
        if self.cursor.at("COMMENT") and self.cursor.peek().kind == "string":
            self.cursor.advance()
            self.cursor.advance()

    def metadata(self, column: str) -> tuple[str, Span]:
        """`METADATA`, `METADATA FROM 'key'`, each with or without VIRTUAL: the key, which is the column's name if it is
        not given."""
        cursor = self.cursor
        start, key = cursor.advance().start, column
        if cursor.accept("FROM"):
            if cursor.token.kind != "string":
                cursor.fail("expected the name of the metadata, as a string", advice="Write METADATA FROM 'timestamp'.")
            key = cursor.advance().text
        cursor.accept("VIRTUAL")  # Flink writes it for columns that sinks do not take; here no sink takes any
        return key.lower(), cursor.span((start, cursor.previous_end))

    def options(self) -> tuple[dict[str, str], dict[str, Span]]:
        """Parses `WITH (name = 'value', ...)`. Values are strings, numbers or words. Names may have dots."""
        self.cursor.expect("WITH", "and the options")
        return self.listed_options()

    def listed_options(self) -> tuple[dict[str, str], dict[str, Span]]:
        """Parses `(name = 'value', ...)`."""
        cursor = self.cursor
        cursor.expect("(", "before the options")
        values: dict[str, str] = {}
        spans: dict[str, Span] = {}
        while not cursor.at(")"):
            if values:
                cursor.expect(",", "between options")
            start = cursor.token.start
            if cursor.token.kind not in ("word", "quoted", "string"):
                cursor.fail("expected the name of an option")
            name = cursor.advance().text
            while cursor.accept("."):
                name += "." + cursor.advance().text
            cursor.expect("=", f"after the option {name}")
            negative = "-" if cursor.accept("-") else ""
            if cursor.token.kind not in ("string", "number", "word"):
                cursor.fail(f"expected a value for the option {name}")
            first = cursor.advance()
            value = negative + first.text
            while (
                first.kind == "string" and cursor.token.kind == "string" and cursor.token.start == cursor.previous_end
            ):
                value += cursor.text[cursor.token.start] + cursor.advance().text
            if name.lower() in values:
                raise DuplicateName(
                    f"option '{name}' is given twice",
                    advice="Keep one of them.",
                    span=cursor.span((start, cursor.previous_end)),
                    name=name,
                )
            values[name.lower()] = value
            spans[name.lower()] = cursor.span((start, cursor.previous_end))
        cursor.advance()
        return values, spans

    def create_pipeline(self, name: str, or_replace: bool, if_not_exists: bool) -> CreatePipeline:
        cursor = self.cursor
        cursor.expect("INTO", "and the names of the sinks")
        start = cursor.token.start
        outlets = self.outlets()
        into = cursor.span((start, cursor.previous_end))
        options, places = self.options() if cursor.at("WITH") else ({}, {})
        cursor.expect("AS", "before the query")
        query_start = cursor.token.start
        query, query_sql, emit, emit_span = self.query()
        return CreatePipeline(
            sql=self.sql(),
            span=self.whole(),
            name=name,
            sinks=outlets.sinks,
            query=query,
            query_sql=query_sql,
            emit=emit,
            or_replace=or_replace,
            if_not_exists=if_not_exists,
            sink_spans=outlets.spans,
            emit_span=emit_span,
            options=options,
            spans=places,
            query_start=query_start,
            streams=outlets.streams,
            into=into,
            reader=outlets.reader,
        )

    def stream_outlet(self, before: list[StreamOutlet]) -> StreamOutlet:
        """`STREAM name [(WATERMARK FOR column AS ...)]` after INTO."""
        cursor = self.cursor
        cursor.advance()
        start, span = cursor.token.start, cursor.span((cursor.token.start, cursor.token.end))
        name = cursor.name("the name of the stream")
        if name.lower() in [s.name.lower() for s in before]:
            raise DuplicateName(
                f"stream '{name}' is named twice", advice="Name each stream once.", span=span, name=name
            )
        watermark = parse_derived_watermark(cursor)
        return StreamOutlet(name, span, watermark, cursor.text[start : cursor.previous_end])

    def outlets(self) -> Outlets:
        """Parses what stands after INTO."""
        cursor = self.cursor
        reader: Span | None = None
        sinks: list[str] = []
        spans: list[Span] = []
        streams: list[StreamOutlet] = []
        while True:
            span = cursor.span((cursor.token.start, cursor.token.end))
            if cursor.at("STREAM") and cursor.peek().kind != "end" and cursor.peek().upper not in ("AS", "WITH", ","):
                streams.append(self.stream_outlet(streams))
            elif cursor.at("SPARK") and cursor.peek().upper == "READER":
                start = cursor.advance().start
                span = cursor.span((start, cursor.advance().end))
                if reader is not None:
                    raise DuplicateName(
                        "SPARK READER is named twice", advice="Name it once.", span=span, name="SPARK READER"
                    )
                reader = span
            else:
                sinks.append(cursor.name("the name of a sink"))
                if sinks[-1].lower() in [s.lower() for s in sinks[:-1]]:
                    raise DuplicateName(
                        f"sink '{sinks[-1]}' is named twice", advice="Name each sink once.", span=span, name=sinks[-1]
                    )
                spans.append(span)
            if not cursor.accept(","):
                return Outlets(tuple(sinks), tuple(spans), tuple(streams), reader)

    def query(self) -> tuple[ParsedQuery | ForeignQuery, str, Emit | None, Span | None]:
        cursor = self.cursor
        start = cursor.token.start
        parsed: ParsedQuery | ForeignQuery
        try:
            parsed = parse_query(cursor, self.stop)
        except UnsupportedOnShared as problem:
            parsed = self.foreign_query(start, problem)
        text = cursor.text[start : cursor.previous_end]
        emit: Emit | None = None
        emit_span = None
        if cursor.at("EMIT"):
            emit_start = cursor.advance().start
            if cursor.accept("CHANGES"):
                emit = "changes"
            elif cursor.accept("ON", "CLOSE"):
                emit = "close"
            else:
                cursor.fail("expected CHANGES or ON CLOSE after EMIT")
            emit_span = cursor.span((emit_start, cursor.previous_end))
        return parsed, text, emit, emit_span

    def foreign_query(self, start: int, refused: UnsupportedOnShared) -> ForeignQuery:
        """Takes the rest of the statement, up to an EMIT clause at its end, as Spark SQL."""
        cursor = self.cursor
        words = [t.upper for t in cursor.tokens[-4:-1]]
        tail = 2 if words[-2:] == ["EMIT", "CHANGES"] else 3 if words == ["EMIT", "ON", "CLOSE"] else 0
        cursor.move_to(len(cursor.tokens) - 1 - tail)
        return ForeignQuery((start, cursor.previous_end), refused)

    def select(self, start: int | None = None) -> Select:
        query_start = self.cursor.token.start
        query, query_sql, emit, emit_span = self.query()
        return Select(
            sql=self.sql(start),
            span=self.whole(start),
            query=query,
            query_sql=query_sql,
            emit=emit,
            emit_span=emit_span,
            query_start=query_start,
        )

    def bare_select(self) -> Select:
        """A SELECT with options behind it: SELECT ... LIMIT 5 WITH (timeout = '30s')."""
        cursor = self.cursor
        begin = _options_at_end(cursor.tokens)
        if begin is None:
            return self.select()
        last = cursor.tokens[begin - 1].end
        query = _Statements(
            Cursor(cursor.text, [*cursor.tokens[:begin], Token("end", "", last, last)], cursor.statement)
        )
        found = query.select()
        query.finish()
        cursor.move_to(begin)
        options, spans = self.options()
        return replace(found, sql=self.sql(), span=self.whole(), options=options, spans=spans)

    def alter(self) -> AlterPipeline:
        cursor = self.cursor
        if cursor.token.upper in ("STREAM", "SINK", "VIEW"):
            kind = cursor.token.upper
            cursor.fail(f"a {kind.lower()} cannot be altered", advice=f"Use CREATE OR REPLACE {kind}.")
        cursor.expect("PIPELINE", "after ALTER")
        name = cursor.name("the name of the pipeline")
        part, start = cursor.one_of("what to change", "SET", "INTO", "AS"), cursor.token.start
        made = AlterPipeline(self.sql(), self.whole(), name)
        if part == "SET":
            options, spans = self.listed_options()
            if not options:
                cursor.fail("there is no option to set", advice="Write SET (option = 'value').")
            return replace(made, options=options, spans=spans)
        if part == "INTO":
            self.outlets()
            return replace(made, sinks=cursor.text[start : cursor.previous_end])
        self.query()
        return replace(made, query=cursor.text[start : self.stop])

    def drop(self) -> Drop:
        kind = self.cursor.one_of("STREAM, SINK, PIPELINE or VIEW after DROP", *_KINDS)
        if_exists = self.cursor.accept("IF", "EXISTS")
        name = self.cursor.name(f"the name of the {kind.lower()}")
        if kind == "SINK" and self.cursor.at("CASCADE"):
            self.cursor.fail("DROP SINK has no CASCADE", advice="Drop the pipelines that write to the sink first.")
        cascade = self.cursor.accept("CASCADE")
        return Drop(
            sql=self.sql(), span=self.whole(), kind=_KINDS[kind], name=name, if_exists=if_exists, cascade=cascade
        )

    def show(self) -> Show | ShowCreate:
        if self.cursor.accept("CREATE"):
            kind = self.cursor.one_of("STREAM, SINK, PIPELINE or VIEW after SHOW CREATE", *_KINDS)
            return ShowCreate(self.sql(), self.whole(), _KINDS[kind], self.cursor.name("a name"))
        shown = self.cursor.one_of("what to show", *_SHOWN, "CREATE")
        return Show(self.sql(), self.whole(), _SHOWN[shown])

    def describe(self) -> Describe:
        kind = None
        if self.cursor.token.upper in _KINDS and self.cursor.peek().kind != "end":
            kind = _KINDS[self.cursor.advance().upper]
        return Describe(
            self.sql(), self.whole(), kind, self.cursor.name("the name of a stream, sink, pipeline or view")
        )

    def start_pipeline(self) -> StartPipeline:
        self.cursor.expect("PIPELINE", "after START")
        return StartPipeline(self.sql(), self.whole(), self.cursor.name("the name of the pipeline"))

    def stop_pipeline(self) -> StopPipeline:
        self.cursor.expect("PIPELINE", "after STOP")
        name = self.cursor.name("the name of the pipeline")
        mode: StopMode = "now" if self.cursor.accept("NOW") else "graceful"
        close = False
        if mode == "graceful":
            self.cursor.accept("GRACEFUL")
            close = self.cursor.accept("CLOSE")
            if close or self.cursor.accept("KEEP"):
                self.cursor.expect("WINDOWS", "after CLOSE or KEEP")
        return StopPipeline(sql=self.sql(), span=self.whole(), name=name, mode=mode, close_windows=close)

    def savepoint(self) -> TakeSavepoint:
        name = self.cursor.name("a name for the savepoint")
        stream = None
        if self.cursor.accept("OF"):
            self.cursor.expect("STREAM", "after OF")
            stream = self.cursor.name("the name of the stream")
        return TakeSavepoint(self.sql(), self.whole(), name, stream)

    def explain(self) -> Explain:
        cursor = self.cursor
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
                sql=self.sql(),
                span=self.whole(),
                mode=mode,
                target=None,
                pipeline=cursor.name("the name of the pipeline"),
            )
        if cursor.at("CREATE"):
            inner = _Statements(cursor)
            cursor.advance()
            target = inner.create()
            if not isinstance(target, CreatePipeline):
                cursor.fail("EXPLAIN takes a query, a pipeline's name or CREATE PIPELINE")
            return Explain(self.sql(), self.whole(), mode, target)
        if not (cursor.at("SELECT") or cursor.at("WITH") or cursor.at("(")):
            cursor.fail("expected a query, CREATE PIPELINE or PIPELINE and a name after EXPLAIN")
        return Explain(self.sql(), self.whole(), mode, self.select(start))
