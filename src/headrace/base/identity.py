"""Keeps what was made from plans and programs. They are found by their identity, because comparing them takes long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

S = TypeVar("S")
P = ParamSpec("P")
V = TypeVar("V")


class KeptByIdentity(Generic[S, P, V]):
    """A function that keeps its newest `most` values. Its first argument is found by its identity, the others by their
    value. What a value was made from is kept with it, so no other object gets the same `id` meanwhile."""

    def __init__(self, make: Callable[Concatenate[S, P], V], most: int) -> None:
        self._make, self._most = make, most
        self._held: dict[Any, tuple[S, V]] = {}

    def __call__(self, source: S, *args: P.args, **kwargs: P.kwargs) -> V:
        key = (id(source), *args, *kwargs.items())
        held = self._held.get(key)
        if held is None:
            while len(self._held) >= self._most:
                del self._held[next(iter(self._held))]
            held = self._held[key] = (source, self._make(source, *args, **kwargs))
        return held[1]

    def __len__(self) -> int:
        return len(self._held)

    def clear(self) -> None:
        self._held.clear()


def kept_by_identity(most: int) -> Callable[[Callable[Concatenate[S, P], V]], KeptByIdentity[S, P, V]]:
    """Make a function keep its newest `most` values; see `KeptByIdentity`."""
    return lambda make: KeptByIdentity(make, most)
