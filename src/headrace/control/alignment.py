"""Fan-in inside an epoch: a point that has many inputs goes on only when each of them has spoken.

The inputs are known by name, so a missing one is an error that names it, not a wrong result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from headrace.errors import MissingInput


def require_all(where: str, what: str, expected: Iterable[int], arrived: Collection[int]) -> None:
    """Raise MissingInput unless every expected input is among those that arrived."""
    missing = [i for i in expected if i not in arrived]
    if missing:
        raise MissingInput(
            f"{where} did not hear from {what} {', '.join(map(str, missing))}",
            advice="This is a defect of headrace; the epoch is not committed and will be run again.",
            where=where,
            missing=missing,
        )
