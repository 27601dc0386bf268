"""Binds intervals that are computed: sums, multiples, parts, texts, and times plus such an interval.

An interval that is not a literal is a number: microseconds (INTERVAL SECOND) or months (INTERVAL MONTH). `number_of`
takes off its type, and `as_interval` puts it back on, so the functions and operators of numbers do the work.
"""

from __future__ import annotations

import decimal
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.model.schema import BIGINT, DATE, INT, STRING, TIMESTAMP, TIMESTAMP_NTZ, TINYINT, DataType, Decimal
from headrace.sql.bind.literals import timestamp
from headrace.sql.functions.interval_functions import MAKERS
from headrace.sql.parse.syntax import Apply, TextRange
from headrace.sql.plan.expr import Call, CaseWhen, Cast, Expr, Literal
from headrace.sql.plan.types import INTEGRAL, INTERVAL_MICROS, INTERVAL_MONTHS, VOID, Interval, as_decimal, type_class

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
_WIDEST = Decimal(20, 0)  # as which Spark takes a BIGINT
_EXACT_DIGITS = 34  # Spark rounds a product to so many digits before it rounds it to whole numbers


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


def cast_interval(binder: ExprBinder, interval: Expr, target: DataType, at: TextRange, attempt: bool) -> Expr:
    """CAST of an interval to STRING, to a whole number or to a decimal."""
    unit = unit_of(interval)
    if target == STRING and unit:
        number = binder.coerce(number_of(binder, interval), BIGINT)
        return binder.call("interval text", (number, Literal(STRING, unit, at=at)), at)
    if (target in INTEGRAL or isinstance(target, Decimal)) and unit:
        number = binder.coerce(number_of(binder, interval), BIGINT)
        size = _SIZES[_last(unit)]
        if isinstance(target, Decimal) and _last(unit) == "SECOND":
            micro = Literal(Decimal(6, 6), decimal.Decimal("0.000001"), at=at)
            number = binder.call("*", (binder.coerce(number, _WIDEST), micro), at)
        elif size > 1:
            number = binder.call("div", (number, Literal(BIGINT, size, at=at)), at)
        return binder.cast(number, target, at, attempt)
    binder.mismatch(
        f"an interval cannot be cast to {target}", "Use EXTRACT, timestampdiff, or add it to a date or timestamp.", at
    )


def _last(unit: str) -> str:
    return unit.rpartition(" ")[2]


def cast_to_interval(binder: ExprBinder, expr: Expr, unit: str, at: TextRange, attempt: bool) -> Expr:
    """CAST of a text, of a number, which counts the last unit, of an interval to another unit, and of NULL."""
    shown, advice = f"INTERVAL {unit}".strip(), "Multiply a whole number by an interval, as in 3 * INTERVAL '1' DAY."
    if not unit:
        binder.unsupported(f"a cast from {expr.type} to {shown}", "Name a unit, as in INTERVAL DAY TO SECOND.", at)
    wanted = INTERVAL_MONTHS if _last(unit) in ("YEAR", "MONTH") else INTERVAL_MICROS
    kind, size = INT if wanted == INTERVAL_MONTHS else BIGINT, _SIZES[_last(unit)]
    if expr.type == VOID:
        return as_interval(Cast(kind, expr, attempt, at=at), unit)
    if expr.type == STRING:
        name = f"{'try ' if attempt else ''}interval {'months' if kind == INT else 'micros'}"
        return as_interval(binder.call(name, (expr, Literal(STRING, unit, at=at)), at), unit)
    if expr.type == wanted:
        return as_interval(_in_whole(binder, expr, unit, at), unit)
    if isinstance(expr.type, Decimal) or (attempt and expr.type in INTEGRAL):
        return as_interval(_rounded(binder, expr, size=size, kind=kind, at=at, attempt=attempt), unit)
    if expr.type not in INTEGRAL:
        binder.mismatch(f"{expr.type} cannot be cast to {shown}", advice, at)
    wide = binder.call("*", (binder.coerce(expr, BIGINT), Literal(BIGINT, size, at=at)), at)
    return as_interval(wide if kind == BIGINT else binder.cast(wide, INT, at, False), unit)


def _in_whole(binder: ExprBinder, interval: Expr, unit: str, at: TextRange) -> Expr:
    """The number of an interval without what is less than its new last unit. Fractions of a second stay."""
    number, size = number_of(binder, interval), _SIZES[_last(unit)]
    if size == 1 or _last(unit) == "SECOND" or unit_of(interval) == unit:
        return number
    below = binder.call("%", (number, Literal(number.type, size, at=at)), at)
    return binder.call("-", (number, below), at)


def _rounded(binder: ExprBinder, expr: Expr, size: int, kind: DataType, at: TextRange, attempt: bool) -> Expr:
    """A decimal or whole number times `size`, rounded half up."""
    held = as_decimal(expr.type)
    assert held is not None
    product = binder.coerce(expr, held)
    if size > 1:
        digits = len(str(size))
        if held.precision + digits > _EXACT_DIGITS:
            binder.unsupported(f"a cast from {expr.type} to an interval", "Cast it to DECIMAL(18, 6) first.", at)
        factor = Literal(Decimal(digits, 0), decimal.Decimal(size), at=at)
        product = binder.call("*", (product, factor), at)
    assert isinstance(product.type, Decimal)
    whole = Decimal(min(38, product.type.precision - product.type.scale + 1), 0)
    return binder.cast(binder.cast(product, whole, at, False), kind, at, attempt)


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
