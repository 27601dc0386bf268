"""What Spark's optimizer knows of an expression without evaluating it: that it is NULL because NULL is written in it,
that it is never NULL, that a condition is decided. Operands that it drops cannot fail then."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from functools import lru_cache

from headrace.model.schema import BOOLEAN, DOUBLE, FLOAT, Struct
from headrace.sql.functions import find
from headrace.sql.functions.evaluation_order import (
    cast_is_never_null,
    element_is_never_null,
    is_never_null,
    is_null_beside_null,
    try_cast_is_never_null,
)
from headrace.sql.plan.expr import OF_ALL_STRUCTS, Call, CaseWhen, Cast, Expr, FieldOf, Lambda, LambdaVariable, Literal
from headrace.sql.plan.limits import check_time

# Names of one expression of Spark.
_SAME_FUNCTION = {"make_timestamp_ltz": "make_timestamp", "try_make_timestamp_ltz": "try_make_timestamp"}


def decided(expr: Expr) -> Expr:
    """The value of a call that Spark's optimizer knows without evaluating an operand, or `expr` itself."""
    if not isinstance(expr, Call):
        return expr
    if is_written_null(expr):
        return Literal(expr.type, None, at=expr.at)
    if _is_compared_with_itself(expr):
        return Literal(BOOLEAN, expr.name in ("<=>", "=", "<=", ">="), at=expr.at)
    if expr.name in ("isnull", "isnotnull") and never_null(expr.args[0]):
        return Literal(BOOLEAN, expr.name == "isnotnull", at=expr.at)
    if expr.name == "<=>" and any(map(is_written_null, expr.args)):
        other = expr.args[1] if is_written_null(expr.args[0]) else expr.args[0]
        known = decided(Call(BOOLEAN, "isnull", (other,), at=expr.at))
        return known if isinstance(known, Literal) else expr
    if expr.name == "not":
        inner = decided(expr.args[0])
        if isinstance(inner, Literal) and inner.value is not None:
            return Literal(BOOLEAN, not inner.value, at=expr.at)
    if expr.name in ("and", "or"):
        decisive = expr.name == "or"
        parts = (decided(part) for part in _chain(expr, expr.name))
        if any(isinstance(part, Literal) and part.value is decisive for part in parts):
            return Literal(BOOLEAN, decisive, at=expr.at)
    return expr


def asked_operand(expr: Expr) -> Expr | None:
    """The only operand that decides whether a condition is NULL, in `isnull` and `isnotnull` of it, or None. Spark's
    optimizer asks the operands of NOT and of `<`, `<=`, `>` and `>=`, so one that is never NULL is not evaluated."""
    if not (isinstance(expr, Call) and expr.name in ("isnull", "isnotnull") and isinstance(expr.args[0], Call)):
        return None
    inner = expr.args[0]
    if inner.name == "not":
        return inner.args[0]
    if inner.name not in ("<", "<=", ">", ">="):
        return None
    asked = [arg for arg in inner.args if not never_null(arg)]
    return asked[0] if len(asked) == 1 else None


def _chain(expr: Expr, name: str) -> Iterator[Expr]:
    """The operands of a chain of ANDs or ORs."""
    open_parts = [expr]
    while open_parts:
        part = open_parts.pop()
        if isinstance(part, Call) and part.name == name:
            open_parts += part.args
        else:
            yield part


def _is_compared_with_itself(expr: Call) -> bool:
    """True for a comparison of an expression with itself that Spark's optimizer decides without evaluating it: by
    `<=>`, or by another operator if the value is never NULL."""
    if expr.name not in ("<=>", "=", "!=", "<", "<=", ">", ">=") or not _is_same_expression(*expr.args):
        return False
    return expr.name == "<=>" or never_null(expr.args[0])


def has_one_value(expr: CaseWhen) -> bool:
    """True if all branches have the same value. Like Spark's optimizer, the planner drops the conditions then."""
    otherwise = expr.otherwise if expr.otherwise is not None else Literal(expr.type, None, at=expr.at)
    values = [value for _, value in expr.branches] + [otherwise]
    return all(map(is_written_null, values)) or all(_is_same_expression(v, values[0]) for v in values[1:])


