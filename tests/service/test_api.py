"""The REST API, over a real server on loopback and on the Unix socket."""

from __future__ import annotations

import json
import os
import socket
import stat
from pathlib import Path

import httpx
import pytest

import headrace
from headrace.errors import (
    AlreadyExists,
    HubUnreachable,
    TokenRequired,
    UnknownColumn,
    UnknownPipeline,
)
from headrace.service.client import RemoteHub
from headrace.service.guard import AccessPolicy
from headrace.service.server import HubServer
from headrace.state.state_dir import SOCKET_NAME
from tests.e2e.support import put
from tests.service.conftest import READ_TOKEN, TOKEN, Served
from tests.shared.mini import Mini

PIPELINE = "CREATE PIPELINE p INTO out AS SELECT a, b FROM s WHERE a > 1"


def feed(served: Served, rows: int) -> None:
    put(served.directory.parent / "in" / "0.json", [json.dumps({"a": i, "b": f"b{i}"}) for i in range(rows)])
    served.mini.drain()


def test_a_client_creates_reads_stops_and_drops_a_pipeline(served: Served, remote: RemoteHub) -> None:
    (created,) = remote.sql(PIPELINE)
    assert created.text
    feed(served, 5)
    pipeline = remote.pipelines["p"]
    assert pipeline.results().to_pylist() == [{"a": i, "b": f"b{i}"} for i in (2, 3, 4)]
    assert pipeline.status() == served.mini.hub.pipelines["p"].status()
    assert pipeline.sql == PIPELINE
    assert remote.streams["s"].status().decoding_columns == ["a", "b"]
    pipeline.stop(now=True)
    assert pipeline.status().state == "stopped"
    pipeline.start()
    assert served.mini.hub.pipelines["p"].status().state in ("starting", "running")
    remote.sql("DROP PIPELINE p")
    assert remote.pipelines == {}
    assert remote.streams["s"].status().decoding_columns == []


def test_show_and_explain_return_the_same_as_on_the_hub(served: Served, remote: RemoteHub) -> None:
    remote.sql(PIPELINE)
    served.mini.drain()
    for statement in ("SHOW STREAMS", "SHOW PIPELINES", "DESCRIBE SINK out", "EXPLAIN PIPELINE p"):
        (here,), (there,) = served.mini.hub.sql(statement), remote.sql(statement)
        assert there.render() == here.render()
    query = "CREATE PIPELINE q INTO out AS SELECT d FROM s"
    assert remote.explain(query) == served.mini.hub.check(f"EXPLAIN {query}")[0].text


