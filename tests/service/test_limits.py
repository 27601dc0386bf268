"""Limits of requests, statements, live readers and results, with small numbers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import pyarrow as pa
import pytest

from headrace.service import models
from headrace.service.client import RemoteHub
from headrace.service.guard import AccessPolicy
from headrace.service.server import HubServer
from tests.e2e.support import until
from tests.service.conftest import Served
from tests.shared.mini import Mini

PIPELINE = "CREATE PIPELINE p INTO out AS SELECT a, b FROM s WHERE a > 1"


@dataclass
class SlowStart:
    """An engine that begins to start when a statement needs it, and goes on when the test says so."""

    begun: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def ready(self) -> None:
        self.begun.set()
        assert self.go_on.wait(30)


@contextmanager
def slow_start(mini: Mini) -> Iterator[SlowStart]:
    """The next statement that starts a pipeline waits for its engine, and keeps the others waiting."""
    starting = SlowStart()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mini, "ready", starting.ready)
        try:
            yield starting
        finally:
            starting.go_on.set()


def test_waiting_statements_do_not_block_readers_and_too_many_get_a_coded_answer(mini: Mini) -> None:
    server = HubServer(mini.hub, mini.directory, AccessPolicy(max_requests=4, max_statements=2), bind=("127.0.0.1", 0))
    try:
        url = server.address
        with ThreadPoolExecutor(2) as waiting, slow_start(mini) as starting:
            waiting.submit(httpx.post, f"{url}/api/v1/sql", json={"text": PIPELINE}, timeout=30)
            assert starting.begun.wait(30)
            waiting.submit(httpx.post, f"{url}/api/v1/sql", json={"text": "SHOW SINKS"}, timeout=30)
            refused = until(lambda: _refused(f"{url}/api/v1/sql"), "the third statement is refused", 30)
            assert refused is not None
            assert refused.json()["code"] == "TOO_MANY_REQUESTS"
            assert refused.headers["retry-after"] == "1"
            assert httpx.get(f"{url}/health").status_code == 200
            starting.go_on.set()
            until(lambda: _accepted(f"{url}/api/v1/sql"), "statements are taken again", 30)
    finally:
        server.close()


def test_status_is_answered_while_a_statement_starts_a_stream(served: Served, remote: RemoteHub) -> None:
    remote.sql(PIPELINE)
    with ThreadPoolExecutor(1) as waiting, slow_start(served.mini) as starting:
        busy = waiting.submit(remote.sql, PIPELINE.replace("PIPELINE p", "PIPELINE q"))
        assert starting.begun.wait(30)
        for path in ("/ready", "/metrics", "/api/v1/streams", "/api/v1/pipelines/p", "/api/v1/events?once=true"):
            assert httpx.get(served.url + path, timeout=20).status_code == 200
        assert not busy.done()
        starting.go_on.set()
        assert str(busy.result(30)[0]) == "created pipeline q"


def _refused(url: str) -> httpx.Response | None:
    try:
        answer = httpx.post(url, json={"text": "SHOW SINKS"}, timeout=0.5)
    except httpx.TimeoutException:
        return None
    return answer if answer.status_code == 503 else None


def _accepted(url: str) -> bool:
    return httpx.post(url, json={"text": "SHOW SINKS"}, timeout=30).status_code == 200


def test_the_number_of_live_readers_is_limited(mini: Mini) -> None:
    server = HubServer(mini.hub, mini.directory, AccessPolicy(max_readers=1), bind=("127.0.0.1", 0))
    try:
        with httpx.stream("GET", f"{server.address}/api/v1/events") as first:
            lines = first.iter_lines()
            next(lines)
            second = httpx.get(f"{server.address}/api/v1/events", params={"once": True})
            assert (second.status_code, second.json()["code"]) == (503, "TOO_MANY_REQUESTS")
        until(
            lambda: httpx.get(f"{server.address}/api/v1/events", params={"once": True}).status_code == 200,
            "the place is free again",
            30,
        )
    finally:
        server.close()


def test_results_are_limited_by_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "MAX_RESULT_BYTES", 10_000)
    table = pa.table({"n": list(range(100)), "text": ["x" * 1000] * 100})
    found = models.newest(table, 50)
    assert 0 < len(found.rows) < 20
    assert (found.rows[-1][0], found.total) == (99, 100)
