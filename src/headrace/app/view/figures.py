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
