"""The pages list the options of streams and pipelines as they are declared."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.model.stream_options import STREAM_OPTIONS
from headrace.sql.pipeline_options import PIPELINE_OPTIONS

DOCS = Path(__file__).parents[2] / "docs"


def test_every_option_of_the_engine_is_documented_and_tables_say_what_it_means() -> None:
    text = "".join(page.read_text("utf-8") for page in DOCS.glob("*.md"))
    streams, pipelines = tables("windows.md", "streams.md"), tables("windows.md", "hosts.md")
    for options, documented in ((STREAM_OPTIONS, streams), (PIPELINE_OPTIONS, pipelines)):
        for option in options:
            assert f"`{option.name}`" in text, option.name
            assert documented.get(option.name, option.help) == option.help
    assert {"max_latency", "idle_advance"} <= streams.keys()
    assert {"max_groups", "late_sink", "backpressure", "feed_limit"} <= pipelines.keys()


def tables(*pages: str) -> dict[str, str]:
    """The options in the tables of some pages, with what they mean."""
    text = "".join((DOCS / page).read_text("utf-8") for page in pages)
    return {m[1]: m[2] for m in re.finditer(r"^ *\| `(\w+)` \|(?:.*\|)? ([^|]+) \|$", text, re.MULTILINE)}
