"""Casts of arrays, maps and structs: element by element, and to STRING in Spark's spelling."""

from __future__ import annotations

from collections.abc import Callable

from headrace.model.schema import STRING, Array, DataType, Map, Struct, duck_name
from headrace.sql.functions.nesting import is_nested, let, mapped
from headrace.sql.plan.types import INTEGRAL, VOID

ScalarCast = Callable[[str, DataType, DataType, bool], str | None]

# The pairs of type classes, as the list of verified casts has them.
NESTED_CASTS = (
    ("ARRAY", "ARRAY"),
    ("ARRAY", "STRING"),
    ("MAP", "MAP"),
    ("MAP", "STRING"),
    ("STRUCT", "STRUCT"),
    ("STRUCT", "STRING"),
)


def inner_casts(source: DataType, target: DataType) -> list[tuple[DataType, DataType]] | None:
    """The casts of parts that a cast of a nested type consists of. None if there is no such cast."""
    if isinstance(source, Array) and isinstance(target, Array):
        pairs = [(source.element, target.element)]
    elif isinstance(source, Map) and isinstance(target, Map):
        if not _keys_stay_different(source.key, target.key):
            return None
        pairs = [(source.key, target.key), (source.value, target.value)]
    elif isinstance(source, Struct) and isinstance(target, Struct) and len(source.fields) == len(target.fields):
        pairs = [(a.type, b.type) for a, b in zip(source.fields, target.fields, strict=True)]
    elif target == STRING and isinstance(source, Array):
        pairs = [(source.element, STRING)]
    elif target == STRING and isinstance(source, Map):
        pairs = [(source.key, STRING), (source.value, STRING)]
    elif target == STRING and isinstance(source, Struct):
        pairs = [(f.type, STRING) for f in source.fields]
    else:
        return None
    return [(a, b) for a, b in pairs if a not in (b, VOID)]


def _keys_stay_different(source: DataType, target: DataType) -> bool:
    """Spark does not look for equal keys after a cast, DuckDB does."""
    if source in (target, VOID):
        return True
    wider = source in INTEGRAL and target in INTEGRAL and INTEGRAL.index(source) < INTEGRAL.index(target)
    return wider or (source in INTEGRAL and target == STRING)


def render_nested(text: str, source: DataType, target: DataType, attempt: bool, scalar: ScalarCast) -> str | None:
    """The DuckDB SQL of a cast from a nested type. `scalar` renders the casts of parts."""

    def part(value: str, a: DataType, b: DataType) -> str:
        found = scalar(value, a, b, attempt)
        assert found is not None, "binding checks the casts of parts"
        return found

    def shown(value: str, kind: DataType) -> str:
        return f"coalesce({part(value, kind, STRING)}, 'null')"

    if isinstance(source, Array) and isinstance(target, Array):
        element, wanted = source.element, target.element
        if element == VOID:
            return f"CAST({text} AS {target.duckdb})"
        return mapped(text, lambda x: part(x, element, wanted))
    if isinstance(source, Map) and isinstance(target, Map):
        return let(text, lambda m: _map(m, source, target, part))
    if isinstance(source, Struct) and isinstance(target, Struct):
        return let(text, lambda s: _struct(s, source, target, part))
    if target != STRING:
        return None
    if isinstance(source, Array):
        inner = source.element
        return f"('[' || array_to_string({mapped(text, lambda x: shown(x, inner))}, ', ') || ']')"
    if isinstance(source, Map):
        key, value = source.key, source.value
        pairs = mapped(
            f"map_entries({text})",
            lambda x: f"{part(f'{x}.key', key, STRING)} || ' -> ' || {shown(f'{x}.value', value)}",
        )
        return f"('{{' || array_to_string({pairs}, ', ') || '}}')"
    assert isinstance(source, Struct)
    fields = source.fields
    return let(
        text,
        lambda s: (
            f"CASE WHEN {s} IS NOT NULL THEN '{{' || "
            + " || ', ' || ".join(shown(f"({s}).{duck_name(f.name)}", f.type) for f in fields)
            + " || '}' END"
        ),
    )


def _map(text: str, source: Map, target: Map, part: Callable[[str, DataType, DataType], str]) -> str:
    if source.key == VOID:
        return f"CAST({text} AS {target.duckdb})"
    keys = mapped(f"map_keys({text})", lambda x: part(x, source.key, target.key))
    values = mapped(f"map_values({text})", lambda x: part(x, source.value, target.value))
    return f"CASE WHEN {text} IS NOT NULL THEN map({keys}, {values}) END"


def _struct(text: str, source: Struct, target: Struct, part: Callable[[str, DataType, DataType], str]) -> str:
    fields = ", ".join(
        f"{duck_name(b.name)} := {part(f'({text}).{duck_name(a.name)}', a.type, b.type)}"
        for a, b in zip(source.fields, target.fields, strict=True)
    )
    return f"CASE WHEN {text} IS NOT NULL THEN struct_pack({fields}) END"


__all__ = ["NESTED_CASTS", "inner_casts", "is_nested", "render_nested"]
