"""Binds the computed columns of CREATE STREAM: `ts TIMESTAMP AS to_timestamp(raw, 'dd/MM/yyyy')`.

A computed column may read other computed columns. Their expressions are inlined, so at run time each reads only columns
of the records.
"""

from __future__ import annotations

from headrace.errors import BadComputedColumn, Span, TypeMismatch
from headrace.model.definitions import ComputedColumn
from headrace.model.program import Meaning
from headrace.model.schema import INT, STRING
from headrace.sql.bind.expression_binder import ExprBinder
from headrace.sql.bind.scope import Scope
from headrace.sql.functions.fallibility import throws
from headrace.sql.functions.time_functions import CLOCKS
from headrace.sql.parse.script import too_deep
from headrace.sql.parse.statements import CreateStream
from headrace.sql.parse.syntax import Node
from headrace.sql.plan.context import PlanContext
from headrace.sql.plan.expr import Call, CaseWhen, Cast, ColumnRef, Expr, Literal, columns_of, transform, walk
from headrace.sql.plan.limits import ExpressionTooLarge, planning_time
from headrace.sql.plan.nested_reads import with_fields
from headrace.sql.plan.types import VOID, widens
from headrace.sql.render.duckdb import render, ring0_column
from headrace.sql.render.sizes import growth_of
from headrace.sql.rules.fold_constants import fold

# Functions with a form that returns NULL instead of failing. They return NULL only for NULL.
_ATTEMPTS = {"to_timestamp": "try_to_timestamp", "to_date": "try_to_date"}


def bind_computed_columns(statement: CreateStream, meaning: Meaning) -> tuple[ComputedColumn, ...]:
    """The computed columns of the statement, in the order of the schema. Raises SqlError with its position."""
    if not statement.computed:
        return ()
    try:
        with planning_time(statement.span):
            return _ComputedBinder(statement, meaning).bind()
    except RecursionError:
        raise too_deep(statement.span) from None
    except ExpressionTooLarge as problem:
        raise BadComputedColumn(
            f"{problem} cannot be computed",
            advice="Make the expression smaller.",
            span=Span(statement.span.text, *problem.at, statement.span.statement),
        ) from None


class _ComputedBinder:
    """Binds the computed columns of one stream."""

    def __init__(self, statement: CreateStream, meaning: Meaning) -> None:
        self.statement, self.meaning, self.schema = statement, meaning, statement.schema
        self.ctx = PlanContext(meaning, statement.span.text, statement.span.statement)
        scope = Scope(statement.schema, statement.name, f"stream '{statement.name}'")
        self.binder = ExprBinder(scope, self.ctx, lambda node: None)
        self.binder.place = "in a computed column"
        self.bound: dict[int, Expr] = {}
        self.inlined: dict[int, Expr] = {}

    def bind(self) -> tuple[ComputedColumn, ...]:
        for index, node in self.statement.computed.items():
            self.bound[index] = self._bind(index, node)
        return tuple(self._column(index, node) for index, node in sorted(self.statement.computed.items()))

    def _bind(self, index: int, node: Node) -> Expr:
        field = self.schema[index]
        expr = self.binder.bind(node)
        for part in walk(expr):
            if isinstance(part, Call) and part.name in CLOCKS:
                raise BadComputedColumn(
                    f"the computed column '{field.name}' reads the clock: it would change when an epoch runs again",
                    advice=f"Use {part.name}() in the pipeline's query.",
                    span=self.ctx.span(part.at),
                    name=field.name,
                )
        if expr.type not in (field.type, VOID) and not widens(expr.type, field.type):
            raise TypeMismatch(
                f"the computed column '{field.name}' is {field.type}, but its expression is {expr.type}",
                advice=f"Declare it {expr.type}, or write CAST(... AS {field.type}).",
                span=self.ctx.span(node.at),
            )
        value = self.binder.coerce(expr, field.type)
        length = self.statement.padded.get(index)
        return value if length is None else self._padded(value, length)

    def _padded(self, value: Expr, length: int) -> Expr:
        """The value of a CHAR column: blanks fill it up, and a longer text stays as it is, as in a record."""
        call, at = self.binder.call, value.at
        count = Literal(INT, length, at=at)
        short = call("<", (call("length", (value,), at), count), at)
        filled = call("rpad", (value, count, Literal(STRING, " ", at=at)), at)
        return CaseWhen(STRING, ((short, filled),), value, at=at)

    def _column(self, index: int, node: Node) -> ComputedColumn:
        expr = with_fields(fold(self._inline(index, ()), self.ctx), self.schema)
        lenient = _lenient(expr) if throws(expr) else None
        return ComputedColumn(
            index=index,
            sql=render(expr, ring0_column),
            reads=tuple(sorted(columns_of(expr))),
            meaning=self.meaning,
            text=self.ctx.text[slice(*node.at)],
            lenient="" if lenient is None else render(lenient, ring0_column),
            growth=growth_of(
                outputs=(expr,),
                others=(),
                where=None,
                column=ring0_column,
                names=lambda column: (ring0_column(column),),
                span=self.ctx.span,
            ),
        )

    def _inline(self, index: int, path: tuple[int, ...]) -> Expr:
        """The expression of a column over columns of the records. `path` are the columns on the way to it."""
        if index in path:
            names = " -> ".join(self.schema[i].name for i in (*path[path.index(index) :], index))
            raise BadComputedColumn(
                f"the computed column '{self.schema[index].name}' is computed from itself: {names}",
                advice="Compute one of them from the columns of the records only.",
                span=self.ctx.span(self.statement.computed[index].at),
                name=self.schema[index].name,
            )
        if index not in self.inlined:

            def read(expr: Expr) -> Expr | None:
                if isinstance(expr, ColumnRef) and expr.index in self.bound:
                    return self._inline(expr.index, (*path, index))
                return None

            self.inlined[index] = transform(self.bound[index], read)
        return self.inlined[index]


def _lenient(expr: Expr) -> Expr | None:
    """`expr` with NULL where it fails, if that differs from other NULLs: every part of it is NULL only if a part of
    that is. None for other expressions."""
    if isinstance(expr, ColumnRef):
        return expr
    if isinstance(expr, Literal):
        return None if expr.value is None else expr
    inner = [_lenient(child) for child in expr.children]
    whole = tuple(child for child in inner if child is not None)
    if len(whole) < len(inner):
        return None
    if isinstance(expr, Cast) and not expr.attempt:
        return Cast(expr.type, whole[0], True, at=expr.at)
    if isinstance(expr, Call) and expr.name in _ATTEMPTS and all(c.type == STRING for c in whole):
        return Call(expr.type, _ATTEMPTS[expr.name], whole, at=expr.at)
    if isinstance(expr, Call) and expr.name in ("concat", "||", "trim", "replace", "substring"):
        return expr.with_children(whole)
    return None
