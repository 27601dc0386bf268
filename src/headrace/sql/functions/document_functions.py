"""Functions between nested values and JSON texts: from_json and to_json.

`from_json` is a kernel that returns a JSON text of exactly the wanted fields, which DuckDB turns into nested values.
`to_json` is a concatenation in DuckDB.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from headrace.model.schema import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Array,
    DataType,
    Decimal,
    Field,
    Map,
    Struct,
    duck_name,
)
from headrace.sql.functions.casts import render_cast
from headrace.sql.functions.instants import date_text
from headrace.sql.functions.nesting import let, mapped, parts
from headrace.sql.functions.overload import Overload
from headrace.sql.functions.pattern_functions import written
from headrace.sql.functions.regex_functions import quoted
from headrace.sql.plan.expr import Expr
from headrace.sql.plan.types import INTEGRAL, VOID

_S = "STRING"
_TIMES = (DATE, TIMESTAMP, TIMESTAMP_NTZ)
_INSTANT = "yyyy-MM-dd'T'HH:mm:ss.SSSXXXXX"  # with the seconds that offsets had before there were time zones
_MOST_DIGITS = 6  # after the point; Java writes smaller decimals with an exponent


# --- reading --------------------------------------------------------------------------------------


def _read_as(kind: DataType) -> DataType:
    """The type as which the kernel's JSON text is read. Times are texts, maps are lists of entries."""
    if isinstance(kind, Struct):
        return Struct(tuple(Field(field.name, _read_as(field.type)) for field in kind.fields))
    if isinstance(kind, Array):
        return Array(_read_as(kind.element))
    if isinstance(kind, Map):
        return Array(Struct((Field("key", STRING), Field("value", _read_as(kind.value)))))
    return STRING if kind in _TIMES else kind


def _structure(kind: DataType) -> Any:
    """A type as DuckDB's JSON functions write it."""
    if isinstance(kind, Struct):
        return {field.name: _structure(field.type) for field in kind.fields}
    return [_structure(kind.element)] if isinstance(kind, Array) else kind.duckdb


def _differs(kind: DataType) -> bool:
    """True if what is read (`_read_as`) is not yet a value of `kind`."""
    return _read_as(kind) != kind


def _finished(text: str, kind: DataType) -> str:
    """The value of `kind` of a value that was read."""
    if not _differs(kind):
        return text
    if isinstance(kind, Struct):
        packed = ", ".join(
            f"{duck_name(f.name)} := {_finished(f'({text}).{duck_name(f.name)}', f.type)}" for f in kind.fields
        )
        return f"CASE WHEN {text} IS NOT NULL THEN struct_pack({packed}) END"
    if isinstance(kind, Array):
        element = kind.element
        return mapped(text, lambda x: _finished(x, element))
    if isinstance(kind, Map):
        value = kind.value
        entries = mapped(text, lambda x: f"struct_pack(key := {x}.key, value := {_finished(f'{x}.value', value)})")
        return f"CASE WHEN {text} IS NOT NULL THEN map_from_entries({entries}) END"
    return _time(text, kind)


def _time(text: str, kind: DataType) -> str:
    """A time of a text, or NULL. The kernel writes seconds since 1970 after an @."""
    cast = render_cast(text, STRING, kind, True)
    if kind == DATE:  # other whole numbers than years are days since 1970
        days = f"DATE '1970-01-01' + CAST({text} AS INTEGER)"
        return f"coalesce({cast}, CASE WHEN regexp_full_match({text}, '[+-]?[0-9]{{1,9}}') THEN {days} END)"
    if kind == TIMESTAMP:
        seconds = f"make_timestamptz(CAST(substr({text}, 2) AS BIGINT) * 1000000)"
        return f"CASE WHEN starts_with({text}, '@') THEN {seconds} ELSE {cast} END"
    # A text with a time zone is the same instant in all session time zones.
    zoned = " = ".join(f"hr_timestamp({text}, '{zone}', TRUE)" for zone in ("UTC", "Asia/Tokyo"))
    return f"CASE WHEN {zoned} THEN NULL ELSE {cast} END"


