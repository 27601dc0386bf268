"""Who killed the worker? Found by elimination: run the epoch with ever fewer pipelines, and see whether it dies.

Pure: it says whom to run next and is told what came of it.
"""

from __future__ import annotations

from collections.abc import Sequence


class Search:
    """The pipeline whose presence kills the epoch, among `suspects`, which killed it together.

    It looks for the shortest prefix of the suspects that dies, in log2(n) probes and one more when that is the first
    suspect alone. The last of the prefix is guilty: also when several are, or when none kills the worker by itself but
    all of them together do. When every probe lives, all suspects run once more: if that lives too, nobody is guilty,
    and something else killed the worker.
    """

    def __init__(self, suspects: Sequence[int]) -> None:
        self._suspects = tuple(suspects)
        self._lives, self._dies = 0, len(self._suspects)
        self._sure = False  # the epoch lives without any suspect
        self._seen = False  # a probe has died

    @property
    def probe(self) -> tuple[int, ...] | None:
        """Whom to run next; None when the search is over."""
        if self._dies - self._lives > 1:
            return self._suspects[: (self._lives + self._dies) // 2]
        if self._dies == 1 and not self._sure:
            return ()
        return self._suspects if self._dies and not self._seen and not self.innocent else None

    @property
    def innocent(self) -> bool:
        """Whether the epoch lives with all suspects."""
        return self._lives == len(self._suspects) > 0

    @property
    def guilty(self) -> int | None:
        """The answer, once `probe` is None; None when the epoch dies without any pipeline, or lives with all."""
        return self._suspects[self._dies - 1] if self._dies and not self.innocent else None

    def died(self) -> None:
        """The probe died."""
        self._dies = len(self.probe or ())
        self._seen = True

    def lived(self) -> None:
        """The probe came through."""
        probe = self.probe or ()
        self._lives, self._sure = len(probe), self._sure or not probe
