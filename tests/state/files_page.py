"""The files of a state directory as docs/operations.md lists them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tests.code import ROOT


def listed() -> set[str]:
    """The names in the first column of the page's table. `*` stands for a name, `N` for a number; a name that ends with
    `/` is a directory with anything in it."""
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    table = page[page.index("\n## Files in the state directory\n") :]
    return {name for row in re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE) for name in re.findall(r"`(.+?)`", row)}


def unlisted(paths: Iterable[str]) -> list[str]:
    """The paths, relative to a state directory, that the page does not list."""
    patterns = [re.compile(_pattern(name)) for name in listed()]
    return [path for path in paths if not any(p.fullmatch(path) for p in patterns)]


def _pattern(name: str) -> str:
    made = re.escape(name).replace(r"\*", "[^/]+")
    made = re.sub(r"(?<=[.\-/])N\b", r"\\d+", made)
    return f"{made}.*" if name.endswith("/") else made
