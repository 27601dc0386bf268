"""Splits the select list of an aggregate: the rings compute groups, and Spark computes the select list from them.

    SELECT date_format(window.start, 'EEE') AS d, score(avg(x)) AS s FROM t GROUP BY window(ts, '1 hour')

becomes the query of the rings and the query of Spark:

    SELECT window(ts, '1 hour') AS _k0, avg(x) AS _a0 FROM t GROUP BY window(ts, '1 hour')
    SELECT date_format(_k0.start, 'EEE') AS `d`, score(_a0) AS `s` FROM _groups

The split works on the text, so both parts are what the user wrote.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from headrace.sql.bind.column_names import ColumnNames
from headrace.sql.functions.aggregate_functions import AGGREGATE_ALIASES, AGGREGATE_NAMES
from headrace.sql.hosts.clock_calls import BARE_CLOCKS
from headrace.sql.hosts.text_edits import Edit, edited
from headrace.sql.parse.dialect import Token
from headrace.sql.parse.syntax import (
    Apply,
    Constant,
    LambdaFunction,
    Name,
    Node,
    ParsedQuery,
    SelectQuery,
    Star,
    WithQuery,
)

GROUPS = "_groups"
_WINDOWS = ("window", "session_window")


@dataclass(frozen=True, slots=True)
class SplitSelect:
    """The two queries. `having` is the condition on groups for Spark, if the rings cannot evaluate it: `groups` is
    without HAVING then."""

    groups: str
    groups_having: str
    select: str
    select_having: str


def is_aggregate(query: ParsedQuery) -> bool:
    """True if the query has GROUP BY or an aggregate of the shared host."""
    select = _body(query)
    return select is not None and (
        select.group_by is not None or any(_aggregates(n) for n in (*(i.value for i in select.items), select.having))
    )


def split_select(
    query: ParsedQuery, text: str, tokens: list[Token], names: ColumnNames, columns: Collection[str] = ()
) -> SplitSelect | None:
    """The parts of an aggregate over the groups of the shared host. None if the query has another form. `text` is the
    script, in which all positions are. `names` names the items without an alias. `columns` are those of the stream, in
    small letters."""
    select = _body(query)
    if select is None or select.distinct is not None or any(isinstance(i.value, Star) for i in select.items):
        return None
    if select.sets is not None or select.group_all:
        return None
    if any(_is_ambiguous(key, select, columns) for key in select.group_by or ()):
        return None
    keys = [_key(node, select) for node in select.group_by or ()]
    cutter = _Cutter(text, keys)
    items = [f"{cutter.cut(item.value)} AS {_quoted(item.alias or names.of(item.value))}" for item in select.items]
    having = None if select.having is None else cutter.cut(select.having)
    if cutter.loose or any(item.aliases for item in select.items):
        return None
    columns = [f"{_text(text, key)} AS _k{i}" for i, key in enumerate(keys)]
    columns += [f"{call} AS _a{i}" for i, call in enumerate(cutter.calls.values())]
    middle = text[select.items[-1].at[1] : _end_of_where(select, tokens)]
    grouped = f" GROUP BY {', '.join(_text(text, key) for key in keys)}" if keys else ""
    prefix = text[query.at[0] : select.at[0]]
    groups = f"{prefix}SELECT {', '.join(columns)}{middle}{grouped}"
    filtered = "" if select.having is None else f" HAVING {_text(text, select.having)}"
    spark = f"SELECT {', '.join(items)} FROM {GROUPS}"
    return SplitSelect(groups, groups + filtered, spark, spark if having is None else f"{spark} WHERE {having}")


def _body(query: ParsedQuery) -> SelectQuery | None:
    while isinstance(query, WithQuery):
        query = query.body
    return query if isinstance(query, SelectQuery) else None


def _text(text: str, node: Node) -> str:
    return text[node.at[0] : node.at[1]]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _is_ambiguous(key: Node, select: SelectQuery, columns: Collection[str]) -> bool:
    """True if a group key names a column and is also the alias of something else. Spark takes the column."""
    if not isinstance(key, Name) or len(key.parts) != 1 or key.parts[0].lower() not in columns:
        return False
    name = key.parts[0].lower()
    return any(
        item.alias is not None
        and item.alias.lower() == name
        and not (isinstance(item.value, Name) and item.value.parts[-1].lower() == name)
        for item in select.items
    )


def _key(node: Node, select: SelectQuery) -> Node:
    """The expression of a group key: a position and an alias stand for an item of the select list."""
    if isinstance(node, Constant) and node.kind == "number" and node.text.isdigit():
        position = int(node.text)
        return select.items[position - 1].value if 1 <= position <= len(select.items) else node
    if isinstance(node, Name) and len(node.parts) == 1:
        for item in select.items:
            if item.alias is not None and item.alias.lower() == node.parts[0].lower():
                return item.value
    return node


def _end_of_where(select: SelectQuery, tokens: list[Token]) -> int:
    """Where FROM and WHERE end: at GROUP, at HAVING, or at the end of the query."""
    for word, first in (("GROUP", (select.group_by or (None,))[0]), ("HAVING", select.having)):
        if first is not None:
            return max(t.start for t in tokens if t.upper == word and t.start < first.at[0])
    return select.at[1]


class _Cutter:
    """Replaces keys and aggregates in expressions by the columns of the groups. `calls` are the aggregates."""

    def __init__(self, text: str, keys: list[Node]) -> None:
        self.text, self.keys = text, {_shape(key): f"_k{i}" for i, key in enumerate(keys)}
        self.windows = {
            key.name: f"_k{i}" for i, key in enumerate(keys) if isinstance(key, Apply) and key.name in _WINDOWS
        }
        self.calls: dict[Any, str] = {}
        self.loose: list[Name] = []  # names that are neither a key nor inside an aggregate of the shared host

    def cut(self, node: Node) -> str:
        """The text of an expression over the groups."""
        start, end = node.at
        shifted = ((a - start, b - start, new) for a, b, new in self._edits(node))
        return edited(self.text[start:end], shifted).text

    def _edits(self, node: Node) -> Iterator[Edit]:
        column = self.keys.get(_shape(node))
        if column is None and isinstance(node, Name):
            column = self._window_field(node) or self._qualified(node)
        if column is None and isinstance(node, Apply) and _is_call(node):
            number = list(self.calls).index(_shape(node)) if _shape(node) in self.calls else len(self.calls)
            self.calls.setdefault(_shape(node), _text(self.text, node))
            column = f"_a{number}"
        if column is not None:
            yield (*node.at, column)
            return
        known = len(self.loose)
        for child in _children(node):
            yield from self._edits(child)
        if isinstance(node, LambdaFunction):
            params = {p.lower() for p in node.params}
            self.loose[known:] = [n for n in self.loose[known:] if n.parts[0].lower() not in params]
        elif isinstance(node, Name) and node.parts[-1].lower() not in BARE_CLOCKS:
            self.loose.append(node)

    def _window_field(self, name: Name) -> str | None:
        key = self.windows.get(name.parts[0].lower())
        return None if key is None else ".".join([key, *map(_quoted, name.parts[1:])])

    def _qualified(self, name: Name) -> str | None:
        """A key by its qualified name: `s.device` for the key `device`, and the other way round. Also a field of a
        key."""
        for key, column in self.keys.items():
            if key == ("Name", (name.parts[0].lower(),)) and len(name.parts) > 1:
                return ".".join([column, *map(_quoted, name.parts[1:])])
            if key[0] == "Name" and key[1][-1:] == (name.parts[-1].lower(),) and 1 in (len(key[1]), len(name.parts)):
                return column
        return None


def _is_call(node: Apply) -> bool:
    return not node.operator and (node.name in AGGREGATE_NAMES or node.name in AGGREGATE_ALIASES)


def _aggregates(node: Node | None) -> bool:
    if node is None:
        return False
    return (isinstance(node, Apply) and _is_call(node)) or any(_aggregates(child) for child in _children(node))


def _children(node: Node) -> Iterator[Node]:
    for found in fields(node):
        yield from _nodes(getattr(node, found.name))


def _nodes(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _nodes(part)


def _shape(value: Any) -> Any:
    """A node without positions and without case in names, to compare two."""
    if isinstance(value, Name):
        return ("Name", tuple(p.lower() for p in value.parts))
    if is_dataclass(value) and isinstance(value, Node):
        return (type(value).__name__, *(_shape(getattr(value, f.name)) for f in fields(value) if f.name != "at"))
    if isinstance(value, tuple):
        return tuple(map(_shape, value))
    return value
