"""Bounds the size of values: DuckDB SQL that computes an upper bound in bytes without computing the value.

`repeat(x, n)` has `strlen(x) * n` bytes. DuckDB evaluates 2,048 rows at once and keeps their strings outside its memory
limit, so a task must know the size before it evaluates (`headrace.exec.sizing`). The bound depends only on the values
that the expression reads. For replacements in large rows, the matches are counted instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from headrace.errors import Span, UnsupportedOnShared, ValueTooLarge
from headrace.exec.sizing import MAX_VALUE
from headrace.model.program import Growth, SizedValue
from headrace.model.schema import BINARY, NESTED, STRING, DataType
from headrace.sql.functions.regex import nullable, parse_replacement
from headrace.sql.functions.regex_functions import re2
from headrace.sql.functions.regex_parser import parse
from headrace.sql.parse.syntax import TextRange
from headrace.sql.plan.expr import (
    AggCall,
    Call,
    CaseWhen,
    Cast,
    ColumnRef,
    Expr,
    FieldOf,
    Lambda,
    LambdaVariable,
    Literal,
    columns_of,
    walk,
)
from headrace.sql.plan.limits import ExpressionTooLarge, check_time
from headrace.sql.plan.shape import Shape
from headrace.sql.render.byte_bounds import SHORT, Bytes, added, constant, counted, is_variable
from headrace.sql.render.collection_sizes import (
    GROWING_COLLECTIONS,
    applied,
    collection_size,
    lambda_grows,
)
from headrace.sql.render.duckdb import LONGEST, ColumnText, render, ring0_column, text_literal
from headrace.sql.render.text_sizes import FACTORS, formatted_size, multiplied_size, multiplies, passing, taken_size

# Functions whose result may be longer than their arguments.
GROWING = frozenset(
    [
        "repeat",
        "lpad",
        "rpad",
        "concat",
        "||",
        "concat_ws",
        "replace",
        "regexp_replace",
        "translate",
        "space",
        "format_string",
        "overlay",
    ]
)
FIXED = 8.0  # bytes of a value of fixed width in Arrow, about
# Bytes that a letter of a date pattern writes at most: VV is a time zone such as America/Argentina/ComodRivadavia.
_PER_LETTER = 32.0


def growth_of(
    outputs: Iterable[Expr],
    others: Iterable[Expr],
    where: Expr | None,
    column: ColumnText,
    names: Callable[[ColumnRef], Sequence[str]],
    span: Callable[[TextRange], Span],
) -> Growth:
    """The growth of a program that computes `outputs`, and evaluates `others`, for the rows where `where` holds.
    `column` writes a column reference. `names` lists the columns of the relation that it reads."""
    sizes = Sizes(column, names, span)
    if where is not None:
        sizes.collect(where, "")
    in_filter = bool(sizes.values or sizes.inner)
    guard = "" if where is None or in_filter else f"({render(where, column)})"
    plain, fixed = [], 0.0
    for expr in outputs:
        sizes.collect(expr, guard)
        if isinstance(expr, Call) and (makes_more(expr) or multiplies(expr)):
            continue  # collected itself
        if is_variable(expr.type):
            plain.append(sizes.size(expr))
        else:
            fixed += FIXED
    for expr in others:
        sizes.collect(expr, guard)
    if sizes.inner:
        plain.append(passing(sizes.inner))
    total = added([constant(fixed), *plain, *(bound for _, bound in sizes.values)])
    values = tuple(SizedValue(text, bound.sql) for text, bound in sizes.values)
    rest = added([constant(fixed), *plain]).sql
    if guard and plain:
        rest = f"CASE WHEN {guard} THEN {rest} ELSE 0 END"
    if max((len(v.sql) for v in values), default=0) + len(rest) > LONGEST:
        raise ExpressionTooLarge(f"an expression of more than {LONGEST} characters", sizes.largest)
    return Growth(values=values, plain=rest, columns=total.columns, fixed=total.fixed, in_filter=in_filter)


def ring0_growth(shape: Shape, span: Callable[[TextRange], Span]) -> Growth:
    """The growth of a shape's Ring 0 part: of what reads the made rows, if there are generators."""
    growth = _growth_of_rows(shape, span)
    return replace(growth, in_filter=False) if shape.generators else growth


