"""Typed expressions over the columns of a plan node. They are frozen. Equality ignores their position in the text.

A `ColumnRef` is an index into the schema of the input. This module knows nothing of DuckDB (`render`) or of functions
(`functions`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.model.schema import BOOLEAN, DataType, Struct
from headrace.sql.parse.syntax import TextRange
from headrace.sql.plan.limits import MAX_PARTS, ExpressionTooLarge, check_time

NOWHERE: TextRange = (0, 0)


@dataclass(frozen=True, slots=True)
class Expr:
    """A typed expression. `at` is its position in the script, for carets."""

    type: DataType
    at: TextRange = field(default=NOWHERE, compare=False, kw_only=True)

    @property
    def children(self) -> tuple[Expr, ...]:
        """The direct operands."""
        return ()

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        """The same expression over other operands."""
        assert not children
        return self


@dataclass(frozen=True, slots=True)
class ColumnRef(Expr):
    """Column `index` of the input's schema."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class Literal(Expr):
    """A value. Dates are `datetime.date`, timestamps microseconds since 1970, intervals months or microseconds."""

    value: Any


@dataclass(frozen=True, slots=True)
class Call(Expr):
    """A scalar function or operator on the verified list, over arguments of exactly its parameter types."""

    name: str
    args: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return replace(self, args=children)


@dataclass(frozen=True, slots=True)
class Cast(Expr):
    """CAST to `type`. With `attempt` it is TRY_CAST: NULL instead of an error."""

    input: Expr
    attempt: bool = False

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.input,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return replace(self, input=children[0])


@dataclass(frozen=True, slots=True)
class CaseWhen(Expr):
    """The value of the first branch whose condition is true, else `otherwise`."""

    branches: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr | None

    def __post_init__(self) -> None:
        if any(c.type != BOOLEAN or v.type != self.type for c, v in self.branches):
            raise TypeError("CASE needs boolean conditions and values of its own type")

    @property
    def children(self) -> tuple[Expr, ...]:
        flat = tuple(e for branch in self.branches for e in branch)
        return flat if self.otherwise is None else (*flat, self.otherwise)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        count = len(self.branches)
        branches = tuple((children[2 * i], children[2 * i + 1]) for i in range(count))
        otherwise = children[2 * count] if self.otherwise is not None else None
        return replace(self, branches=branches, otherwise=otherwise)


@dataclass(frozen=True, slots=True)
class FieldOf(Expr):
    """A field of a struct."""

    input: Expr
    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.input.type, Struct):
            raise TypeError("only a struct has fields")

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.input,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return replace(self, input=children[0])


@dataclass(frozen=True, slots=True)
class LambdaVariable(Expr):
    """A parameter of a lambda, inside the lambda. `text` is its DuckDB SQL. Equality ignores the user's name of it."""

    text: str
    name: str = field(compare=False)


# The variable of the lambda that takes a field of all structs in an array: `xs.field`.
OF_ALL_STRUCTS = "v_field"


@dataclass(frozen=True, slots=True)
class Lambda(Expr):
    """A function of elements: `params` are the variables of the DuckDB lambda, `body` is the result."""

    params: tuple[str, ...]
    body: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.body,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return replace(self, body=children[0])


@dataclass(frozen=True, slots=True)
class FailingConstant(Expr):
    """A constant expression that fails, on the rows that reach it. `cause` is the expression, `said` the reason."""

    cause: Expr
    said: str


@dataclass(frozen=True, slots=True)
class AggCall(Expr):
    """An aggregate over the rows of a group for which `where` holds. count(*) has no arguments. `constants` are its
    literal parameters, such as the fractions of `percentile`."""

    name: str
    args: tuple[Expr, ...]
    where: Expr | None = None
    constants: tuple[Any, ...] = ()

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args if self.where is None else (*self.args, self.where)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        count = len(self.args)
        return replace(self, args=children[:count], where=children[count] if self.where is not None else None)


@dataclass(frozen=True, slots=True)
class RankCall(Expr):
    """row_number, rank or dense_rank over the rows with equal `partition`, in the order of `order`. `directions` says
    for each key of the order if it is descending, and if NULL comes first."""

    name: str
    partition: tuple[Expr, ...]
    order: tuple[Expr, ...]
    directions: tuple[tuple[bool, bool], ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return (*self.partition, *self.order)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        count = len(self.partition)
        return replace(self, partition=children[:count], order=children[count:])


def walk(expr: Expr) -> Iterator[Expr]:
    """Yields `expr` and everything below it, parents first. Raises ExpressionTooLarge beyond MAX_PARTS."""
    # Nodes may be shared, so a small plan can hold an expression with billions of parts.
    stack = [expr]
    count = 0
    while stack:
        node = stack.pop()
        count += 1
        if count > MAX_PARTS:
            raise ExpressionTooLarge(f"an expression of more than {MAX_PARTS} parts", expr.at)
        yield node
        stack.extend(reversed(node.children))


def transform(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """Replaces, from the top, every node for which `change` returns another. Returns the same object if none does."""
    check_time()
    changed = change(expr)
    if changed is not None:
        return changed
    children = expr.children
    if not children:
        return expr
    new = tuple(transform(child, change) for child in children)
    return expr if all(a is b for a, b in zip(new, children, strict=True)) else expr.with_children(new)


def substitute(expr: Expr, values: tuple[Expr, ...]) -> Expr:
    """`expr` with column i replaced by `values[i]`."""
    return transform(expr, lambda e: values[e.index] if isinstance(e, ColumnRef) else None)


def columns_of(expr: Expr) -> set[int]:
    """The indexes of the columns that `expr` reads."""
    return {e.index for e in walk(expr) if isinstance(e, ColumnRef)}


def conjuncts(expr: Expr) -> Iterator[Expr]:
    """The parts of a conjunction, from left to right."""
    if isinstance(expr, Call) and expr.name == "and":
        for arg in expr.args:
            yield from conjuncts(arg)
    else:
        yield expr


def conjunction(parts: list[Expr]) -> Expr | None:
    """The parts joined by AND, from left to right. None without parts."""
    if not parts:
        return None
    joined = parts[0]
    for part in parts[1:]:
        joined = Call(BOOLEAN, "and", (joined, part), at=part.at)
    return joined
