"""Chooses the overload of a function by the types of its arguments, and refuses functions that are not on the list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from headrace.base.unknown import similar, unknown
from headrace.errors import TypeMismatch, UnknownFunction, WrongArguments
from headrace.model.schema import BINARY, DATE, STRING, TIMESTAMP, TIMESTAMP_NTZ, DataType, parse_type
from headrace.sql.bind.derived_calls import DERIVED
from headrace.sql.bind.spark_only_calls import refuse_spark_only_call
from headrace.sql.functions import ALIASES, FUNCTIONS, find, spark_functions
from headrace.sql.functions.aggregate_functions import AGGREGATE_NAMES
from headrace.sql.functions.instead import instead_of, other_dialect
from headrace.sql.functions.overload import Overload
from headrace.sql.parse.syntax import Apply
from headrace.sql.plan.expr import Expr
from headrace.sql.plan.types import VOID, is_numeric, type_class, widens

if TYPE_CHECKING:
    from headrace.sql.bind.expression_binder import ExprBinder

# Spark casts no argument of these.
_EXACT = ("unix_date", "unix_seconds", "unix_millis", "unix_micros")
# Nor a NULL without a type of these.
_NO_VOID = ("bitmap_count",)
_VOID_AS = ("STRING", "DOUBLE", "INT")
# Spark casts to these no type that does not fit.
_NO_NARROWER = ("timestamp_micros", "timestamp_millis", "timestamp_seconds")
# Spark makes no STRING of the arguments of these.
_NO_TEXT = (
    "collation", "json_array_length", "json_object_keys", "mask", "soundex", "to_unix_timestamp", "unix_timestamp",
)  # fmt: skip
# Spark casts a STRING, but no wider number, to the INT of these.
_NO_WIDER = ("date_add", "date_sub", "element_at", "try_element_at")
_TRANSLATED = ("window", "session_window", "if", "nvl", "nvl2", "ifnull", "count_if", "median", "date_part")
# How similar a suggested function is. There are hundreds, so some have half of their letters in common with any word.
_NEAR = 0.75
# Types to which Spark casts an argument although it may not fit.
_WHOLE = ("INT", "BIGINT")
_TARGETS = (*_WHOLE, "DOUBLE", "STRING", "TIMESTAMP_NTZ")
_TEXTUAL = (
    "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ",
)  # fmt: skip


def bind_overload(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr:
    """Binds a function by its overloads: exact types first, then types that Spark casts implicitly."""
    overloads = FUNCTIONS.get(name)
    if overloads is None:
        refuse_unknown(binder, node)
    kinds = [a.type for a in args]
    if find(name, kinds) is not None and VOID not in kinds:
        return binder.call(name, tuple(args), node.at)
    for overload in _by_preference([o for o in overloads if _takes(o, len(args))], kinds):
        coerced = _fit(binder, overload, args)
        if coerced is not None:
            return binder.call(name, coerced, node.at)
    refuse_spark_only_call(binder, name, node, kinds)
    narrowed = _narrowed(binder, overloads, args)
    if narrowed is not None:
        return binder.call(name, narrowed, node.at)
    counts = {len(o.params) for o in overloads if not o.variadic}
    given = ", ".join(map(str, kinds)) or "no arguments"
    takes = "; ".join(sorted({o.key for o in overloads}))
    if len(args) not in counts and not any(o.variadic for o in overloads):
        raise WrongArguments(
            f"{node.name} does not take {len(args)} argument{'s' * (len(args) != 1)}",
            advice=f"It takes {takes}.",
            span=binder.span(node.at),
        )
    if VOID in kinds and name not in _NO_VOID:
        binder.unsupported(f"{node.name} of {given}", "Cast NULL to the type that it stands for.", node.at)
    if name == "months_between" and kinds[2:] == [STRING]:
        binder.unsupported(f"{node.name} of {given}", "Cast the STRING to BOOLEAN.", node.at)
    raise TypeMismatch(f"{node.name} does not take {given}", advice=f"It takes {takes}.", span=binder.span(node.at))


def _by_preference(overloads: Sequence[Overload], kinds: Sequence[DataType]) -> Sequence[Overload]:
    """The overloads in the order in which Spark would choose. A NULL without a type is a STRING, a DOUBLE or an INT
    where the function takes one, and the other arguments are cast only if they must be."""
    if VOID not in kinds:
        return overloads

    def rank(overload: Overload) -> tuple[int, ...]:
        params = [overload.param(i) for i in range(len(kinds))]
        cast = sum(kind != VOID and type_class(kind) != param for kind, param in zip(kinds, params, strict=True))
        void = (
            _VOID_AS.index(param) if param in _VOID_AS else len(_VOID_AS)
            for kind, param in zip(kinds, params, strict=True)
            if kind == VOID
        )
        return cast, *void

    return sorted(overloads, key=rank)


def _fit(binder: ExprBinder, overload: Overload, args: list[Expr]) -> tuple[Expr, ...] | None:
    """The arguments, cast to the types of the overload. None if Spark does not cast them implicitly."""
    if len(args) < len(overload.params) or (len(args) > len(overload.params) and not overload.variadic):
        return None
    if overload.name in _EXACT and any(arg.type != VOID for arg in args):
        return None
    if overload.name in _NO_VOID and any(arg.type == VOID for arg in args):
        return None
    fitted: list[Expr] = []
    for position, arg in enumerate(args):
        wanted = overload.param(position)
        if wanted in ("ANY", type_class(arg.type)):
            fitted.append(arg)
            continue
        if wanted in ("ANY", "DECIMAL", "ARRAY", "MAP", "STRUCT") or wanted.startswith("INTERVAL"):
            return None
        if overload.name == "decode" and arg.type == STRING and wanted == "BINARY":
            fitted.append(binder.coerce(arg, BINARY))
            continue
        if position in overload.exact and arg.type != VOID:
            return None
        target = parse_type(wanted)
        read_as_time = arg.type in (STRING, TIMESTAMP_NTZ) and target in (DATE, TIMESTAMP)
        readable = target == STRING and overload.name not in _NO_TEXT and type_class(arg.type) in _TEXTUAL
        down = arg.type == TIMESTAMP and target == DATE
        if not (widens(arg.type, target) or read_as_time or readable or down):
            return None
        fitted.append(binder.coerce(arg, target))
    return tuple(fitted)


def _narrowed(binder: ExprBinder, overloads: Sequence[Overload], args: list[Expr]) -> tuple[Expr, ...] | None:
    """The arguments cast to types that may not hold all their values, where no wider cast fits: a fraction to BIGINT, a
    STRING to a number, a BOOLEAN to STRING. A value that does not fit fails, as in Spark. None if Spark does not cast
    them so, or if two overloads fit equally well."""
    found: list[tuple[int, list[str]]] = []
    for overload in overloads:
        if (
            not overload.name.isidentifier()
            or overload.name in (*_EXACT, *_NO_NARROWER)
            or not _takes(overload, len(args))
        ):
            continue
        targets = [_narrower(overloads, overload, i, arg.type) for i, arg in enumerate(args)]
        if all(targets):
            count = sum(type_class(arg.type) != target for arg, target in zip(args, targets, strict=True))
            found.append((count, targets))
    least = min((count for count, _ in found), default=0)
    best = [targets for count, targets in found if count == least]
    if len(best) != 1:
        return None
    return tuple(
        arg if target == type_class(arg.type) else binder.coerce(arg, parse_type(target))
        for arg, target in zip(args, best[0], strict=True)
    )


def _takes(overload: Overload, count: int) -> bool:
    """True if the overload takes this number of arguments."""
    return len(overload.params) <= count if overload.variadic else len(overload.params) == count


def _narrower(overloads: Sequence[Overload], overload: Overload, position: int, kind: DataType) -> str:
    """The type class that an argument has after the cast, '' if Spark does not cast it. A STRING becomes a DOUBLE where
    the function takes one."""
    wanted, given = overload.param(position), type_class(kind)
    if wanted in ("ANY", given):
        return given
    if position in overload.exact or kind == VOID or wanted not in _TARGETS:
        return ""
    if widens(kind, parse_type(wanted)):
        return wanted
    if wanted in _WHOLE:
        double = any(o.param(position) == "DOUBLE" for o in overloads if o.params)
        number = is_numeric(kind) and overload.name not in _NO_WIDER
        return wanted if number or (kind == STRING and not double) else ""
    if wanted == "DOUBLE":
        return wanted if kind == STRING else ""
    if wanted == "STRING":
        return wanted if given in (*_TEXTUAL, "BOOLEAN", "BINARY") and overload.name not in _NO_TEXT else ""
    return wanted if kind == TIMESTAMP else ""


def refuse_unknown(binder: ExprBinder, node: Apply) -> NoReturn:
    """Raises the error for a function that is not on the list, with the nearest that are."""
    if node.name in spark_functions():
        advice = instead_of(node.name)
        if advice is None:
            callable_names = [name for name in (*FUNCTIONS, *AGGREGATE_NAMES) if name.isidentifier()]
            near = similar(node.name, callable_names, most=3, cutoff=_NEAR)
            advice = f"The nearest that can: {', '.join(near)}." if near else ""
        binder.unsupported(
            f"the function {node.name}", f"{advice} docs/functions.md lists all that can.".strip(), node.at
        )
    names = (*FUNCTIONS, *DERIVED, *AGGREGATE_NAMES, *ALIASES, *_TRANSLATED)
    known = [name for name in names if name != "element"]  # users cannot call it: they write a[i]
    advice = "See docs/functions.md for the list of functions."
    same = other_dialect(node.name)
    if same is not None:
        known, advice = [], f"Spark has {same}."
    raise unknown(UnknownFunction, "function", node.name, known, cutoff=_NEAR, advice=advice, span=binder.span(node.at))