def _is_same_expression(left: Expr, right: Expr) -> bool:
    """True if both are the same for Spark. 0.0 and -0.0 are equal, but not the same."""
    return _alike(left) == _alike(right) and list(_fractions(left)) == list(_fractions(right))


def _fractions(expr: Expr) -> Iterator[str]:
    if isinstance(expr, Literal) and expr.type in (FLOAT, DOUBLE):
        yield repr(expr.value)
    for child in expr.children:
        yield from _fractions(child)


def _alike(expr: Expr) -> Expr:
    """`expr` under the name that Spark has for functions with several names."""
    inside = expr.children
    new = tuple(_alike(child) for child in inside)
    if not all(a is b for a, b in zip(new, inside, strict=True)):
        expr = expr.with_children(new)
    if isinstance(expr, Call) and expr.name in _SAME_FUNCTION:
        return dataclasses.replace(expr, name=_SAME_FUNCTION[expr.name])
    return expr


@lru_cache(maxsize=4096)  # the rules below ask for the same parts at every level
def is_written_null(expr: Expr) -> bool:
    """True if the expression is NULL because NULL is written in it. Like in Spark, its other operands are not
    evaluated. A constant that happens to be NULL, as in nullif(1, 1), does not count."""
    check_time()
    if isinstance(expr, Literal):
        return expr.value is None
    if isinstance(expr, Cast):
        return is_written_null(expr.input)
    if isinstance(expr, CaseWhen):
        if has_one_value(expr):
            return is_written_null(expr.branches[0][1])
        known = tuple((decided(condition(c)), v) for c, v in expr.branches)
        taken = taken_branches(dataclasses.replace(expr, branches=known))
        return not isinstance(taken, CaseWhen) and is_written_null(taken)
    if (part := taken_out(expr)) is not None:
        return is_written_null(part)
    if not isinstance(expr, Call):
        return False
    nulls = [i for i, arg in enumerate(expr.args) if is_written_null(arg)]
    if expr.name == "in" and nulls == list(range(1, len(expr.args))):
        return True
    overload = find(expr.name, [a.type for a in expr.args]) if nulls else None
    return overload is not None and is_null_beside_null(overload, nulls)


def never_null(expr: Expr) -> bool:
    """True if Spark knows that the value is never NULL."""
    check_time()
    if isinstance(expr, Literal):
        return expr.value is not None
    if isinstance(expr, Cast):
        keeps = try_cast_is_never_null if expr.attempt else cast_is_never_null
        return keeps(expr.input.type, expr.type) and never_null(expr.input)
    if isinstance(expr, CaseWhen):
        values = [value for _, value in expr.branches]
        return expr.otherwise is not None and all(map(never_null, [*values, expr.otherwise]))
    if (part := taken_out(expr)) is not None:
        return never_null(part)
    if not isinstance(expr, Call):
        return False
    overload = find(expr.name, [a.type for a in expr.args])
    if overload is None:
        return False
    inside = [never_null(a) for a in expr.args]
    if overload.name == "map_from_entries":
        return all(inside) and _has_no_null(expr.args[0])
    return is_never_null(overload, inside)


def _has_no_null(expr: Expr) -> bool:
    """True if Spark knows that no element of an array is NULL."""
    overload = find(expr.name, [a.type for a in expr.args]) if isinstance(expr, Call) else None
    return overload is not None and element_is_never_null(overload, [never_null(a) for a in expr.children])


def taken_branches(expr: CaseWhen) -> Expr:
    """Drops branches that are never taken, and all branches after one that is always taken."""
    branches: list[tuple[Expr, Expr]] = []
    for condition, value in expr.branches:
        if isinstance(condition, Literal):
            if condition.value is not True:
                continue
            if not branches:
                return value
            return dataclasses.replace(expr, branches=tuple(branches), otherwise=value)
        branches.append((condition, value))
    if not branches:
        return expr.otherwise if expr.otherwise is not None else Literal(expr.type, None, at=expr.at)
    return expr if len(branches) == len(expr.branches) else dataclasses.replace(expr, branches=tuple(branches))


