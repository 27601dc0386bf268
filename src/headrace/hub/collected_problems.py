"""The errors of an operation that continues after one of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from headrace.errors import HeadraceError, StopTimeout


class CollectedProblems:
    """Errors found so far, to be raised together at the end."""

    def __init__(self) -> None:
        self._found: list[Exception] = []

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        """Keep an error of the block instead of raising it."""
        try:
            yield
        except Exception as problem:
            self._found.append(problem)

    @property
    def roll_back(self) -> bool:
        """True if a script with these problems is rolled back. A StopTimeout alone keeps it in force."""
        return any(isinstance(p, HeadraceError) and not isinstance(p, StopTimeout) for p in self._found)

    def raise_first(self) -> None:
        """Raise the most important error, with the others as notes. A StopTimeout comes last, because only it keeps a
        script in force."""
        if not self._found:
            return
        rank = sorted(self._found, key=lambda p: (isinstance(p, StopTimeout), not isinstance(p, HeadraceError)))
        for other in rank[1:]:
            rank[0].add_note(f"also: {other}")
        raise rank[0]
