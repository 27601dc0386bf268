"""Numbers and times as the views print them."""

from __future__ import annotations

from datetime import datetime


def count(number: float) -> str:
    """A number with a unit prefix.

    >>> count(0), count(999), count(12_345), count(1_234_567), count(2_500_000_000)
    ('0', '999', '12.3k', '1.23M', '2.50G')
    """
    for limit, divisor, unit, digits in ((1e3, 1, "", 0), (1e6, 1e3, "k", 1), (1e9, 1e6, "M", 2)):
        if number < limit:
            return f"{number / divisor:.{digits}f}{unit}"
    return f"{number / 1e9:.2f}G"


def moment(at: datetime | None) -> str:
    """A watermark, to the second; `none yet` before the first."""
    return "none yet" if at is None else f"{at:%Y-%m-%d %H:%M:%S}"


def milliseconds(value: float | None) -> str:
    """A duration; a dash while it is not known."""
    return "-" if value is None else f"{value:.0f} ms"


def size(number: float) -> str:
    """A number of bytes.

    >>> size(0), size(999), size(12_345), size(1_234_567), size(2_500_000_000)
    ('0 B', '999 B', '12.3 kB', '1.2 MB', '2.5 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            break
        number /= 1000
    return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"


def duration(seconds: float) -> str:
    """A time span, to the second below ten minutes.

    >>> duration(0.2), duration(75), duration(4000), duration(100_000)
    ('1 s', '1 min 15 s', '1 h 6 min', '27 h 46 min')
    """
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
