"""The clauses that several statements share: options, outlets, and queries with their EMIT."""

from __future__ import annotations

from typing import NoReturn

from headrace.base.unknown import keyword_advice
from headrace.errors import DuplicateName, Span, SyntaxProblem, UnsupportedOnShared
from headrace.model.program import Emit
from headrace.sql.parse.cursor import Cursor
from headrace.sql.parse.dialect import spark_accepts
from headrace.sql.parse.queries import parse_query
from headrace.sql.parse.statements import Outlets, Select, StreamOutlet
from headrace.sql.parse.syntax import ForeignQuery, ParsedQuery
from headrace.sql.parse.watermarks import parse_derived_watermark

# What follows CREATE, ALTER and DROP.
_DECLARED = ("STREAM", "SINK", "PIPELINE", "VIEW")
# What follows the tables of a query.
_CLAUSES = ("WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "JOIN", "LATERAL", "EMIT")


class Clauses:
    """Parses clauses at the cursor of one statement.

    The statement begins where the cursor stands now, and ends at the last token.
    """

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.start = cursor.token.start
        self.stop = cursor.tokens[-1].start

    def sql(self, start: int | None = None) -> str:
        return self.cursor.text[self.start if start is None else start : self.stop]

    def whole(self, start: int | None = None) -> Span:
        return self.cursor.span((self.start if start is None else start, self.stop))

    def finish(self) -> None:
        cursor = self.cursor
        if cursor.token.kind == "end":
            return
        following = cursor.statement_begins()
        if following is not None:
            self._fail_without_semicolon(following)
        advice = "Separate statements with a semicolon."
        for token in (cursor.tokens[cursor.position - 1], cursor.token):  # a misspelt clause may be read as an alias
            if token.kind == "word":
                advice = keyword_advice(token.text, _CLAUSES, advice)
        cursor.fail("expected the end of the statement", advice=advice)

    def _fail_without_semicolon(self, following: int) -> NoReturn:
        """Raises SyntaxProblem at the end of a statement. The token at `following` begins the next one."""
        before, begins = self.cursor.tokens[following - 1], self.cursor.tokens[following]
        raise SyntaxProblem(
            f"a ';' is missing before '{begins.text}'",
            advice="Write a semicolon here: the next statement begins after it.",
            span=self.cursor.span((before.end, before.end + 1)),
        )

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

    def outlets(self) -> Outlets:
        """Parses the targets after INTO."""
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

    def query(self) -> tuple[ParsedQuery | ForeignQuery, str, Emit | None, Span | None]:
        cursor = self.cursor
        start = cursor.token.start
        self._check_words()
        parsed: ParsedQuery | ForeignQuery
        try:
            parsed = parse_query(cursor, self.stop)
            self._check_end(start)
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

    def _check_words(self) -> None:
        """Raises SyntaxProblem for a name in the rest of the statement that Spark takes only in backquotes."""
        for token in self.cursor.tokens[self.cursor.position :]:
            if token.kind == "word" and not token.text.isascii():
                raise SyntaxProblem(
                    f"a name with other letters than those of ASCII needs backquotes, found '{token.text}'",
                    advice=f"Write `{token.text}`.",
                    span=self.cursor.span((token.start, token.end)),
                )

    def _check_end(self, start: int) -> None:
        """Raises UnsupportedOnShared if the query goes on with syntax that only Spark has: `s COLLATE x = 'a'`."""
        cursor = self.cursor
        if cursor.token.kind == "end" or cursor.at("EMIT") or cursor.statement_begins() is not None:
            return
        if spark_accepts(cursor.text[start : self.stop]):
            what, place = f"the syntax from '{cursor.token.text}' on", (cursor.token.start, cursor.token.end)
            cursor.refuse(what, "See docs/sql.md for the supported SQL.", place)

    def foreign_query(self, start: int, refused: UnsupportedOnShared) -> ForeignQuery:
        """Takes the rest of the statement, up to an EMIT clause at its end, as Spark SQL."""
        cursor, depth = self.cursor, 0
        from_first = cursor.text[start : start + 4].upper() == "FROM"  # FROM a JOIN b ON a.x = 1 SELECT y
        for place in range(1, len(cursor.tokens) - 1):
            depth += {"(": 1, ")": -1}.get(cursor.tokens[place - 1].upper, 0)
            if place < cursor.position or depth:  # a statement does not begin inside parentheses
                continue
            word, following = cursor.tokens[place].upper, cursor.tokens[place + 1].upper
            if word == "DESC" or following in ("ROLLUP", "CUBE") or (word == "SELECT" and from_first):
                continue
            # A line of a query may begin with SELECT, or with a column that is called create; neither looks like this.
            declares = following in _DECLARED or (word == "CREATE" and following == "OR")
            after = declares or cursor.tokens[place - 1].kind == "number"
            if after and cursor.seems_first(place):
                self._fail_without_semicolon(place)
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