def test_errors_are_those_of_a_hub_with_code_position_and_advice(served: Served, remote: RemoteHub) -> None:
    for script in ("SELCT", "CREATE PIPELINE p INTO out AS SELECT aa FROM s", "DROP STREAM nothing"):
        with pytest.raises(headrace.errors.HeadraceError) as here:
            served.mini.hub.sql(script)
        with pytest.raises(type(here.value)) as there:
            remote.sql(script)
        assert there.value.render() == here.value.render()
    remote.sql(PIPELINE)
    with pytest.raises(AlreadyExists):
        remote.sql("CREATE PIPELINE p INTO out AS SELECT d FROM s")
    with pytest.raises(UnknownPipeline):
        remote._json("GET", "/api/v1/pipelines/none")
    with pytest.raises(UnknownColumn):
        remote.validate("CREATE PIPELINE q INTO out AS SELECT zz FROM s")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/api/v1/streams/none", None, 404, "UNKNOWN_STREAM"),
        ("GET", "/api/v1/sinks/none", None, 404, "UNKNOWN_SINK"),
        ("POST", "/api/v1/pipelines/none/start", None, 404, "UNKNOWN_PIPELINE"),
        ("POST", "/api/v1/pipelines/none/stop?mode=soon", None, 400, "BAD_REQUEST"),
        ("DELETE", "/api/v1/streams/none", None, 404, "UNKNOWN_STREAM"),
        ("GET", "/api/v1/nothing", None, 404, "NO_SUCH_ADDRESS"),
        ("PATCH", "/api/v1/streams", None, 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/api/v1/sql", b"{", 400, "BAD_REQUEST"),
        ("POST", "/api/v1/sql", b"{}", 400, "BAD_REQUEST"),
        ("POST", "/api/v1/sql", b'{"text": "SELCT"}', 400, "SYNTAX_ERROR"),
        ("POST", "/api/v1/sql", b'{"text": "CREATE SINK out WITH (type = \'console\')"}', 409, "ALREADY_EXISTS"),
        ("POST", "/api/v1/streams", b'{"text": "SHOW STREAMS"}', 400, "BAD_REQUEST"),
        ("PUT", "/api/v1/sinks/x", b'{"text": "CREATE SINK y WITH (type = \'memory\')"}', 400, "BAD_REQUEST"),
        ("GET", "/api/v1/streams/s/dead-letters", None, 404, "UNKNOWN_SINK"),
        ("POST", "/api/v1/explain", b'{"text": "SELECT a FROM s; SHOW STREAMS"}', 400, "BAD_REQUEST"),
    ],
)
def test_bad_requests_have_a_coded_answer(
    served: Served, method: str, path: str, body: bytes | None, status: int, code: str
) -> None:
    answer = httpx.request(method, served.url + path, content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_sink_is_created_replaced_and_dropped_by_its_address(served: Served) -> None:
    text = {"text": "CREATE SINK more WITH (type = 'memory')"}
    assert httpx.post(f"{served.url}/api/v1/sinks", json=text).status_code == 201
    assert httpx.get(f"{served.url}/api/v1/sinks/more").json()["type"] == "memory"
    text = {"text": "CREATE OR REPLACE SINK more WITH (type = 'memory', max_rows = '5')"}
    assert httpx.put(f"{served.url}/api/v1/sinks/more", json=text).status_code == 200
    assert httpx.delete(f"{served.url}/api/v1/sinks/more").status_code == 200
    assert httpx.get(f"{served.url}/api/v1/sinks/more").status_code == 404


def test_events_continue_after_the_last_one_that_was_received(served: Served) -> None:
    def ids(last: int | None) -> list[int]:
        headers = {"Last-Event-ID": str(last)} if last is not None else {}
        text = httpx.get(f"{served.url}/api/v1/events", params={"once": True}, headers=headers).text
        return [int(line[4:]) for line in text.splitlines() if line.startswith("id: ")]

    first = ids(None)
    assert first == [1]
    assert ids(0) == [1]
    assert ids(77) == [1]  # an id from an earlier run of the hub


def test_metrics_agree_with_status(served: Served, remote: RemoteHub) -> None:
    remote.sql(PIPELINE)
    feed(served, 5)
    text = httpx.get(f"{served.url}/metrics").text
    assert 'headrace_stream_rows_total{stream="s"} 5.0' in text
    assert 'headrace_pipeline_rows_out_total{pipeline="p",stream="s"} 3.0' in text
    assert 'headrace_stream_columns_decoded{stream="s"} 2.0' in text


def test_the_token_decides_who_may_do_what(guarded: Served) -> None:
    def status(token: str | None, method: str, path: str, **body: object) -> int:
        headers = {"Authorization": f"bearer {token}"} if token else {}
        return httpx.request(method, guarded.url + path, headers=headers, **body).status_code  # type: ignore[arg-type]

    show = {"json": {"text": "SHOW STREAMS"}}
    assert status(None, "GET", "/api/v1/streams") == 401
    assert status("wrong", "GET", "/api/v1/streams") == 401
    assert status(READ_TOKEN, "GET", "/api/v1/streams") == 200
    assert status(READ_TOKEN, "POST", "/api/v1/sql", **show) == 403
    assert status(READ_TOKEN, "POST", "/api/v1/validate", **show) == 200
    assert status(TOKEN, "POST", "/api/v1/sql", **show) == 200
    assert status(None, "GET", "/health") == 200
    with RemoteHub(guarded.directory) as hub:  # the socket needs no token
        assert list(hub.streams) == ["s"]


def test_with_only_a_read_only_token_nothing_can_be_changed(mini: Mini) -> None:
    server = HubServer(mini.hub, mini.directory, AccessPolicy(read_only_token=READ_TOKEN), bind=("127.0.0.1", 0))
    show = {"text": "SHOW STREAMS"}
    headers = {"Authorization": f"Bearer {READ_TOKEN}"}
    assert httpx.post(f"{server.address}/api/v1/sql", json=show).status_code == 401
    assert httpx.post(f"{server.address}/api/v1/sql", json=show, headers=headers).status_code == 403
    assert httpx.get(f"{server.address}/api/v1/streams", headers=headers).status_code == 200
    server.close()


def test_pages_of_other_sites_and_other_hosts_are_refused(served: Served) -> None:
    def code(**headers: str) -> str:
        answer = httpx.post(f"{served.url}/api/v1/sql", json={"text": "SHOW SINKS"}, headers=headers)
        return "" if answer.status_code == 200 else str(answer.json()["code"])

    assert code(Origin="http://evil.example") == "WRONG_ORIGIN"
    assert code(Origin="null") == "WRONG_ORIGIN"
    assert code(Origin="http://[") == "WRONG_ORIGIN"
    assert code(Host="evil.example") == "WRONG_HOST"
    assert code(Host="127.0.0.1.evil.example") == "WRONG_HOST"
    assert code(Origin=served.url) == ""


def test_a_body_over_the_limit_is_refused_with_and_without_a_content_length(guarded: Served) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    large = json.dumps({"text": "-- " + "x" * 2000}).encode()
    known = httpx.post(f"{guarded.url}/api/v1/sql", content=large, headers=headers)
    chunked = httpx.post(f"{guarded.url}/api/v1/sql", content=iter([large[:500], large[500:]]), headers=headers)
    assert [known.status_code, chunked.status_code] == [413, 413]


def test_other_addresses_than_loopback_need_a_token(mini: Mini) -> None:
    with pytest.raises(TokenRequired):
        HubServer(mini.hub, mini.directory, bind=("0.0.0.0", 0))
    assert not (mini.directory / SOCKET_NAME).exists()


def test_the_socket_is_private_to_its_owner_and_removed_with_the_server(mini: Mini) -> None:
    server = HubServer(mini.hub, mini.directory)
    path = mini.directory / SOCKET_NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    server.close()
    assert not path.exists()
    with pytest.raises(HubUnreachable):
        RemoteHub(mini.directory)


def test_a_state_directory_with_a_very_long_path_has_a_socket_too(mini: Mini, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    server = HubServer(mini.hub, deep)
    with RemoteHub(deep) as hub:
        assert list(hub.streams) == ["s"]
    server.close()


def test_connect_opens_a_client_for_a_url_and_for_a_socket(served: Served) -> None:
    for target in (served.url, str(served.directory / SOCKET_NAME)):
        with headrace.connect(target, token=None) as hub:
            assert list(hub.streams) == ["s"]


def test_a_hub_without_clients_imports_no_web_framework(tmp_path: Path) -> None:
    code = "import headrace, sys; headrace.connect(sys.argv[1]).close(); assert 'fastapi' not in sys.modules"
    import subprocess
    import sys

    subprocess.run([sys.executable, "-c", code, str(tmp_path / "state")], check=True)


def test_the_server_works_after_a_client_breaks_its_connection(served: Served, remote: RemoteHub) -> None:
    with socket.create_connection(("127.0.0.1", int(served.url.rsplit(":", 1)[1]))) as raw:
        raw.sendall(b"POST /api/v1/sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
    assert list(remote.streams) == ["s"]
    assert os.path.exists(served.directory / SOCKET_NAME)
