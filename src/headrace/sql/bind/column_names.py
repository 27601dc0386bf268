"""Names output columns without an alias like Spark: by the text of the expression."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from headrace.sql.parse.syntax import (
    Aliased,
    Apply,
    Case,
    CastTo,
    Constant,
    Dot,
    IntervalConstant,
    LambdaFunction,
    Name,
    Node,
    Ranking,
    Star,
    Subscript,
)

_PREFIX = {"not": "NOT ", "negative": "- ", "positive": "+ ", "~": "~"}


def column_name(node: Node) -> str:
    """The output name of an unaliased select item."""
    if isinstance(node, Name):
        return node.parts[-1]
    if isinstance(node, Dot):
        return node.field
    if isinstance(node, CastTo) and isinstance(node.input, Name | Dot):
        return column_name(node.input)
    return pretty(node)


def pretty(node: Node) -> str:
    """An expression as Spark prints it."""
    if isinstance(node, Name):
        return ".".join(node.parts)
    if isinstance(node, Constant):
        return {"null": "NULL", "boolean": node.text.lower()}.get(node.kind, node.text)
    if isinstance(node, Apply):
        return _apply(node)
    if isinstance(node, CastTo):
        return f"{'TRY_CAST' if node.attempt else 'CAST'}({pretty(node.input)} AS {node.type})"
    if isinstance(node, Dot):
        return f"{pretty(node.input)}.{node.field}"
    if isinstance(node, LambdaFunction):
        variable = "namedlambdavariable()"
        body = pretty(renamed(node.body, {p.lower(): variable for p in node.params}))
        return f"lambdafunction({body}{f', {variable}' * len(node.params)})"
    if isinstance(node, Aliased):
        return f"{pretty(node.value)} AS {node.alias}"
    if isinstance(node, Subscript):
        return f"{pretty(node.input)}[{pretty(node.index)}]"
    if isinstance(node, Case):
        branches = "".join(f" WHEN {pretty(c)} THEN {pretty(v)}" for c, v in node.branches)
        return f"CASE{branches}" + (f" ELSE {pretty(node.otherwise)}" if node.otherwise else "") + " END"
    if isinstance(node, IntervalConstant):
        return f"INTERVAL {node.months} MONTHS" if node.months else f"INTERVAL {node.micros} MICROSECONDS"
    if isinstance(node, Ranking):
        return _ranking(node)
    assert isinstance(node, Star)
    return "*"


def _ranking(node: Ranking) -> str:
    keys = ", ".join(
        f"{pretty(k.value)} {'DESC' if k.descending else 'ASC'} NULLS {'FIRST' if k.nulls_first else 'LAST'}"
        for k in node.order
    )
    by = f"PARTITION BY {', '.join(map(pretty, node.partition))} " if node.partition else ""
    frame = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    return f"{node.name}() OVER ({by}ORDER BY {keys} {frame})"


def renamed(node: Node, names: dict[str, str]) -> Node:
    """`node` with other names for the variables of a lambda."""
    if isinstance(node, Name):
        first = names.get(node.parts[0].lower())
        return node if first is None else replace(node, parts=(first, *node.parts[1:]))
    changed = {f.name: _renamed_part(getattr(node, f.name), names) for f in fields(node) if f.name != "at"}
    return replace(node, **changed)


def _renamed_part(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, Node):
        return renamed(value, names)
    return tuple(_renamed_part(v, names) for v in value) if isinstance(value, tuple) else value


def _apply(node: Apply) -> str:
    args = [pretty(a) for a in node.args]
    if not node.operator:
        inner = "1" if node.star else ", ".join(args)
        tail = _within_group(node)
        tail += f" FILTER (WHERE {pretty(node.where)})" if node.where is not None else ""
        return f"{node.name}({'DISTINCT ' if node.distinct else ''}{inner}){tail}"
    if node.name in _PREFIX:
        return f"({_PREFIX[node.name]}{args[0]})"
    if node.name == "isnull":
        return f"({args[0]} IS NULL)"
    if node.name == "in":
        return f"({args[0]} IN ({', '.join(args[1:])}))"
    word = {"!=": "<>"}.get(node.name, node.name.upper())
    return f"({f' {word} '.join(args)})"


def _within_group(node: Apply) -> str:
    if not node.order:
        return ""
    words = ("ASC NULLS FIRST", "DESC NULLS LAST") if node.name in ("listagg", "string_agg") else ("", "DESC")
    keys = (f"{pretty(key)} {words[descending]}".rstrip() for key, descending in node.order)
    return f" WITHIN GROUP (ORDER BY {', '.join(keys)})"
