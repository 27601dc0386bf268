"""Cases for dates, times and casts: literals, and values on which the type's own edge values do not fit."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

# Casts whose source has other edge values than its type: digits that Java 17 and later versions print alike, and
# numbers that are seconds of a timestamp.
CAST_SOURCES: dict[tuple[str, str], tuple[str, ...]] = {
    ("DOUBLE", "STRING"): ("SMALL DOUBLE",),
    ("DOUBLE", "DECIMAL"): ("SMALL DOUBLE",),
    ("DOUBLE", "TIMESTAMP"): ("SMALL DOUBLE",),
    ("BIGINT", "TIMESTAMP"): ("SMALL BIGINT ",),
    ("DECIMAL", "TIMESTAMP"): ("DECIMAL(10,2)", "DECIMAL(18,6)", "DECIMAL(3,0)", "DECIMAL(12,9)"),
    ("DECIMAL", "STRING"): ("DECIMAL(10,2)", "DECIMAL(38,0)", "DECIMAL(12,9)", "DECIMAL(3,3)"),
    ("BINARY", "STRING"): ("SMALL BINARY",),
    ("STRING", "DATE"): ("SMALL STRING",),
    ("STRING", "TIMESTAMP"): ("SMALL STRING",),
    ("STRING", "TIMESTAMP_NTZ"): ("SMALL STRING",),
}

_NAN, _INF = float("nan"), float("inf")
_DIGITS = ("1.123456789", "-1.123456789", "0.000000001", "-0.999999999", "999.999999999", "0")
EDGES: dict[str, list[Any]] = {
    "SMALL DOUBLE": [
        None, 0.0, -0.0, 0.5, 1.5, -2.5, 0.1, _NAN, _INF, -_INF, 1e7, 9999999.0, 0.001, 0.000999, 1e-5, 123456789.0,
        1e20, 1.7976931348623157e308, 5e-324, 1e-323, 1.5e300, -1e10, 100.0, 1e16, 2.675, 1.005, -0.015, 123456.785,
        1e-7, 0.30000000000000004, 1709999999.123456, 1.9999999, -1.0000005,
    ],
    "SMALL BIGINT ": [None, 0, 1, -1, 10**12, -(10**12) - 7, 1_709_999_999],
    "SMALL BINARY": [None, b"", b"abc", "é😀".encode(), b"\0"],
    "DECIMAL(12,9)": [None, *map(Decimal, _DIGITS)],
    "DECIMAL(3,3)": [None, *map(Decimal, ("0.050", "-0.050", "0.000", "0.999", "-0.001"))],
    "SMALL STRING": [
        None, "", "  ", "2024-01-31", "2024-1-5", "2024", "2024-02", "2024-02-30", "2024-01-31T10:00:00",
        " 2024-01-31 ", "2024-01-31 10:00:00.123456789", "2024-01-31 10:00:00.", "2024-01-31 10:00:00.1Z",
        "2024-01-31 10:00:00 UTC", "2024-01-31 10:00:00UTC+1", "2024-01-31 10:00:00 +1:2", "2024-01-31 10:00:00+01",
        "2024-01-31 10:00:00-0130", "2024-01-31 10:00:00 Europe/Berlin", "2024-01-31 10:00:00 europe/berlin",
        "2024-01-31 10:00:00 PST", "2024-01-31 10:00:00 XYZ", "2024-01-31 10:00:00+19:00", "2024-01-31 10",
        "2024-01-31 10:5", "2024-01-31 10:", "2024-01-31 1:2:3.4", "2024-01-31 10:00Z", "12345-01-01",
        "12345-01-01 00:00:00", "-0005-03-01", "+2024-01-01", "1234567-01-01", "294248-01-01", "123-01-01",
        "\t2024-01-31 10:00:00\n", "2024-01-31 24:00:00", "2024-01-31 10:00:60", "2024-13-01", "2024-01-00",
        "2024-01-31foo", "2024-01-31 foo", "2024-01-31Tfoo", "2024-", "2024-03-10 02:30:00", "2024-11-03 01:30:00",
        "1900-01-01 00:00:00", "1883-11-18 12:03:58", "2500-07-01 12:00:00", "9999-12-31 23:59:59.999999",
        "2024-01-31 10:00:00,5", "2024-01-31 10:00:00 Etc/GMT+5", "0000-01-01", "20240131",
    ],
}  # fmt: skip
