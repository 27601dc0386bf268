"""Edge values of every type, for comparing the two engines."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.model.schema import Array, DataType, Map, Struct, parse_type
from tests.sql.functions import cases_documents, cases_intervals, cases_times

NAN, INF = float("nan"), float("inf")


def _utc(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


# Times are in New York, so these instants surround its changes to and from summer time.
_INSTANTS = [
    "1970-01-01 00:00:00", "1969-12-31 23:59:59.999999", "2024-03-10 06:59:59.999999", "2024-03-10 07:00:00",
    "2024-11-03 05:30:00", "2024-11-03 06:30:00", "2024-02-29 12:34:56.789012", "2023-12-31 23:59:59.5",
    "2000-01-01 04:59:59", "1950-06-15 12:00:00.000001", "2100-03-01 00:00:00",
]  # fmt: skip
_READINGS = [*_INSTANTS, "2024-03-10 02:30:00", "2024-11-03 01:30:00"]

VALUES: dict[str, list[Any]] = {
    "BOOLEAN": [None, True, False],
    "TINYINT": [None, 0, 1, -1, 5, 127, -128],
    "SMALLINT": [None, 0, 1, -1, 300, 32767, -32768],
    "INT": [None, 0, 1, -1, 3, -7, 1000, 2**31 - 1, -(2**31)],
    "BIGINT": [None, 0, 1, -1, 10**12, -(10**12) - 7, 2**53 + 1, 2**63 - 1, -(2**63)],
    "FLOAT": [None, 0.0, -0.0, 1.5, -2.5, 2.5, 0.10000000149011612, NAN, INF, -INF, 3.4028234663852886e38, 1e-45],
    "DOUBLE": [
        None, 0.0, -0.0, 0.5, 1.0, -1.0, 1.5, -2.5, 2.5, 0.1, -0.49999999999999994, NAN, INF, -INF, 1e308, -1e308,
        5e-324, 2.0**53 + 2, 2.0**63, -(2.0**63), 2147483647.9, 3.5e38, 123456.789,
        2.675, 1.005, -0.015, 1e-7, 12345678901234.567, 0.30000000000000004,
    ],
    "STRING": [
        None, "", " ", "a", "A", "abc", "ABC", "abcabc", "  padded  ", "héllo wörld",
        "日本語テキスト", "😀x😀", "a%b_c\\d",
        "a.b*c", "x" * 3000, "12", "-7", "+7", " 8 ", "1.5", "1e3", "0x10", "1_000", "true", "F", "YES", "NaN",
        "-Infinity", "inf", "1.5d", "2024-02-30", "2024-01-31", "2024-1-5", "2024", "2024-01-31T10:00:00",
        "99999999999",
        "9223372036854775808", "\t12\n", "ß", "it's", "a\nb",
        "e\u0301a", "👩\u200d👧b",
    ],
    "BINARY": [None, b"", b"abc", b"\x00\xff", "é".encode()],
    "DATE": [
        None, *(dt.date.fromisoformat(d) for d in (
            "1970-01-01", "1969-12-31", "2024-02-29", "2023-12-31", "2024-12-30", "2000-01-01", "1900-03-01",
            "1582-10-10", "0001-01-01", "9999-12-31", "2021-01-03", "2024-03-10",
        )),
    ],
    "TIMESTAMP": [None, *map(_utc, _INSTANTS)],
    "TIMESTAMP_NTZ": [None, *map(dt.datetime.fromisoformat, _READINGS)],
}  # fmt: skip

# Counts that neither wrap around the calendar nor fill the memory.
VALUES["ARRAY<STRING>"] = [None, [], ["a"], ["a", None, "b"]]
VALUES["MAP<STRING, INT>"] = [None, [], [("a", 1)], [("a", None), ("b", 2)]]
VALUES["STRUCT<x: INT, y: STRING>"] = [None, {"x": 1, "y": "a"}, {"x": None, "y": None}]
VALUES["SMALL BIGINT"] = [None, 0, 1, -1, 999_999, -1_000_001, 1_709_999_999_123_456]
VALUES["SMALL INT"] = [None, 0, 1, -1, 3, -2, 31, -365, 1000]

VALUES.update(cases_times.EDGES)
VALUES.update(cases_documents.EDGES)
VALUES.update(cases_intervals.EDGES)

_DECIMALS: dict[str, list[str]] = {
    "DECIMAL(10,2)": ["0.00", "0.01", "-0.01", "1.25", "2.50", "-2.50", "2.55", "99999999.99", "-99999999.99"],
    "DECIMAL(5,1)": ["0.0", "0.5", "-0.5", "3.0", "9999.9", "-9999.9"],
    "DECIMAL(3,0)": ["0", "1", "-3", "999", "-999"],
    "DECIMAL(18,6)": ["0.000000", "0.000001", "-1.500000", "999999999999.999999", "-999999999999.999999"],
    "DECIMAL(38,18)": [
        "0",
        "1.5",
        "-0.000000000000000001",
        "99999999999999999999.999999999999999999",
        "3.333333333333333333",
    ],
    "DECIMAL(38,0)": ["0", "1", "-1", "9" * 38, "-" + "9" * 38],
}
DECIMAL_TYPES = tuple(_DECIMALS)


# Elements of arrays: few, and of several kinds.
_ELEMENTS: dict[str, list[Any]] = {
    "STRING": ["b", "a", "", "é😀", "it's"],
    "DOUBLE": [1.5, 0.0, -0.0, NAN, -INF],
    "FLOAT": [1.5, 0.0, -0.0, NAN, -INF],
    "INT": [3, 0, -7, 2**31 - 1, -(2**31)],
}


def values_of(kind: str) -> list[Any]:
    """The edge values of a type, NULL among them."""
    if kind in _DECIMALS:
        return [None, *map(Decimal, _DECIMALS[kind])]
    if kind not in VALUES:
        return _nested_values(parse_type(kind))
    return VALUES[kind]


def _nested_values(kind: DataType) -> list[Any]:
    """Edge values of a nested type: NULL, nothing inside, NULL inside, duplicates, and several orders."""
    if isinstance(kind, Array):
        found = _elements(kind.element)
        a, b = found[0], found[1]
        return [None, [], [None], [a], [a, None, b], [b, a, a, None, None, b], found, found[::-1]]
    if isinstance(kind, Map):
        keys, values = _elements(kind.key), _elements(kind.value)
        pairs = list(zip(keys, itertools.cycle(values)))
        low, high = sorted(pairs[:2], key=lambda pair: pair[0])  # in the order in which Java's hash map has the keys
        return [None, [], pairs[:1], [(low[0], None), high], [low, high]]
    assert isinstance(kind, Struct)
    columns = [_elements(field.type) for field in kind.fields]
    rows = [tuple(c[i % len(c)] for c in columns) for i in range(3)]
    rows += [tuple(c[0] if i else None for i, c in enumerate(columns)), (None,) * len(columns)]
    return [None, *({f.name: v for f, v in zip(kind.fields, row, strict=True)} for row in rows)]


def _elements(kind: DataType) -> list[Any]:
    """Two values or more of a type, without NULL."""
    if kind.ddl in _ELEMENTS:
        return _ELEMENTS[kind.ddl]
    found = [v for v in values_of(kind.ddl) if v is not None]
    return found[:5] if len(found) > 1 else found * 2


def frame(kinds: tuple[str, ...], limit: int = 40) -> pa.Table:
    """A table with one column per type (a, b, c, ...) that holds combinations of their edge values: all of them, or a
    fixed sample when there are too many. Every value of every column is in it."""
    columns = [values_of(kind) for kind in kinds]
    rows = list(itertools.product(*columns))
    if len(rows) > limit:
        chosen = random.Random(7).sample(rows, limit)
        longest = max(len(c) for c in columns)
        chosen += [tuple(c[i % len(c)] for c in columns) for i in range(longest)]
        rows = chosen
    types: list[DataType] = [parse_type(kind.removeprefix("SMALL ")) for kind in kinds]
    arrays = [pa.array([row[i] for row in rows], types[i].arrow) for i in range(len(kinds))]
    return pa.table(dict(zip("abcdef", arrays, strict=False)))
