"""What the view needs to know about streams and pipelines, and how it writes numbers.

The protocols are the part of the hub's status objects that is shown, so the view is tested without a hub.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol


class StreamFacts(Protocol):
    """The shown part of a stream's status."""

    @property
    def name(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def rows_per_s(self) -> float: ...
    @property
    def mb_per_s(self) -> float: ...
    @property
    def epoch_ms(self) -> float: ...
    @property
    def bad(self) -> int: ...
    @property
    def columns_decoded(self) -> Sequence[str]: ...
    @property
    def columns_declared(self) -> int: ...
    @property
    def watermark(self) -> datetime | None: ...


class PipelineFacts(Protocol):
    """The shown part of a pipeline's status."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def rows_in(self) -> int: ...
    @property
    def rows_out(self) -> int: ...
    @property
    def late(self) -> int: ...
    @property
    def error(self) -> str | None: ...


def count(number: float) -> str:
    """A number as people read it.

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
