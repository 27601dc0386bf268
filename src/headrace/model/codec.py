"""Encodes frozen dataclasses as JSON and decodes them by their type hints. Plans and definitions are stored like this.

`load` is the inverse of `dump` for the dataclasses of this room and for `headrace.model.schema`. SQL types are
stored as DDL text.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import types
import typing
import zlib
from collections.abc import Callable
from functools import cache, lru_cache, partial
from operator import attrgetter
from typing import Any, TypeVar

from headrace.model.schema import DataType, parse_type

T = TypeVar("T")
_KEY = "stored"
_SIMPLE = frozenset((int, str, float, bool))
# Plans of hundreds of pipelines repeat a few texts and expressions. Every process that runs them keeps them parsed, so
# equal ones are the same object. Longer texts are rarely equal.
SHORT = 64
SHARED = 8192
_shared: dict[tuple[Any, ...], Any] = {}  # dataclasses of nothing but texts, by their class, keys and values
FieldReaders = tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]
_readers_of: dict[type, FieldReaders] = {}  # dataclasses that were written before


def dump(value: object) -> str:
    """`value` as JSON text. Equal values give equal texts."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"))


def load(kind: type[T], text: str | bytes) -> T:
    """The value that `dump` wrote. Raises ValueError, TypeError or UnknownType for any other text."""
    return typing.cast(T, _builder(typing.cast(Any, kind))(json.loads(text)))


def pack(text: str) -> bytes:
    """A text in few bytes, for messages. Plans of 300 pipelines of one family repeat nearly all of 676 kB: packed, they
    take 25 kB, and Spark carries them to every task and pool of every epoch."""
    return zlib.compress(text.encode(), 1)


def load_packed(kind: type[T], data: bytes) -> T:
    """The value whose text was packed. Raises what `load` raises, and zlib.error."""
    return load(kind, zlib.decompress(data))


def _plain(value: Any) -> Any:
    if value is None or type(value) in _SIMPLE:
        return value
    readers = _readers_of.get(type(value))
    if readers is not None:
        keys, read = readers
        return {
            key: one if one is None or type(one) in _SIMPLE else _plain(one)
            for key, one in zip(keys, read(value), strict=True)
        }
    if isinstance(value, DataType):
        return value.ddl
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        _readers_of[type(value)] = _readers(type(value))
        return _plain(value)
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


def _readers(kind: Any) -> FieldReaders:
    """The keys of a dataclass, and a function that reads all its fields in one call. The commit of every epoch stores
    some hundred counters."""
    names = _names(kind)
    if len(names) < 2:  # then `attrgetter` returns no tuple
        return tuple(names), lambda value: tuple(getattr(value, name) for name in names.values())
    return tuple(names), attrgetter(*names.values())


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _require(data: Any, kind: type[T]) -> T:
    if not isinstance(data, kind):
        raise ValueError(f"expected a {kind.__name__}, found {data!r}")
    return data


@lru_cache(maxsize=4096)
def _type(ddl: str) -> DataType:
    return parse_type(ddl)


@cache
def _builder(kind: Any) -> Callable[[Any], Any]:
    """The function that builds a value of `kind` from plain JSON. Made once per type: plans have many small objects."""
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        inner = _builder(next(a for a in typing.get_args(kind) if a is not type(None)))
        return lambda data: None if data is None else inner(data)
    if origin in (tuple, frozenset):
        item = _builder(typing.get_args(kind)[0])
        return lambda data: origin([item(v) for v in data])
    if origin is dict:
        value = _builder(typing.get_args(kind)[1])
        return lambda data: {k: value(v) for k, v in _require(data, dict).items()}
    if isinstance(kind, type) and issubclass(kind, DataType):
        return lambda data: _type(_require(data, str))
    if dataclasses.is_dataclass(kind):
        return partial(_build_dataclass, kind, dict[str, tuple[str, Callable[[Any], Any]]]())
    return _same


def _same(data: Any) -> Any:
    return sys.intern(data) if type(data) is str and len(data) <= SHORT else data


def _build_dataclass(kind: Any, fields: dict[str, tuple[str, Callable[[Any], Any]]], data: Any) -> Any:
    if not fields:  # filled at the first value, because a type may refer to itself
        hints = _hints(kind)
        fields.update({key: (name, _builder(hints[name])) for key, name in _names(kind).items()})
    given = {}
    for key, value in _require(data, dict).items():
        if key in fields:  # a key of another version is ignored
            name, build = fields[key]
            given[name] = build(value)
    if not all(value is None or type(value) is str for value in data.values()):
        return kind(**given)
    named = (kind, *data, *given.values())
    found = _shared.get(named)
    if found is None:
        if len(_shared) >= SHARED:
            _shared.clear()
        found = _shared[named] = kind(**given)
    return found
