"""Frozen dataclasses as JSON arrays and back, for messages that are sent many times an epoch.

Fields are written by position, and the conversion of a class is worked out once per process. A lane's report takes
about a third of the time that `headrace.model.codec` takes, which writes names and looks up every type again. Both
sides run the same release, so positions are enough: see `headrace.bridge.messages.VERSION`.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class _Form(NamedTuple):
    """How a type is written to and read from what `json` knows."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def write(message: object) -> bytes:
    """A dataclass as JSON."""
    form = _dataclass_form(type(message))
    return json.dumps(form.write(message), separators=(",", ":")).encode()


def read(kind: type[T], data: bytes) -> T:
    """The dataclass that `write` wrote."""
    return typing.cast(T, _dataclass_form(kind).read(json.loads(data)))


def _dataclass_form(kind: Any) -> _Form:
    return _compiled(kind)


@cache
def _compiled(kind: Any) -> _Form:
    names = [f.name for f in dataclasses.fields(kind)]
    hints = typing.get_type_hints(kind)
    forms = [(i, form) for i, name in enumerate(names) if (form := _form(hints[name])) is not None]
    values = attrgetter(*names) if len(names) > 1 else lambda message: (getattr(message, names[0]),)

    def write(message: Any) -> list[Any]:
        out = list(values(message))
        for i, form in forms:
            out[i] = form.write(out[i])
        return out

    def read(found: list[Any]) -> Any:
        for i, form in forms:
            found[i] = form.read(found[i])
        return kind(*found)

    return _Form(write, read)


def _form(hint: Any) -> _Form | None:
    """The form of a field's type; None if `json` writes and reads it as it is."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        (present,) = (a for a in inner if a is not type(None))
        form = _form(present)
        return form and _Form(_unless_none(form.write), _unless_none(form.read))
    if origin is tuple:
        form = _form(inner[0])
        if form is None:
            return _Form(list, tuple)
        each = form
        return _Form(lambda v: [each.write(x) for x in v], lambda v: tuple([each.read(x) for x in v]))
    return _dataclass_form(hint) if dataclasses.is_dataclass(hint) else None


def _unless_none(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)
