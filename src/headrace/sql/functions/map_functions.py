"""Functions on maps and structs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headrace.exec.map_entries import entries_of
from headrace.model.schema import (
    BOOLEAN,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    Array,
    DataType,
    Field,
    Map,
    Struct,
    duck_name,
)
from headrace.sql.functions.nesting import is_nested, kept, let, mapped, parts, without_negative_zero
from headrace.sql.functions.overload import Overload, same
from headrace.sql.plan.expr import Expr, Literal
from headrace.sql.plan.types import VOID


def _value(kinds: Sequence[DataType]) -> DataType | None:
    return kinds[0].value if isinstance(kinds[0], Map) else None


def _entry(kind: Map) -> Struct:
    return Struct((Field("key", kind.key), Field("value", kind.value)))


def _made(kinds: Sequence[DataType]) -> DataType:
    return Map(kinds[0], kinds[1])


def _plain_keys(kind: DataType) -> str | None:
    if any(isinstance(part, Map) for part in parts(kind)):
        return "a MAP as key"
    if is_nested(kind) and any(part in (FLOAT, DOUBLE) for part in parts(kind)):
        return "a FLOAT or DOUBLE inside a key"
    return None


def _keys_of_pairs(args: Sequence[Expr]) -> str | None:
    return _plain_keys(args[0].type)


def _keys_of_arrays(args: Sequence[Expr]) -> str | None:
    kind = args[0].type
    return _plain_keys(kind.element) if isinstance(kind, Array) else f"{kind} as keys"


def _keys_of_entries(args: Sequence[Expr]) -> str | None:
    kind = args[0].type
    inner = kind.element if isinstance(kind, Array) else None
    if not isinstance(inner, Struct) or len(inner.fields) != 2:
        return f"{kind}, which is not an array of structs with two fields"
    return _plain_keys(inner.fields[0].type)


def map_of(keys: str, values: str, kind: DataType) -> str:
    """A map of two arrays, without -0.0 in the keys. DuckDB fails on NULL keys, equal keys and arrays of different
    lengths, as Spark does."""
    assert isinstance(kind, Map)
    if kind.key in (FLOAT, DOUBLE):
        keys = mapped(keys, lambda x: without_negative_zero(x, kind.key))
    return f"map({keys}, {values})"


def _map(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    assert isinstance(result, Map)
    keys = f"CAST([{', '.join(args[0::2])}] AS {result.key.duckdb}[])"
    values = f"CAST([{', '.join(args[1::2])}] AS {result.value.duckdb}[])"
    return map_of(keys, values, result)


def _from_arrays(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    """Spark keeps -0.0 in keys that are given as a whole array."""
    return f"CASE WHEN {args[0]} IS NULL OR {args[1]} IS NULL THEN NULL ELSE map({args[0]}, {args[1]}) END"


def _arrays_result(kinds: Sequence[DataType]) -> DataType | None:
    keys, values = kinds
    return Map(keys.element, values.element) if isinstance(keys, Array) and isinstance(values, Array) else None


def _from_entries(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    kind = kinds[0]
    assert isinstance(kind, Array) and isinstance(kind.element, Struct)
    key, value = (duck_name(f.name) for f in kind.element.fields)

    def body(entries: str) -> str:
        keys, values = mapped(entries, lambda x: f"{x}.{key}"), mapped(entries, lambda x: f"{x}.{value}")
        null = f"len({kept(entries, lambda x: f'{x} IS NULL')}) > 0"
        return f"CASE WHEN {entries} IS NULL OR {null} THEN NULL ELSE {map_of(keys, values, result)} END"

    return let(args[0], body)


def _entries_result(kinds: Sequence[DataType]) -> DataType | None:
    kind = kinds[0]
    inner = kind.element if isinstance(kind, Array) else None
    if not isinstance(inner, Struct) or len(inner.fields) != 2:
        return None
    return Map(inner.fields[0].type, inner.fields[1].type)


def _keys(text: str) -> str:
    return mapped(entries_of(text), lambda x: f"{x}.key")


def _values(text: str) -> str:
    return mapped(entries_of(text), lambda x: f"{x}.value")


def _concat(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    missing = " OR ".join(f"{entries_of(a)} IS NULL" for a in args)
    keys, values = (", ".join(map(part, args)) for part in (_keys, _values))
    made = map_of(f"list_concat({keys}, [])", f"list_concat({values}, [])", result)
    return f"CASE WHEN {missing} THEN NULL ELSE {made} END"


def _contains_key(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    missing = f"{entries_of(args[0])} IS NULL OR {args[1]} IS NULL"
    return f"CASE WHEN {missing} THEN NULL ELSE list_contains({_keys(args[0])}, {args[1]}) END"


def _plain_delimiters(args: Sequence[Expr]) -> str | None:
    """Spark reads the delimiters as patterns. Here they are texts without special characters."""
    for arg in args[1:]:
        if (
            not isinstance(arg, Literal)
            or not arg.value
            or (re.escape(arg.value) != arg.value and not re.fullmatch(r"[^\w.\\^$|?*+()\[\]{}]+", arg.value))
        ):
            return "a delimiter that is not a plain text"
    return None


def _text_to_map(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    text, outer, inner = args

    def body(pieces: str) -> str:
        def found(x: str) -> str:
            return f"strpos({x}, {inner})"

        keys = mapped(pieces, lambda x: f"CASE WHEN {found(x)} > 0 THEN left({x}, {found(x)} - 1) ELSE {x} END")
        values = mapped(
            pieces, lambda x: f"CASE WHEN {found(x)} > 0 THEN substr({x}, {found(x)} + length({inner})) END"
        )
        return f"CASE WHEN {pieces} IS NULL THEN NULL ELSE map({keys}, {values}) END"

    return let(f"string_split({text}, {outer})", body)


def _struct(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    assert isinstance(result, Struct)
    fields = ", ".join(
        f"{duck_name(f.name)} := CAST({a} AS {f.type.duckdb})" for f, a in zip(result.fields, args, strict=True)
    )
    return f"struct_pack({fields})"


def struct_type(kinds: Sequence[DataType]) -> DataType:
    """The type of `struct` over values without names."""
    return Struct(tuple(Field(f"col{i + 1}", kind) for i, kind in enumerate(kinds)))


OVERLOADS: tuple[Overload, ...] = (
    Overload("map", (), Map(VOID, VOID), "map([], [])"),
    Overload("map", ("ANY", "ANY"), _made, _map, throws=True, variadic=True, check=_keys_of_pairs),
    Overload("map_from_arrays", ("ARRAY", "ARRAY"), _arrays_result, _from_arrays, throws=True, check=_keys_of_arrays),
    Overload("map_from_entries", ("ARRAY",), _entries_result, _from_entries, throws=True, check=_keys_of_entries),
    Overload(
        "map_entries",
        ("MAP",),
        lambda kinds: Array(_entry(kinds[0])) if isinstance(kinds[0], Map) else None,
        lambda a, k, r: entries_of(a[0]),
    ),
    Overload(
        "map_keys",
        ("MAP",),
        lambda kinds: Array(kinds[0].key) if isinstance(kinds[0], Map) else None,
        lambda a, k, r: _keys(a[0]),
    ),
    Overload(
        "map_values",
        ("MAP",),
        lambda kinds: Array(kinds[0].value) if isinstance(kinds[0], Map) else None,
        lambda a, k, r: _values(a[0]),
    ),
    Overload("map_contains_key", ("MAP", "ANY"), BOOLEAN, _contains_key),
    Overload("map_concat", ("MAP",), same(0), _concat, throws=True, variadic=True),
    Overload(
        "str_to_map",
        ("STRING", "STRING", "STRING"),
        Map(STRING, STRING),
        _text_to_map,
        throws=True,
        constant=(1, 2),
        check=_plain_delimiters,
    ),
    Overload("element", ("MAP", "ANY"), _value, "{0}[{1}]"),
    Overload("element_at", ("MAP", "ANY"), _value, "{0}[{1}]"),
    Overload("try_element_at", ("MAP", "ANY"), _value, "{0}[{1}]"),
    Overload("size", ("MAP",), INT, lambda a, k, r: f"CAST(len({entries_of(a[0])}) AS INTEGER)"),
    Overload("struct", ("ANY",), struct_type, _struct, variadic=True),
    Overload("named_struct", ("ANY",), struct_type, _struct, variadic=True),
)
