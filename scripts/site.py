"""A hook of mkdocs: adds pages that mkdocs.yml does not list to the site's navigation. `make docs` uses it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def listed(config: str) -> list[str]:
    """The pages in the text of mkdocs.yml, in order."""
    return re.findall(r"^\s+- (?:.+: )?(\S+\.md)$", config[config.index("\nnav:") :], re.MULTILINE)


def unlisted(known: list[str]) -> dict[str, list[str]]:
    """The other pages, by the heading they get: those in docs/design are design decisions."""
    pages = sorted(p.relative_to(ROOT / "docs").as_posix() for p in (ROOT / "docs").rglob("*.md"))
    found: dict[str, list[str]] = {}
    for page in pages:
        if page not in known:
            found.setdefault("Design decisions" if page.startswith("design/") else "More", []).append(page)
    return found


def on_config(config: Any) -> Any:
    """Called by mkdocs when it has read mkdocs.yml."""
    known = listed((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    config.nav += [{heading: pages} for heading, pages in unlisted(known).items()]
    return config
