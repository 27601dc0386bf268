"""Functions on maps and structs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations

from headrace.exec.map_entries import entries_of, entries_type, made_map
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

_SHORT = 400  # characters of keys that are written several times
_FEW, _FEW_WRITTEN = 64, 8


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


def checked_map(entries: str) -> str:
    """A map of entries with the fields `key` and `value`. As in Spark, NULL keys and equal ones are errors."""

    def checked(e: str) -> str:
        keys = mapped(e, lambda x: f"{x}.key")
        return (
            f"CASE WHEN len({kept(e, lambda x: f'{x}.key IS NULL')}) > 0 THEN error('NULL_MAP_KEY') "
            f"WHEN {_some_equal(keys)} THEN error('DUPLICATED_MAP_KEY') ELSE {e} END"
        )

    return made_map(let(entries, checked))


def _some_equal(keys: str) -> str:
    """True if two keys are equal. The keys of few entries are compared in pairs: that is faster."""
    pairs = f"len(list_filter({keys}, lambda x_1, x_2: list_position({keys}, x_1) <> x_2)) > 0"
    return f"CASE WHEN len({keys}) <= {_FEW} THEN {pairs} ELSE list_unique({keys}) < len({keys}) END"


def _map(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    assert isinstance(result, Map)
    keys = [without_negative_zero(f"CAST({key} AS {result.key.duckdb})", result.key) for key in args[0::2]]
    values = [f"CAST({value} AS {result.value.duckdb})" for value in args[1::2]]
    pairs = ", ".join(f"struct_pack(key := {k}, value := {v})" for k, v in zip(keys, values, strict=True))
    if len("".join(keys)) > _SHORT or len(keys) > _FEW_WRITTEN:
        return checked_map(f"[{pairs}]")
    null = " OR ".join(f"{key} IS NULL" for key in keys)
    equal = " OR ".join(f"{a} IS NOT DISTINCT FROM {b}" for a, b in combinations(keys, 2)) or "FALSE"
    return made_map(
        f"CASE WHEN {null} THEN error('NULL_MAP_KEY') WHEN {equal} THEN error('DUPLICATED_MAP_KEY') ELSE [{pairs}] END"
    )


def _from_arrays(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    """Spark keeps -0.0 in keys that are given as a whole array."""
    assert isinstance(result, Map)
    keys, values = args
    zipped = f"CAST(list_zip({keys}, {values}) AS {entries_type(result)})"
    return checked_map(
        f"CASE WHEN {keys} IS NULL OR {values} IS NULL THEN NULL "
        f"WHEN len({keys}) <> len({values}) THEN error('MAP_KEYS_AND_VALUES_OF_DIFFERENT_LENGTHS') ELSE {zipped} END"
    )


def _arrays_result(kinds: Sequence[DataType]) -> DataType | None:
    keys, values = kinds
    return Map(keys.element, values.element) if isinstance(keys, Array) and isinstance(values, Array) else None


def _from_entries(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    kind = kinds[0]
    assert isinstance(kind, Array) and isinstance(kind.element, Struct) and isinstance(result, Map)
    key, value = (duck_name(f.name) for f in kind.element.fields)

    def entry(x: str) -> str:
        return f"struct_pack(key := {without_negative_zero(f'{x}.{key}', result.key)}, value := {x}.{value})"

    def body(entries: str) -> str:
        null = f"len({kept(entries, lambda x: f'{x} IS NULL')}) > 0"
        return f"CASE WHEN {null} THEN NULL ELSE {mapped(entries, entry)} END"

    return checked_map(let(args[0], body))


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
    assert isinstance(result, Map)
    lists = [f"CAST({entries_of(a)} AS {entries_type(result)})" for a in args]
    missing = " OR ".join(f"{entries} IS NULL" for entries in lists)
    joined = f"list_concat({', '.join(lists)}, CAST([] AS {entries_type(result)}))"
    if result.key in (FLOAT, DOUBLE):
        joined = mapped(joined, lambda x: f"struct_pack(key := {x}.key + 0, value := {x}.value)")
    return checked_map(f"CASE WHEN {missing} THEN NULL ELSE {joined} END")


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
        return f"CASE WHEN {pieces} IS NULL THEN NULL ELSE list_zip({keys}, {values}) END"

    assert isinstance(result, Map)
    return checked_map(f"CAST({let(f'string_split({text}, {outer})', body)} AS {entries_type(result)})")


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
