"""Binds intervals that are computed: sums, multiples, parts, texts, and times plus such an interval.

An interval that is not a literal is a number: microseconds (INTERVAL SECOND) or months (INTERVAL MONTH). `number_of`
takes off its type, and `as_interval` puts it back on, so the functions and operators of numbers do the work.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.model.schema import BIGINT, DATE, INT, STRING, TIMESTAMP, TIMESTAMP_NTZ, TINYINT, DataType, Decimal
from headrace.sql.bind.literals import timestamp
from headrace.sql.functions.interval_functions import MAKERS
from headrace.sql.parse.syntax import Apply, TextRange
from headrace.sql.plan.expr import Call, CaseWhen, Cast, Expr, Literal
from headrace.sql.plan.types import INTEGRAL, INTERVAL_MICROS, INTERVAL_MONTHS, Interval, type_class

if TYPE_CHECKING:
    from headrace.sql.bind.expression_binder import ExprBinder

INTERVALS = (INTERVAL_MICROS, INTERVAL_MONTHS)
_DAY = 86_400_000_000
_MICROS = {"hour": 3_600_000_000, "minute": 60_000_000}
_UNITS = ("DAY", "HOUR", "MINUTE", "SECOND")
# The last unit of an interval is the one that whole numbers count. In microseconds or months.
_SIZES = {
    "DAY": _DAY, "HOUR": _MICROS["hour"], "MINUTE": _MICROS["minute"], "SECOND": 1_000_000, "MONTH": 1, "YEAR": 12,
}  # fmt: skip


def is_computed(expr: Expr) -> bool:
    """True for an interval that is not a literal."""
    return expr.type in INTERVALS and not isinstance(expr, Literal)


def number_of(binder: ExprBinder, expr: Expr) -> Expr:
    """An interval as a number of microseconds or months. Raises TypeMismatch for other values of an interval type."""
    kind = BIGINT if expr.type == INTERVAL_MICROS else INT
    if isinstance(expr, Literal | Call | Cast):
        return replace(expr, type=kind)
    if not isinstance(expr, CaseWhen):
        binder.mismatch("this interval cannot be computed with", "Compute it in the same expression.", expr.at)
    branches = tuple((condition, number_of(binder, value)) for condition, value in expr.branches)
    otherwise = None if expr.otherwise is None else number_of(binder, expr.otherwise)
    return CaseWhen(kind, branches, otherwise, at=expr.at)


def as_interval(number: Expr, unit: str) -> Expr:
    """A number as an interval of `unit`: DAY, HOUR TO SECOND, YEAR TO MONTH ... or '' if it is unknown."""
    return replace(number, type=Interval("INTERVAL SECOND" if number.type == BIGINT else "INTERVAL MONTH", unit))


def unit_of(expr: Expr) -> str:
    """The unit of an interval, or '' if it is unknown."""
    return expr.type.unit if isinstance(expr.type, Interval) else ""


def bind_interval_arithmetic(binder: ExprBinder, name: str, left: Expr, right: Expr, at: TextRange) -> Expr | None:
    """interval ± interval, interval * number, interval / number, and a time ± a computed interval. None for others."""
    if left.type in INTERVALS and right.type in INTERVALS:
        if name not in ("+", "-") or left.type != right.type:
            return None
        numbers = tuple(number_of(binder, side) for side in (left, right))
        return as_interval(binder.call(name, numbers, at), _widest(unit_of(left), unit_of(right)))
    if name == "*" and right.type in INTERVALS:
        left, right = right, left
    if name in ("*", "/") and left.type in INTERVALS:
        return _multiple(binder=binder, name=name, interval=left, by=right, at=at)
    if name == "+" and is_computed(left):
        left, right = right, left
    if name in ("+", "-") and is_computed(right):
        number = number_of(binder, right)
        if name == "-":
            number = binder.call("negative", (number,), at)
        return _added(binder=binder, time=left, number=number, unit=unit_of(right), at=at)
    return None


def _widest(left: str, right: str) -> str:
    """The unit of a sum: from the larger of the first units to the smaller of the last."""
    if left == right or "" in (left, right):
        return left if left == right else "DAY TO SECOND" if "DAY TO SECOND" in (left, right) else ""
    parts = [*left.split(" TO "), *right.split(" TO ")]
    if not set(parts) <= set(_UNITS):
        return "YEAR TO MONTH"
    places = sorted({_UNITS.index(part) for part in parts})
    first, last = _UNITS[places[0]], _UNITS[places[-1]]
    return first if first == last else f"{first} TO {last}"


def _multiple(binder: ExprBinder, name: str, interval: Expr, by: Expr, at: TextRange) -> Expr:
    number = number_of(binder, interval)
    if by.type not in INTEGRAL:
        binder.unsupported(
            f"an interval {name} {by.type}", "Cast the number to BIGINT, or compute with a number of seconds.", at
        )
    unit = "DAY TO SECOND" if interval.type == INTERVAL_MICROS else "YEAR TO MONTH"
    if name == "/":
        wide = binder.call("interval divided", (binder.coerce(number, BIGINT), binder.coerce(by, BIGINT)), at)
    else:
        wide = binder.call("*", (binder.coerce(number, BIGINT), binder.coerce(by, BIGINT)), at)
    return as_interval(wide if number.type == BIGINT else binder.cast(wide, INT, at, False), unit)


def _added(binder: ExprBinder, time: Expr, number: Expr, unit: str, at: TextRange) -> Expr:
    """A time plus a number of microseconds (BIGINT) or months (INT)."""
    if number.type == INT and time.type == DATE:
        return binder.call("add_months", (time, number), at)
    if time.type == DATE and unit == "DAY":
        days = binder.call("div", (number, Literal(BIGINT, _DAY, at=at)), at)
        return binder.call("+", (time, binder.cast(days, INT, at, False)), at)
    if time.type == DATE:
        time = binder.coerce(time, TIMESTAMP)
    if type_class(time.type) not in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        binder.mismatch(f"an interval cannot be added to {time.type}", "Cast it to TIMESTAMP or DATE first.", at)
    return binder.call("time plus interval", (time, number), at)


def bind_interval_part(binder: ExprBinder, part: str, interval: Expr, at: TextRange) -> Expr:
    """EXTRACT(part FROM interval)."""
    number = number_of(binder, interval)

    def count(below: Expr, size: int) -> Expr:
        return binder.call("div", (below, Literal(BIGINT, size, at=at)), at)

    def rest(of: Expr, size: int) -> Expr:
        return binder.call("%", (of, Literal(BIGINT, size, at=at)), at)

    found: tuple[Expr, DataType] | None = None
    if interval.type == INTERVAL_MONTHS:
        months = binder.coerce(number, BIGINT)
        found = {"year": (count(months, 12), INT), "month": (rest(months, 12), TINYINT)}.get(part)
    elif part == "day":
        found = count(number, _DAY), INT
    elif part in _MICROS:
        below = rest(number, _DAY if part == "hour" else _MICROS["hour"])
        found = count(below, _MICROS[part]), TINYINT
    elif part == "extract second":
        micros = binder.cast(rest(number, _MICROS["minute"]), Decimal(8, 0), at, False)
        return binder.call("interval seconds", (micros,), at)
    if found is None:
        binder.unsupported(f"the part {part!r} of an interval", "Use day, hour, minute or second; year or month.", at)
    return binder.cast(*found, at, False)


def cast_interval(binder: ExprBinder, interval: Expr, target: DataType, at: TextRange) -> Expr:
    """CAST of an interval to STRING, to a whole number or to another unit."""
    unit = unit_of(interval)
    if target == STRING and unit:
        number = binder.coerce(number_of(binder, interval), BIGINT)
        return binder.call("interval text", (number, Literal(STRING, unit, at=at)), at)
    if target in INTEGRAL and unit:
        number = binder.coerce(number_of(binder, interval), BIGINT)
        size = _SIZES[_last(unit)]
        if size > 1:
            number = binder.call("div", (number, Literal(BIGINT, size, at=at)), at)
        return binder.cast(number, target, at, False)
    if isinstance(target, Decimal):
        binder.unsupported(f"a cast from an interval to {target}", "Cast it to BIGINT, or use EXTRACT.", at)
    binder.mismatch(
        f"an interval cannot be cast to {target}", "Use EXTRACT, timestampdiff, or add it to a date or timestamp.", at
    )


def _last(unit: str) -> str:
    return unit.rpartition(" ")[2]


def cast_to_interval(binder: ExprBinder, expr: Expr, unit: str, at: TextRange, attempt: bool) -> Expr:
    """CAST of a whole number, which counts the last unit, and of an interval to another unit."""
    whole = expr.type in INTEGRAL
    shown, advice = f"INTERVAL {unit}".strip(), "Multiply a whole number by an interval, as in 3 * INTERVAL '1' DAY."
    if attempt or not unit or expr.type == STRING or isinstance(expr.type, Decimal):
        binder.unsupported(f"a cast from {expr.type} to {shown}", advice, at)
    wanted = INTERVAL_MONTHS if _last(unit) in ("YEAR", "MONTH") else INTERVAL_MICROS
    size = _SIZES[_last(unit)]
    if expr.type == wanted:
        number = number_of(binder, expr)
        if size > 1 and unit != "SECOND" and not unit.endswith(" SECOND"):  # fractions of a second stay
            below = binder.call("%", (number, Literal(number.type, size, at=at)), at)
            number = binder.call("-", (number, below), at)
        return as_interval(number, unit)
    if not whole:
        binder.mismatch(f"{expr.type} cannot be cast to {shown}", advice, at)
    wide = binder.call("*", (binder.coerce(expr, BIGINT), Literal(BIGINT, size, at=at)), at)
    return as_interval(wide if wanted == INTERVAL_MICROS else binder.cast(wide, INT, at, False), unit)


def bind_maker(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    """make_dt_interval and make_ym_interval: missing arguments are 0."""
    kinds, unit = MAKERS[name]
    if len(args) > len(kinds):
        return None
    given = [*args, *(Literal(INT, 0, at=node.at) for _ in range(len(kinds) - len(args)))]
    values = tuple(binder.coerce(value, kind) for value, kind in zip(given, kinds, strict=True))
    return as_interval(binder.call(name, values, node.at), unit)


def bind_time_bucket(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    """time_bucket(size, time[, origin]): the time minus its distance from the last multiple of `size` after the origin.
    Buckets of whole days of a TIMESTAMP would follow the days of the session time zone."""
    if len(args) not in (2, 3):
        return None
    size, time = args[:2]
    if size.type not in INTERVALS or time.type not in (TIMESTAMP, TIMESTAMP_NTZ):
        binder.mismatch(
            f"{name} does not take {size.type} and {time.type}", "It takes an interval and a TIMESTAMP.", node.at
        )
    zone = binder.ctx.meaning.time_zone
    origin = args[2] if len(args) > 2 else timestamp("1970-01-01 00:00:00", time.type, zone, node.at)
    if not isinstance(size, Literal) or not isinstance(origin, Literal) or origin.type != time.type:
        binder.unsupported(f"{name} without literals of its types", "Write INTERVAL 1 HOUR, and no origin.", node.at)
    if size.value <= 0:
        binder.mismatch(f"{name} needs an interval above 0", "Write INTERVAL 1 HOUR or another.", size.at)
    if size.type == INTERVAL_MONTHS or (time.type == TIMESTAMP and size.value >= _DAY):
        binder.unsupported(f"{name} by days or months", "Use date_trunc(), or group by window().", node.at)
    start, width = (Literal(BIGINT, part.value, at=node.at) for part in (origin, size))
    passed = binder.call("-", (binder.call("unix_micros", (time,), node.at), start), node.at)
    rest = binder.call("pmod", (passed, width), node.at)
    return binder.call("time plus interval", (time, binder.call("negative", (rest,), node.at)), node.at)


def negated(binder: ExprBinder, interval: Expr, at: TextRange) -> Expr:
    """-interval."""
    return as_interval(binder.call("negative", (number_of(binder, interval),), at), unit_of(interval))
