"""Arrow values as Python values, also times that Python's types cannot hold: those become texts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

_TOO_FAR = (ValueError, OverflowError)  # Python's dates and times have the years 1 to 9999


def python_values(column: Any) -> list[Any]:
    """The values of an Arrow array. A time that Python cannot hold is a text such as 12024-01-02T00:00:00."""
    try:
        return list(column.to_pylist())
    except _TOO_FAR:
        return [python_value(value) for value in column]


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table, with values as in `python_values`."""
    columns = [python_values(column) for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def python_value(value: pa.Scalar[Any]) -> Any:
    """A scalar as a Python value, or as a text: see `python_values`."""
    try:
        return value.as_py()
    except _TOO_FAR:
        return _far(value)


def time_text(value: datetime) -> str:
    """A time as the jsonl sink writes it, and as Spark does in JSON: in UTC, with milliseconds, or with microseconds if
    it has any. A time without a zone has none here.

    >>> time_text(datetime(2026, 1, 1, 12, tzinfo=UTC)), time_text(datetime(2026, 1, 1, 12, 0, 0, 5))
    ('2026-01-01T12:00:00.000Z', '2026-01-01T12:00:00.000005')
    """
    digits = "microseconds" if value.microsecond % 1000 else "milliseconds"
    if value.tzinfo is None:
        return value.isoformat(timespec=digits)
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=digits) + "Z"


def with_time_texts(value: Any) -> Any:
    """A value whose times, also those in lists and structs, are texts.

    >>> with_time_texts({"start": datetime(2026, 1, 1, 12, tzinfo=UTC), "days": [1]})
    {'start': '2026-01-01T12:00:00.000Z', 'days': [1]}
    """
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, dict):
        return {name: with_time_texts(v) for name, v in value.items()}
    return type(value)(map(with_time_texts, value)) if isinstance(value, list | tuple) else value


def _far(value: Any) -> Any:
    kind = value.type
    if pa.types.is_timestamp(kind):
        return f"{np.datetime64(value.value, kind.unit)}" + ("" if kind.tz is None else "Z")
    if pa.types.is_date(kind):
        return str(np.datetime64(value.value, "D"))
    if pa.types.is_struct(kind):
        return {name: python_value(value[name]) for name in value}
    if pa.types.is_map(kind):
        return [(python_value(entry[0]), python_value(entry[1])) for entry in value.values]
    return [python_value(item) for item in value.values]