def taken_out(expr: Expr) -> Expr | None:
    """The part that an expression takes out of a struct, array or map that is made in the same expression, or None.
    Spark's optimizer makes only that part, so the others are not evaluated."""
    if isinstance(expr, FieldOf):
        return _field(_made(expr.input), expr.name)
    if isinstance(expr, Call) and expr.name == "transform":
        return _fields(expr)
    if not (isinstance(expr, Call) and expr.name in ("element", "get")):
        return None
    made, place = _made(expr.args[0]), expr.args[1]
    if not isinstance(made, Call):
        return None
    if made.name == "array" and isinstance(place, Literal) and place.value is not None:
        return made.args[place.value] if 0 <= place.value < len(made.args) else None
    if made.name == "map" and made.args and find("=", [place.type] * 2) is not None:
        branches = tuple(
            (Call(BOOLEAN, "=", (place, key), at=expr.at), value)
            for key, value in zip(made.args[::2], made.args[1::2], strict=True)
        )
        return CaseWhen(expr.type, branches, None, at=expr.at)
    return None


def _made(expr: Expr) -> Expr:
    """What an expression stands for when all parts are taken out of it."""
    part = taken_out(expr)
    if part is None and isinstance(expr, Call) and expr.name == "coalesce" and never_null(expr.args[0]):
        part = expr.args[0]
    return expr if part is None else _made(part)


def _fields(expr: Call) -> Expr | None:
    """The array of a field of the structs in an array that is made in the same expression: `array(struct(...)).field`.
    A lambda of the user has other names of variables."""
    made, function = _made(expr.args[0]), expr.args[1]
    if not (isinstance(made, Call) and made.name == "array" and made.args):
        return None
    if not (isinstance(function, Lambda) and function.params == (OF_ALL_STRUCTS,)):
        return None
    field = function.body
    if not (isinstance(field, FieldOf) and isinstance(field.input, LambdaVariable)):
        return None
    return Call(expr.type, "array", tuple(_field_of(arg, field) for arg in made.args), at=expr.at)


def _field_of(struct: Expr, field: FieldOf) -> Expr:
    if isinstance(struct, Literal):
        return Literal(field.type, None, at=struct.at)
    return FieldOf(field.type, struct, field.name, at=struct.at)


def _field(made: Expr, name: str) -> Expr | None:
    kind = made.type
    if isinstance(made, Call) and made.name in ("struct", "named_struct") and isinstance(kind, Struct):
        return made.args[[field.name for field in kind.fields].index(name)]
    return None


def condition(expr: Expr) -> Expr:
    """An expression of which only TRUE matters, with FALSE for each NULL written in it, like Spark's optimizer."""
    if is_written_null(expr):
        return Literal(BOOLEAN, False, at=expr.at)
    if not isinstance(expr, Call):
        return expr
    inner = expr.args[0] if expr.name == "not" else None
    if isinstance(inner, Call) and inner.name in ("and", "or"):
        turned = tuple(Call(BOOLEAN, "not", (part,), at=part.at) for part in inner.args)
        moved = Call(BOOLEAN, "or" if inner.name == "and" else "and", turned, at=expr.at)
        changed = condition(moved)
        return expr if changed is moved else changed
    if expr.name in ("and", "or"):
        parts = tuple(map(condition, expr.args))
        if any(new is not old for new, old in zip(parts, expr.args, strict=True)):
            return expr.with_children(parts)
    return expr


def chosen_operand(expr: Call) -> Expr | None:
    """The operand that a literal chooses. DuckDB's optimizer would choose it too, and then evaluate constant conditions
    over it while it plans, where one that no row comes to may fail."""
    first = expr.args[0] if expr.args else None
    if not isinstance(first, Literal):
        return None
    if expr.name == "coalesce":
        return first if first.value is not None else None
    if expr.name == "nanvl":
        return expr.args[1] if first.value is not None and math.isnan(first.value) else first
    if expr.name == "elt" and first.value is not None and 1 <= first.value < len(expr.args):
        return expr.args[int(first.value)]
    return None