def _growth_of_rows(shape: Shape, span: Callable[[TextRange], Span]) -> Growth:
    def names(column: ColumnRef) -> Sequence[str]:
        return (ring0_column(column),)

    if shape.aggregate is None:
        return growth_of(
            outputs=[o.expr for o in shape.outputs],
            others=(),
            where=shape.filter_of_made,
            column=ring0_column,
            names=names,
            span=span,
        )
    width = shape.width
    keys = [k.expr for k in shape.aggregate.keys if not any(width <= c < NESTED for c in columns_of(k.expr))]
    return growth_of(
        outputs=(),
        others=[*keys, *shape.aggregate.calls],
        where=shape.filter_of_made,
        column=ring0_column,
        names=names,
        span=span,
    )


def grows(expr: Expr) -> bool:
    """True if evaluating `expr` may create values that are larger than its inputs."""
    return any(isinstance(e, Call) and makes_more(e) for e in walk(expr))


def makes_more(expr: Call) -> bool:
    """True if the result of a call may be larger than its arguments."""
    return expr.name in GROWING or expr.name in GROWING_COLLECTIONS or lambda_grows(expr)


class Sizes:
    """Bounds of the expressions of one program. `values` are the growing ones, with the user's text. `inner` are others
    that take much more memory than what they read (`multiplies`)."""

    def __init__(
        self,
        column: ColumnText,
        names: Callable[[ColumnRef], Sequence[str]],
        span: Callable[[TextRange], Span],
        variables: Mapping[str, Bytes] | None = None,
    ) -> None:
        self.column, self.names, self.span = column, names, span
        self.variables = dict(variables or {})
        self.values: list[tuple[str, Bytes]] = []
        self.inner: list[Bytes] = []
        self.largest: TextRange = (0, 0)

    def collect(self, expr: Expr, guard: str) -> None:
        """Adds every growing value inside `expr` that is computed for the rows where `guard` holds."""
        check_time()
        if isinstance(expr, CaseWhen):
            for condition, value in expr.branches:
                self.collect(condition, guard)
                if not self.opaque(condition):  # DuckDB evaluates a branch only on the rows that reach it
                    text = render(condition, self.column)
                    self.collect(value, _both(guard, f"({text})"))
                    guard = _both(guard, f"({text}) IS DISTINCT FROM TRUE")
                else:
                    self.collect(value, guard)
            if expr.otherwise is not None:
                self.collect(expr.otherwise, guard)
            return
        if isinstance(expr, Call) and expr.name in ("and", "or"):
            left, right = expr.args
            self.collect(left, guard)
            # `render` writes a CASE when the right side may fail. Functions with a count from the row may fail.
            if not self.opaque(left) and grows(right):
                decided = "FALSE" if expr.name == "and" else "TRUE"
                guard = _both(guard, f"({render(left, self.column)}) IS DISTINCT FROM {decided}")
            self.collect(right, guard)
            return
        if isinstance(expr, Call) and makes_more(expr):
            self._add(expr, guard)
        elif isinstance(expr, Call) and multiplies(expr):
            self.inner.append(_guarded(self.size(expr), guard))
        if isinstance(expr, Call) and any(isinstance(a, Lambda) for a in expr.args):
            self._collect_applied(expr, guard)
            return
        if isinstance(expr, Call) and expr.name in ("||", "concat"):  # a chain is one value
            for part in _chain(expr):
                self.collect(part, guard)
            return
        children = expr.args if isinstance(expr, AggCall) and expr.where is not None else expr.children
        if isinstance(expr, AggCall) and expr.where is not None:
            self.collect(expr.where, guard)
            if not self.opaque(expr.where):
                guard = _both(guard, f"({render(expr.where, self.column)})")
        for child in children:
            self.collect(child, guard)

    def _collect_applied(self, expr: Call, guard: str) -> None:
        """Adds the values that a call with lambdas makes: the sum over the elements of what its lambda makes of one."""
        for arg in expr.args:
            if not isinstance(arg, Lambda):
                self.collect(arg, guard)
            elif grows(arg.body) or any(isinstance(e, Call) and multiplies(e) for e in walk(arg.body)):
                inner, combined = applied(self, expr, arg)
                inner.collect(arg.body, "")
                for text, bound in inner.values:
                    self.values.append((text, _guarded(Bytes(combined(bound).sql, None), guard)))
                for bound in inner.inner:
                    self.inner.append(_guarded(Bytes(combined(bound).sql, None), guard))

    def inside(self, variables: Mapping[str, Bytes]) -> Sizes:
        """For the body of a lambda. `variables` are bounds of its variables, if they cannot be read."""
        return Sizes(self.column, self.names, self.span, {**self.variables, **variables})

    def opaque(self, expr: Expr) -> bool:
        """True if the SQL of a bound cannot contain `expr`: it may be large, or reads a variable with a bound."""
        read = (e.text for e in walk(expr) if isinstance(e, LambdaVariable)) if self.variables else ()
        return any(_variable(text) in self.variables for text in read) or grows(expr)

    def known(self, expr: Expr) -> str:
        """The SQL of an argument that decides how large a result is. It must not be large itself."""
        if self.opaque(expr):
            raise UnsupportedOnShared(
                "a size that is computed from a value of unknown size cannot run on the shared host",
                advice="Use a column or a constant here.",
                span=self.span(expr.at),
            )
        return render(expr, self.column)

    def _add(self, expr: Call, guard: str) -> None:
        bound = self.size(expr)
        place = self.span(expr.at)
        text = " ".join(place.text[place.start : place.end].split()) or expr.name
        text = text if len(text) <= 80 else text[:77] + "..."
        if bound.columns == {} and bound.fixed > MAX_VALUE:  # DuckDB would compute it while planning
            raise ValueTooLarge(
                f"{text} has {bound.fixed:.0f} bytes; a value may have at most {MAX_VALUE}",
                advice="Make it shorter.",
                span=place,
                expression=text,
                limit=MAX_VALUE,
            )
        self.values.append((text, _guarded(bound, guard)))
        self.largest = expr.at

    def size(self, expr: Expr) -> Bytes:
        """An upper bound of the bytes of a value of variable size."""
        check_time()
        if not is_variable(expr.type):
            return constant(SHORT)
        if isinstance(expr, Literal):
            return constant(float(_length(expr)))
        if isinstance(expr, ColumnRef):
            return self._column(expr)
        if isinstance(expr, LambdaVariable) and _variable(expr.text) in self.variables:
            return self.variables[_variable(expr.text)]
        if isinstance(expr, LambdaVariable):
            return Bytes(_text_bytes(expr.text, expr.type), None, 0.0)
        if isinstance(expr, CaseWhen):
            return self._case(expr)
        if isinstance(expr, Cast | FieldOf):
            return self.size(expr.input)
        if isinstance(expr, Call):
            return self._call(expr)
        return added([self.size(child) for child in expr.children] or [constant(SHORT)])

    def _column(self, expr: ColumnRef) -> Bytes:
        return Bytes(_text_bytes(self.column(expr), expr.type), dict.fromkeys(self.names(expr), 1.0))

    def _case(self, expr: CaseWhen) -> Bytes:
        values = [v for _, v in expr.branches] + ([] if expr.otherwise is None else [expr.otherwise])
        sizes = [self.size(v) for v in values]
        total = added(sizes)
        if any(self.opaque(c) for c, _ in expr.branches):
            return Bytes(_greatest(sizes), total.columns, total.fixed)
        branches = "".join(
            f" WHEN {render(condition, self.column)} THEN {size.sql}"
            for (condition, _), size in zip(expr.branches, sizes, strict=False)
        )
        tail = sizes[-1].sql if expr.otherwise is not None else "0"
        return Bytes(f"(CASE{branches} ELSE {tail} END)", total.columns, total.fixed)

    def _call(self, expr: Call) -> Bytes:
        name, args = expr.name, expr.args
        collection = collection_size(self, expr)
        if collection is not None:
            return collection
        if name in ("concat", "||"):
            return added([self.size(part) for part in _chain(expr)])
        if name == "concat_ws":
            between = self.size(args[0]).times(float(len(args) - 2)) if len(args) > 2 else constant(0.0)
            return added([between, *(self.size(a) for a in args[1:])])
        if name == "repeat":
            return self.multiplied(self.size(args[0]), args[1])
        if name in ("lpad", "rpad"):
            given = args[2] if len(args) > 2 else Literal(STRING, " ")
            fill = given.value if isinstance(given, Literal) else None
            widest = max((len(c.encode()) for c in fill), default=0) if isinstance(fill, str) else 4
            return added([self.size(args[0]), self.multiplied(constant(float(widest)), args[1])])
        if name == "space":
            return self.multiplied(constant(1.0), args[0])
        if name == "replace" and len(args) == 3:
            return self._replace(expr)
        if name == "regexp_replace":
            return self._regexp_replace(expr)
        if name == "translate":
            to = args[2].value if isinstance(args[2], Literal) else None
            return self.size(args[0]) if isinstance(to, str) and to.isascii() else self.size(args[0]).times(4.0)
        if (taken := taken_size(self, expr)) is not None:
            return taken
        if name in FACTORS or name == "from_json":
            return multiplied_size(self, expr)
        if name == "format_string":
            return formatted_size(self, expr)
        if name == "overlay":
            return added([constant(SHORT), *(self.size(a) for a in args)])
        if name in ("coalesce", "greatest", "least", "elt"):
            sizes = [self.size(a) for a in args]
            total = added(sizes)
            return Bytes(_greatest(sizes), total.columns, total.fixed)
        if name in ("date_format", "from_unixtime"):
            return constant(SHORT + sum(_PER_LETTER * _length(a) for a in args if isinstance(a, Literal)))
        inner = [a for a in args if is_variable(a.type)][:1]
        return added([constant(SHORT), *(self.size(a) for a in inner)])

    def multiplied(self, size: Bytes, count: Expr) -> Bytes:
        if isinstance(count, Literal):
            return size.times(float(max(0, count.value or 0)))
        if self.opaque(count):
            raise UnsupportedOnShared(
                "a count that is computed from a value of unknown size cannot run on the shared host",
                advice="Use a count that is a column or a constant.",
                span=self.span(count.at),
            )
        times = f"greatest(coalesce({render(count, self.column)}, 0), 0)::DOUBLE"
        return Bytes(f"({size.sql} * {times})", None, 0.0)

    def _replace(self, expr: Call) -> Bytes:
        text, old, new = expr.args
        size, inserted = self.size(text), self.size(new)
        removed = _length(old) if isinstance(old, Literal) else 1
        if isinstance(new, Literal):
            if removed >= _length(new):
                return size
            bound = size.times(max(1.0, _length(new) / max(1, removed)))
        else:
            bound = Bytes(f"({size.sql} * greatest(1, {inserted.sql} / {max(1, removed)}))", None, 0.0)
        if any(self.opaque(a) for a in expr.args):
            return bound
        x, a = render(text, self.column), render(old, self.column)
        found = f"((strlen({x}) - strlen(replace({x}, {a}, ''))) / greatest(1, strlen({a})))"
        return counted(bound, f"({size.sql} + coalesce({found}, 0) * {inserted.sql})")

    def _regexp_replace(self, expr: Call) -> Bytes:
        text, old, new = expr.args[:3]
        size = self.size(text)
        if not isinstance(old, Literal) or not isinstance(new, Literal) or None in (old.value, new.value):
            return size
        pattern = parse(old.value)
        parts = parse_replacement(new.value, pattern)
        inserted = len("".join(p for p in parts if isinstance(p, str)).encode())
        groups = sum(1.0 for p in parts if isinstance(p, int))
        if nullable(pattern.root):  # matches between all characters, and at the end
            return added([size.times(1.0 + groups + 2.0 * inserted), constant(float(inserted))])
        if inserted <= 1 and not groups:  # a match has at least one byte
            return size
        bound = size.times(max(1.0, float(inserted)) + groups)
        fast = re2(pattern, whole_match=True)
        if self.opaque(text) or groups or fast is None:
            return bound
        x = render(text, self.column)
        left = f"strlen(regexp_replace({x}, {fast}, {text_literal('')}, 'g'))"
        found = f"(strlen(regexp_replace({x}, {fast}, {text_literal('.')}, 'g')) - {left})"
        return counted(bound, f"coalesce({left} + {found} * {inserted}, 0)")


