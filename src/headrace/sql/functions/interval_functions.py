"""Functions that make, divide, read and write intervals. An interval is a number here: microseconds or months.

Names with a blank cannot be written by a user: `headrace.sql.bind.interval_calls` and `calendar_intervals` call those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.model.schema import BIGINT, DATE, INT, STRING, TIMESTAMP, TIMESTAMP_NTZ, DataType, Decimal
from headrace.sql.functions.instants import at_zone, days_of, is_plain, micros_of_seconds, to_date
from headrace.sql.functions.nesting import let
from headrace.sql.functions.overload import Overload
from headrace.sql.functions.regex_functions import unquoted
from headrace.sql.plan.types import type_class

_SECOND, _MINUTE, _HOUR, _DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
_SECONDS = Decimal(18, 6)
_SHORT = 400  # characters: nested calls would grow exponentially
# The parameters of the functions that make intervals, and the unit of the result.
MAKERS: dict[str, tuple[tuple[DataType, ...], str]] = {
    "make_dt_interval": ((INT, INT, INT, _SECONDS), "DAY TO SECOND"),
    "make_ym_interval": ((INT, INT), "YEAR TO MONTH"),
}
# make_interval has months, days and microseconds, and is only an operand beside a time.
CALENDAR_MAKERS = ("make_interval", "try_make_interval")
CALENDAR_PARTS: tuple[DataType, ...] = (*(INT,) * 6, _SECONDS)
_SIZES = {"DAY": _DAY, "HOUR": _HOUR, "MINUTE": _MINUTE, "SECOND": _SECOND}
# In Spark's order: an overflow of any step is an error. Beside a part that is NULL nothing overflows: the days are NULL
# then, and the other parts are small. DuckDB would move a constant out of a sum with a sign, and lose the overflow.
_DAYS = f"multiply({{0}}::BIGINT + constant_or_null(0::BIGINT, {{1}}, {{2}}, {{3}}), {_DAY})"
_HOURS, _MINUTES = f"multiply({{1}}::BIGINT, {_HOUR})", f"multiply({{2}}::BIGINT, {_MINUTE})"
_MADE = f"add(add(add({micros_of_seconds('{3}')}, {_DAYS}), {_HOURS}), {_MINUTES})"

# Rounded half up, away from zero. Few numbers need 128 bits for that.
_HALF = 2**62
_AWAY = "CASE WHEN ({0} < 0) = ({1} < 0) THEN 1 ELSE -1 END"
_DIVIDED = (
    "CASE WHEN {1} = 0 AND {0} IS NOT NULL THEN error('INTERVAL_DIVIDED_BY_ZERO') "
    f"WHEN {{0}} BETWEEN -{_HALF} AND {_HALF} AND {{1}} BETWEEN -{_HALF} AND {_HALF} "
    f"THEN {{0}} // {{1}} + CASE WHEN 2 * abs({{0}} % {{1}}) >= abs({{1}}) THEN {_AWAY} ELSE 0 END "
    "ELSE CAST({0}::HUGEINT // {1} + CASE WHEN 2 * abs({0}::HUGEINT % {1}) >= abs({1}::HUGEINT) "
    f"THEN {_AWAY} ELSE 0 END AS BIGINT) END"
)


def _repeated(value: str, body: Callable[[str], str]) -> str:
    """`body` over a value. DuckDB computes a short one once although it is written several times, and needs a quarter
    of the time that a lambda takes."""
    return body(f"({value})") if len(value) < _SHORT else let(value, body)


def _two_digits(count: str) -> str:
    return f"CASE WHEN {count} < 10 THEN '0' ELSE '' END || CAST({count} AS VARCHAR)"


def _seconds(micros: str) -> str:
    """Seconds with two digits before the point, and a fraction without trailing zeros."""
    whole = _two_digits(f"{micros} // {_SECOND}")
    fraction = f"rtrim(lpad(CAST({micros} % {_SECOND} AS VARCHAR), 6, '0'), '0')"
    return f"{whole} || CASE WHEN {micros} % {_SECOND} > 0 THEN '.' || {fraction} ELSE '' END"


def _text(args: Sequence[str]) -> str:
    unit = unquoted(args[1]) or ""
    number, size = args[0], f"CAST(abs({args[0]}::HUGEINT) AS UBIGINT)"  # 64 bits are divided faster than 128
    first, _, last = unit.partition(" TO ")
    last = last or first
    if first in ("YEAR", "MONTH"):
        years, months = f"CAST({size} // 12 AS VARCHAR)", f"CAST({size} % 12 AS VARCHAR)"
        body = {
            "YEAR TO MONTH": f"{years} || '-' || {months}", "YEAR": years, "MONTH": f"CAST({size} AS VARCHAR)",
        }[unit]  # fmt: skip
    else:
        names = list(_SIZES)
        body, rest = "", size
        for name in names[names.index(first) : names.index(last) + 1]:
            count = f"({rest} // {_SIZES[name]})"
            if name == "SECOND":
                piece = _seconds(f"({rest})")
            elif name == "DAY":
                piece = f"CAST({count} AS VARCHAR)"
            else:
                piece = _two_digits(count)
            between = "" if not body else " || ' ' || " if body.count("||") == 0 and first == "DAY" else " || ':' || "
            body += between + piece
            rest = f"({rest} % {_SIZES[name]})"
    sign = f"CASE WHEN {number} < 0 THEN '-' ELSE '' END"
    return f"('INTERVAL ''' || {sign} || {body} || ''' {unit}')"


def _sum(args: Sequence[str], result: DataType, flags: str) -> str:
    """A time plus the parts of an interval. Only short texts are written several times."""
    parts = ", ".join((*args[1:-1], micros_of_seconds(args[-1]), flags))
    if result == DATE:
        return to_date(f"hr_date_add_interval({days_of(args[0])}, {parts})")
    made, zone = ("make_timestamptz", at_zone()) if result == TIMESTAMP else ("make_timestamp", "'UTC'")
    moment = f"epoch_us({args[0]})"
    if is_plain(args[0]) and len(parts) < _SHORT:
        macro = "hr_interval_later" if result == TIMESTAMP else "hr_interval_later_in_utc"
        return f"{made}({macro}({moment}, {parts}))"
    return f"{made}(hr_add_interval({moment}, {parts}, {zone}))"


def _sums() -> list[Overload]:
    """A time plus and minus the parts of make_interval. `try_make_interval` is NULL where a sum of parts overflows."""
    found: list[Overload] = []
    for maker in CALENDAR_MAKERS:
        for operator in ("plus", "minus"):
            flags = f"{operator == 'minus'}, {maker.startswith('try_')}".upper()
            for result in (DATE, TIMESTAMP, TIMESTAMP_NTZ):
                params = (result.ddl, *map(type_class, CALENDAR_PARTS))
                found.append(Overload(f"time {operator} {maker}", params, result, _sum_with(flags), throws=True))
    return found


def _sum_with(flags: str) -> Callable[[Sequence[str], Sequence[DataType], DataType], str]:
    return lambda args, kinds, result: _sum(args, result, flags)


def _texts() -> list[Overload]:
    """The months or microseconds of a text. The second argument is the unit."""
    two = ("STRING", "STRING")
    return [
        overload
        for kind, name, sql in ((BIGINT, "micros", "{}"), (INT, "months", "CAST({} AS INTEGER)"))
        for overload in (
            Overload(
                f"interval {name}", two, kind, sql.format("hr_interval({0}, {1}, FALSE)"), throws=True, constant=(1,)
            ),
            Overload(f"try interval {name}", two, kind, sql.format("hr_interval({0}, {1}, TRUE)"), constant=(1,)),
        )
    ]


OVERLOADS: tuple[Overload, ...] = (
    *_sums(),
    *_texts(),
    Overload("make_dt_interval", ("INT", "INT", "INT", "DECIMAL"), BIGINT, _MADE, throws=True),
    Overload("make_ym_interval", ("INT", "INT"), INT, "CAST({0}::HUGEINT * 12 + {1}::HUGEINT AS INTEGER)", throws=True),
    Overload(
        "interval divided",
        ("BIGINT", "BIGINT"),
        BIGINT,
        lambda a, k, r: _repeated(a[0], lambda x: _DIVIDED.format(x, a[1])),
        throws=True,
    ),
    Overload(
        "interval text",
        ("BIGINT", "STRING"),
        STRING,
        lambda a, k, r: _repeated(a[0], lambda x: _text([x, a[1]])),
        constant=(1,),
    ),
    Overload(
        "interval seconds",
        ("DECIMAL",),
        Decimal(8, 6),
        "CAST({0} * CAST('0.000001' AS DECIMAL(6,6)) AS DECIMAL(8,6))",
    ),
)
