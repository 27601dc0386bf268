"""Wrong requests and lost connections: the answer has a code, nothing is applied in part, no thread is left."""

from __future__ import annotations

import json
import logging
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from headrace.base.logs import FILE, logging_to
from headrace.hub.objects import Pipeline, Stream
from headrace.service import models
from headrace.service.client import RemoteHub, RemotePipeline, RemoteStream
from headrace.service.guard import AccessPolicy
from headrace.service.server import HubServer
from tests.e2e.support import put, until
from tests.service.conftest import Served
from tests.shared.mini import Mini

PIPELINE = "CREATE PIPELINE p INTO out AS SELECT a FROM s"


def test_if_two_clients_create_the_same_pipeline_one_gets_already_exists(served: Served) -> None:
    def create(text: str) -> httpx.Response:
        return httpx.post(f"{served.url}/api/v1/pipelines", json={"text": text}, timeout=60)

    with ThreadPoolExecutor(2) as both:
        answers = list(both.map(create, [PIPELINE, "CREATE PIPELINE p INTO out AS SELECT b FROM s"]))
    assert sorted(a.status_code for a in answers) == [201, 409]
    refused = next(a for a in answers if a.status_code == 409)
    assert refused.json()["code"] == "ALREADY_EXISTS"
    assert list(served.mini.hub.pipelines) == ["p"]


def test_a_statement_takes_full_effect_and_leaves_no_thread_if_its_client_disconnects(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    httpx.get(f"{served.url}/health")  # starts the server's threads
    go_on, begun, run = threading.Event(), threading.Event(), served.mini.hub.sql

    def slow(text: str) -> object:
        begun.set()
        go_on.wait(30)
        return run(text)

    monkeypatch.setattr(served.mini.hub, "sql", slow)
    body = json.dumps({"text": PIPELINE}).encode()
    head = "POST /api/v1/sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", int(served.url.rsplit(":", 1)[1]))) as raw:
        raw.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert begun.wait(30)
    assert httpx.get(f"{served.url}/api/v1/streams/s").status_code == 200  # others are served meanwhile
    go_on.set()
    until(lambda: "p" in served.mini.hub.pipelines, "the statement took effect as a whole", 30)
    before = threading.active_count()
    for _ in range(5):
        assert httpx.get(f"{served.url}/api/v1/pipelines/p").status_code == 200
    assert threading.active_count() <= before


def test_waiting_statements_do_not_block_readers_and_too_many_get_a_coded_answer(mini: Mini) -> None:
    server = HubServer(mini.hub, mini.directory, AccessPolicy(max_requests=4, max_statements=2), bind=("127.0.0.1", 0))
    try:
        url = server.address
        with mini.hub._reconciler.lock, ThreadPoolExecutor(2) as waiting:  # statements wait for the hub
            for _ in range(2):
                waiting.submit(httpx.post, f"{url}/api/v1/sql", json={"text": "SHOW SINKS"}, timeout=30)
            refused = until(lambda: _refused(f"{url}/api/v1/sql"), "the third statement is refused", 30)
            assert refused is not None
            assert refused.json()["code"] == "TOO_MANY_REQUESTS"
            assert refused.headers["retry-after"] == "1"
            assert httpx.get(f"{url}/health").status_code == 200
            mini.hub._reconciler.lock.release()  # the statements continue
            until(lambda: _accepted(f"{url}/api/v1/sql"), "statements are taken again", 30)
            mini.hub._reconciler.lock.acquire()
    finally:
        server.close()


def test_status_is_answered_while_a_statement_starts_a_stream(served: Served, remote: RemoteHub) -> None:
    remote.sql(PIPELINE)
    release, held = threading.Event(), threading.Event()

    def starts_spark() -> None:
        with served.mini.hub._reconciler.lock:
            held.set()
            release.wait(30)

    busy = threading.Thread(target=starts_spark)
    busy.start()
    try:
        assert held.wait(30)
        for path in ("/ready", "/metrics", "/api/v1/streams", "/api/v1/pipelines/p", "/api/v1/events?once=true"):
            assert httpx.get(served.url + path, timeout=20).status_code == 200
    finally:
        release.set()
        busy.join()


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


def test_a_request_over_the_limit_of_connections_gets_a_coded_answer(mini: Mini) -> None:
    server = HubServer(mini.hub, mini.directory, AccessPolicy(max_connections=3), bind=("127.0.0.1", 0))
    try:
        url, port = server.address, int(str(server.address).rsplit(":", 1)[1])
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
        assert httpx.get(f"{url}/health").status_code == 200
        idle.append(socket.create_connection(("127.0.0.1", port)))
        until(lambda: httpx.get(f"{url}/health").status_code == 503, "the fourth connection is refused", 30)
        refused = httpx.post(f"{url}/api/v1/sql", json={"text": PIPELINE})
        assert (refused.status_code, refused.json()["code"]) == (503, "TOO_MANY_REQUESTS")
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.headers["retry-after"] == "1"
        assert list(mini.hub.pipelines) == []
        for connection in idle:
            connection.close()
        until(lambda: httpx.get(f"{url}/health").status_code == 200, "there is room again", 30)
    finally:
        server.close()


