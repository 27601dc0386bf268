"""The syntax tree of a query. It is untyped, and names are not resolved. Every node has its position in the text.

`bind` turns it into typed expressions (`plan.expr`) and logical plans (`plan.logical`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Literal

from headrace.errors import UnsupportedOnShared
from headrace.model.schema import DataType

TextRange = tuple[int, int]
"""A position in the text of the script: [start, end)."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the syntax tree at a position."""

    at: TextRange


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A possibly qualified name: `a`, `s.a`, `s.a.b`."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Star(Node):
    """`*`, `s.*`, `pos.meta.*`, `* EXCEPT (a, b)`. The qualifier is empty without one."""

    qualifier: tuple[str, ...] = ()
    excluded: tuple[Name, ...] = ()


@dataclass(frozen=True, slots=True)
class Constant(Node):
    """A literal. `text` is its value as written, without quotes. `kind` is its form."""

    kind: Literal["null", "boolean", "number", "string", "date", "timestamp", "timestamp_ntz", "binary"]
    text: str


@dataclass(frozen=True, slots=True)
class IntervalConstant(Node):
    """`INTERVAL 10 SECONDS`: months for years and months, microseconds for all other units. `unit` is that of Spark's
    type, as in DAY TO SECOND; '' for months and days together."""

    months: int
    micros: int
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Apply(Node):
    """A function or operator, by its lower-case name. `star` marks the argument of count(*). `order` are the keys of
    WITHIN GROUP (ORDER BY ...), each with whether it is descending. `written` is the form of a call that the parser
    turned into another one, for the name of the column. It is 'bare' for a clock without parentheses."""

    name: str
    args: tuple[Node, ...]
    distinct: bool = False
    star: bool = False
    where: Node | None = None
    operator: bool = False
    order: tuple[tuple[Node, bool], ...] = ()
    ignore_nulls: bool = False
    written: str = ""


@dataclass(frozen=True, slots=True)
class OrderKey(Node):
    """A key of ORDER BY in OVER (...)."""

    value: Node
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Ranking(Node):
    """row_number(), rank() or dense_rank() OVER (PARTITION BY partition ORDER BY order)."""

    name: str
    partition: tuple[Node, ...]
    order: tuple[OrderKey, ...]


@dataclass(frozen=True, slots=True)
class Case(Node):
    """CASE WHEN ... THEN ... ELSE ... END. The parser turns the simple form into `operand = value`."""

    branches: tuple[tuple[Node, Node], ...]
    otherwise: Node | None


@dataclass(frozen=True, slots=True)
class CastTo(Node):
    """CAST(x AS TYPE) or TRY_CAST."""

    input: Node
    type: DataType
    attempt: bool


@dataclass(frozen=True, slots=True)
class IntervalCast(Node):
    """CAST(x AS INTERVAL DAY TO SECOND) or TRY_CAST. `unit` is '' for a plain INTERVAL."""

    input: Node
    unit: str
    attempt: bool


@dataclass(frozen=True, slots=True)
class Dot(Node):
    """`x.field` on something that is not a plain name."""

    input: Node
    field: str


@dataclass(frozen=True, slots=True)
class Subscript(Node):
    """`x[index]`."""

    input: Node
    index: Node


@dataclass(frozen=True, slots=True)
class LambdaFunction(Node):
    """`x -> body` or `(x, y) -> body` as an argument."""

    params: tuple[str, ...]
    body: Node


@dataclass(frozen=True, slots=True)
class Aliased(Node):
    """`x AS name` as an argument of `struct`. With `of_star`, a field that `x.*` among any arguments stands for."""

    value: Node
    alias: str
    of_star: bool = False


@dataclass(frozen=True, slots=True)
class Item(Node):
    """One entry of a select list. `aliases` are the names of several columns: `posexplode(a) AS (i, x)`."""

    value: Node
    alias: str | None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LateralView(Node):
    """LATERAL VIEW [OUTER] explode(...) table AS columns."""

    call: Apply
    outer: bool
    alias: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table(Node):
    """A stream or CTE by name. `columns` are new names for its columns: `s AS t(a, b)`."""

    name: str
    alias: str | None
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Derived(Node):
    """A subquery in FROM. `columns` are new names for its columns."""

    query: ParsedQuery
    alias: str | None
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Windowed(Node):
    """TUMBLE, HOP, CUMULATE or SESSION over a table: `TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 1 MINUTE)`."""

    function: str
    input: Table | Derived
    time: Name
    arguments: tuple[Node, ...]
    alias: str | None
    partition_by: tuple[Node, ...] = ()


Relation = Table | Derived | Windowed


@dataclass(frozen=True, slots=True)
class SelectQuery(Node):
    """SELECT [DISTINCT] items FROM relation WHERE ... GROUP BY ... HAVING ... `distinct` is its position.

    With `sets`, GROUP BY has several grouping sets, of the keys in `group_by`. With `group_all` it is GROUP BY ALL."""

    items: tuple[Item, ...]
    relation: Relation
    where: Node | None
    group_by: tuple[Node, ...] | None
    having: Node | None
    distinct: TextRange | None = None
    laterals: tuple[LateralView, ...] = ()
    sets: tuple[tuple[Node, ...], ...] | None = None
    group_all: bool = False


@dataclass(frozen=True, slots=True)
class UnionQuery(Node):
    """UNION ALL of two or more."""

    inputs: tuple[ParsedQuery, ...]


@dataclass(frozen=True, slots=True)
class WithQuery(Node):
    """CTEs in order, each visible to the later ones and to `body`."""

    ctes: tuple[tuple[str, ParsedQuery], ...]
    body: ParsedQuery


@dataclass(frozen=True, slots=True)
class ForeignQuery(Node):
    """Spark SQL that the grammar here does not have. `refused` says which part, as an error of the shared host."""

    refused: UnsupportedOnShared


ParsedQuery = SelectQuery | UnionQuery | WithQuery


def parts_of(node: Node) -> Iterator[Node]:
    """Yields an expression and everything in it, parents first."""
    yield node
    for entry in fields(node):
        yield from _inner(getattr(node, entry.name))


def _inner(value: object) -> Iterator[Node]:
    if isinstance(value, Node):
        yield from parts_of(value)
    elif isinstance(value, tuple):
        for part in value:
            yield from _inner(part)
