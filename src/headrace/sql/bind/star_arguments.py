"""Expands `*`, `s.*` and `pos.*` among the arguments of a function, as in to_json(struct(*))."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from headrace.sql.functions.aggregate_functions import AGGREGATE_ALIASES, AGGREGATE_NAMES
from headrace.sql.parse.syntax import Aliased, Apply, Name, Node, Star
from headrace.sql.plan.expr import FieldOf
from headrace.sql.plan.logical import Named

Expand = Callable[[Star], list[Named]]


def has_star(call: Apply) -> bool:
    """True if a star among the arguments stands for columns: not in count(*), but in count(DISTINCT *)."""
    if any(isinstance(arg, Star) for arg in call.args):
        return True
    return call.star and (call.distinct or AGGREGATE_ALIASES.get(call.name, call.name) not in AGGREGATE_NAMES)


def with_star_arguments(node: Node, expand: Expand) -> Node:
    """`node` with the names of columns instead of stars. `expand` finds the columns of one."""
    changed: dict[str, Any] = {
        entry.name: _inner(getattr(node, entry.name), expand)
        for entry in fields(node)
        if isinstance(getattr(node, entry.name), Node | tuple) and entry.name != "at"
    }
    if isinstance(node, Apply) and has_star(node):
        args = (Star(node.at),) if node.star else node.args
        changed["args"] = tuple(
            part for arg in args for part in (_columns(arg, expand) if isinstance(arg, Star) else [_inner(arg, expand)])
        )
        changed["star"] = False
    return replace(node, **changed)


def _inner(value: Any, expand: Expand) -> Any:
    if isinstance(value, Star):
        return value
    if isinstance(value, Node):
        return with_star_arguments(value, expand)
    return tuple(_inner(part, expand) for part in value) if isinstance(value, tuple) else value


def _columns(star: Star, expand: Expand) -> list[Node]:
    found: list[Node] = []
    for named in expand(star):
        name = Name(star.at, (*star.qualifier, named.name))
        field = isinstance(named.expr, FieldOf)
        found.append(Aliased(star.at, name, named.name, of_star=True) if field else name)
    return found
