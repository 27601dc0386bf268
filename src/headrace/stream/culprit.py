"""Searches for the pipeline that kills a worker: run the epoch with fewer and fewer pipelines, and see whether it dies.

Pure: the caller runs each probe and reports its outcome.
"""

from __future__ import annotations

from collections.abc import Sequence


class Search:
    """Searches among `suspects`, which killed the epoch together, for the one whose presence kills it.

    It finds the shortest prefix of the suspects that dies, in log2(n) probes, and one more when that prefix is the
    first suspect alone. The last suspect of the prefix is guilty. That also ends a search in which several pipelines
    are guilty, or only all of them together. If every probe lives, all suspects run once more. If that lives too, none
    is guilty, and something else killed the worker.
    """

    def __init__(self, suspects: Sequence[int]) -> None:
        self._suspects = tuple(suspects)
        self._lives, self._dies = 0, len(self._suspects)
        self._sure = False  # the epoch lives without any suspect
        self._seen = False  # a probe has died

    @property
    def probe(self) -> tuple[int, ...] | None:
        """The suspects to run next; None when the search is over."""
        if self._dies - self._lives > 1:
            return self._suspects[: (self._lives + self._dies) // 2]
        if self._dies == 1 and not self._sure:
            return ()
        return self._suspects if self._dies and not self._seen and not self.innocent else None

    @property
    def innocent(self) -> bool:
        """True if the epoch lives with all suspects."""
        return self._lives == len(self._suspects) > 0

    @property
    def guilty(self) -> int | None:
        """The guilty suspect, once `probe` is None. None if the epoch dies without any pipeline, or lives with all."""
        return self._suspects[self._dies - 1] if self._dies and not self.innocent else None

    def died(self) -> None:
        """The probe died."""
        self._dies = len(self.probe or ())
        self._seen = True

    def lived(self) -> None:
        """The probe lived."""
        probe = self.probe or ()
        self._lives, self._sure = len(probe), self._sure or not probe
