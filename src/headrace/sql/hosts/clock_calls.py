"""Calls of the clock in a query that Spark runs. Literals replace them: the clock that was logged for the epoch.

So all rows of an epoch see one time, and a re-run of the epoch sees the same time again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta

from headrace.exec.kernels.session_zone import reading_of
from headrace.sql.hosts.text_edits import Edit
from headrace.sql.parse.dialect import Token

ClockCall = tuple[int, int, str]
"""A call of a clock: its range in the text, and its name."""

_CLOCKS = (
    "current_timestamp", "now", "current_date", "curdate", "localtimestamp", "unix_timestamp", "current_time",
    "localtime",
)  # fmt: skip
_TIMES_OF_DAY = ("current_time", "localtime")  # may have a number of digits
# Literals that read the clock, as in DATE 'today'.
_TYPED = ("date", "timestamp", "timestamp_ltz", "timestamp_ntz")
_DAYS = {"today": 0, "tomorrow": 1, "yesterday": -1}
BARE_CLOCKS = ("current_timestamp", "current_date", "current_time", "localtime")  # may stand without parentheses


def clock_calls(tokens: Sequence[Token], columns: Collection[str], start: int = 0) -> tuple[ClockCall, ...]:
    """The calls of a clock among the tokens. Positions count from `start`. A column of the stream with such a name
    hides the clock, as in Spark."""
    hidden = {name.lower() for name in columns}
    found: list[ClockCall] = []
    for i, token in enumerate(tokens):
        name = token.upper.lower()
        following = tokens[i + 1] if i + 1 < len(tokens) else token
        word = following.text.strip().lower() if following.kind == "string" else ""
        if token.kind == "word" and name in _TYPED and (word == "now" or word in _DAYS):
            found.append((token.start - start, following.end - start, f"{name} {word}"))
            continue
        before = tokens[i - 1].upper if i else ""
        if token.kind != "word" or name not in _CLOCKS or before in (".", "AS"):
            continue
        called = [t.upper for t in tokens[i + 1 : i + 3]] == ["(", ")"]
        digits = tokens[i + 2].text if len(tokens) > i + 3 and tokens[i + 3].upper == ")" else ""
        if called:
            found.append((token.start - start, tokens[i + 2].end - start, name))
        elif name in _TIMES_OF_DAY and following.upper == "(" and digits.isdigit():
            found.append((token.start - start, tokens[i + 3].end - start, f"current_time {digits}"))
        elif name in BARE_CLOCKS and following.upper not in ("(", ".") and name not in hidden:
            found.append((token.start - start, token.end - start, name))
    return tuple(found)


def clock_edits(clocks: Sequence[ClockCall], now: int, time_zone: str) -> list[Edit]:
    """The literal that replaces each call. `now` is in microseconds since 1970, and `time_zone` that of the session."""
    return [(start, end, _literal(name, now, time_zone)) for start, end, name in clocks]


def _literal(name: str, now: int, time_zone: str) -> str:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=now)
    instant = f"TIMESTAMP_LTZ '{at:%Y-%m-%d %H:%M:%S.%f}+00:00'"
    if name in ("current_date", "curdate"):
        return f"CAST({instant} AS DATE)"
    if name == "localtimestamp":
        return f"CAST({instant} AS TIMESTAMP_NTZ)"
    first, _, word = name.partition(" ")
    if first in _TIMES_OF_DAY:
        refused = f"CAST(CAST({instant} AS TIMESTAMP_NTZ) AS TIME({word or 6}))"
        return _time_of_day(now, time_zone, int(word or 6)) or refused
    if name == "unix_timestamp":
        return f"CAST({now // 1_000_000} AS BIGINT)"
    if first == "date" or word in _DAYS:
        instant = f"date_add(CAST({instant} AS DATE), {_DAYS.get(word, 0)})"
    return f"CAST({instant} AS {first.upper()})" if word else instant


def _time_of_day(now: int, time_zone: str, digits: int) -> str:
    """A literal of the type TIME: without a setting, Spark refuses casts to it. Empty if there is none, because the
    zone is not known here or Spark has no such number of digits."""
    reading = reading_of(now, time_zone)
    if reading is None or digits > 6:
        return ""
    shown = f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=reading):%H:%M:%S.%f}"
    return f"TIME '{shown[: len(shown) - 6 + digits].rstrip('.')}'"
