"""Asks a stream's planner to hold: to finish the epoch in flight and plan no other."""

from __future__ import annotations

from pathlib import Path

from headrace.base.durable import private_directory, state_errors, write_atomic
from headrace.state.progress import HOLD


class Hold:
    """The hold file of one stream. The planning process reads it at every poll. Any thread may call."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._file = directory, directory / HOLD

    @property
    def requested(self) -> bool:
        """True if the file is there."""
        return self._file.exists()

    def request(self, barrier: int | None = None) -> None:
        """Plan no epoch from now on, or after the one that carries this barrier. Raises DiskFull or
        StateUnavailable."""
        with state_errors(self._directory):
            private_directory(self._directory)
            write_atomic(self._file, b"" if barrier is None else str(barrier).encode())

    def lift(self) -> None:
        """Plan epochs again. Raises StateUnavailable."""
        with state_errors(self._directory):
            self._file.unlink(missing_ok=True)
