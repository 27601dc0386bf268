"""docs/metrics.md lists the metrics that exist, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import httpx

from tests.service.conftest import Served

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_page_lists_every_metric_once(served: Served) -> None:
    text = httpx.get(f"{served.url}/metrics").text
    exposed = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    listed = re.findall(r"`(headrace_\w+)`", PAGE.read_text(encoding="utf-8"))
    assert len(listed) == len(set(listed))
    assert exposed == set(listed)
