"""Functions on dates and timestamps. A TIMESTAMP is interpreted in the session time zone, as in Spark."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headrace.model.schema import BIGINT, DATE, INT, STRING, TIMESTAMP
from headrace.sql.functions.overload import Overload
from headrace.sql.plan.expr import Expr, Literal

_PARTS = {
    "year": "year({0})",
    "quarter": "quarter({0})",
    "month": "month({0})",
    "day": "day({0})",
    "dayofweek": "dayofweek({0}) + 1",
    "weekday": "isodow({0}) - 1",
    "dayofyear": "dayofyear({0})",
    "weekofyear": "week({0})",
}
_CLOCK = {"hour": "hour({0})", "minute": "minute({0})", "second": "second({0})"}
_UNITS = {
    "year": "year", "yyyy": "year", "yy": "year", "quarter": "quarter", "month": "month", "mon": "month", "mm": "month",
    "week": "week", "day": "day", "dd": "day", "hour": "hour", "minute": "minute", "second": "second",
    "millisecond": "millisecond", "microsecond": "microsecond",
}  # fmt: skip


_LETTERS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}


def _unit(argument: Expr) -> str:
    return str(argument.value).lower() if isinstance(argument, Literal) else ""


def _truncate(quoted: str, text: str) -> str:
    """Truncates an instant to a unit below a day. An hour that occurs twice keeps its two instants."""
    unit = _UNITS[quoted.strip("'").lower()]
    if unit in ("year", "quarter", "month", "week", "day"):
        return f"date_trunc('{unit}', {text})"
    clock = f"CAST({text} AS TIMESTAMP)"
    return f"make_timestamptz(epoch_us({text}) - (epoch_us({clock}) - epoch_us(date_trunc('{unit}', {clock}))))"


def _strftime(pattern: str) -> str | None:
    """Translates a Java date pattern: four-digit years, two-digit parts, and the text between them."""
    found = [_LETTERS.get(p) if p.isalpha() else p for p in re.findall(r"[A-Za-z]+|[^A-Za-z]+", pattern)]
    known = [f for f in found if f is not None]
    return None if len(known) < len(found) or set(pattern) & set("'%[]#{}") else "".join(known)


def _formatted(quoted: str, text: str) -> str:
    pattern = _strftime(quoted[1:-1])
    assert pattern is not None, "checked when the call was bound"
    return f"strftime(CAST({text} AS TIMESTAMP), '{pattern}')"


def _check_pattern(args: Sequence[Expr]) -> str | None:
    pattern = args[1].value if isinstance(args[1], Literal) else None
    known = isinstance(pattern, str) and pattern and _strftime(pattern) is not None
    return None if known else "a pattern with letters other than yyyy, MM, dd, HH, mm and ss"


def _floor(text: str, unit: int) -> str:
    """The number of whole units up to an instant, rounded down, also before 1970."""
    return f"((epoch_us({text}) - (epoch_us({text}) % {unit} + {unit}) % {unit}) // {unit})"


def _parts() -> list[Overload]:
    found: list[Overload] = []
    for name, text in _PARTS.items():
        for kind in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"):
            found.append(Overload(name, (kind,), INT, f"CAST({text} AS INTEGER)"))
    for name, text in _CLOCK.items():
        for kind in ("TIMESTAMP", "TIMESTAMP_NTZ"):
            found.append(Overload(name, (kind,), INT, f"CAST({text} AS INTEGER)"))
    return found


OVERLOADS: tuple[Overload, ...] = (
    *_parts(),
    Overload(
        "date_trunc",
        ("STRING", "TIMESTAMP"),
        TIMESTAMP,
        lambda a, k, r: _truncate(a[0], a[1]),
        constant=(0,),
        check=lambda args: None if _unit(args[0]) in _UNITS else "this unit",
    ),
    *(
        Overload(
            "date_format",
            (kind, "STRING"),
            STRING,
            lambda a, k, r: _formatted(a[1], a[0]),
            constant=(1,),
            check=_check_pattern,
        )
        for kind in ("TIMESTAMP", "DATE")
    ),
    Overload("date_add", ("DATE", "INT"), DATE, "({0} + {1})", throws=True),
    Overload("date_sub", ("DATE", "INT"), DATE, "({0} - {1})", throws=True),
    Overload("datediff", ("DATE", "DATE"), INT, "CAST({0} - {1} AS INTEGER)"),
    Overload("last_day", ("DATE",), DATE, "last_day({0})"),
    # Spark truncates towards zero here, and rounds down in unix_seconds.
    Overload("unix_timestamp", ("TIMESTAMP",), BIGINT, "((epoch_us({0}) - epoch_us({0}) % 1000000) // 1000000)"),
    Overload("unix_micros", ("TIMESTAMP",), BIGINT, "epoch_us({0})"),
    Overload("unix_millis", ("TIMESTAMP",), BIGINT, lambda a, k, r: _floor(a[0], 1000)),
    Overload("unix_seconds", ("TIMESTAMP",), BIGINT, lambda a, k, r: _floor(a[0], 1_000_000)),
    Overload("timestamp_micros", ("BIGINT",), TIMESTAMP, "make_timestamptz({0})", throws=True),
    Overload("dayname", ("DATE",), STRING, "left(dayname({0}), 3)"),
    Overload("monthname", ("DATE",), STRING, "left(monthname({0}), 3)"),
)
