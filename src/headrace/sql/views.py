"""Views in queries. A query that reads views is planned with their texts in front of it, as common table expressions:

    SELECT device FROM hot   becomes   WITH `hot` AS (SELECT * FROM sensors WHERE temp > 30) SELECT device FROM hot

So every host sees plain SQL over streams, and a view costs nothing: filters and projections of it are merged with those
of the query. The texts come before the names that the query itself declares, which therefore cannot hide what a
view reads. Errors point to the text that the user wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

from headrace.errors import HeadraceError, RecursiveView, Span
from headrace.model.definitions import ViewDef
from headrace.sql.hosts.query_tokens import names_read
from headrace.sql.hosts.text_edits import Edit, EditedText, edited
from headrace.sql.names import Names
from headrace.sql.parse.dialect import Token, tokenize
from headrace.sql.parse.script import parse_statement
from headrace.sql.parse.statements import CreatePipeline, CreateView, Select
from headrace.sql.parse.syntax import (
    Derived,
    ForeignQuery,
    ParsedQuery,
    SelectQuery,
    Table,
    TextRange,
    UnionQuery,
    Windowed,
    WithQuery,
)

QueryStatement = CreatePipeline | Select
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ViewExpansion:
    """A query without views. `views` are those that it reads, directly or through others, each before its readers."""

    statement: QueryStatement
    views: tuple[ViewDef, ...] = ()
    _original: QueryStatement | None = None
    _text: EditedText | None = None
    _reference: TextRange = (0, 0)

    def run(self, plan: Callable[[QueryStatement], T]) -> T:
        """What `plan` makes of the query. Positions of errors are those of the statement that the user wrote."""
        try:
            return plan(self.statement)
        except HeadraceError as problem:
            found = problem.span
            if self._original is not None and found is not None and found.text == self.statement.span.text:
                problem.span = self._place(found.start, found.end)
            raise

    def _place(self, start: int, end: int) -> Span:
        assert self._original is not None and self._text is not None
        whole = self._original.span
        if any(self._inside(position) for position in (start, end - 1)):
            return Span(whole.text, *self._reference, whole.statement)
        first, last = self._text.original(start), self._text.original(end)
        return Span(whole.text, whole.start + first, whole.start + last, whole.statement)

    def _inside(self, position: int) -> bool:
        """True for a position in the text of a view."""
        assert self._text is not None
        shift = 0
        for start, end, new in self._text.edits:
            if start + shift <= position < start + shift + len(new):
                return True
            shift += len(new) - (end - start)
        return False


def expand(statement: QueryStatement, names: Names) -> ViewExpansion:
    """The statement with the texts of the views that it reads. Raises RecursiveView."""
    read = tables_read(statement.query, statement.span.text, statement.query_start, statement.query_end)
    views = _with_views_below([v for name in read if (v := names.view(name)) is not None], names, statement.span)
    if not views:
        return ViewExpansion(statement)
    first = next(at for name, at in read.items() if names.view(name) is not None)
    texts = ", ".join(f"{_quoted(v.name)}{_columns(v.columns)} AS (\n{v.query}\n)" for v in views)
    begin, end = (at - statement.span.start for at in (statement.query_start, statement.query_end))
    text = edited(
        statement.sql,
        _in_front(statement=statement, texts=texts, views={v.name.lower() for v in views}, begin=begin, end=end),
    )
    parsed = parse_statement(text.text, statement.span.statement or 1)
    assert isinstance(parsed, CreatePipeline | Select)
    return ViewExpansion(statement=parsed, views=views, _original=statement, _text=text, _reference=first)


def _in_front(statement: QueryStatement, texts: str, views: set[str], begin: int, end: int) -> list[Edit]:
    """Edits that declare the views before the names that the query declares itself."""
    tokens = _tokens(statement.sql, begin, end)
    if tokens[0].upper != "WITH":
        return [(begin, begin, f"WITH {texts} ")]
    if views & {name for name, _ in _declared(tokens)}:  # the query hides the view behind a name of its own
        return [(begin, begin, f"WITH {texts} ("), (end, end, ")")]
    place = tokens[1] if tokens[1].upper == "RECURSIVE" else tokens[0]
    return [(place.end, place.end, f" {texts},")]


def _with_views_below(views: list[ViewDef], names: Names, span: Span) -> tuple[ViewDef, ...]:
    """The views and all that they read, each before its readers."""
    ordered: dict[str, ViewDef] = {}

    def add(view: ViewDef, above: tuple[str, ...]) -> None:
        key = view.name.lower()
        if key in above:
            raise recursive(view.name, span)
        for read in view.reads:
            inner = names.view(read)
            if inner is not None and read.lower() not in ordered:
                add(inner, (*above, key))
        ordered[key] = view

    for view in views:
        add(view, ())
    return tuple(ordered.values())


def recursive(name: str, span: Span) -> RecursiveView:
    """The error for a view that reads itself."""
    return RecursiveView(
        f"view '{name}' would read itself",
        advice="Let it read a stream, or views that do not read it.",
        span=span,
        name=name,
    )


# --- definitions --------------------------------------------------------------------------------------


def define_view(statement: CreateView, names: Names, output_of: Callable[[Select], T]) -> tuple[ViewDef, T]:
    """The view that a statement declares, without its output, and what `output_of` says about the query over which it
    is defined. Raises RecursiveView."""
    body = statement.body
    read = tables_read(body.query, body.span.text, body.query_start, body.query_end)
    known = {n: s.name for n in read if (s := names.stream(n) or names.view(n)) is not None}
    view = ViewDef(statement.name, statement.query_sql, statement.columns, tuple(known.values()), sql=statement.sql)
    name = statement.name.lower()
    below = _with_views_below([v for n in known if (v := names.view(n)) is not None], names, body.span)
    if (name in read and names.stream(name) is None) or name in (v.name.lower() for v in below):
        place = read.get(name, (body.span.start, body.span.end))
        raise recursive(statement.name, Span(body.span.text, *place, body.span.statement))
    if not statement.columns:
        return view, output_of(body)
    named = _quoted(statement.name)
    edits: list[Edit] = [
        (0, 0, f"WITH {named}{_columns(statement.columns)} AS ("),
        (len(body.sql), len(body.sql), f") SELECT * FROM {named}"),
    ]
    text = edited(body.sql, edits)
    parsed = parse_statement(text.text, body.span.statement or 1)
    assert isinstance(parsed, Select)
    whole = ViewExpansion(
        statement=parsed,
        views=(view,),
        _original=body,
        _text=text,
        _reference=(statement.span.start, statement.span.end),
    )
    return view, whole.run(lambda _: output_of(parsed))


# --- which tables a query reads ---------------------------------------------------------------------------


def tables_read(query: ParsedQuery | ForeignQuery, text: str, start: int, end: int) -> dict[str, TextRange]:
    """The tables that a query reads and does not declare itself: their names in lower case, and where each is named
    first. `text` is the script, with the query in [start, end)."""
    found: dict[str, TextRange] = {}
    if not isinstance(query, ForeignQuery):
        for table in _free(query, frozenset()):
            found.setdefault(table.name.lower(), table.at)
        return found
    tokens = _tokens(text, start, end)
    following = {t.start: after.upper for t, after in pairwise(tokens)}
    declared = dict(_declared(tokens))
    for token in names_read(tokens):
        name = token.text.lower()
        hidden = name in declared and token.start > declared[name]
        if following[token.start] != "." and not hidden:  # a name with a database is a table of the session
            found.setdefault(name, (token.start, token.end))
    return found


def _free(query: ParsedQuery, hidden: frozenset[str]) -> Iterator[Table]:
    if isinstance(query, WithQuery):
        for name, body in query.ctes:
            yield from _free(body, hidden)
            hidden |= {name.lower()}
        yield from _free(query.body, hidden)
    elif isinstance(query, UnionQuery):
        for part in query.inputs:
            yield from _free(part, hidden)
    else:
        yield from _of_relation(query, hidden)


def _of_relation(query: SelectQuery, hidden: frozenset[str]) -> Iterator[Table]:
    relation = query.relation.input if isinstance(query.relation, Windowed) else query.relation
    if isinstance(relation, Derived):
        yield from _free(relation.query, hidden)
    elif relation.name.lower() not in hidden:
        yield relation


def _declared(tokens: list[Token]) -> Iterator[tuple[str, int]]:
    """The names that WITH declares, in lower case, and where the declaration ends."""
    for i, token in enumerate(tokens):
        opened = _opened(tokens, i)
        if opened is None:
            continue
        depth = 0
        for inner in tokens[opened:]:
            depth += {"(": 1, ")": -1}.get(inner.upper, 0)
            if depth == 0:
                yield token.text.lower(), inner.end
                break


def _opened(tokens: list[Token], i: int) -> int | None:
    """Where the body of a common table expression begins whose name is token `i`: name [(columns)] AS (."""
    if tokens[i].kind not in ("word", "quoted") or not i or tokens[i - 1].upper not in ("WITH", ",", "RECURSIVE"):
        return None
    at = i + 1
    if tokens[at].upper == "(":
        while at < len(tokens) - 1 and tokens[at].upper != ")":
            at += 1
        at += 1
    words = [t.upper for t in tokens[at : at + 2]]
    return at + 1 if words == ["AS", "("] else None


def _tokens(text: str, start: int, end: int) -> list[Token]:
    """The tokens of the query in [start, end), with their positions in the text, and an end token."""
    found = [replace(t, start=t.start + start, end=t.end + start) for t in tokenize(text[start:end]) if t.kind != "end"]
    return [*found, Token("end", "", end, end)]


def _columns(names: tuple[str, ...]) -> str:
    return f"({', '.join(map(_quoted, names))})" if names else ""


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
