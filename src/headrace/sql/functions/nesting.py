"""Parts of DuckDB SQL over nested values: lambda variables, intermediate results, and sort keys with Spark's order."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from headrace.model.schema import DOUBLE, FLOAT, Array, DataType, Map, Struct, duck_name
from headrace.sql.plan.expr import Expr

_VARIABLE = re.compile(r"\bx_(\d+)\b")
_ATOM = re.compile(r"\w+")


def fresh(*texts: str) -> str:
    """A lambda variable that none of `texts` uses."""
    return f"x_{max((int(n) for text in texts for n in _VARIABLE.findall(text)), default=0) + 1}"


def let(value: str, body: Callable[[str], str]) -> str:
    """`body` over the name of a value that is computed once. DuckDB computes what stands in a lambda once per element,
    except for columns and variables."""
    if _ATOM.fullmatch(value):
        return body(value)
    name = fresh(value, body("x_0"))
    return f"list_transform([{value}], lambda {name}: {body(name)})[1]"


def mapped(array: str, body: Callable[[str], str]) -> str:
    """The array of `body` over the variable of each element."""
    name = fresh(body("x_0"))
    return f"list_transform({array}, lambda {name}: {body(name)})"


def kept(array: str, body: Callable[[str], str]) -> str:
    """The elements for which `body` is true."""
    name = fresh(body("x_0"))
    return f"list_filter({array}, lambda {name}: {body(name)})"


def is_nested(kind: DataType) -> bool:
    """True for arrays, maps and structs."""
    return isinstance(kind, Array | Map | Struct)


def parts(kind: DataType) -> list[DataType]:
    """`kind` and all types inside it."""
    if isinstance(kind, Array):
        return [kind, *parts(kind.element)]
    if isinstance(kind, Map):
        return [kind, *parts(kind.key), *parts(kind.value)]
    if isinstance(kind, Struct):
        return [kind, *(part for field in kind.fields for part in parts(field.type))]
    return [kind]


def without_negative_zero(text: str, kind: DataType) -> str:
    """The value with -0.0 as 0.0. Spark has one zero in the keys of a map and in sets."""
    return f"({text} + 0)" if kind in (FLOAT, DOUBLE) else text


def sort_key(text: str, kind: DataType) -> str:
    """A value that DuckDB compares as Spark compares `text`: NULL inside a nested value is less than anything else."""
    if isinstance(kind, Array):
        element = kind.element
        return mapped(text, lambda x: f"struct_pack(n := {x} IS NOT NULL, v := {sort_key(x, element)})")
    if isinstance(kind, Struct):
        fields = [(f"f{i}", f"({text}).{duck_name(f.name)}", f.type) for i, f in enumerate(kind.fields)]
        packed = ", ".join(
            f"n{name} := {value} IS NOT NULL, {name} := {sort_key(value, k)}" for name, value, k in fields
        )
        return f"CASE WHEN {text} IS NOT NULL THEN struct_pack({packed}) END"
    return text


def first_problem(*checks: Callable[[Sequence[Expr]], str | None]) -> Callable[[Sequence[Expr]], str | None]:
    """A check that returns the first problem that one of `checks` finds."""

    def check(args: Sequence[Expr]) -> str | None:
        return next((problem for one in checks if (problem := one(args)) is not None), None)

    return check


def no_map_inside(args: Sequence[Expr]) -> str | None:
    """Spark does not compare maps."""
    if any(isinstance(part, Map) for arg in args for part in parts(arg.type)):
        return "a MAP inside, which cannot be compared"
    return None


def no_fraction_inside(args: Sequence[Expr]) -> str | None:
    """Refuses FLOAT and DOUBLE below the first level: Spark changes the sign of zeros there."""
    for arg in args:
        inside = arg.type.element if isinstance(arg.type, Array) else arg.type
        if is_nested(inside) and any(part in (FLOAT, DOUBLE) for part in parts(inside)):
            return "a FLOAT or DOUBLE inside nested values"
    return None
