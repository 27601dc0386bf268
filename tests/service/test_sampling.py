"""Samples of the live status."""

from __future__ import annotations

import json

import httpx

from tests.e2e.support import put
from tests.service.conftest import Served

PIPELINE = "CREATE PIPELINE p INTO out AS SELECT a, b FROM s WHERE a > 1"


def test_samples_have_what_the_page_shows_of_the_bridge(served: Served) -> None:
    served.mini.hub.sql("CREATE PIPELINE g INTO out AS SELECT b, count(*) AS n FROM s GROUP BY b EMIT CHANGES")
    put(served.directory.parent / "in" / "0.json", [json.dumps({"a": i, "b": f"b{i}"}) for i in range(3)])
    served.mini.drain()
    text = httpx.get(f"{served.url}/api/v1/events", params={"once": True}).text
    found = json.loads(next(line[6:] for line in text.splitlines() if line.startswith("data: ")))
    stream = found["streams"]["s"]
    assert stream["bridge"]["sent"]["rows"] == 3
    assert stream["bridge"]["received"]["barriers"] > 0
    assert set(stream["phases"]) == {"planning", "reading", "ring0", "state", "sinks"}
    assert stream["gateway"] == {}
