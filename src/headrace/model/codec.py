"""Encodes frozen dataclasses as JSON and decodes them by their type hints. All plans and definitions are stored so.

`load` is the inverse of `dump` for the types of `headrace.model.program` and `headrace.model.schema`. SQL types are
stored as DDL text.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from functools import cache
from typing import Any, TypeVar

from headrace.model.schema import DataType, parse_type

T = TypeVar("T")
_KEY = "stored"


def dump(value: object) -> str:
    """`value` as JSON text. Equal values give equal texts."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"))


def load(kind: type[T], text: str | bytes) -> T:
    """The value that `dump` wrote. Raises ValueError, TypeError or UnknownType for any other text."""
    return typing.cast(T, _build(kind, json.loads(text)))


def _plain(value: Any) -> Any:
    if isinstance(value, DataType):
        return value.ddl
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {key: _plain(getattr(value, name)) for key, name in _names(type(value)).items()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value


def stored_as(key: str, *, default: T) -> T:
    """A dataclass field with this default that is stored under `key`. A renamed field keeps its old key, so that
    existing files can still be read."""
    return dataclasses.field(default=default, metadata={_KEY: key})


@cache
def _names(kind: Any) -> dict[str, str]:
    """The fields of a dataclass by the key that they are stored under."""
    return {f.metadata.get(_KEY, f.name): f.name for f in dataclasses.fields(kind)}


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _require(data: Any, kind: type[T]) -> T:
    if not isinstance(data, kind):
        raise ValueError(f"expected a {kind.__name__}, found {data!r}")
    return data


def _build(kind: Any, data: Any) -> Any:
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        inner = [a for a in typing.get_args(kind) if a is not type(None)]
        return None if data is None else _build(inner[0], data)
    if origin is tuple:
        return tuple(_build(typing.get_args(kind)[0], v) for v in data)
    if origin is frozenset:
        return frozenset(_build(typing.get_args(kind)[0], v) for v in data)
    if origin is dict:
        return {k: _build(typing.get_args(kind)[1], v) for k, v in _require(data, dict).items()}
    if isinstance(kind, type) and issubclass(kind, DataType):
        return parse_type(_require(data, str))
    if dataclasses.is_dataclass(kind):
        names, hints = _names(typing.cast(type, kind)), _hints(typing.cast(type, kind))
        given = {names[k]: v for k, v in _require(data, dict).items() if k in names}
        return typing.cast(type, kind)(**{name: _build(hints[name], v) for name, v in given.items()})
    return data
