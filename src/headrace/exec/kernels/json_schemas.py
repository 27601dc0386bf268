"""`schema_of_json`: the type that Spark infers for a JSON text."""

from __future__ import annotations

import re
from typing import Any

from headrace.exec.kernels.json_texts import JsonNumber, JsonObject, parse_json

_FRACTION = re.compile(r"[.eE]")
# A scalar type is its name, null is None, an array is a list of its element type, a struct is a dictionary.
_Inferred = Any


def schema_of_json(text: str) -> str | None:
    """The schema of the first value of a text, as Spark spells it. None if the text is not JSON."""
    try:
        return _spelled(_type_of(parse_json(text))) or "STRUCT<>"
    except (ValueError, RecursionError):
        return None


def _type_of(value: Any) -> _Inferred:
    if value is None:
        return None
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, JsonNumber):
        return _number(value)
    if isinstance(value, str):
        return "STRING"
    if isinstance(value, JsonObject):
        fields: dict[str, _Inferred] = {}
        for name, item in value:
            fields[name] = _common(fields[name], _type_of(item)) if name in fields else _type_of(item)
        return fields
    element = None
    for item in value:
        element = _common(element, _type_of(item))
    return [element]


def _number(text: str) -> str:
    if _FRACTION.search(text) or "Infinity" in text:
        return "DOUBLE"
    if -(2**63) <= int(text) < 2**63:
        return "BIGINT"
    digits = len(text.lstrip("-"))
    return f"DECIMAL({digits},0)" if digits <= 38 else "DOUBLE"


def _common(left: _Inferred, right: _Inferred) -> _Inferred:
    """The type of values of both types: STRING if they have nothing in common."""
    if left is None or left == right:
        return right
    if right is None:
        return left
    if isinstance(left, dict) and isinstance(right, dict):
        return {name: _common(left.get(name), right.get(name)) for name in (*left, *right)}
    if isinstance(left, list) and isinstance(right, list):
        return [_common(left[0], right[0])]
    numbers = {str(kind) for kind in (left, right) if kind in ("BIGINT", "DOUBLE") or str(kind).startswith("DECIMAL")}
    if len(numbers) < 2:
        return "STRING"
    if "DOUBLE" in numbers:
        return "DOUBLE"
    digits = max(int(kind[8:-3]) if kind.startswith("DECIMAL") else 20 for kind in numbers)
    return f"DECIMAL({digits},0)"


def _spelled(kind: _Inferred) -> str | None:
    """The type as Spark spells it. A struct without fields is left out: None."""
    if isinstance(kind, dict):
        fields = ((name, _spelled(kind[name])) for name in sorted(kind))
        shown = ", ".join(f"{_name(name)}: {inner}" for name, inner in fields if inner is not None)
        return f"STRUCT<{shown}>" if shown else None
    if isinstance(kind, list):
        element = _spelled(kind[0])
        return None if element is None else f"ARRAY<{element}>"
    return "STRING" if kind is None else str(kind)


def _name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else "`" + name.replace("`", "``") + "`"
