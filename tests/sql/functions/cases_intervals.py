"""Cases for computed intervals: differences, sums, multiples, parts and texts."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

_STAMPS, _DATES, _READINGS = ("TIMESTAMP", "TIMESTAMP"), ("DATE", "DATE"), ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ")
_MADE = "make_dt_interval(a, 5, -3, 1.5)"
_MONTHS = "make_ym_interval(a, 5)"
_LITERALS = (
    "INTERVAL '1' DAY", "INTERVAL 2 MONTHS", "INTERVAL 3 YEARS", "INTERVAL '90' MINUTE", "INTERVAL '1.5' SECOND",
    "INTERVAL 3 MILLISECONDS", "INTERVAL 1 WEEK 3 HOURS", "INTERVAL '1 hour 30 minutes'", "INTERVAL 1 DAY 3 SECONDS",
    "INTERVAL '-1-2' YEAR TO MONTH", "INTERVAL '1 2' DAY TO HOUR", "INTERVAL '1 2:3' DAY TO MINUTE",
    "INTERVAL '-1 2:03:04.000001' DAY TO SECOND", "INTERVAL '2:3' HOUR TO MINUTE", "INTERVAL '2:3:4.5' HOUR TO SECOND",
    "INTERVAL '100:4' MINUTE TO SECOND",
)  # fmt: skip
_TEXT = "interval text(BIGINT, STRING)"
_DT, _YM = "make_dt_interval(INT, INT, INT, DECIMAL)", "make_ym_interval(INT, INT)"


def _cases() -> Iterator[tuple[str, tuple[str, ...], str]]:
    for kinds in (_STAMPS, _DATES, _READINGS, ("TIMESTAMP", "DATE")):
        yield _TEXT, kinds, "CAST(a - b AS STRING)"
        yield _TEXT, kinds, "CAST(-(a - b) AS STRING)"
        yield _TEXT, kinds, "string(a - b + (b - a))"
        yield "interval divided(BIGINT, BIGINT)", kinds, "string((a - b) / 7)"
        yield "*(BIGINT, BIGINT)", kinds, "string(2 * (b - a))"
        yield "timestampadd(STRING, BIGINT, TIMESTAMP)", kinds, "b + (a - b)"
        yield "timestampadd(STRING, BIGINT, TIMESTAMP)", kinds, "a - (a - b) / 3"
        for part in ("day", "hour", "minute", "second"):
            unit = f"extract({part} FROM a - b)"
            if part == "day" or kinds != _DATES:
                yield "interval seconds(DECIMAL)" if part == "second" else "div(BIGINT, BIGINT)", kinds, unit
        yield "<(BIGINT, BIGINT)", kinds, "(a - b < INTERVAL 36 HOURS + (b - a))"
        yield "=(BIGINT, BIGINT)", kinds, "(CASE WHEN a > b THEN a - b ELSE INTERVAL 1 DAY END = a - b)"
    for literal in _LITERALS:
        yield _TEXT, ("TIMESTAMP",), f"string({literal})"
        yield "timestampadd(STRING, BIGINT, TIMESTAMP)", ("TIMESTAMP",), f"a + {literal}"
    yield _TEXT, ("TIMESTAMP",), "string(INTERVAL '1' DAY + INTERVAL 2 HOURS)"
    for unit in ("'3' DAY", "'36' HOUR", "'-7' MINUTE", "'5' YEAR", "'14' MONTH"):
        yield "cast(BIGINT -> INT)", ("TIMESTAMP",), f"CAST(INTERVAL {unit} AS INT)"
    yield "cast(BIGINT -> INT)", _DATES, "CAST(a - b AS INT)"
    for text in (_MADE, "make_dt_interval(a)", "make_dt_interval(1, a, a, 59.999999)", "make_dt_interval()"):
        yield _DT, ("SMALL INT",), f"string({text})"
    for kind in ("TIMESTAMP", "TIMESTAMP_NTZ", "DATE"):
        yield _DT, ("SMALL INT", kind), f"b + {_MADE}"
        yield _YM, ("SMALL INT", kind), f"b - {_MONTHS}"
    for text in (_MONTHS, "make_ym_interval(a)", "make_ym_interval(1, a)", f"3 * {_MONTHS}", f"{_MONTHS} / 5"):
        yield _YM, ("SMALL INT",), f"string({text})"
    for part in ("year", "month"):
        yield _YM, ("SMALL INT",), f"extract({part} FROM {_MONTHS})"
    yield _YM, ("SMALL INT",), f"({_MONTHS} > INTERVAL 1 YEAR)"
    for kind in ("INT", "BIGINT"):  # also beyond the last timestamp
        for unit in ("DAY", "WEEK", "MONTH", "YEAR"):
            yield f"timestampadd(STRING, {kind}, TIMESTAMP)", ("TIMESTAMP", kind), f"timestampadd({unit}, b, a)"
    yield "add_months(DATE, INT)", ("DATE", "INT"), "add_months(a, b)"
    yield "+(DATE, INTERVAL MONTH)", ("DATE",), "add_months(a, 60000000) - INTERVAL 14 MONTHS"
    yield "add_months(DATE, INT)", ("DATE", "SMALL INT"), "add_months(add_months(a, b * 60000), b)"
    yield _DT, ("INT",), "string(make_dt_interval(a, a))"
    yield _YM, ("INT",), "string(make_ym_interval(a, a))"
    yield _DT, ("INT",), "string(make_dt_interval(2147483647, a))"  # overflows, but not beside a NULL
    for text in ("106751992, 0, 0, b", "a, 0, nullif(0, 0), b", "a, b, a", "nullif(a, a), 2147483647, 2147483647, b"):
        yield _DT, ("INT", "DECIMAL(18,6)" if text.endswith(" b") else "INT"), f"string(make_dt_interval({text}))"
    for operator in ("+", "-"):
        for kind in ("TIMESTAMP", "TIMESTAMP_NTZ"):
            yield _DT, ("DECIMAL(18,6)", kind), f"b {operator} make_dt_interval(-106751992, 0, 0, a)"
    yield _DT, ("DECIMAL(18,6)",), "(make_dt_interval(106751992, 0, 0, a) > INTERVAL 1 DAY)"
    yield _YM, ("INT",), "string(make_ym_interval(2147483647, a))"


def _under_their_own_names() -> Iterator[tuple[str, tuple[str, ...], str]]:
    for kind in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        yield f"time plus interval({kind}, BIGINT)", (kind, kind), "b + (a - b)"
        yield f"time plus interval({kind}, INT)", ("SMALL INT", kind), f"b - {_MONTHS}"
    yield "time minus time(TIMESTAMP, TIMESTAMP)", _STAMPS, "CAST(b - a AS STRING)"
    yield "time minus time(TIMESTAMP, TIMESTAMP)", ("TIMESTAMP", "DATE"), "CAST(b - a AS STRING)"


def _calendar_intervals() -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Times plus and minus make_interval: over columns, and from literals in years 1 and 9999 and at the changes of the
    clock."""
    for maker in ("make_interval", "try_make_interval"):
        for kind in ("TIMESTAMP", "TIMESTAMP_NTZ", "DATE"):
            for operator, word in (("+", "plus"), ("-", "minus")):
                key = f"time {word} {maker}({kind}, INT, INT, INT, INT, INT, INT, DECIMAL)"

                def moved(given: str, time: str = "a", by: str = f"{operator} {maker}") -> str:
                    return f"{time} {by}({given})"

                if maker == "make_interval":
                    yield key, (kind,), moved("")
                for given in ("b", "b, c", "0, 0, b, c", "1, b, 2, c", "300000, -3600000, 0, b", "0, 0, 0, 0, b, c"):
                    yield key, (kind, "SMALL INT", "SMALL INT"), moved(given)
                    if kind != "DATE" or given not in _BEYOND_DATES:
                        yield key, (kind, "INT", "INT"), moved(given)
                for given in ("c, b, c, b, c, b, -1.5", "0, b, 0, c, c", "0, b, 0, c, 0, b, '0.000001'"):
                    yield key, (kind, "SMALL INT", "SMALL INT"), moved(given)
                yield key, (kind, "SMALL INT", "DECIMAL(18,6)"), moved("0, b, 0, b, 2147483647, 2147483647, c")
                yield key, (kind, "SMALL INT", "DECIMAL(18,6)"), moved("2147483647, b, 0, 0, 0, 0, c")
                yield key, (kind, "INT"), moved("0, 0, 0, 0, b, -60")
                yield key, (kind, "INT"), moved("0, 0, b, 7")
                yield key, (kind, "BIGINT", "STRING"), moved("b, c")
                for given in ("178956971, -100 + b", "0, -2147483648, b", "0, 0, 306783379, -3 + b", "0, b, NULL"):
                    yield key, (kind, "SMALL INT"), moved(given)
                for time in _BOUNDS if kind != "DATE" else ("0001-01-31", "9999-12-31", "2023-12-31"):
                    yield key, ("SMALL INT", "SMALL INT"), moved("0, a, 0, b", f"{kind} '{time}'")
                    if kind != "DATE":
                        yield key, ("SMALL INT", "SMALL INT"), moved("0, a, 0, 0, b, a, b", f"{kind} '{time}'")
            sum_key = f"time plus {maker}({kind}, INT, INT, INT, INT, INT, INT, DECIMAL)"
            yield sum_key, (kind, "SMALL INT", "SMALL INT"), f"{maker}(0, b, 0, c) + a"


