"""Names output columns without an alias like Spark: by the text of the expression.

Spark prints names after it has resolved them: `upper(s.k)` is `upper(k)` if `s` is the stream and `upper(s.k)` if it is
a struct, `m.k` of a map is `m[k]`, and a date plus 1 is `date_add(d, 1)`. So the names depend on what the parts of an
expression mean. `call_names` and `literal_names` have the forms that depend on the text alone.
"""

from __future__ import annotations

import re

from headrace.model.schema import DATE, Array, DataType, Map, Struct
from headrace.sql.bind.call_names import CASTS, VARIABLE, call_text, operator_text
from headrace.sql.bind.literal_names import interval_name, literal_text
from headrace.sql.bind.meanings import Meanings
from headrace.sql.functions.interval_functions import CALENDAR_MAKERS
from headrace.sql.functions.time_functions import BARE_CLOCKS
from headrace.sql.parse.syntax import (
    Aliased,
    Apply,
    Case,
    CastTo,
    Constant,
    Dot,
    IntervalCast,
    IntervalConstant,
    LambdaFunction,
    Name,
    Node,
    Ranking,
    Star,
    Subscript,
)
from headrace.sql.plan.expr import Call, ColumnRef, Expr, FieldOf, LambdaVariable
from headrace.sql.plan.types import INTEGRAL, INTERVAL_MICROS, INTERVAL_MONTHS, Interval

_INTERVALS = (INTERVAL_MICROS, INTERVAL_MONTHS)
_MAKERS = ("make_dt_interval", "make_ym_interval", *CALENDAR_MAKERS)
_PLAIN = re.compile(r"(?!\d+$)\w+", re.ASCII)