def test_results_are_limited_by_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "MAX_RESULT_BYTES", 10_000)
    table = pa.table({"n": list(range(100)), "text": ["x" * 1000] * 100})
    found = models.newest(table, 50)
    assert 0 < len(found.rows) < 20
    assert (found.rows[-1][0], found.total) == (99, 100)


def test_a_stopped_hub_answers_with_its_code(served: Served) -> None:
    served.mini.hub._reconciler.declarations.closed = True
    try:
        answer = httpx.post(f"{served.url}/api/v1/sql", json={"text": PIPELINE})
        assert (answer.status_code, answer.json()["code"]) == (503, "HUB_CLOSED")
    finally:
        served.mini.hub._reconciler.declarations.closed = False


def test_a_defect_is_a_coded_500_and_its_trace_is_in_the_log(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(text: str) -> object:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(served.mini.hub, "check", broken)
    with logging_to("json", logging.CRITICAL, timed=True) as logs:
        logs.keep(tmp_path)
        answer = httpx.post(f"{served.url}/api/v1/validate", json={"text": PIPELINE})
        assert (answer.status_code, answer.json()["code"]) == (500, "INTERNAL_ERROR")
    (line,) = [json.loads(text) for text in (tmp_path / FILE).read_text().splitlines()]
    assert line["code"] == "INTERNAL_ERROR"
    assert "ZeroDivisionError: a defect" in line["trace"]


def test_no_secret_is_in_any_answer_or_log(served: Served, tmp_path: Path) -> None:
    secret = "s3cret-of-the-stream"
    with logging_to("json", logging.CRITICAL, timed=True) as logs:
        logs.keep(tmp_path)
        made = httpx.post(
            f"{served.url}/api/v1/streams",
            json={
                "text": "CREATE STREAM pushed (x BIGINT) WITH (source = 'http', format = 'json', "
                f"listen = '127.0.0.1:0', token = '{secret}')"
            },
        )
        assert made.status_code == 201, made.text
        mistake = {"text": f"CREATE STREAM other (x BIGINT) WITH (source = 'http', token = '{secret}', nonsense = '1')"}
        answers = [made.text, httpx.post(f"{served.url}/api/v1/sql", json=mistake).text]
        answers.append(httpx.post(f"{served.url}/api/v1/explain", json={"text": "SELECT y FROM pushed"}).text)
        show = {"text": "SHOW CREATE STREAM pushed; DESCRIBE STREAM pushed"}
        answers.append(httpx.post(f"{served.url}/api/v1/sql", json=show).text)
        for path in ("/streams", "/streams/pushed", "/streams/pushed/ingress", "/pipelines", "/events?once=true"):
            answers.append(httpx.get(f"{served.url}/api/v1{path}").text)
        answers += [httpx.get(f"{served.url}{path}").text for path in ("/ready", "/metrics")]
    assert not [text for text in answers if secret in text]
    assert secret not in (tmp_path / FILE).read_text()


@pytest.mark.parametrize(("local", "remote"), [(Stream, RemoteStream), (Pipeline, RemotePipeline)])
def test_a_client_has_every_public_method_of_a_local_hub(local: type, remote: type) -> None:
    def public(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_") or name == "_repr_html_"}

    assert public(local) <= public(remote)


def test_a_client_reads_dead_letters_totals_and_barriers(served: Served, tmp_path: Path, remote: RemoteHub) -> None:
    (tmp_path / "more").mkdir()
    remote.sql(
        "CREATE SINK letters WITH (type = 'memory'); CREATE STREAM t (x BIGINT) WITH (source = 'files', "
        f"format = 'json', path = '{tmp_path / 'more'}', on_error = 'dead_letter', dead_letter_sink = 'letters');"
        "CREATE PIPELINE q INTO out AS SELECT x FROM t"
    )
    put(tmp_path / "more" / "0.json", ['{"x": 1}', "{"])
    served.mini.drain()
    here, there = served.mini.hub.streams["t"], remote.streams["t"]
    assert there.dead_letters().equals(here.dead_letters())
    assert there.dead_letters().num_rows == 1
    assert there.totals() == here.totals()
    assert there.totals().sinks["out"].rows == 1
    assert set(there.totals().phase_seconds) == {"planning", "reading", "ring0", "state", "sinks"}
    assert there.ping() == here.ping() == here.status().epoch
    assert there.flush() == here.status().epoch
    assert there.ingress() == {}
    assert "<table>" in remote._repr_html_() + there._repr_html_() + remote.pipelines["q"]._repr_html_()
    assert remote.savepoints() == []


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
