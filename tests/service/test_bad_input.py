"""Wrong requests and lost connections, on a real server: the answer has a code, nothing of it is applied, and the
process has as many threads afterwards as before."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest

from tests.e2e.support import until
from tests.service.process import Server

pytestmark = pytest.mark.spark
LARGE = json.dumps({"text": "-- " + "x" * (4 << 20)}).encode()
JSON = {"Content-Type": "application/json"}


@contextmanager
def unharmed(server: Server) -> Iterator[None]:
    """Fails unless what is declared, and the number of threads, are the same afterwards."""
    declared = server.declared()
    threads = server.threads()
    yield
    assert server.declared() == declared
    server.wait_threads(threads)


def sql(text: str) -> bytes:
    return json.dumps({"text": text}).encode()


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        pytest.param("POST", "/sql", b"{", 400, "BAD_REQUEST", id="malformed JSON"),
        pytest.param("POST", "/sql", b'{"text": "SHOW STREAMS"', 400, "BAD_REQUEST", id="JSON that ends early"),
        pytest.param("POST", "/sql", b"\xff\xfe{}", 400, "BAD_REQUEST", id="not UTF-8"),
        pytest.param("POST", "/sql", b"[" * 100_000, 400, "BAD_REQUEST", id="deep JSON"),
        pytest.param("POST", "/sql", b"{}", 400, "BAD_REQUEST", id="JSON without text"),
        pytest.param("POST", "/sql", b'{"text": 5}', 400, "BAD_REQUEST", id="JSON of another type"),
        pytest.param("POST", "/sql", sql("SELCT"), 400, "SYNTAX_ERROR", id="malformed SQL"),
        pytest.param("POST", "/pipelines/none/stop?mode=soon", None, 400, "BAD_REQUEST", id="unknown mode"),
        pytest.param("POST", "/streams/s/sync?timeout=0", None, 400, "BAD_REQUEST", id="wrong timeout"),
        pytest.param("GET", "/nothing", None, 404, "NO_SUCH_ADDRESS", id="unknown address"),
        pytest.param("GET", "/streams/none", None, 404, "UNKNOWN_STREAM", id="unknown stream"),
        pytest.param("DELETE", "/streams/none", None, 404, "UNKNOWN_STREAM", id="drop an unknown stream"),
        pytest.param("GET", "/sinks/none", None, 404, "UNKNOWN_SINK", id="unknown sink"),
        pytest.param("GET", "/streams/s/dead-letters", None, 404, "UNKNOWN_SINK", id="no dead letters"),
        pytest.param("POST", "/pipelines/none/start", None, 404, "UNKNOWN_PIPELINE", id="start an unknown pipeline"),
        pytest.param("POST", "/pipelines/none/stop", None, 404, "UNKNOWN_PIPELINE", id="stop an unknown pipeline"),
        pytest.param("DELETE", "/pipelines/none", None, 404, "UNKNOWN_PIPELINE", id="drop an unknown pipeline"),
        pytest.param(
            "POST", "/savepoints", b'{"name": "n", "stream": "no"}', 404, "UNKNOWN_STREAM", id="savepoint of no stream"
        ),
        pytest.param(
            "POST", "/sql", sql("CREATE PIPELINE x INTO out AS SELECT zz FROM s"), 400, "UNKNOWN_COLUMN",
            id="unknown column",
        ),
        pytest.param(
            "POST", "/sql", sql("CREATE SINK x WITH (type = 'memory'); DROP STREAM none"), 400, "UNKNOWN_STREAM",
            id="second statement is wrong",
        ),
        pytest.param(
            "POST", "/sql", sql("DROP PIPELINE base; DROP STREAM s; CREATE SINK out WITH (type = 'console')"),
            409, "ALREADY_EXISTS", id="last statement is wrong",
        ),
        pytest.param("DELETE", "/sinks/out", None, 409, "IN_USE", id="drop a sink in use"),
        pytest.param("POST", "/streams", sql("SHOW STREAMS"), 400, "BAD_REQUEST", id="statement of another kind"),
        pytest.param(
            "PUT", "/sinks/x", sql("CREATE SINK y WITH (type = 'memory')"), 400, "BAD_REQUEST", id="two names"
        ),
        pytest.param(
            "POST", "/explain", sql("SELECT a FROM s; SHOW STREAMS"), 400, "BAD_REQUEST", id="explain two statements"
        ),
        pytest.param("PATCH", "/streams", None, 405, "METHOD_NOT_ALLOWED", id="wrong method"),
        pytest.param("GET", "/sql", None, 405, "METHOD_NOT_ALLOWED", id="GET of sql"),
        pytest.param("DELETE", "/streams", None, 405, "METHOD_NOT_ALLOWED", id="drop all streams"),
        pytest.param("POST", "/sql", LARGE, 413, "REQUEST_TOO_LARGE", id="oversize body"),
    ],
)  # fmt: skip
def test_a_bad_request_has_a_coded_answer_and_no_effect(
    process: Server, method: str, path: str, body: bytes | None, status: int, code: str
) -> None:
    with unharmed(process):
        answer = process.request(method, f"/api/v1{path}", content=body, headers=JSON)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert answer.headers["content-type"] == "application/problem+json"


def test_an_oversize_body_without_a_length_is_refused(process: Server) -> None:
    pieces: Any = iter([LARGE[: 1 << 20], LARGE[1 << 20 :]])
    with unharmed(process):
        answer = process.request("POST", "/api/v1/sql", content=pieces, headers=JSON)
        assert (answer.status_code, answer.json()["code"]) == (413, "REQUEST_TOO_LARGE")


def test_a_client_that_breaks_off_in_the_middle_of_a_request_changes_nothing(process: Server) -> None:
    with unharmed(process):
        for sent in (b"POST /api", head(1000), head(1000) + sql("DROP PIPELINE base")):
            with socket.create_connection(("127.0.0.1", process.port)) as raw:
                raw.sendall(sent)
        assert process.request("GET", "/health").status_code == 200


def head(length: int) -> bytes:
    lines = ["POST /api/v1/sql HTTP/1.1", "Host: localhost", "Authorization: Bearer full-token"]
    return "\r\n".join([*lines, "Content-Type: application/json", f"Content-Length: {length}", "\r\n"]).encode()


def test_a_statement_whose_client_disconnects_takes_effect_as_a_whole(process: Server, name: str) -> None:
    (process.work / name).mkdir()
    # A new stream starts a query of its own, which takes seconds.
    script = sql(
        f"CREATE SINK {name} WITH (type = 'memory'); CREATE STREAM {name} (x BIGINT) WITH (source = 'files', "
        f"format = 'json', path = '{process.work / name}'); CREATE PIPELINE {name} INTO {name} AS SELECT x FROM {name}"
    )
    with unharmed(process):
        with socket.create_connection(("127.0.0.1", process.port)) as raw:
            raw.sendall(head(len(script)) + script)
            until(lambda: name in process.declared()["pipelines"], "the statement is declared", 60)
        state = process.get(f"/api/v1/pipelines/{name}")["status"]["state"]
        assert state == "starting"  # it is under way, and others are served meanwhile
        until(lambda: process.get(f"/api/v1/pipelines/{name}")["status"]["state"] == "running", "it runs", 120)
        assert all(name in objects for objects in process.declared().values())
        assert process.sql(f"DROP PIPELINE {name}; DROP STREAM {name}; DROP SINK {name}").status_code == 200


def test_of_two_clients_that_create_the_same_pipeline_one_gets_already_exists(process: Server, name: str) -> None:
    def create(column: str) -> httpx.Response:
        text = f"CREATE PIPELINE {name} INTO out AS SELECT {column} FROM s"
        return process.request("POST", "/api/v1/pipelines", json={"text": text})

    with unharmed(process):
        with ThreadPoolExecutor(2) as both:
            answers = dict(zip("ab", both.map(create, "ab"), strict=True))
        assert sorted(a.status_code for a in answers.values()) == [201, 409]
        winner, loser = sorted(answers, key=lambda column: answers[column].status_code)
        assert answers[loser].json()["code"] == "ALREADY_EXISTS"
        assert process.declared()["pipelines"][name].endswith(f"SELECT {winner} FROM s")
        assert process.request("DELETE", f"/api/v1/pipelines/{name}").status_code == 200


def test_connections_over_the_limit_get_a_coded_answer(process: Server) -> None:
    with unharmed(process):
        with ExitStack() as idle:
            for _ in range(256):
                idle.enter_context(socket.create_connection(("127.0.0.1", process.port)))
            until(lambda: process.request("GET", "/ready").status_code == 503, "a request is refused", 30)
            assert process.request("GET", "/health").status_code == 200  # the process is up
            refused = process.sql("CREATE SINK surplus WITH (type = 'memory')")
            assert (refused.status_code, refused.json()["code"]) == (503, "TOO_MANY_REQUESTS")
            assert refused.headers["content-type"] == "application/problem+json"
            assert refused.headers["retry-after"] == "1"
        until(lambda: process.request("GET", "/ready").status_code == 200, "there is room again", 30)
