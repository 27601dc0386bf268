"""Finds the objects of a directory or glob pattern of a store. One listing returns the size and time of every object.

Names that start with `.` or `_` are ignored, as in a local directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from headrace.errors import MissingFile
from headrace.sources.extent import Stamp
from headrace.stores.object_store import ObjectInfo, ObjectStore
from headrace.stores.store_options import StoreAccess

_WILD = frozenset("*?[")


class ObjectListing:
    """The objects that a URL names: a directory, a glob pattern (`*`, `?`, `[...]`, `**`) or one object."""

    def __init__(self, access: StoreAccess) -> None:
        """`access.url` may have wildcards after the bucket."""
        self.path = access.url
        head, _, tail = access.url.partition("://")
        parts = tail.split("/")
        wild = next((i for i, part in enumerate(parts) if i > 0 and _WILD & set(part)), len(parts))
        self._rest = "/".join(parts[wild:])
        self.store = ObjectStore(replace(access, url=f"{head}://{'/'.join(parts[:wild])}"))
        self._matches = re.compile(_pattern(self._rest)).fullmatch if self._rest else None
        self._stamps: dict[str, Stamp] = {}

    @property
    def root(self) -> str:
        return self.store.access.url

    def check(self) -> None:
        """Raise a coded error if the store cannot be used, or MissingFile if there is nothing at the path."""
        self.store.check()
        if not self._rest and not self.paths():
            empty = not self.store.entries("")
            if empty and self.store.access.root.count("/"):
                raise MissingFile(
                    f"there is no object at or below {self.path}",
                    advice="Put the first object there, or correct the path. A pattern such as .../*.jsonl may match "
                    "nothing yet.",
                    path=self.path,
                )

    def unchanged(self) -> bool:
        """False: a store has no cheap check for changes."""
        return False

    def paths(self) -> list[str]:
        """The URLs of all objects that exist now."""
        found = self._found()
        self._stamps = {self.store.url(info.name): _stamp(info) for info in found}
        return list(self._stamps)

    def clear(self) -> None:
        """Begin a listing that is made of several calls of `more`."""
        self._stamps = {}

    def more(self, url: str) -> list[str]:
        """The URLs of the objects below a directory, or that a pattern names, below this listing's own directory."""
        wanted = self.store.name_of(url)
        parts = wanted.split("/")
        wild = next((i for i, part in enumerate(parts) if _WILD & set(part)), len(parts))
        pattern = wanted if wild < len(parts) else f"{wanted}/*"
        matches = re.compile(_pattern(pattern)).fullmatch
        listed = self.store.objects("/".join(parts[:wild]), recursive=wild < len(parts) - 1 or "**" in wanted)
        found = {self.store.url(i.name): _stamp(i) for i in listed if _visible(i.name) and matches(i.name)}
        self._stamps |= found
        return list(found)

    def stamps(self, paths: Iterable[str]) -> dict[str, Stamp]:
        """The stamps of objects of the newest listing."""
        return {path: self._stamps[path] for path in paths if path in self._stamps}

    def _found(self) -> list[ObjectInfo]:
        if self._matches is not None:
            listed = self.store.objects(recursive="/" in self._rest or "**" in self._rest)
            return [info for info in listed if _visible(info.name) and self._matches(info.name)]
        listed = [info for info in self.store.objects(recursive=False) if _visible(info.name)]
        if listed:
            return listed
        single = self.store.info("")
        return [] if single is None else [ObjectInfo("", single.size, single.mtime_ns)]


def _stamp(info: ObjectInfo) -> Stamp:
    return Stamp(info.size, info.mtime_ns, info.mtime_ns, 0)


def _visible(name: str) -> bool:
    return bool(name) and not any(part.startswith((".", "_")) for part in name.split("/"))


def _pattern(text: str) -> str:
    """A glob pattern as a regular expression. `*` does not match a slash; `**/` matches any directories or none."""
    out, i = "", 0
    while i < len(text):
        if text.startswith("**/", i):
            out, i = out + "(?:[^/]+/)*", i + 3
        elif text.startswith("**", i):
            out, i = out + ".*", i + 2
        elif text[i] == "*":
            out, i = out + "[^/]*", i + 1
        elif text[i] == "?":
            out, i = out + "[^/]", i + 1
        elif text[i] == "[" and "]" in text[i + 2 :]:
            end = text.index("]", i + 2)
            inside = text[i + 1 : end].replace("\\", "\\\\")
            out, i = out + "[" + ("^" + inside[1:] if inside.startswith("!") else inside) + "]", end + 1
        else:
            out, i = out + re.escape(text[i]), i + 1
    return out
