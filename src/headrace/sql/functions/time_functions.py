"""Functions on dates and timestamps. A TIMESTAMP is interpreted in the session time zone, as in Spark.

Texts with patterns are in `pattern_functions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.model.schema import (
    BIGINT,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    Decimal,
)
from headrace.sql.functions.instants import (
    add_months,
    at_zone,
    days_of,
    in_zone,
    instant_of,
    is_plain,
    micros_of_seconds,
    to_instant,
)
from headrace.sql.functions.overload import Overload
from headrace.sql.plan.expr import Expr, Literal

# No one can write a call of a name with a blank: date_part and EXTRACT call those.
_PARTS = {
    "year": "year({0})",
    "quarter": "quarter({0})",
    "month": "month({0})",
    "day": "day({0})",
    "dayofweek": "dayofweek({0}) + 1",
    "weekday": "isodow({0}) - 1",
    "dayofyear": "dayofyear({0})",
    "weekofyear": "week({0})",
    "extract yearofweek": "isoyear({0})",
    "extract dow_iso": "isodow({0})",
}
_CLOCK = {"hour": "hour({0})", "minute": "minute({0})", "second": "second({0})"}
_UNITS = {
    "year": "year", "yyyy": "year", "yy": "year", "quarter": "quarter", "month": "month", "mon": "month", "mm": "month",
    "week": "week", "day": "day", "dd": "day", "hour": "hour", "minute": "minute", "second": "second",
    "millisecond": "millisecond", "microsecond": "microsecond",
}  # fmt: skip
_DATE_UNITS = ("year", "quarter", "month", "week")
_WEEKDAYS = {
    name: i
    for i, names in enumerate(
        ("mo mon monday", "tu tue tuesday", "we wed wednesday", "th thu thursday", "fr fri friday", "sa sat saturday",
         "su sun sunday")
    )
    for name in names.split()
}  # fmt: skip
_SECOND = 1_000_000
# The clock of the epoch, which Spark logs with its offset: an epoch that runs again sees the same one.
CLOCKS = ("current_timestamp", "current_date", "localtimestamp")
BARE_CLOCKS = ("current_timestamp", "current_date")  # may stand without parentheses
_NOW = "make_timestamptz(coalesce(CAST(getvariable('hr_now') AS BIGINT), error('NO_CLOCK')))"
_NOW_READING = "make_timestamp(coalesce(CAST(getvariable('hr_now_reading') AS BIGINT), error('NO_CLOCK')))"
# The units of timestampadd and timestampdiff: microseconds, days or months.
_STEPS = {"microsecond": 1, "millisecond": 1000, "second": _SECOND, "minute": 60 * _SECOND, "hour": 3600 * _SECOND}
_DAY = 86_400 * _SECOND
_DAYS = {"day": 1, "week": 7, "dayofyear": 1}
_SHORT = 200  # characters that may be written three times
_MONTHS = {"month": 1, "quarter": 3, "year": 12}


def _word(argument: Expr) -> str:
    return str(argument.value).lower() if isinstance(argument, Literal) else ""


def _bare(quoted: str) -> str:
    return quoted.strip("'").lower()


def _truncate(quoted: str, text: str) -> str:
    """Truncates an instant. Below a day, an hour that occurs twice keeps its two instants."""
    unit = _UNITS[_bare(quoted)]
    clock = in_zone(text)
    if unit in ("year", "quarter", "month", "week", "day"):
        return instant_of(f"CAST(date_trunc('{unit}', {clock}) AS TIMESTAMP)")
    size = _STEPS[unit]
    return f"make_timestamptz(epoch_us({text}) - (epoch_us({clock}) % {size} + {size}) % {size})"


def _first_day(unit: str, date: str) -> str:
    """The first day of a unit. DuckDB's date_trunc() does not know dates that are not timestamps, such as those of the
    year 1234567."""
    if unit == "quarter":
        return f"make_date(year({date}), quarter({date}) * 3 - 2, 1)"
    part = {"year": "dayofyear", "month": "day", "week": "isodow"}[unit]
    return f"({date} - CAST({part}({date}) - 1 AS INTEGER))"


def _floor(text: str, unit: int) -> str:
    """The number of whole units up to an instant, rounded down, also before 1970."""
    return f"((epoch_us({text}) - (epoch_us({text}) % {unit} + {unit}) % {unit}) // {unit})"


def _parts() -> list[Overload]:
    found: list[Overload] = []
    for name, text in {**_PARTS, **_CLOCK}.items():
        if name in _PARTS:
            found.append(Overload(name, ("DATE",), INT, f"CAST({text} AS INTEGER)"))
        local = text.format(in_zone("{0}"))
        found.append(Overload(name, ("TIMESTAMP",), INT, f"CAST({local} AS INTEGER)"))
        found.append(Overload(name, ("TIMESTAMP_NTZ",), INT, f"CAST({text} AS INTEGER)"))
    # The seconds of date_part have a fraction.
    for kind, clock in (("TIMESTAMP", in_zone("{0}")), ("TIMESTAMP_NTZ", "{0}")):
        micros = f"CAST(epoch_us({clock}) - epoch_us(date_trunc('minute', {clock})) AS DECIMAL(8,0))"
        exact = f"CAST({micros} * CAST('0.000001' AS DECIMAL(6,6)) AS DECIMAL(8,6))"
        found.append(Overload("extract second", (kind,), Decimal(8, 6), exact))
    return found


def _unit_of(known: Sequence[str], position: int = 0) -> Callable[[Sequence[Expr]], str | None]:
    return lambda args: None if _word(args[position]) in known else "this unit"


def _add(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    """timestampadd. Days and longer units are those of the calendar."""
    unit, count, moment = _bare(args[0]), f"CAST({args[1]} AS BIGINT)", f"epoch_us({args[2]})"
    zoned = result == TIMESTAMP
    made = "make_timestamptz" if zoned else "make_timestamp"
    size = {**_STEPS, **_DAYS, **_MONTHS}[unit]
    if size > 1:  # Spark multiplies only if there is a moment
        count = f"CASE WHEN {args[2]} IS NOT NULL THEN {count} * {size} END"
    if unit in _MONTHS:
        if is_plain(args[2]) and len(count) < _SHORT:
            return f"{made}({'hr_months_later' if zoned else 'hr_months_later_in_utc'}({moment}, {count}))"
        zone = at_zone() if zoned else "'UTC'"
        return f"{made}(hr_add_months({moment}, {count}, {zone}))"
    if unit in _DAYS:
        return f"{made}({'hr_days_later' if zoned else 'hr_days_later_in_utc'}({moment}, {count}))"
    return f"{made}({moment} + {count})"


def _difference(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    """timestampdiff: whole units between two readings of the clock, towards zero."""
    unit = _bare(args[0])
    start, end = (f"epoch_us({in_zone(a)})" for a in args[1:])
    if unit in _MONTHS:
        return f"(hr_months_apart({start}, {end}) // {_MONTHS[unit]})"
    step = _STEPS[unit] if unit in _STEPS else _DAYS[unit] * _DAY
    return f"({end} - {start})" if step == 1 else f"(({end} - {start}) // {step})"


def _moved(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    """A time plus an interval of microseconds. As in Spark, its days are those of the calendar, and the rest is added
    to the instant."""
    moment = f"epoch_us({args[0]})"
    if result == TIMESTAMP:
        return to_instant(f"hr_later({moment}, {args[1]})")
    return f"make_timestamp({moment} + {args[1]})"


def _moved_months(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    return _add(["'month'", args[1], args[0]], kinds, result)


def _steps() -> list[Overload]:
    units = (*_STEPS, *_DAYS, *_MONTHS)
    found: list[Overload] = []
    for kind, result in (("TIMESTAMP", TIMESTAMP), ("TIMESTAMP_NTZ", TIMESTAMP_NTZ)):
        for count in ("INT", "BIGINT"):
            params = ("STRING", count, kind)
            found.append(
                Overload("timestampadd", params, result, _add, constant=(0,), check=_unit_of(units), throws=True)
            )
        # Names with a blank cannot be written by a user: `headrace.sql.bind.interval_calls` calls those.
        found.append(Overload("time plus interval", (kind, "BIGINT"), result, _moved, throws=True))
        found.append(Overload("time plus interval", (kind, "INT"), result, _moved_months, throws=True))
    apart = tuple(u for u in units if u != "dayofyear")
    found.append(
        Overload(
            "time minus time",
            ("TIMESTAMP", "TIMESTAMP"),
            BIGINT,
            lambda a, k, r: _difference(["'microsecond'", a[1], a[0]], k, r),
        )
    )
    params = ("STRING", "TIMESTAMP", "TIMESTAMP")
    found.append(Overload("timestampdiff", params, BIGINT, _difference, constant=(0,), check=_unit_of(apart)))
    return found


# The parts of a time that every month has. DuckDB makes those faster than the kernel.
_PLAIN_PARTS = (
    "{0} BETWEEN 1 AND 9999 AND {1} BETWEEN 1 AND 12 AND {2} BETWEEN 1 AND 28 AND {3} BETWEEN 0 AND 23 "
    "AND {4} BETWEEN 0 AND 59 AND {5} BETWEEN 0 AND 59"
)
_PLAIN_READING = "epoch_us(make_timestamp({0}, {1}, {2}, {3}, {4}, {5}::DOUBLE))"


def _micros_of(text: str, kind: str) -> str:
    """Seconds of make_timestamp as microseconds."""
    if kind == "INT":
        return f"CAST({text} AS BIGINT) * {_SECOND}"
    exact = text if kind == "DECIMAL" else f"CASE WHEN isfinite({text}) THEN CAST({text} AS VARCHAR) END"
    return micros_of_seconds(f"CAST({exact} AS DECIMAL(16,6))")


def _check_seconds(args: Sequence[Expr]) -> str | None:
    kind = args[5].type
    fits = not isinstance(kind, Decimal) or (kind.scale <= 6 and kind.precision - kind.scale <= 10)
    return None if fits else f"seconds of {kind}, which does not fit DECIMAL(16,6)"


def _makers() -> list[Overload]:
    found: list[Overload] = []
    parts = ("INT",) * 5
    for attempt in (False, True):
        prefix, flag = ("try_", "TRUE") if attempt else ("", "FALSE")
        for kind in ("INT", "DECIMAL", "DOUBLE"):
            reading = f"hr_make_moment({{0}}, {{1}}, {{2}}, {{3}}, {{4}}, {_micros_of('{5}', kind)}, {flag})"
            if kind == "INT":
                reading = f"CASE WHEN {_PLAIN_PARTS} THEN {_PLAIN_READING} ELSE {reading} END"
            instant, zoned = to_instant(f"hr_moment({reading})"), to_instant(f"hr_instant({reading}, {{6}})")
            for name, result, text in (
                ("make_timestamp", TIMESTAMP, instant),
                ("make_timestamp_ltz", TIMESTAMP, instant),
                ("make_timestamp_ntz", TIMESTAMP_NTZ, f"make_timestamp({reading})"),
            ):
                found.append(Overload(prefix + name, (*parts, kind), result, text, throws=True, check=_check_seconds))
                if result == TIMESTAMP:
                    params = (*parts, kind, "STRING")
                    found.append(Overload(prefix + name, params, result, zoned, throws=True, check=_check_seconds))
    return found


def _counts() -> list[Overload]:
    """Units since 1970. A reading without a zone counts as one of UTC. Spark truncates unix_timestamp towards zero, and
    rounds the others down."""
    found: list[Overload] = []
    for kind in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        for name in ("unix_timestamp", "to_unix_timestamp"):
            found.append(
                Overload(name, (kind,), BIGINT, f"((epoch_us({{0}}) - epoch_us({{0}}) % {_SECOND}) // {_SECOND})")
            )
        found.append(Overload("unix_micros", (kind,), BIGINT, "epoch_us({0})"))
        found.append(Overload("unix_millis", (kind,), BIGINT, _floor("{0}", 1000)))
        found.append(Overload("unix_seconds", (kind,), BIGINT, _floor("{0}", _SECOND)))
    return found


def _of_decimal(kinds: Sequence[DataType]) -> DataType | None:
    kind = kinds[0]
    return TIMESTAMP if isinstance(kind, Decimal) and kind.scale <= 6 else None


def _decimal_seconds(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    kind = kinds[0]
    assert isinstance(kind, Decimal)
    digits = f"CAST(replace(CAST({args[0]} AS VARCHAR), '.', '') AS HUGEINT)"
    return f"make_timestamptz(CAST({digits} * {10 ** (6 - kind.scale)} AS BIGINT))"


def _next_day(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    wanted = _WEEKDAYS[_bare(args[1])]
    return f"({args[0]} + CAST((({wanted} - isodow({args[0]})) % 7 + 7) % 7 + 1 AS INTEGER))"


def _months_between() -> list[Overload]:

    form = f"hr_months_between(epoch_us({{0}}), epoch_us({{1}}), {{2}}, {at_zone()})"
    return [
        Overload("months_between", ("TIMESTAMP", "TIMESTAMP"), DOUBLE, form.replace("{2}", "TRUE")),
        Overload("months_between", ("TIMESTAMP", "TIMESTAMP", "BOOLEAN"), DOUBLE, form),
    ]


OVERLOADS: tuple[Overload, ...] = (
    *_parts(),
    *_steps(),
    *_makers(),
    *_months_between(),
    Overload(
        "date_trunc",
        ("STRING", "TIMESTAMP"),
        TIMESTAMP,
        lambda a, k, r: _truncate(a[0], a[1]),
        constant=(0,),
        check=_unit_of(tuple(_UNITS)),
    ),
    Overload(
        "trunc",
        ("DATE", "STRING"),
        DATE,
        lambda a, k, r: _first_day(_UNITS[_bare(a[1])], a[0]),
        constant=(1,),
        check=_unit_of(tuple(u for u in _UNITS if _UNITS[u] in _DATE_UNITS), 1),
    ),
    Overload("date_add", ("DATE", "INT"), DATE, "({0} + {1})", throws=True),
    Overload("date_sub", ("DATE", "INT"), DATE, "({0} - {1})", throws=True),
    Overload("datediff", ("DATE", "DATE"), INT, "CAST({0} - {1} AS INTEGER)"),
    Overload("add_months", ("DATE", "INT"), DATE, lambda a, k, r: add_months(a[0], a[1]), throws=True),
    Overload("last_day", ("DATE",), DATE, "last_day({0})"),
    Overload(
        "next_day",
        ("DATE", "STRING"),
        DATE,
        _next_day,
        constant=(1,),
        check=lambda args: None if _word(args[1]) in _WEEKDAYS else "this day of the week",
    ),
    Overload("make_date", ("INT", "INT", "INT"), DATE, "make_date({0}, {1}, {2})", throws=True),
    *_counts(),
    Overload("unix_date", ("DATE",), INT, lambda a, k, r: f"CAST({days_of(a[0])} AS INTEGER)"),
    Overload("date_from_unix_date", ("INT",), DATE, "(DATE '1970-01-01' + {0})", throws=True),
    Overload("timestamp_micros", ("BIGINT",), TIMESTAMP, "make_timestamptz({0})", throws=True),
    Overload("timestamp_millis", ("BIGINT",), TIMESTAMP, "make_timestamptz({0} * 1000)", throws=True),
    Overload("timestamp_seconds", ("BIGINT",), TIMESTAMP, "make_timestamptz({0} * 1000000)", throws=True),
    # NaN and the infinities become NULL. More than six digits after the point are an error in Spark.
    Overload(
        "timestamp_seconds",
        ("DOUBLE",),
        TIMESTAMP,
        f"CASE WHEN isfinite({{0}}) THEN make_timestamptz(CAST(trunc({{0}} * {_SECOND}) AS BIGINT)) END",
        throws=True,
    ),
    Overload("timestamp_seconds", ("DECIMAL",), _of_decimal, _decimal_seconds, throws=True),
    Overload("dayname", ("DATE",), STRING, "left(dayname({0}), 3)"),
    Overload("monthname", ("DATE",), STRING, "left(monthname({0}), 3)"),
    Overload(
        "from_utc_timestamp", ("TIMESTAMP", "STRING"), TIMESTAMP, "make_timestamptz(hr_local(epoch_us({0}), {1}))",
        throws=True,
    ),
    Overload(
        "to_utc_timestamp", ("TIMESTAMP", "STRING"), TIMESTAMP, "make_timestamptz(hr_instant(epoch_us({0}), {1}))",
        throws=True,
    ),
    Overload(
        "convert_timezone", ("STRING", "STRING", "TIMESTAMP_NTZ"), TIMESTAMP_NTZ,
        "make_timestamp(hr_convert(epoch_us({2}), {0}, {1}))", throws=True,
    ),
    Overload(
        "convert_timezone", ("STRING", "TIMESTAMP_NTZ"), TIMESTAMP_NTZ,
        f"make_timestamp(hr_convert(epoch_us({{1}}), {at_zone()}, {{0}}))", throws=True,
    ),
    Overload("current_timezone", (), STRING, at_zone()),
    Overload("current_timestamp", (), TIMESTAMP, _NOW, throws=True),
    Overload("current_date", (), DATE, f"CAST({_NOW_READING} AS DATE)", throws=True),
    Overload("localtimestamp", (), TIMESTAMP_NTZ, _NOW_READING, throws=True),
)  # fmt: skip