_BOUNDS = (
    "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "2024-02-10 02:30:00", "2024-02-09 02:30:00",
    "2024-10-03 01:30:00", "2024-10-03 02:30:00", "1883-11-17 12:00:00",
)  # fmt: skip
# With large numbers: DuckDB has no place for Spark's two last dates.
_BEYOND_DATES = ("0, 0, b, c", "300000, -3600000, 0, b")

_DAY_TIME = (
    "DAY", "DAY TO HOUR", "DAY TO MINUTE", "DAY TO SECOND", "HOUR", "HOUR TO MINUTE", "HOUR TO SECOND", "MINUTE",
    "MINUTE TO SECOND", "SECOND",
)  # fmt: skip
_YEAR_MONTH = ("YEAR", "YEAR TO MONTH", "MONTH")
_BIG = {"micros": "36 HOURS", "months": "5 YEARS"}
_BODIES = (
    "1", "007", "-1", "+1", "|1", "-|1", "--1", "- 1", "1.5", "-1.5", "-0.5", "+0.000001", "0.0000019", "1.", ".5",
    "1.1234567890", "1.123456789", "-1.999999999", "59", "60", "23", "24", "1e3", "999999999", "1234567890",
    "-9999999999", "999999999999", "1000000000000", "9223372036854", "-9223372036854", "9223372036854.775807",
    "9223372036854.775808", "-9223372036854.775808", "-9223372036854.775809", "9223372036855", "9999999999999.9",
    "12345678901234", "178956970", "178956971", "-178956971", "2147483647", "2147483648", "-2147483648",
    "-2147483649", "1537228672809129302", "768614336404564650", "-768614336404564651", "9223372036854775807",
    "9223372036854775808", "1537228672988086272", "-1537228672988086272", "3074457345439301632",
    "-3074457345439301632", "0" * 5000 + "7", "9" * 5000, "1-2", "-1-2", "1-02",
    "1-11", "1-12", "1--2", "178956970-7", "178956970-8",
    "-178956970-8", "-178956970-9", "178956971-0", "99999999999999999999-1", "0-0", "1-99999999999999999999",
    "1 2", "-1 2", "1  2", "1 23", "1 24", "1\t2", "1 2:3", "1 23:59", "1 24:00", "1 2:60", "1 2:3:4", "-1 2:3:4.5",
    "1 02:03:04.123456789", "1 02:03:04.1234567891", "1 02:03:04.", "1 02:03:60", "1 2:3:4.000000999", "1 2:03",
    "1 2:003", "1T2:03:04", "106751991 04:00:54.775807", "106751991 04:00:54.775808", "-106751991 04:00:54.775808",
    "-106751991 04:00:54.775809", "106751992 00:00:00", "106751991 5", "106751991 4:01", "999999999 0",
    "1000000000 0", "2:3", "100:04", "100:4", "02:03:04", "2:3:4.5", "-2:03:04.5", "2562047788:00:54.775807",
    "2562047788:00:54.775808", "2562047788:0", "2562047788:1", "2562047789:0", "-2562047788:00:54.775808",
    "99999999999:0", "153722867280:54.775807", "153722867280:54.775808", "-153722867280:54.775808",
    "153722867281:0", "1000000000000:0", "100:59.9", "100:60", "-0:0.5", "\u0661", "1 day", "",
)  # fmt: skip
# The edges of texts of intervals: each body alone, and in a literal of some unit.
EDGES: dict[str, list[Any]] = {
    "SMALL STRING  ": [
        None, *_BODIES, " ", "x", " 1 ", "\t-1\n", "\x001 2:3\x7f", "\u00a01", "1\u2003", "INTERVAL", "interval '1'",
        "INTERVAL '1 2:3:4' DAY TO  SECOND", "interval\t-'-1 2:3:4.5'\nday to second", "INTERVAL'1' DAY",
        "INTERVAL '1'DAY", "INTERVAL - '1' DAY", "INTERVAL +'1' day", "INTERVAL |'-1' DAY", "INTERVAL '1' DAYS",
        "INTERVAL 1 DAY", "INTERVAL ' 1' DAY", "INTERVAL \"1\" DAY", " INTERVAL '1' DAY ",
        "INTERVAL  '1-2' YEAR TO MONTH",
        "INTERVAL -'-178956970-8' YEAR TO MONTH", "INTERVAL '-178956970-8' YEAR TO MONTH", "\u0131nterval '1' DAY",
        *(f"INTERVAL '{body}' {unit}" for unit in (*_DAY_TIME, *_YEAR_MONTH)
          for body in ("1", "-1.5", "1 2", "1 2:3", "1 2:3:4.5", "2:3", "2:3:4", "-1-2", "999999999")),
    ],
    "DECIMAL(23,17)": [None, *map(Decimal, (
        "0", "0.5", "-0.5", "0.0000005", "-0.0000005", "0.00000049999999999", "0.125", "0.04166666666666667",
        "0.04166666666666666", "999999.99999999999999999", "-1.00000578703703703",
    ))],
}  # fmt: skip