def _guarded(bound: Bytes, guard: str) -> Bytes:
    """`bound` for the rows where `guard` holds."""
    return Bytes(f"CASE WHEN {guard} THEN {bound.sql} ELSE 0 END", bound.columns, bound.fixed) if guard else bound


def _variable(text: str) -> str:
    """The variable that the SQL of a lambda's parameter reads: `v_0_0` in `v_0_0.key`."""
    found = re.search(r"\bv_\w+", text)
    assert found is not None
    return found[0]


def _text_bytes(text: str, kind: DataType) -> str:
    """The bytes of a value, as SQL."""
    length = f"octet_length({text})" if kind == BINARY else f"strlen({_as_text(text, kind)})"
    return f"coalesce({length}, 0)::DOUBLE"


def _as_text(text: str, kind: DataType) -> str:
    return text if kind == STRING else f"CAST({text} AS VARCHAR)"


def _greatest(sizes: Sequence[Bytes]) -> str:
    return f"greatest({', '.join(s.sql for s in sizes)})"


def _chain(expr: Expr) -> list[Expr]:
    """The operands of nested concatenations, from left to right."""
    found: list[Expr] = []
    stack: list[Expr] = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, Call) and node.name in ("||", "concat"):
            stack.extend(reversed(node.args))
        else:
            found.append(node)
    return found


def _both(a: str, b: str) -> str:
    return f"{a} AND {b}" if a else b


def _length(literal: Literal) -> int:
    value = literal.value
    return len(value.encode()) if isinstance(value, str) else len(value) if isinstance(value, bytes) else 0
