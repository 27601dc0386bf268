"""Binds a time plus or minus `make_interval(...)` or `try_make_interval(...)` as one call.

Their value has months, days and microseconds, and no expression here has such a type. So it exists only as an operand
that is written beside the time, and every other use is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

from headrace.errors import WrongArguments
from headrace.model.schema import INT, STRING
from headrace.sql.functions.interval_functions import CALENDAR_MAKERS, CALENDAR_PARTS
from headrace.sql.parse.syntax import Apply, Node
from headrace.sql.plan.expr import Expr, Literal
from headrace.sql.plan.types import VOID, is_numeric, type_class

if TYPE_CHECKING:
    from headrace.sql.bind.expression_binder import ExprBinder

_TIMES = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")


def bind_calendar_sum(binder: ExprBinder, node: Apply) -> Expr | None:
    """time + make_interval(...), time - make_interval(...) and make_interval(...) + time. None for all others."""
    if not node.operator or node.name not in ("+", "-") or len(node.args) != 2:
        return None
    left, right = node.args
    if node.name == "+" and _is_maker(left):
        left, right = right, left
    if not _is_maker(right):
        return None
    time = binder.bind(left)  # Spark evaluates the time first, wherever it is written
    if type_class(time.type) not in _TIMES:
        binder.mismatch(f"an interval cannot be added to {time.type}", "Cast it to TIMESTAMP or DATE first.", node.at)
    name = f"time {'plus' if node.name == '+' else 'minus'} {right.name}"
    return binder.call(name, (time, *_parts(binder, right)), node.at)


def refuse_calendar_interval(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    """Raises UnsupportedOnShared: the call is not an operand beside a time."""
    advice = "Write time + make_interval(...), or use make_dt_interval(days, hours, minutes, seconds)."
    binder.unsupported(f"{node.name} that is not added to a time", advice, node.at)


def _is_maker(node: Node) -> TypeGuard[Apply]:
    if not isinstance(node, Apply) or node.operator or node.name not in CALENDAR_MAKERS:
        return False
    return not (node.distinct or node.star or node.order or node.where is not None)


def _parts(binder: ExprBinder, node: Apply) -> list[Expr]:
    """The seven parts. Missing ones are 0. Spark casts all numbers and texts to the type of the part."""
    fewest = 1 if node.name == "try_make_interval" else 0
    if not fewest <= len(node.args) <= len(CALENDAR_PARTS):
        raise WrongArguments(
            f"{node.name} takes {fewest} to {len(CALENDAR_PARTS)} arguments, not {len(node.args)}",
            advice="Write years, months, weeks, days, hours, minutes and seconds.",
            span=binder.span(node.at),
        )
    given = [binder.bind(part) for part in node.args]
    for part in given:
        if part.type not in (STRING, VOID) and not is_numeric(part.type):
            binder.mismatch(f"{node.name} takes numbers, this is {part.type}", "Cast it to a number.", part.at)
    given += [Literal(INT, 0, at=node.at)] * (len(CALENDAR_PARTS) - len(given))
    return [binder.coerce(part, kind) for part, kind in zip(given, CALENDAR_PARTS, strict=True)]
