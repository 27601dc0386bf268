"""docs/windows.md lists the options of streams and pipelines as they are declared."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.model.stream_options import STREAM_OPTIONS
from headrace.sql.pipeline_options import PIPELINE_OPTIONS

DOCS = Path(__file__).parents[2] / "docs"


def test_every_option_of_the_engine_is_documented_and_tables_say_what_it_means() -> None:
    text = "".join(page.read_text("utf-8") for page in DOCS.glob("*.md"))
    mine = "".join((DOCS / name).read_text("utf-8") for name in ("windows.md", "streams.md"))
    documented = {m[1]: m[2] for m in re.finditer(r"^\| `(\w+)` \|(?:.*\|)? ([^|]+) \|$", mine, re.MULTILINE)}
    for option in (*STREAM_OPTIONS, *PIPELINE_OPTIONS):
        assert f"`{option.name}`" in text, option.name
        assert documented.get(option.name, option.help) == option.help
    assert {"max_latency", "idle_advance", "max_groups", "late_sink"} <= documented.keys()
