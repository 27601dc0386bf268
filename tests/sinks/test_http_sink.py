"""The http sink against a server in this process: what is sent, what is retried, what is refused."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import BadOption, MissingOption, SinkRefused, SinkUnavailable
from headrace.model.definitions import SinkDef
from headrace.model.schema import BIGINT, STRING, Field, Schema
from headrace.sinks import SINKS, SinkKey, http_sink, settle_sink
from headrace.sinks.sink_kind import DriverSink

OPEN: list[DriverSink] = []  # driver sides of a test
OUTPUT = Schema((Field("a", BIGINT), Field("b", STRING)))


class Receiver:
    """Records requests. `answers` are the next status codes; 204 when there are no more."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.requests.append(({k.lower(): v for k, v in self.headers.items()}, body))
                code = outer.answers.pop(0) if outer.answers else 204
                if not code:  # the connection breaks
                    self.close_connection = True
                    self.connection.close()
                    return
                self.send_response(code)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def rows(self) -> list[int]:
        return [json.loads(line)["a"] for _, body in self.requests for line in body.splitlines()]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setattr(http_sink, "FIRST_WAIT", 0.01)
    made = Receiver()
    yield made
    while OPEN:
        OPEN.pop().close()
    made.server.shutdown()
    made.server.server_close()


class Writer:
    """One pipeline's use of a sink; `again` makes the driver side of a restarted hub."""

    def __init__(self, url: str, staging: Path, **options: str) -> None:
        self.sink = settle_sink(SinkDef("out", "http", {"url": url, "staging": str(staging)} | options))
        self.driver: DriverSink = self.again()

    def again(self) -> DriverSink:
        made = SINKS["http"].driver(self.sink, OUTPUT)
        OPEN.append(made)
        return made

    def commit(self, epoch: int, *numbers: int) -> int:
        key = SinkKey("c", 1, epoch, "d")
        table = pa.Table.from_pylist([{"a": n} for n in numbers], schema=OUTPUT.arrow)
        return self.driver.commit(key, [SINKS["http"].task(self.sink).stage(table, key)])


def test_rows_are_posted_as_lines_or_as_an_array_with_token_and_headers(receiver: Receiver, tmp_path: Path) -> None:
    given = {"token": "s3cret", "header.x-source": "plant"}
    assert Writer(receiver.url, tmp_path / "a", **given, max_rows="2").commit(0, 1, 2, 3) == 3
    assert [body for _, body in receiver.requests] == [b'{"a":1}\n{"a":2}\n', b'{"a":3}\n']
    assert {h["authorization"] for h, _ in receiver.requests} == {"Bearer s3cret"}
    assert {(h["x-source"], h["content-type"]) for h, _ in receiver.requests} == {("plant", "application/x-ndjson")}
    Writer(receiver.url, tmp_path / "b", body="array", ignore_nulls="false").commit(0, 1, 2)
    assert json.loads(receiver.requests[-1][1]) == [{"a": 1, "b": None}, {"a": 2, "b": None}]


def test_a_server_that_fails_is_asked_again_with_the_same_key(receiver: Receiver, tmp_path: Path) -> None:
    receiver.answers = [500, 0, 429, 204, 503]
    Writer(receiver.url, tmp_path, max_rows="1").commit(7, 1, 2)
    keys = [h["idempotency-key"] for h, _ in receiver.requests]
    assert len(keys) == 6 and len(set(keys[:4])) == 1 and len(set(keys[4:])) == 1 and keys[0] != keys[4]
    assert receiver.rows == [1, 1, 1, 1, 2, 2]


def test_a_server_that_stays_away_makes_the_stream_wait_and_answered_requests_are_not_repeated(
    receiver: Receiver, tmp_path: Path
) -> None:
    writer = Writer(receiver.url, tmp_path, max_rows="1")
    receiver.answers = [204, *([502] * http_sink.ATTEMPTS)]
    with pytest.raises(SinkUnavailable):
        writer.commit(0, 1, 2)
    assert writer.commit(0, 1, 2) == 2
    assert [receiver.rows.count(n) for n in (1, 2)] == [1, http_sink.ATTEMPTS + 1]


def test_a_refused_request_is_coded_and_sent_again_when_the_cause_is_gone(receiver: Receiver, tmp_path: Path) -> None:
    writer = Writer(receiver.url, tmp_path)
    receiver.answers = [401]
    with pytest.raises(SinkRefused):
        writer.commit(0, 1)
    assert len(receiver.requests) == 1
    writer.driver = writer.again()  # the hub was restarted
    assert writer.commit(0, 1) == 1
    assert receiver.requests[0][0]["idempotency-key"] == receiver.requests[1][0]["idempotency-key"]


def test_mistakes_are_coded(tmp_path: Path) -> None:
    for options, kind in (
        ({"url": "ftp://host"}, BadOption),
        ({"url": "http://user:pw@host/"}, BadOption),
        ({}, MissingOption),
        ({"url": "http://host/", "body": "xml"}, BadOption),
        ({"url": "http://host/", "header.x": "é\n"}, BadOption),
    ):
        with pytest.raises(kind):
            settle_sink(SinkDef("out", "http", {"staging": str(tmp_path)} | options))
    assert "at least once" in SINKS["http"].guarantee
