"""How much of the input a run with `--until-end` has read, and how long the rest takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headrace.app.view.figures import duration, size
from headrace.model.status import StreamStatus

# A generator without an end reports this many bytes as its backlog.
_ENDLESS = 1 << 40


@dataclass(frozen=True, slots=True)
class InputProgress:
    """Bytes of all streams that are in committed epochs, bytes that wait, the seconds that they take (None while that
    is not known), and whether all streams have ended."""

    read: int
    waiting: int
    seconds_left: float | None
    ended: bool = False

    @staticmethod
    def of(streams: Sequence[StreamStatus]) -> InputProgress:
        """The progress of these streams together. The slowest one decides how long it takes."""
        finite = [s for s in streams if s.lag_bytes < _ENDLESS]
        read, waiting = sum(s.bytes for s in finite), sum(s.lag_bytes for s in finite)
        busy = [s for s in finite if s.lag_bytes]
        known = len(finite) == len(streams) and all(s.mb_per_s > 0 for s in busy)
        left = max((s.lag_bytes / (s.mb_per_s * 1e6) for s in busy), default=0.0) if known else None
        return InputProgress(read, waiting, left, not waiting and not any(s.running for s in streams))

    @property
    def known(self) -> bool:
        """False before the first epoch is committed."""
        return self.read > 0

    @property
    def share(self) -> float:
        """The part of the input that is read, from 0 to 1."""
        return self.read / max(1, self.read + self.waiting)

    def words(self) -> str:
        """The progress in one line.

        >>> InputProgress(750_000_000, 250_000_000, 12.4).words()
        '75% of 1.0 GB read, about 12 s left'
        """
        if self.ended:
            return f"100% of {size(self.read)} read"
        left = "" if self.seconds_left is None else f", about {duration(self.seconds_left)} left"
        # When no input waits, the newest epoch may still be running.
        return f"{min(99, int(self.share * 100))}% of {size(self.read + self.waiting)} read{left}"

    def draw(self) -> RenderableType:
        """A bar with the same words."""
        row = Table.grid(padding=(0, 2))
        row.add_row(ProgressBar(total=1.0, completed=self.share, width=40), Text(self.words(), style="bold"))
        return row