class ColumnNames:
    """The names of columns in one SELECT. `meanings` has what its nodes mean; one without a meaning is printed as it is
    written."""

    def __init__(self, meanings: Meanings, time_zone: str) -> None:
        self.meanings, self.time_zone = meanings, time_zone

    def of(self, node: Node) -> str:
        """The output name of an unaliased select item."""
        if isinstance(node, Name):
            return self._clock(node) or node.parts[-1]
        if isinstance(node, Dot) and _is_path(node):
            return node.field
        if isinstance(node, CastTo | IntervalCast) and self._is_column(node.input):
            return self.of(node.input)
        if isinstance(node, Apply) and node.name in CASTS and node.args and self._is_column(node.args[0]):
            return self.of(node.args[0])
        return self.text(node)

    def text(self, node: Node) -> str:
        """An expression as Spark prints it."""
        if isinstance(node, Name):
            return self._name(node)
        if isinstance(node, Constant):
            return literal_text(node, self.time_zone)
        if isinstance(node, Apply):
            return self._apply(node)
        if isinstance(node, CastTo):
            if isinstance(node.type, Array | Map | Struct):
                return self.text(node.input)
            return f"{'TRY_CAST' if node.attempt else 'CAST'}({self.text(node.input)} AS {node.type})"
        if isinstance(node, IntervalCast):
            word, kind = "TRY_CAST" if node.attempt else "CAST", f"INTERVAL {node.unit}".strip()
            return f"{word}({self.text(node.input)} AS {kind})"
        if isinstance(node, Dot):
            inner = self.text(node.input)
            return f"{inner}[{node.field}]" if isinstance(self._kind(node.input), Map) else f"{inner}.{node.field}"
        if isinstance(node, LambdaFunction):
            return f"lambdafunction({self.text(node.body)}{f', {VARIABLE}' * len(node.params)})"
        if isinstance(node, Aliased):
            return self._aliased(node)
        if isinstance(node, Subscript):
            inner, index = self.text(node.input), self.text(node.index)
            named = isinstance(node.index, Constant) and node.index.kind == "string"
            field = named and isinstance(self._kind(node.input), Struct | Array)  # of a struct, or of all in an array
            return f"{inner}.{index}" if field else f"{inner}[{index}]"
        if isinstance(node, Case):
            branches = "".join(f" WHEN {self.text(c)} THEN {self.text(v)}" for c, v in node.branches)
            return f"CASE{branches}" + (f" ELSE {self.text(node.otherwise)}" if node.otherwise else "") + " END"
        if isinstance(node, IntervalConstant):
            return interval_name(node)
        if isinstance(node, Ranking):
            return self._ranking(node)
        assert isinstance(node, Star)
        return ".".join((*node.qualifier, "*"))

    # --- names ----------------------------------------------------------------------------------

    def _kind(self, node: Node) -> DataType | None:
        found = self.meanings.of(node)
        return None if found is None else found.type

    def _is_column(self, node: Node) -> bool:
        """True if `node` names a column or an alias, and not a field of one."""
        return (
            isinstance(node, Name)
            and (self._clock(node) is None)
            and (len(node.parts) == 1 or isinstance(self.meanings.of(node), ColumnRef | LambdaVariable))
        )

    def _clock(self, node: Name) -> str | None:
        """The call that a clock without parentheses stands for."""
        found = self.meanings.of(node)
        return f"{found.name}()" if isinstance(found, Call) and found.name in BARE_CLOCKS else None

    def _name(self, node: Name) -> str:
        """A name without its qualifier. The field of a struct has a dot, the key of a map has brackets."""
        if self.meanings.is_alias(node):
            return f"lateralAliasReference({node.parts[-1]})"
        clock = self._clock(node)
        if clock is not None:
            return clock
        expr, parts, path = self.meanings.of(node), list(node.parts), ""
        if expr is None:
            return ".".join(parts)
        while len(parts) > 1 and (inner := _inner(expr)) is not None:
            part = parts.pop()
            path = (f"[{part}]" if isinstance(inner.type, Map) else f".{part}") + path
            expr = inner
        return (VARIABLE if isinstance(expr, LambdaVariable) else parts[-1]) + path

    def _aliased(self, node: Aliased) -> str:
        if isinstance(node.value, Name) and node.of_star:
            *path, field = node.value.parts
            owner = Name(node.at, tuple(path))
            inner = self.meanings.of(node.value)
            assert isinstance(inner, FieldOf)
            self.meanings.add(owner, inner.input)
            shown = self.text(owner)
            return f"{shown}{'' if self._is_column(owner) else f' AS {_quoted(path[-1])}'}.{field} AS {_quoted(field)}"
        return f"{self.text(node.value)} AS {_quoted(node.alias)}"

    def _ranking(self, node: Ranking) -> str:
        keys = ", ".join(
            f"{self.text(k.value)} {'DESC' if k.descending else 'ASC'} NULLS {'FIRST' if k.nulls_first else 'LAST'}"
            for k in node.order
        )
        by = f"PARTITION BY {', '.join(map(self.text, node.partition))} " if node.partition else ""
        frame = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
        name = node.name if node.name == "row_number" else node.name.upper()
        return f"{name}() OVER ({by}ORDER BY {keys} {frame})"

    # --- calls and operators --------------------------------------------------------------------

    def _apply(self, node: Apply) -> str:
        if node.written == "between" and isinstance(node.args[0], Apply) and isinstance(node.args[1], Apply):
            value, low = (self.text(a) for a in node.args[0].args)
            return f"between({value}, {low}, {self.text(node.args[1].args[1])})"
        if node.written == "is not null" and isinstance(node.args[0], Apply):
            return f"({self.text(node.args[0].args[0])} IS NOT NULL)"
        if node.written in ("likeany", "likeall", "notlikeany", "notlikeall"):
            return f"{node.written}({self._matched(node)})"
        args = [self.text(a) for a in node.args]
        if node.operator:
            return self._with_times(node, args) or operator_text(node, args)
        if node.name == "time_bucket" and len(args) == 2 and (bound := self.meanings.of(node)) is not None:
            args.append(f"{bound.type} '1970-01-01 00:00:00'")
        tail = "" if node.where is None else f" FILTER (WHERE {self.text(node.where)})"
        return call_text(node, args) + self._within_group(node) + tail

    def _matched(self, node: Apply) -> str:
        """What LIKE ANY or LIKE ALL matches. Spark prints no patterns, and matches small letters for ILIKE."""
        first: Node = node
        while isinstance(first, Apply) and first.name not in ("like", "ilike"):
            first = first.args[0]
        assert isinstance(first, Apply)
        return f"lower({self.text(first.args[0])})" if first.name == "ilike" else self.text(first.args[0])

    def _within_group(self, node: Apply) -> str:
        if not node.order:
            return ""
        words = {"listagg": ("ASC NULLS FIRST", "DESC NULLS LAST"), "mode": ("DESC", "")}
        words["string_agg"] = words["listagg"]
        chosen = words.get(node.name, ("", "DESC"))  # of mode, Spark prints the reverse
        keys = (f"{self.text(key)} {chosen[descending]}".rstrip() for key, descending in node.order)
        return f" WITHIN GROUP (ORDER BY {', '.join(keys)})"

    # --- times ----------------------------------------------------------------------------------

    def _with_times(self, node: Apply, args: list[str]) -> str | None:
        """A time plus or minus days or an interval, and the multiple of an interval. None for all others."""
        if node.name not in ("+", "-", "*") or len(args) != 2:
            return None
        (left, right), (first, second) = node.args, args
        if self._is_turned(node.name, left, right):
            left, right, first, second = right, left, second, first
        if node.name == "*":
            return f"({first} * {second})" if self._is_interval(left) else None
        if self._is_interval(right) and not self._is_interval(left):
            kind = self._kind(right)
            if self._kind(left) != DATE or not isinstance(kind, Interval) or kind.unit != "DAY":
                return f"{first} {node.name} {second}"
            days = f"extractansiintervaldays({second})"
            return f"date_add({first}, {days if node.name == '+' else f'(- {days})'})"
        if self._kind(left) == DATE and self._kind(right) in INTEGRAL:
            return f"{'date_add' if node.name == '+' else 'date_sub'}({first}, {second})"
        return None

    def _is_turned(self, name: str, left: Node, right: Node) -> bool:
        """True if Spark prints the right operand first: the time of a sum, and the interval of a product."""
        if name == "*":
            return self._is_interval(right) and not self._is_interval(left)
        if name == "-":
            return False
        if self._is_interval(left):
            return not self._is_interval(right)
        return self._kind(right) == DATE and self._kind(left) in INTEGRAL

    def _is_interval(self, node: Node) -> bool:
        if isinstance(node, IntervalConstant) or (isinstance(node, Apply) and node.name in _MAKERS):
            return True
        return self._kind(node) in _INTERVALS


def _is_path(node: Node) -> bool:
    """True if `node` names a column, or a field of one."""
    return isinstance(node, Name) or (isinstance(node, Dot) and _is_path(node.input))


def _inner(expr: Expr) -> Expr | None:
    """What an expression is a field of, or the value of a key. None for all others."""
    if isinstance(expr, FieldOf):
        return expr.input
    return expr.args[0] if isinstance(expr, Call) and expr.name in ("element", "transform") else None


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"
