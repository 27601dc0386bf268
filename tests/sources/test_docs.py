"""docs/sources.md lists every source and every option."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.sources import SOURCES


def test_docs_list_every_source_and_every_option_of_it() -> None:
    text = (Path(__file__).parents[2] / "docs" / "sources.md").read_text(encoding="utf-8")
    for kind in SOURCES.values():
        section = re.search(rf"^## {kind.name}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        assert section is not None, kind.name
        listed = dict(re.findall(r"^\| `([\w.*]+)` \|.*\| (.*) \|$", section[1], re.MULTILINE))
        assert listed == {o.shown: o.help for o in kind.options}


def test_every_source_of_another_system_says_what_it_guarantees() -> None:
    """EXPLAIN prints it. The generator makes its rows itself, and `pipeline` reads this hub's own output."""
    silent = {name for name, kind in SOURCES.items() if not kind.guarantee}
    assert silent <= {"generator", "pipeline"}
