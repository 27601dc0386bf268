"""The REST API of a real server, over loopback and its Unix socket. Wrong requests are in test_bad_input.py."""

from __future__ import annotations

import json
import stat
from typing import Any

import httpx
import pytest

import headrace
from headrace.service.client import RemoteHub
from headrace.state.state_dir import SOCKET_NAME
from tests.e2e.support import put, until
from tests.service.conftest import READ_TOKEN, TOKEN
from tests.service.process import Server

pytestmark = pytest.mark.spark


def feed(server: Server, name: str, rows: int) -> None:
    """Rows for the pipelines that select by `b = name`."""
    put(server.work / "in" / f"{name}.json", [json.dumps({"a": i, "b": name}) for i in range(rows)])


def test_a_client_creates_reads_stops_and_drops_a_pipeline(process: Server, client: RemoteHub, name: str) -> None:
    text = f"CREATE PIPELINE {name} INTO out AS SELECT a FROM s WHERE a > 1 AND b = '{name}'"
    until(lambda: client.streams["s"].status().decoding_columns == ["d"], "columns of other tests are gone", 60)
    (created,) = client.sql(text)
    assert created.text
    assert client.streams["s"].status().decoding_columns == ["a", "b", "d"]
    feed(process, name, 5)
    pipeline = client.pipelines[name]
    until(lambda: pipeline.status().rows_out == 3, "its rows are in the sink", 60)
    assert pipeline.results().to_pylist() == [{"a": i} for i in (2, 3, 4)]
    assert pipeline.sql == text
    pipeline.stop(now=True)
    assert pipeline.status().state == "stopped"
    pipeline.start()
    until(lambda: pipeline.status().state == "running", "it runs again", 60)
    pipeline.stop()
    client.sql(f"DROP PIPELINE {name}")
    assert name not in client.pipelines
    until(lambda: client.streams["s"].status().decoding_columns == ["d"], "its columns are not decoded any more", 60)


def test_a_sink_is_created_replaced_and_dropped_by_its_address(process: Server, name: str) -> None:
    def sent(method: str, path: str, text: str | None = None) -> int:
        return process.request(method, f"/api/v1/sinks{path}", json={"text": text} if text else None).status_code

    assert sent("POST", "", f"CREATE SINK {name} WITH (type = 'memory')") == 201
    assert process.get(f"/api/v1/sinks/{name}")["type"] == "memory"
    assert sent("PUT", f"/{name}", f"CREATE OR REPLACE SINK {name} WITH (type = 'memory', max_rows = '5')") == 200
    assert sent("DELETE", f"/{name}") == 200
    assert sent("GET", f"/{name}") == 404


def test_a_stream_is_synchronised_flushed_pinged_and_saved(process: Server, client: RemoteHub, name: str) -> None:
    feed(process, name, 1)
    epoch = client.streams["s"].sync(60)
    assert client.streams["s"].flush(60) >= epoch
    assert client.streams["s"].ping() >= epoch
    saved = client.savepoint(name)
    assert saved in client.savepoints()
    assert saved.is_dir()


def test_events_continue_after_the_last_one_that_was_received(process: Server) -> None:
    def ids(last: int | None) -> list[int]:
        headers = {"Last-Event-ID": str(last)} if last is not None else {}
        text = process.request("GET", "/api/v1/events", params={"once": True}, headers=headers).text
        return [int(line[4:]) for line in text.splitlines() if line.startswith("id: ")]

    (first,) = ids(None)
    missed = ids(first - 1)
    assert missed[0] == first
    assert missed == list(range(first, missed[-1] + 1))
    assert len(ids(10_000_000)) == 1  # an id from an earlier run of the hub


def test_metrics_agree_with_status(process: Server, client: RemoteHub, name: str) -> None:
    client.sql(f"CREATE PIPELINE {name} INTO out AS SELECT a FROM s WHERE b = '{name}'")
    feed(process, name, 5)
    until(lambda: client.pipelines[name].status().rows_out == 5, "its rows are in the sink", 60)
    text = process.request("GET", "/metrics").text
    assert f'headrace_stream_rows_total{{stream="s"}} {client.streams["s"].status().rows:.1f}' in text
    assert f'headrace_pipeline_rows_out_total{{pipeline="{name}",stream="s"}} 5.0' in text
    assert 'headrace_stream_columns_decoded{stream="s"} 3.0' in text
    client.sql(f"DROP PIPELINE {name}")


def test_the_token_decides_who_may_do_what(process: Server) -> None:
    def status(token: str | None, method: str, path: str, **body: Any) -> int:
        headers = {"Authorization": f"bearer {token}"} if token else {}
        return httpx.request(method, process.url + path, headers=headers, **body).status_code

    show = {"json": {"text": "SHOW STREAMS"}}
    assert status(None, "GET", "/api/v1/streams") == 401
    assert status("wrong", "GET", "/api/v1/streams") == 401
    assert status(READ_TOKEN, "GET", "/api/v1/streams") == 200
    assert status(READ_TOKEN, "POST", "/api/v1/sql", **show) == 403
    assert status(READ_TOKEN, "POST", "/api/v1/validate", **show) == 200
    assert status(TOKEN, "POST", "/api/v1/sql", **show) == 200
    assert status(None, "GET", "/health") == 200


def test_pages_of_other_sites_and_other_hosts_are_refused(process: Server) -> None:
    def code(**headers: str) -> str:
        answer = process.request("POST", "/api/v1/sql", json={"text": "SHOW SINKS"}, headers=headers)
        return "" if answer.status_code == 200 else str(answer.json()["code"])

    assert code(Origin="http://evil.example") == "WRONG_ORIGIN"
    assert code(Origin="null") == "WRONG_ORIGIN"
    assert code(Origin="http://[") == "WRONG_ORIGIN"
    assert code(Host="evil.example") == "WRONG_HOST"
    assert code(Host="127.0.0.1.evil.example") == "WRONG_HOST"
    assert code(Origin=process.url) == ""


def test_connect_opens_a_client_for_a_url_and_for_a_socket(process: Server) -> None:
    socket = process.directory / SOCKET_NAME
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600
    for target, token in ((process.url, TOKEN), (str(socket), None)):  # the socket needs no token
        with headrace.connect(target, token=token) as hub:
            assert list(hub.streams) == ["s"]
