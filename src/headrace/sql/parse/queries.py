"""The grammar of queries: WITH, SELECT, FROM, WHERE, GROUP BY, HAVING, UNION ALL.

Known Spark clauses that the shared host cannot run are refused here by name. For any other text,
`headrace.sql.parse.dialect.spark_accepts` decides if it is unsupported or a syntax error.
"""

from __future__ import annotations

from headrace.errors import SyntaxProblem, UnsupportedOnShared
from headrace.sql.parse.commands import refuse_command
from headrace.sql.parse.cursor import Cursor, backquotes
from headrace.sql.parse.dialect import spark_accepts
from headrace.sql.parse.expression_parser import parse_expression
from headrace.sql.parse.grouping import Grouped, parse_group_by
from headrace.sql.parse.stars import parse_star, star_follows
from headrace.sql.parse.syntax import (
    Apply,
    Derived,
    Item,
    LateralView,
    Name,
    Node,
    ParsedQuery,
    Relation,
    SelectQuery,
    Star,
    Table,
    TextRange,
    UnionQuery,
    Windowed,
    WithQuery,
)

WINDOW_TABLES = ("TUMBLE", "HOP", "CUMULATE", "SESSION")

_REFUSED = {
    "ORDER": ("ORDER BY", "A stream has no end, so it cannot be sorted. Sort when you read the sink."),
    "SORT": ("SORT BY", "A stream has no end, so it cannot be sorted. Sort when you read the sink."),
    "CLUSTER": ("CLUSTER BY", "Leave it out."),
    "DISTRIBUTE": ("DISTRIBUTE BY", "Leave it out."),
    "LIMIT": ("LIMIT", "A stream has no end. Limit the rows when you read the sink."),
    "OFFSET": ("OFFSET", "A stream has no end. Limit the rows when you read the sink."),
    "INTERSECT": ("INTERSECT", "Use a filter."),
    "EXCEPT": ("EXCEPT", "Use a filter."),
    "MINUS": ("MINUS", "Use a filter."),
    "QUALIFY": (
        "QUALIFY",
        "Rank in a subquery: SELECT * FROM (SELECT ..., row_number() OVER (...) AS r ...) WHERE r <= 3.",
    ),
    "PIVOT": ("PIVOT", "Use one aggregate with FILTER (WHERE ...) per column."),
    "UNPIVOT": ("UNPIVOT", "Select the columns and unpivot downstream."),
    "TABLESAMPLE": ("TABLESAMPLE", "Use a filter on a hash or a random column of the source."),
}
# Words of joins. Spark does not take them as the name of a table, even after AS.
_NO_TABLES = frozenset(
    ["ANTI", "CROSS", "EXCEPT", "FULL", "INNER", "INTERSECT", "JOIN", "LATERAL", "LEFT", "MINUS", "NATURAL", "ON",
     "RIGHT", "SEMI", "UNION", "USING"]
)  # fmt: skip
# Words that are no table without AS, as they begin what follows a table more often.
_NO_ALIASES = _NO_TABLES | {"AS", "EMIT", "FROM", "HAVING", "INTO", "SELECT", "WHERE", "WITH"}
_AFTER_TABLE = ("", ";", ")", "WHERE", "GROUP", "HAVING", "LATERAL", "UNION")
_JOINS = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "ANTI", "SEMI", ",")


def parse_query(cursor: Cursor, stop: int) -> ParsedQuery:
    """Parses the query at the cursor. `stop` is the end of its text, for `spark_accepts`."""
    start = cursor.token.start
    try:
        return _query(cursor)
    except SyntaxProblem as problem:
        rest = cursor.text[start:stop]
        if not problem.params.get("certain") and spark_accepts(rest):
            raise UnsupportedOnShared(
                f"the shared host does not support this syntax: {problem.message}",
                advice="See docs/sql.md for the supported SQL.",
                span=problem.span,
            ) from None
        raise


def _query(cursor: Cursor) -> ParsedQuery:
    start = cursor.token.start
    if cursor.accept("WITH"):
        ctes: list[tuple[str, ParsedQuery]] = []
        while True:
            reserved = cursor.reserved_before("AS", "(") and cursor.token.upper not in _NO_ALIASES
            name = cursor.advance().text if reserved else cursor.name("a name for the common table expression")
            columns = _column_names(cursor)
            cursor.accept("AS")
            cursor.expect("(", "before the query")
            body_start = cursor.token.start
            body = _query(cursor)
            if columns:
                body = _renamed((body_start, cursor.previous_end), name, body, columns)
            ctes.append((name, body))
            cursor.expect(")", "after the query")
            if not cursor.accept(","):
                break
        body = _query(cursor)
        return WithQuery((start, cursor.previous_end), tuple(ctes), body)
    inputs = [_operand(cursor)]
    while cursor.at("UNION"):
        here = (cursor.token.start, cursor.token.end)
        cursor.advance()
        if not cursor.accept("ALL"):
            cursor.refuse(
                "UNION without ALL",
                "Write UNION ALL. UNION would have to wait for all duplicates, and a stream has no end.",
                here,
            )
        inputs.append(_operand(cursor))
    _refuse_tail(cursor)
    return inputs[0] if len(inputs) == 1 else UnionQuery((start, cursor.previous_end), tuple(inputs))


