"""Binds functions on arrays, maps and structs: gives elements, keys and values the types that Spark gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.errors import WrongArguments
from headrace.model.schema import (
    BIGINT,
    BINARY,
    DATE,
    INT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Array,
    DataType,
    Field,
    Map,
    Struct,
)
from headrace.sql.bind.scope import field_of
from headrace.sql.functions import FUNCTIONS
from headrace.sql.functions.array_functions import zipped
from headrace.sql.parse.syntax import Aliased, Apply, Constant, Dot, Name, Node, Subscript, TextRange
from headrace.sql.plan.expr import Call, Expr, Literal
from headrace.sql.plan.types import INTEGRAL, VOID, mixes_decimals, tightest, wider

if TYPE_CHECKING:
    from headrace.sql.bind.expression_binder import ExprBinder

ELEMENT = "element"
"""The function behind `a[i]` and `m[key]`. It has no name in SQL."""

_INDEXES = "Index an ARRAY by a number, a MAP by a key, or a STRUCT by the name of a field as a literal."

CallBinder = Callable[["ExprBinder", str, list[Expr], Apply], Expr | None]


def bind_collection(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    """The call of a function on collections. None if the overloads of `name` decide."""
    handler = _HANDLERS.get(name)
    return None if handler is None or node.operator else handler(binder, name, args, node)


def bind_subscript(binder: ExprBinder, node: Subscript) -> Expr:
    """`x[index]`. With a literal text it is the field of a struct, or of all structs in an array."""
    subject = binder.bind(node.input)
    holder = subject.type.element if isinstance(subject.type, Array) else subject.type
    if isinstance(holder, Struct) and isinstance(node.index, Constant) and node.index.kind == "string":
        return field_of(subject, node.index.text, binder.span(node.at), node.at)
    return bind_element(binder, subject, binder.bind(node.index), node.at)


def bind_element(binder: ExprBinder, subject: Expr, index: Expr, at: TextRange) -> Expr:
    """`array[index]` and `map[key]`."""
    if isinstance(subject.type, Array) and index.type in INTEGRAL:
        return binder.call(ELEMENT, (subject, index if index.type == BIGINT else binder.coerce(index, INT)), at)
    if isinstance(subject.type, Map):
        return _keyed(binder=binder, name=ELEMENT, subject=subject, key=index, at=at)
    if VOID in (subject.type, index.type):
        binder.unsupported(f"{subject.type}[{index.type}]", "Cast NULL to the type that it stands for.", at)
    binder.mismatch(f"{subject.type} cannot be indexed by {index.type}", _INDEXES, at)


def _keyed(binder: ExprBinder, name: str, subject: Expr, key: Expr, at: TextRange) -> Expr:
    assert isinstance(subject.type, Map)
    if key.type == VOID:
        binder.unsupported("a key that is NULL without a type", "Write CAST(NULL AS ...) with the type.", key.at)
    kind = tightest(subject.type.key, key.type)
    if kind is None and name == ELEMENT and not isinstance(key.type, Array | Map | Struct):
        advice = f"Cast it to {subject.type.key}."
        binder.unsupported(f"a key that is {key.type}, where the keys are {subject.type.key},", advice, key.at)
    if kind is None:
        binder.mismatch(
            f"the keys are {subject.type.key}, this is {key.type}", f"Cast it to {subject.type.key}.", key.at
        )
    subject = binder.coerce(subject, Map(kind, subject.type.value))
    return binder.call(name, (subject, binder.coerce(key, kind)), at)


def _element_at(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    if len(args) != 2:
        return None
    if isinstance(args[0].type, Map):
        return _keyed(binder=binder, name=name, subject=args[0], key=args[1], at=node.at)
    if args[1].type == VOID:
        binder.mismatch("the index is INT, this is NULL without a type", "Write CAST(NULL AS INT).", args[1].at)
    if isinstance(args[0].type, Array) and args[1].type not in INTEGRAL:
        binder.mismatch(f"the index is INT, this is {args[1].type}", "Cast it to INT.", args[1].at)
    return None


def _array(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    if not args:
        return None
    _require_typed(binder, args, "array", node.at)
    return binder.call(name, tuple(binder.common(args, "array", node.at)), node.at)


def _require_typed(binder: ExprBinder, args: list[Expr], what: str, at: TextRange) -> None:
    if all(a.type == VOID for a in args):
        binder.unsupported(f"{what} of nothing but NULL", "Write CAST(NULL AS ...) with the type.", at)


def _map(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    if not args:
        return None
    if len(args) % 2:
        raise WrongArguments(
            "map takes keys and values in turn", advice="Add the last value.", span=binder.span(node.at)
        )
    _require_typed(binder, args[0::2], "map with keys", node.at)
    _require_typed(binder, args[1::2], "map with values", node.at)
    keys, values = binder.common(args[0::2], "map", node.at), binder.common(args[1::2], "map", node.at)
    return binder.call(name, tuple(e for pair in zip(keys, values, strict=True) for e in pair), node.at)


def _element_type(binder: ExprBinder, array: Expr, what: str) -> DataType:
    if array.type == VOID:
        binder.unsupported(f"{what} of NULL without a type", "Cast it to the type of the array.", array.at)
    if not isinstance(array.type, Array):
        binder.mismatch(f"{what} needs an ARRAY, this is {array.type}", "Pass an array.", array.at)
    return array.type.element


def _with_value(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    """An array and a value of its element type: both are cast to their common type."""
    if len(args) != 2:
        return None
    array, value = args
    inner = _element_type(binder, array, name)
    kind = tightest(inner, value.type)
    if name != "array_contains" and mixes_decimals(inner, value.type):
        kind = None
    if kind is None or kind == VOID or (name == "array_contains" and value.type == VOID):
        binder.mismatch(f"{name} cannot look for {value.type} in {array.type}", f"Cast the value to {inner}.", node.at)
    return binder.call(name, (binder.coerce(array, Array(kind)), binder.coerce(value, kind)), node.at)


def _insert(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    if len(args) != 3:
        return None
    array, place, value = args
    inner = _element_type(binder, array, name)
    kind = None if mixes_decimals(inner, value.type) else tightest(inner, value.type)
    if kind is None or kind == VOID:
        binder.mismatch(f"{name} cannot insert {value.type} into {array.type}", f"Cast the value to {inner}.", node.at)
    if place.type not in INTEGRAL or place.type == BIGINT:
        binder.mismatch(f"the position is INT, this is {place.type}", "Cast it to INT.", place.at)
    arguments = (binder.coerce(array, Array(kind)), binder.coerce(place, INT), binder.coerce(value, kind))
    return binder.call(name, arguments, node.at)


def _two_arrays(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    if len(args) != 2:
        return None
    for arg in args:
        _element_type(binder, arg, name)
    kind = None if mixes_decimals(*(a.type for a in args)) else tightest(args[0].type, args[1].type)
    if kind is None:
        binder.mismatch(f"{name} cannot take {args[0].type} and {args[1].type}", "Cast one of them.", node.at)
    return binder.call(name, tuple(binder.coerce(a, kind) for a in args), node.at)


def _concat(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    if not any(isinstance(a.type, Array) for a in args):
        if any(a.type == BINARY for a in args) and any(a.type != BINARY for a in args):
            return binder.call(name, tuple(binder.coerce(a, STRING) for a in args), node.at)  # like Spark
        return None
    if any(a.type == VOID for a in args):
        binder.mismatch("concat of an ARRAY and NULL has no type", "Cast the NULL to the type of the array.", node.at)
    return binder.call(name, tuple(binder.common(args, "concat", node.at)), node.at)


def _map_concat(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    if not args:
        return None
    for arg in args:
        if not isinstance(arg.type, Map):
            binder.mismatch(f"map_concat needs maps, this is {arg.type}", "Pass maps.", arg.at)
    kind: DataType = args[0].type
    for arg in args[1:]:
        met = wider(kind, arg.type)
        if met is None:
            binder.mismatch(f"map_concat cannot take {kind} and {arg.type}", "Cast one of them.", node.at)
        kind = met
    return binder.call(name, tuple(binder.coerce(a, kind) for a in args), node.at)


def _contains_key(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    if len(args) != 2 or not isinstance(args[0].type, Map):
        return None
    return _keyed(binder=binder, name=name, subject=args[0], key=args[1], at=node.at)


def _join(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    if len(args) not in (2, 3):
        return None
    _element_type(binder, args[0], name)
    texts = [binder.coerce(a, STRING) if a.type == VOID else a for a in args[1:]]
    return binder.call(name, (binder.coerce(args[0], Array(STRING)), *texts), node.at)


def _sequence(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    if len(args) not in (2, 3):
        return None
    if all(a.type in INTEGRAL for a in args):
        return binder.call(name, tuple(binder.common(args, name, node.at)), node.at)
    if all(a.type in (DATE, TIMESTAMP, TIMESTAMP_NTZ) for a in args[:2]):
        return binder.call(name, (*binder.common(args[:2], name, node.at), *args[2:]), node.at)
    shown = ", ".join(str(a.type) for a in args)
    if any(a.type == VOID for a in args[:2]):
        binder.unsupported(f"sequence of {shown}", "Cast NULL to the type that it stands for.", node.at)
    if any(a.type in INTEGRAL for a in args) and all(a.type in (*INTEGRAL, STRING, VOID) for a in args):
        binder.unsupported(f"sequence of {shown}", "Cast the arguments to BIGINT.", node.at)
    binder.mismatch(
        f"sequence cannot take {shown}", "It takes whole numbers, or two times and an interval literal.", node.at
    )


def _text_to_map(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    if not 1 <= len(args) <= 3:
        return None
    for arg in args:
        if arg.type not in (STRING, VOID):
            binder.mismatch(f"{name} needs a STRING, this is {arg.type}", "Cast it to STRING.", arg.at)
    defaults = [Literal(STRING, ",", at=node.at), Literal(STRING, ":", at=node.at)]
    return binder.call(name, (binder.coerce(args[0], STRING), *args[1:], *defaults[len(args) - 1 :]), node.at)


def _repeat(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    if len(args) != 2:
        return None
    _require_typed(binder, args[:1], name, node.at)
    count = args[1]
    if count.type not in (*INTEGRAL, VOID) or count.type == BIGINT:
        binder.mismatch(f"the count is INT, this is {count.type}", "Cast it to INT.", count.at)
    return binder.call(name, (args[0], binder.coerce(count, INT)), node.at)


# --- structs --------------------------------------------------------------------------------------


def _name_of(node: Node) -> str | None:
    """The name that Spark gives to a value without an alias. None if it has none."""
    if isinstance(node, Aliased):
        return node.alias
    if isinstance(node, Name):
        return node.parts[-1]
    if isinstance(node, Subscript) and isinstance(node.index, Constant) and node.index.kind == "string":
        return node.index.text
    return node.field if isinstance(node, Dot) else None


def _struct(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    if not args:
        return None
    names = [_name_of(a) or f"col{i + 1}" for i, a in enumerate(node.args)]
    return _structure(binder=binder, name=name, names=names, values=args, at=node.at)


def _named_struct(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    if not args:
        return None
    if len(args) % 2:
        raise WrongArguments(
            "named_struct takes names and values in turn",
            advice="Write named_struct('a', 1, 'b', 2).",
            span=binder.span(node.at),
        )
    names: list[str] = []
    for arg in args[0::2]:
        if not isinstance(arg, Literal) or arg.type != STRING or arg.value is None:
            binder.mismatch("the name of a field is a string literal", "Write named_struct('a', 1).", arg.at)
        names.append(arg.value)
    return _structure(binder=binder, name=name, names=names, values=args[1::2], at=node.at)


def _structure(binder: ExprBinder, name: str, names: list[str], values: list[Expr], at: TextRange) -> Expr:
    if len({n.lower() for n in names}) < len(names) or "" in names:
        binder.unsupported("a struct with two fields of one name", "Give the fields different names with AS.", at)
    call = binder.call(name, tuple(values), at)
    assert isinstance(call, Call)
    fields = tuple(Field(n, v.type) for n, v in zip(names, values, strict=True))
    return Call(Struct(fields), name, call.args, at=at)


def _zip(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    if not args:
        return None
    for arg in args:
        _element_type(binder, arg, name)
    names = [_name_of(a) or str(i) for i, a in enumerate(node.args)]
    if len({n.lower() for n in names}) < len(names):
        binder.unsupported("arrays_zip of two columns of one name", "Give one another name in a subquery.", node.at)
    call = binder.call(name, tuple(args), node.at)
    assert isinstance(call, Call)
    return Call(zipped([a.type for a in args], names), name, call.args, at=node.at)


_HANDLERS: dict[str, CallBinder] = {
    "array": _array,
    "map": _map,
    "struct": _struct,
    "named_struct": _named_struct,
    "array_contains": _with_value,
    "array_position": _with_value,
    "array_remove": _with_value,
    "array_append": _with_value,
    "array_prepend": _with_value,
    "array_insert": _insert,
    "array_union": _two_arrays,
    "array_intersect": _two_arrays,
    "array_except": _two_arrays,
    "arrays_overlap": _two_arrays,
    "arrays_zip": _zip,
    "array_join": _join,
    "array_repeat": _repeat,
    "concat": _concat,
    "map_concat": _map_concat,
    "map_contains_key": _contains_key,
    "element_at": _element_at,
    "try_element_at": _element_at,
    "sequence": _sequence,
    "str_to_map": _text_to_map,
}
assert all(name in FUNCTIONS for name in _HANDLERS)