def _casts() -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Casts of texts and decimals to intervals, and of intervals to numbers."""
    for units, name in ((_DAY_TIME, "micros"), (_YEAR_MONTH, "months")):
        for unit in units:
            yield f"interval {name}(STRING, STRING)", ("SMALL STRING  ",), f"string(CAST(a AS INTERVAL {unit}))"
            yield f"try interval {name}(STRING, STRING)", ("SMALL STRING  ",), f"string(TRY_CAST(a AS INTERVAL {unit}))"
            for kind in ("DECIMAL(10,2)", "DECIMAL(5,1)", "DECIMAL(3,0)", "DECIMAL(18,6)", "DECIMAL(23,17)", "BIGINT"):
                for word in ("CAST", "TRY_CAST"):
                    yield "cast(DECIMAL -> BIGINT)", (kind,), f"string({word}(a AS INTERVAL {unit}))"
                    # the part that the text does not show
                    yield (
                        "cast(DECIMAL -> BIGINT)",
                        (kind,),
                        f"({word}(a AS INTERVAL {unit}) * 1000 < INTERVAL {_BIG[name]})",
                    )
    for kind in ("DECIMAL(38,0)", "DECIMAL(38,18)"):
        for word in ("CAST", "TRY_CAST"):
            yield "cast(DECIMAL -> INT)", (kind,), f"string({word}(a AS INTERVAL MONTH))"
    day_time = "timestamp_micros(a % 100000000000) - timestamp_micros(0)"
    for target in ("DECIMAL(38,6)", "DECIMAL(10,2)", "DECIMAL(5,0)", "DECIMAL(6,6)", "TINYINT", "SMALLINT", "INT"):
        for word in ("CAST", "TRY_CAST"):
            for unit in _DAY_TIME:
                part = f"CAST({day_time} AS INTERVAL {unit})"
                yield "cast(BIGINT -> DECIMAL)", ("BIGINT",), f"{word}({part} AS {target})"
            for unit in _YEAR_MONTH:
                part = f"CAST(make_ym_interval(0, a) AS INTERVAL {unit})"
                yield "cast(BIGINT -> DECIMAL)", ("INT",), f"{word}({part} AS {target})"
    for unit in _DAY_TIME:
        yield (
            "interval micros(STRING, STRING)",
            ("TIMESTAMP", "STRING"),
            f"a + CAST('1' AS INTERVAL DAY) - TRY_CAST(b AS INTERVAL {unit})",
        )
    yield "interval months(STRING, STRING)", ("DATE",), "a + CAST('1-2' AS INTERVAL YEAR TO MONTH)"
    for kind in ("DATE", "TIMESTAMP"):
        for unit in ("DAY", "HOUR TO SECOND", "MONTH"):
            yield "cast(BIGINT -> INT)", (kind,), f"a + CAST(NULL AS INTERVAL {unit})"
            yield "cast(BIGINT -> INT)", (kind,), f"string(TRY_CAST(NULL AS INTERVAL {unit}))"
    for expression in ("CAST(1.75BD AS INTERVAL DAY)", "CAST(CAST(1.75BD AS INTERVAL DAY) AS INTERVAL HOUR)"):
        yield "cast(DECIMAL -> BIGINT)", ("DATE",), f"a + {expression}"
        yield "cast(DECIMAL -> BIGINT)", ("TIMESTAMP",), f"a + {expression}"


# The entry, the types of the columns a, b, ..., and the expression.
CASES: list[tuple[str, tuple[str, ...], str]] = [
    *_cases(),
    *_under_their_own_names(),
    *_calendar_intervals(),
    *_casts(),
]