def _from_json(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    kind = _read_as(result)
    record = f"hr_from_json({args[0]}, {quoted(result.ddl)})"
    # With a type: DuckDB's own result has none where the text is a constant that is NULL.
    read = f"CAST(json_transform_strict({record}, {quoted(json.dumps(_structure(kind)))}) AS {kind.duckdb})"
    return let(read, lambda found: _finished(found, result)) if _differs(result) else read


def unreadable(kind: DataType) -> str | None:
    """What in a schema `from_json` cannot read, or None."""
    for part in parts(kind):
        if part == BINARY:
            return "BINARY in the schema"
        if isinstance(part, Map) and part.key != STRING:
            return "a MAP in the schema whose keys are not STRING"
        if isinstance(part, Struct):
            names = [field.name.lower() for field in part.fields]
            if len(set(names)) < len(names) or "" in names:
                return "two fields of one name in the schema"
            if not names:
                return "a STRUCT without fields in the schema"
    return None


# --- writing --------------------------------------------------------------------------------------


def _json(text: str, kind: DataType) -> str:
    """A value as JSON text; NULL if it is NULL."""
    if kind == VOID:
        return "CAST(NULL AS VARCHAR)"
    if kind == STRING:
        return f"CAST(to_json({text}) AS VARCHAR)"
    if kind in INTEGRAL or kind == BOOLEAN:
        return f"CAST({text} AS VARCHAR)"
    if kind in (FLOAT, DOUBLE):
        number = render_cast(text, kind, STRING, False)
        return f"CASE WHEN isfinite({text}) THEN {number} ELSE '\"' || ({number}) || '\"' END"
    if isinstance(kind, Decimal):
        return str(render_cast(text, kind, STRING, False))
    if kind == DATE:
        return f"'\"' || ({date_text(text)}) || '\"'"
    if kind == TIMESTAMP:
        return f"'\"' || ({written(text, quoted(_INSTANT))}) || '\"'"
    if kind == TIMESTAMP_NTZ:
        return f"'\"' || strftime({text}, '%Y-%m-%dT%H:%M:%S.%g') || '\"'"
    if kind == BINARY:
        return f"'\"' || base64({text}) || '\"'"
    if isinstance(kind, Array):
        element = kind.element
        return _bracketed(text, mapped(text, lambda x: f"coalesce({_json(x, element)}, 'null')"), "[]")
    if isinstance(kind, Map):
        inner, key = kind.value, kind.key

        def entry(x: str) -> str:
            name = _json(f"{x}.key", STRING) if key == STRING else f"'\"' || CAST({x}.key AS VARCHAR) || '\"'"
            return f"{name} || ':' || coalesce({_json(f'{x}.value', inner)}, 'null')"

        return _bracketed(text, mapped(f"map_entries({text})", entry), "{}")
    assert isinstance(kind, Struct)
    fields = [(quoted(json.dumps(f.name, ensure_ascii=False) + ":"), f) for f in kind.fields]
    values = [f"{name} || ({_json(f'({text}).{duck_name(f.name)}', f.type)})" for name, f in fields]
    return f"CASE WHEN {text} IS NOT NULL THEN '{{' || concat_ws(',', {', '.join(values)}) || '}}' END"


def _bracketed(text: str, items: str, brackets: str) -> str:
    joined = f"'{brackets[0]}' || coalesce(array_to_string({items}, ','), '') || '{brackets[1]}'"
    return f"CASE WHEN {text} IS NOT NULL THEN {joined} END"


def _check_written(args: Sequence[Expr]) -> str | None:
    for part in parts(args[0].type):
        if isinstance(part, Decimal) and part.scale > _MOST_DIGITS:
            return f"a DECIMAL with more than {_MOST_DIGITS} digits after the point"
        if isinstance(part, Map) and part.key not in (STRING, BOOLEAN, *INTEGRAL):
            return "a MAP whose keys are neither STRING nor whole numbers"
    return None


OVERLOADS: tuple[Overload, ...] = (
    # `bind` replaces the result type by that of the schema.
    Overload("from_json", (_S, _S), Struct(()), _from_json, constant=(1,), slow=True),
    *(
        Overload(
            "to_json",
            (kind,),
            STRING,
            lambda a, k, r: let(a[0], lambda x: _json(x, k[0])),
            check=_check_written,
        )
        for kind in ("STRUCT", "ARRAY", "MAP")
    ),
)
