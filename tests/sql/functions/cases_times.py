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
        1e20, 1.7976931348623157e308, 5e-324, 1.5e300, -1e10, 100.0, 1e16, 2.675, 1.005, -0.015, 123456.785,
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

EDGES["SMALL STRING "] = [
    None, "UTC", "Europe/Berlin", "America/New_York", "+05:30", "PST", "GMT-3", "europe/berlin", "",
]  # fmt: skip
EDGES["SMALL INT "] = [None, -1, 0, 1, 2, 12, 13, 23, 24, 29, 30, 31, 59, 60, 61, 2023, 2024]
EDGES["SMALL BIGINT  "] = [None, 0, 1, -1, 25, 1000]
EDGES["SMALL DOUBLE "] = [None, 0.0, 0.1, 59.999999, 59.9999999, 60.0, 61.0, 1e20, -1.0, _NAN]
EDGES["SMALL DOUBLE  "] = [
    None, 0.0, 1.5, -1.5, 1.0000005, -1.0000005, 1.9999999, 0.1, 1709999999.123456, _NAN, _INF,
]  # fmt: skip
EDGES["DECIMAL(8,6)"] = [None, *map(Decimal, ("0", "0.5", "59.999999", "60.000000", "60.000001", "-0.5"))]

_WRITTEN = (
    "yyyy-MM-dd HH:mm:ss", "y yy yyy yyyyy G GGGG", "M MM MMM MMMM L LL LLL LLLL", "d dd D DDD Q QQ QQQ QQQQ q",
    "E EEEE a h hh H k kk K KK m s", "S SSS SSSSSS SSSSSSSSS", "VV O OOOO", "X XX XXX XXXX XXXXX",
    "x xx xxx xxxx xxxxx", "Z ZZZZ ZZZZZ", "[yyyy]é%''''",
)  # fmt: skip
_READ = (
    "yyyy-MM-dd", "yyyy-MM-dd HH:mm:ss", "yyyy-M-d[ H:m:s[.SSS]]", "yyyy-MM-dd HH:mm:ss.SSSSSS", "yyyyMMdd",
    "yyyy-MM-dd HH:mm:ssX", "yyyy-MM-dd HH:mm:ssxx", "dd/MMM/yyyy:HH:mm:ss Z", "MMMM d, yy h:mm a", "yyyy-DDD kk",
    "yyyy-MM-dd HH:mm O", "yyyy-MM-dd HH:mm ZZZZ", "yyyy-MM-dd HH:mm:ssZZZZZ", "yyyy-MM-dd G", "GGGG y",
    "yyyy-MM-dd HH:mm VV", "(VV) yyyy", "yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]", "yyyy-MM-dd[ HH:mm[ Z]]",
)  # fmt: skip
_UNITS = ("microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year")
EDGES["SMALL STRING"] += [
    "31/Jan/2024:10:00:00 +0100", "31/feb/2024:10:00:00 +0100", "May 5, 24 12:30 pm", "2024-366 24", "2023-366 24",
    "2024-01-31 10:00 GMT+8", "2024-01-31 10:00 gmt-08:60", "2024-01-31 10:00 GMT", "2024-01-31 10:00 GMT+18:01",
    "2024-01-31T10:00:00", "2024-03-10T02:30:00.5", "2024-01-31T10:00:00.5Z", "2024-01-31t10:00:00+05:30",
    "2024-01-31T10:00:00.12+19:00", "2024-01-31T10:00:00.12+01:0", "2024-11-03 01:30", "2024-01-31 10:00 -0730",
    "0005-02-29 BC", "0000-01-01 AD", "Before Christ 44", "(Asia/Tokyo) 2024", "(Z) 1800", "(Asia/Tokyo 2024",
    *(
        f"2024-{day} {name}"
        for day, name in (
            ("07-01 10:00", "Europe/Berlin"), ("11-03 01:30", "america/new_york"), ("03-10 02:30", "America/New_York"),
            ("07-01 10:00", "z"), ("07-01 10:00", "utc"), ("07-01 10:00", "UT+01:00"), ("07-01 10:00", "GMT0"),
            ("07-01 10:00", "-00:30"), ("07-01 10:00", "+05"), ("07-01 10:00", "+05:3"), ("07-01 10:00", "-03:30:15"),
            ("07-01 10:00", "+18:01"), ("07-01 10:00", "GMT-7"), ("07-01 10:00", "utc+01:00:30"),
            ("02-30 10:00", "UTC"),
            ("07-01 10:00", "GMT+0"), ("07-01 10:00", "GMT-0"), ("07-01 10:00", "gmt+0"), ("07-01 10:00", "UTC+0"),
            ("07-01 10:00", "UT+1"), ("07-01 10:00", "Etc/GMT+0"), ("07-01 10:00", "gmt0"),
            ("07-01 10:00", "PST"), ("07-01 10:00", "ROC"), ("07-01 10:00", "Etc/GMT+5"), ("07-01 10:00", "UTCZ"),
            ("07-01 10:00", "Mars/Base"), ("07-01 10:00", "Europe/Berlin "), ("07-01 10:00", "US/Pacific"),
        )
    ),
]  # fmt: skip


