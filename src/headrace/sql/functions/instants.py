"""DuckDB SQL for dates and timestamps: between instants and local times of the session time zone, and as texts.

DuckDB's own conversions differ from Java's when the clock goes back, and before 1900, so kernels convert. The names
`hr_reading`, `hr_moment` and `hr_days_later` are macros of each connection: see `headrace.exec.kernels.session_zone`.
"""

from __future__ import annotations

import re

# A pattern of the dates that DuckDB and Spark read alike, if they exist.
DATE_TEXT = "[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}"
# A column or a number. Everything else is written once, because its text may be long and its value costly.
_PLAIN = re.compile(r'(?:"[^"]*"|\w+)(?:\."[^"]*"|\.\w+)*|-?\d+')


def at_zone() -> str:
    """The session time zone."""
    return "current_setting('TimeZone')"


def in_zone(text: str) -> str:
    """The wall-clock reading (TIMESTAMP_NTZ) of an instant."""
    return f"make_timestamp(hr_reading(epoch_us({text})))"


def instant_of(text: str) -> str:
    """The instant of a wall-clock reading."""
    return f"make_timestamptz(hr_moment(epoch_us({text})))"


def to_instant(micros: str) -> str:
    """The instant of microseconds since 1970."""
    return f"make_timestamptz({micros})"


def to_date(days: str) -> str:
    """The date of days since 1970."""
    return f"(DATE '1970-01-01' + CAST({days} AS INTEGER))"


def days_of(text: str) -> str:
    """The days since 1970 of a date."""
    return f"({text} - DATE '1970-01-01')"


def is_plain(*texts: str) -> bool:
    """True for columns and numbers, which may be written several times: others would grow with every nested call."""
    return all(_PLAIN.fullmatch(text) for text in texts)


def micros_of_seconds(text: str) -> str:
    """Seconds of up to DECIMAL(18,6) as microseconds. Six times as fast as with 128 bits. Without CASE: when it plans,
    DuckDB computes a condition that is constant, and `text` may be a constant that fails."""
    fraction = f"CAST(CAST({text} - trunc({text}) AS DOUBLE) * {10**6} AS BIGINT)"
    return f"(CAST(trunc({text}) AS BIGINT) * {10**6} + {fraction})"


def add_months(date: str, count: str) -> str:
    """The same day of another month, or its last day. DuckDB adds months to a timestamp, which ends in year 294246."""
    far = to_date(f"hr_date_add_months({days_of(date)}, {count})")
    if not is_plain(date, count):
        return far
    near = f"year({date}) BETWEEN -200000 AND 200000"
    if not count.removeprefix("-").isdecimal() or abs(int(count)) > 1_000_000:
        near += f" AND {count} BETWEEN -1000000 AND 1000000"
    return f"CASE WHEN {near} THEN CAST({date} + to_months({count}) AS DATE) ELSE {far} END"


def date_text(text: str) -> str:
    """A date as text. Years outside 1 to 9999 have a sign, or are 0000."""
    return (
        f"CASE WHEN {text} BETWEEN DATE '0001-01-01' AND DATE '9999-12-31' THEN CAST({text} AS VARCHAR) "
        f"ELSE hr_date_text({days_of(text)}) END"
    )


def moment_text(text: str) -> str:
    """A wall-clock reading as text."""
    return (
        f"CASE WHEN {text} BETWEEN TIMESTAMP '0001-01-01' AND TIMESTAMP '9999-12-31 23:59:59.999999' "
        f"THEN CAST({text} AS VARCHAR) ELSE hr_moment_text(epoch_us({text})) END"
    )