def _join(cursor: Cursor) -> TextRange:
    """The words of a join, and the name of the table after them."""
    start = cursor.token.start
    while cursor.token.upper in (*_JOINS, "OUTER"):
        cursor.advance()
    if cursor.token.kind in ("word", "quoted"):
        cursor.advance()
        while cursor.at(".") and cursor.peek().kind in ("word", "quoted"):
            cursor.advance()
            cursor.advance()
    return start, cursor.previous_end


def _operand(cursor: Cursor) -> ParsedQuery:
    if cursor.accept("("):
        inner = _query(cursor)
        cursor.expect(")", "after the query")
        return inner
    return _select(cursor)


def _select(cursor: Cursor) -> SelectQuery:
    start = cursor.token.start
    if cursor.at("FROM") and any(token.upper == "|>" for token in cursor.tokens[cursor.position :]):
        cursor.refuse("the pipe |>", "Write the steps as subqueries.", (start, cursor.token.end))
    refuse_command(cursor)
    cursor.expect("SELECT", "at the start of a query")
    if cursor.at("/*+"):
        cursor.refuse("a hint", "Remove it.", (cursor.token.start, cursor.token.end))
    column = cursor.peek().upper in (",", "FROM", ".", "AS")  # SELECT all FROM s
    distinct = (cursor.token.start, cursor.token.end) if cursor.at("DISTINCT") and not column else None
    if distinct is not None:
        cursor.advance()
        if cursor.at("ON", "("):
            cursor.refuse("DISTINCT ON", "GROUP BY the columns, and take first(...) of the others.", distinct)
    if not column:
        cursor.accept("ALL")
    items = [_item(cursor)]
    while cursor.accept(","):
        items.append(_item(cursor))
    if not cursor.at("FROM"):
        cursor.fail("expected FROM and the name of a stream after the select list")
    cursor.advance()
    relation = _relation(cursor)
    if cursor.token.upper in _JOINS:
        cursor.refuse("a join", "A pipeline on the shared host reads one stream.", _join(cursor))
    laterals: list[LateralView] = []
    while cursor.at("LATERAL"):
        laterals.append(_lateral_view(cursor))
    _refuse_tail(cursor)
    where = parse_expression(cursor) if cursor.accept("WHERE") else None
    grouped: Grouped | None = None
    if cursor.accept("GROUP"):
        cursor.expect("BY", "after GROUP")
        grouped = parse_group_by(cursor)
    having = parse_expression(cursor) if cursor.accept("HAVING") else None
    return SelectQuery(
        at=(start, cursor.previous_end),
        items=tuple(items),
        relation=relation,
        where=where,
        group_by=None if grouped is None else grouped.keys,
        having=having,
        distinct=distinct,
        laterals=tuple(laterals),
        sets=None if grouped is None else grouped.sets,
        group_all=grouped is not None and grouped.all,
    )


def _lateral_view(cursor: Cursor) -> LateralView:
    start = cursor.token.start
    cursor.advance()
    cursor.expect("VIEW", "after LATERAL")
    outer = cursor.at("OUTER") and cursor.peek().upper != "(" and cursor.accept("OUTER")
    call = parse_expression(cursor)
    if not isinstance(call, Apply) or call.operator:
        cursor.refuse("LATERAL VIEW of a function that is not a generator", "Use explode(...).", call.at)
    alias = cursor.advance().text if cursor.reserved_before("AS") else cursor.name("a name for the view")
    columns: list[str] = []
    if cursor.accept("AS") or cursor.at_name or _table_word(cursor, ","):
        columns.append(cursor.word("the name of a column"))
        while cursor.accept(","):
            columns.append(cursor.word("the name of a column"))
    return LateralView(at=(start, cursor.previous_end), call=call, outer=outer, alias=alias, columns=tuple(columns))


def _table_word(cursor: Cursor, *following: str) -> bool:
    """True if a reserved word is a name after FROM: `FROM orders order WHERE ...`."""
    return cursor.token.upper not in _NO_ALIASES and cursor.reserved_before(*_AFTER_TABLE, *following)


def _refuse_tail(cursor: Cursor) -> None:
    if cursor.at("|>"):
        cursor.refuse("the pipe |>", "Write the steps as subqueries.", (cursor.token.start, cursor.token.end))
    refused = _REFUSED.get(cursor.token.upper) if cursor.token.kind == "word" else None
    if refused is not None:
        cursor.refuse(refused[0], refused[1], (cursor.token.start, cursor.token.end))


