"""Functions on dates and timestamps. TIMESTAMP is read in the session's time zone, as in Spark."""

from __future__ import annotations

from headrace.schema import BIGINT, DATE, INT, STRING, TIMESTAMP, TIMESTAMP_NTZ
from headrace.sql.functions.base import Overload

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
    Overload("date_trunc", ("STRING", "TIMESTAMP"), TIMESTAMP, "date_trunc({0}, {1})", constant=(0,)),
    Overload("date_trunc", ("STRING", "TIMESTAMP_NTZ"), TIMESTAMP_NTZ, "date_trunc({0}, {1})", constant=(0,)),
    Overload("date_add", ("DATE", "INT"), DATE, "({0} + {1})", throws=True),
    Overload("date_sub", ("DATE", "INT"), DATE, "({0} - {1})", throws=True),
    Overload("last_day", ("DATE",), DATE, "last_day({0})"),
    Overload("unix_timestamp", ("TIMESTAMP",), BIGINT, "CAST(floor(epoch_us({0}) / 1000000) AS BIGINT)"),
    Overload("unix_micros", ("TIMESTAMP",), BIGINT, "epoch_us({0})"),
    Overload("unix_millis", ("TIMESTAMP",), BIGINT, "((epoch_us({0}) - (epoch_us({0}) % 1000 + 1000) % 1000) // 1000)"),
    Overload("unix_seconds", ("TIMESTAMP",), BIGINT,
             "((epoch_us({0}) - (epoch_us({0}) % 1000000 + 1000000) % 1000000) // 1000000)"),
    Overload("timestamp_micros", ("BIGINT",), TIMESTAMP, "make_timestamptz({0})"),
    Overload("dayname", ("DATE",), STRING, "left(dayname({0}), 3)"),
    Overload("monthname", ("DATE",), STRING, "left(monthname({0}), 3)"),
)  # fmt: skip
