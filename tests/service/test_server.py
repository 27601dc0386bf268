"""The server of one hub: its socket, who may reach it, a hub that is closed, and defects."""

from __future__ import annotations

import json
import logging
import stat
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from headrace.base.logs import FILE, logging_to
from headrace.errors import (
    HubUnreachable,
    TokenRequired,
)
from headrace.service.client import RemoteHub
from headrace.service.guard import AccessPolicy
from headrace.service.server import HubServer
from headrace.state.state_dir import SOCKET_NAME
from tests.service.conftest import READ_TOKEN, Served
from tests.shared.mini import Mini

PIPELINE = "CREATE PIPELINE p INTO out AS SELECT a, b FROM s WHERE a > 1"


def test_with_only_a_read_only_token_nothing_can_be_changed(mini: Mini) -> None:
    server = HubServer(mini.hub, mini.directory, AccessPolicy(read_only_token=READ_TOKEN), bind=("127.0.0.1", 0))
    show = {"text": "SHOW STREAMS"}
    headers = {"Authorization": f"Bearer {READ_TOKEN}"}
    assert httpx.post(f"{server.address}/api/v1/sql", json=show).status_code == 401
    assert httpx.post(f"{server.address}/api/v1/sql", json=show, headers=headers).status_code == 403
    assert httpx.get(f"{server.address}/api/v1/streams", headers=headers).status_code == 200
    server.close()


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


def test_a_hub_without_clients_imports_no_web_framework(tmp_path: Path) -> None:
    code = "import headrace, sys; headrace.connect(sys.argv[1]).close(); assert 'fastapi' not in sys.modules"

    subprocess.run([sys.executable, "-c", code, str(tmp_path / "state")], check=True)


def test_a_stopped_hub_answers_with_its_code(served: Served) -> None:
    served.mini.hub.close()
    answer = httpx.post(f"{served.url}/api/v1/sql", json={"text": PIPELINE})
    assert (answer.status_code, answer.json()["code"]) == (503, "HUB_CLOSED")


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