def _item(cursor: Cursor) -> Item:
    start = cursor.token.start
    if star_follows(cursor):
        star = parse_star(cursor)
        return Item(star.at, star, None)
    value = parse_expression(cursor)
    if cursor.at("AS", "("):
        return _several_names(cursor, start, value)
    if cursor.reserved_before(",", "FROM") and not cursor.at("AS"):
        return Item((start, cursor.token.end), value, cursor.advance().text)
    alias = _alias(cursor)
    return Item((start, cursor.previous_end), value, alias)


def _several_names(cursor: Cursor, start: int, value: Node) -> Item:
    cursor.advance()
    cursor.advance()
    names = [cursor.word("the name of a column")]
    while cursor.accept(","):
        names.append(cursor.word("the name of a column"))
    cursor.expect(")", "after the names of the columns")
    return Item((start, cursor.previous_end), value, None, tuple(names))


def _column_names(cursor: Cursor) -> tuple[str, ...]:
    """The names of columns in parentheses after an alias, if there are any."""
    if not cursor.accept("("):
        return ()
    names = [cursor.word("the name of a column")]
    while cursor.accept(","):
        names.append(cursor.word("the name of a column"))
    cursor.expect(")", "after the names of the columns")
    return tuple(names)


def _renamed(place: TextRange, name: str, query: ParsedQuery, columns: tuple[str, ...]) -> ParsedQuery:
    """SELECT * FROM (query) AS _(columns): the body of `WITH name(columns) AS (query)`."""
    every = Item(place, Star(place), None)
    relation = Derived(place, query, name, columns)
    return SelectQuery(at=place, items=(every,), relation=relation, where=None, group_by=None, having=None)


def _table_alias(cursor: Cursor) -> str | None:
    if cursor.at("AS") and cursor.peek().kind == "word" and cursor.peek().upper in _NO_TABLES:
        cursor.advance()
        cursor.fail("expected a name for the table", advice=backquotes(cursor.token), certain=True)
    return cursor.advance().text if _table_word(cursor) else _alias(cursor)


def _alias(cursor: Cursor) -> str | None:
    if cursor.accept("AS"):
        if cursor.token.kind in ("word", "quoted"):
            return cursor.advance().text
        cursor.fail("expected a name after AS")
    return cursor.advance().text if cursor.at_name else None


def _relation(cursor: Cursor) -> Relation:
    start = cursor.token.start
    if cursor.at("("):
        cursor.advance()
        query = _query(cursor)
        cursor.expect(")", "after the subquery")
        place = (start, cursor.previous_end)
        alias = _table_alias(cursor)
        return Derived(place, query, alias, _column_names(cursor) if alias else ())
    if cursor.token.upper in WINDOW_TABLES and cursor.peek().upper == "(":
        return _window_table(cursor)
    name = cursor.advance().text if _table_word(cursor, "AS") else cursor.name("the name of a stream")
    if cursor.at("."):
        cursor.fail("the name of a stream has no database")
    if cursor.at("("):
        cursor.fail(f"there is no table function {name}; there are {', '.join(WINDOW_TABLES)}")
    place = (start, cursor.previous_end)
    alias = _table_alias(cursor)
    return Table(place, name, alias, _column_names(cursor) if alias else ())


def _window_table(cursor: Cursor) -> Windowed:
    start = cursor.token.start
    function = cursor.advance().upper.lower()
    cursor.advance()
    wrapped = cursor.at("TABLE") and cursor.peek().upper != "," and cursor.advance() is not None
    inner_start = cursor.token.start
    source: Table | Derived
    if cursor.accept("("):
        source = Derived((inner_start, cursor.previous_end), _query(cursor), None)
        cursor.expect(")", "after the subquery")
    elif wrapped and cursor.at("TABLE"):
        cursor.fail("expected the name of a stream")
    else:
        name = cursor.name("the name of a stream")
        source = Table((inner_start, cursor.previous_end), name, None)
    partition_by: list[Node] = []
    if cursor.accept("PARTITION"):
        cursor.expect("BY", "after PARTITION")
        partition_by.append(parse_expression(cursor))
    cursor.expect(",", "after the stream")
    time = _descriptor(cursor)
    arguments: list[Node] = []
    while cursor.accept(","):
        arguments.append(parse_expression(cursor))
    cursor.expect(")", f"after the arguments of {function.upper()}")
    place = (start, cursor.previous_end)
    return Windowed(
        at=place,
        function=function,
        input=source,
        time=time,
        arguments=tuple(arguments),
        alias=_table_alias(cursor),
        partition_by=tuple(partition_by),
    )


def _descriptor(cursor: Cursor) -> Name:
    described = cursor.at("DESCRIPTOR", "(")
    if described:
        cursor.advance()
        cursor.advance()
    at = (cursor.token.start, cursor.token.end)
    name = Name(at, (cursor.name("the event-time column"),))
    if described:
        cursor.expect(")", "after the event-time column")
    return name
