"""Registries of kinds: those of headrace itself, and those that installed packages add by entry points.

A package adds a kind of sink with

    [project.entry-points."headrace.sinks"]
    tsv = "my_package.tsv:TSV"

Installed packages are listed once per process. A package is imported when a statement or a plan names its kind, so one
that is broken or unused costs nothing. A name that two packages register, or a package and headrace itself, is
ambiguous: it is an error when a statement or a plan uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from headrace.errors import BadPlugin

K = TypeVar("K")
OWN = "headrace"  # the distribution whose kinds are registered without entry points


class Registry(MutableMapping[str, K], Generic[K]):
    """Kinds by name. Entry points of `group` add more; each must be an instance of `kind`. Those in `internal` can be
    looked up but are not listed, because no statement may name them."""

    def __init__(self, group: str, kind: type[Any], own: Iterable[K], internal: Iterable[K] = ()) -> None:
        self.group, self._kind = group, kind
        self._internal: dict[str, K] = {self._name(each): each for each in internal}
        self._own: dict[str, K] = {self._name(each): each for each in own}
        self._loaded: dict[str, K] = {}
        self._points: dict[str, list[EntryPoint]] | None = None

    def __getitem__(self, name: str) -> K:
        if name in self._internal:
            return self._internal[name]
        points = self._installed().get(name, [])
        if not points:
            return self._own[name]
        if name not in self._loaded:
            self._loaded[name] = self._load(name, points)
        return self._loaded[name]

    def __setitem__(self, name: str, kind: K) -> None:
        self._own[name] = kind

    def __delitem__(self, name: str) -> None:
        del self._own[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self._own, *(name for name in self._installed() if name not in self._own)])

    def __len__(self) -> int:
        return len(self._own.keys() | self._installed().keys())

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._installed()

    def _installed(self) -> dict[str, list[EntryPoint]]:
        if self._points is None:
            self._points = {}
            for point in _listed().select(group=self.group):
                if _package(point) != OWN:
                    self._points.setdefault(point.name.lower(), []).append(point)
        return self._points

    def _load(self, name: str, points: list[EntryPoint]) -> K:
        packages = sorted({_package(point) for point in points} | ({OWN} if name in self._own else set()))
        if len(packages) > 1 or len(points) > 1:
            raise BadPlugin(
                f"'{name}' of {self.group} is registered more than once, by {' and '.join(packages)}",
                advice="Uninstall all but one of these packages, or rename the kind in one of them.",
                name=name,
                packages=packages,
            )
        (point,), (package,) = points, packages
        try:
            found: K = point.load()
        except Exception as problem:  # whatever the package does when it is imported
            raise self._bad(name, package, f"{point.value} cannot be loaded: {problem!r}") from problem
        if not isinstance(found, self._kind):
            raise self._bad(name, package, f"{point.value} is not a {self._kind.__name__}")
        if self._name(found) != name:
            raise self._bad(name, package, f"{point.value} is called '{self._name(found)}'")
        return found

    def _bad(self, name: str, package: str, why: str) -> BadPlugin:
        return BadPlugin(
            f"package {package} registers '{name}' of {self.group}, but {why}",
            advice=f"Repair, update or uninstall {package}.",
            name=name,
            packages=[package],
        )

    @staticmethod
    def _name(kind: Any) -> str:
        return str(kind.name)


@cache
def _listed() -> Any:
    """All entry points of this environment. Listing them takes some 50 ms, so all registries share one list."""
    return entry_points()  # its class differs between versions of Python; all have `select`


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unknown package"
