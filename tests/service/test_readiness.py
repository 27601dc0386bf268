"""`/ready`: 200 only if everything that should run does, else 503 with the code of each culprit."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from headrace.service.server import HubServer
from headrace.stream.managed_query import ManagedQuery
from tests.e2e.support import put, until
from tests.service.conftest import Served
from tests.shared.mini import Mini

PIPELINE = "CREATE PIPELINE p INTO out AS SELECT a FROM s"


def culprits(url: str | None) -> list[tuple[str, str]]:
    """The code and the subject of everything that is not ready; empty if the hub is."""
    answer = httpx.get(f"{url}/ready", timeout=30)
    if answer.status_code == 200:
        assert answer.json() == {"ready": True}
        return []
    assert (answer.status_code, answer.json()["code"]) == (503, "NOT_READY")
    assert answer.headers["retry-after"] == "1"
    return [(e["code"], " ".join(e["title"].split()[:2]).rstrip(":")) for e in answer.json()["errors"]]


def test_a_hub_is_not_ready_while_a_pipeline_starts(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    planned, wait = threading.Event(), served.mini.wait_planned

    def slow(query: ManagedQuery, version: int) -> None:
        assert planned.wait(30)
        wait(query, version)

    monkeypatch.setattr(served.mini, "wait_planned", slow)
    assert culprits(served.url) == []
    with ThreadPoolExecutor(1) as client:
        sent = client.submit(httpx.post, f"{served.url}/api/v1/sql", json={"text": PIPELINE}, timeout=60)
        until(lambda: culprits(served.url) == [("NOT_READY", "pipeline p")], "the pipeline is starting", 30)
        planned.set()
        assert sent.result().status_code == 200
    assert culprits(served.url) == []


def test_a_failed_stream_is_the_culprit_and_not_each_of_its_pipelines(served: Served) -> None:
    served.mini.hub.sql(f"{PIPELINE}; CREATE PIPELINE q INTO out AS SELECT b FROM s")
    assert served.mini.query is not None
    served.mini.query.end("[SINK_UNAVAILABLE] out cannot be reached")
    assert culprits(served.url) == [("SINK_UNAVAILABLE", "stream s")]
    assert {p.status().state for p in served.mini.hub.pipelines.values()} == {"retrying"}


def test_a_failed_pipeline_is_named_with_the_code_of_its_failure(served: Served) -> None:
    served.mini.hub.sql(f"{PIPELINE}; CREATE PIPELINE bad INTO out AS SELECT 1 / (a - a) AS x FROM s")
    put(served.directory.parent / "in" / "0.json", ['{"a": 1}'])
    served.mini.drain()
    assert culprits(served.url) == [("EVALUATION_FAILED", "pipeline bad")]
    served.mini.hub.sql("DROP PIPELINE bad; STOP PIPELINE p NOW")
    assert culprits(served.url) == []  # a stopped pipeline should not run


def test_a_hub_is_not_ready_before_its_script_is_applied_and_after_its_streams_have_stopped(mini: Mini) -> None:
    server = HubServer(mini.hub, mini.directory, bind=("127.0.0.1", 0), startup="script is not applied yet")
    try:
        assert culprits(server.address) == [("NOT_READY", "script is")]
        mini.hub.sql(PIPELINE)
        server.startup = ""
        assert culprits(server.address) == []
        mini.hub.drain()
        assert culprits(server.address) == [("NOT_READY", "pipeline p")]
    finally:
        server.close()