def _quoted(*texts: str) -> list[tuple[str, ...]]:
    return [("'" + text.replace("'", "\\'") + "'",) for text in texts]


# Literals for the arguments that must be literals.
CONSTANTS: dict[str, list[tuple[str, ...]]] = {
    "date_format": _quoted(*_WRITTEN),
    "from_unixtime": _quoted(*_WRITTEN[:2]),
    "date_trunc": _quoted(*_UNITS, "yyyy", "mon", "DD"),
    "trunc": _quoted("year", "YY", "quarter", "month", "mm", "week"),
    "next_day": _quoted("mo", "TUE", "Wednesday", "th", "fri", "SA", "su"),
    "timestampadd": _quoted(*_UNITS, "dayofyear"),
    "timestampdiff": _quoted(*_UNITS),
    **{
        name: _quoted(*_READ)
        for name in ("to_timestamp", "try_to_timestamp", "to_date", "try_to_date", "to_timestamp_ltz", "unix_timestamp")
    },
    "to_unix_timestamp": _quoted(*_READ[:5]),
    "to_timestamp_ntz": _quoted(*_READ[:5]),
}

# Edge values other than those of the type.
KINDS: dict[str, dict[str, str]] = {
    **{name: {"STRING": "SMALL STRING"} for name in CONSTANTS},
    **{name: {"STRING": "SMALL STRING "} for name in ("from_utc_timestamp", "to_utc_timestamp", "convert_timezone")},
    **{name: {"INT": "SMALL INT"} for name in ("add_months", "date_from_unix_date")},
    "timestampadd": {"INT": "SMALL INT", "BIGINT": "SMALL BIGINT  "},
    "make_date": {"INT": "SMALL INT "},
    **{name: {"BIGINT": "SMALL BIGINT "} for name in ("from_unixtime", "timestamp_millis")},
    "timestamp_seconds": {"BIGINT": "SMALL BIGINT ", "DOUBLE": "SMALL DOUBLE  "},
}

# Differences of times, by the entry that computes them.
DIFFERENCES = (
    ("timestampdiff(STRING, TIMESTAMP, TIMESTAMP)", ("TIMESTAMP", "TIMESTAMP"), "INTERVAL 36 HOURS"),
    ("timestampdiff(STRING, TIMESTAMP, TIMESTAMP)", ("TIMESTAMP", "DATE"), "INTERVAL 1 DAY"),
    ("datediff(DATE, DATE)", ("DATE", "DATE"), "INTERVAL 1 DAY"),
    ("unix_micros(TIMESTAMP_NTZ)", ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ"), "INTERVAL 90 MINUTES"),
)

_SECONDS = {"INT": "SMALL INT ", "DECIMAL": "DECIMAL(8,6)", "DOUBLE": "SMALL DOUBLE "}


def maker_cases(name: str, params: tuple[str, ...]) -> list[tuple[tuple[str, ...], str]]:
    """The column types and calls that exercise a function that makes a timestamp of its parts."""
    seconds = _SECONDS[params[5]]
    zone = ", 'Europe/Berlin'" if len(params) == 7 else ""
    return [
        (("SMALL INT ", seconds), f"{name}(2024, 2, a, 1, 1, b{zone})"),
        (("SMALL INT ", seconds), f"{name}(a, 12, 31, 23, 59, b{zone})"),
        (("SMALL INT ", seconds), f"{name}(2024, 3, 10, 2, a, b{zone})"),
        (("SMALL INT ", seconds), f"{name}(2024, a, 30, a, 0, b{zone})"),
    ]
