"""`headrace serve`, `sql`, `status` and `top` as processes, with Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import get_args

import httpx
import pytest

import headrace
from headrace.errors import StateInUse
from headrace.model.status import Resumes
from headrace.state.state_dir import SOCKET_NAME, StateDir
from tests.e2e.support import put, until
from tests.service.process import serving

pytestmark = pytest.mark.spark


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "headrace.app.cli", *arguments]


def call(state: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments, "--state-dir", str(state)), capture_output=True, text=True, timeout=120)


def test_a_terminal_adds_and_stops_pipelines_of_a_hub_that_another_process_serves(tmp_path: Path) -> None:
    state, token = tmp_path / "state", tmp_path / "token"
    token.write_text("secret-token\n")
    put(tmp_path / "in" / "0.json", [json.dumps({"a": i, "b": f"b{i}"}) for i in range(10)])
    (tmp_path / "app.sql").write_text(
        f"CREATE STREAM s (a BIGINT, b STRING) WITH (source = 'files', format = 'json', path = '{tmp_path / 'in'}');"
        "CREATE SINK out WITH (type = 'memory'); CREATE PIPELINE p INTO out AS SELECT a FROM s"
    )
    arguments = command("serve", str(tmp_path / "app.sql"), "--port", "0", "--token-file", str(token))
    served = subprocess.Popen(
        [*arguments, "--state-dir", str(state)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert served.stdout is not None
        url = served.stdout.readline().split()[-1]
        assert httpx.get(f"{url}/api/v1/streams").status_code == 401
        headers = {"Authorization": "Bearer secret-token"}
        until(
            lambda: '"p"' in httpx.get(f"{url}/api/v1/pipelines", headers=headers, timeout=60).text, "p is declared", 60
        )
        joined = call(state, "sql", "-c", "CREATE PIPELINE q INTO out AS SELECT b FROM s WHERE a < 3")
        assert joined.returncode == 0, joined.stderr
        put(tmp_path / "in" / "1.json", [json.dumps({"a": i, "b": f"c{i}"}) for i in range(5)])
        address = f"{url}/api/v1/pipelines/q/results"
        until(lambda: httpx.get(address, headers=headers).json()["total"] == 3, "q has three rows", 60)
        shown = json.loads(call(state, "status", "--format", "json").stdout)
        assert [row["name"] for row in shown[1]["rows"]] == ["p", "q"]
        wrong = call(state, "sql", "-c", "DROP STREAM nothing")
        assert wrong.returncode == 2
        assert "UNKNOWN_STREAM" in wrong.stderr
        assert call(state, "sql", "-c", "STOP PIPELINE q").returncode == 0
        assert httpx.get(f"{url}/api/v1/pipelines/q", headers=headers).json()["status"]["state"] == "stopped"
        with pytest.raises(StateInUse) as in_use:
            StateDir.open(state)
        assert "headrace sql" in in_use.value.advice
        assert f"headrace.connect('{state / SOCKET_NAME}')" in in_use.value.advice
        with headrace.connect(str(state / SOCKET_NAME), token=None) as client:
            assert list(client.pipelines) == ["p", "q"]
        served.send_signal(signal.SIGTERM)
        told, said = served.communicate(timeout=60)
        assert served.returncode == 0, said
        assert url not in told + said  # the first line is the only one that announces the address
    finally:
        if served.poll() is None:
            served.kill()
            served.communicate()
    offline = call(state, "status", "--format", "json")
    assert offline.returncode == 0
    streams, pipelines = json.loads(offline.stdout)
    assert [row["state"] for row in streams["rows"]] == ["stopped"]
    assert {row["name"]: row["state"] for row in pipelines["rows"]} == {"p": get_args(Resumes)[0], "q": "stopped"}
    assert "secret-token" not in "".join(p.read_text(errors="replace") for p in state.rglob("*.json"))
    gone = subprocess.run(
        command("status", "--server", "http://127.0.0.1:9"), capture_output=True, text=True, timeout=60
    )
    assert gone.returncode == 3
    assert "HUB_UNREACHABLE" in gone.stderr


def test_a_killed_spark_gives_a_coded_answer_restarts_and_is_logged(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "app.sql").write_text(
        f"CREATE STREAM s (a BIGINT, b STRING) WITH (source = 'files', format = 'json', path = '{tmp_path / 'in'}');"
        "CREATE SINK out WITH (type = 'memory'); CREATE PIPELINE p INTO out AS SELECT a FROM s"
    )
    with serving(tmp_path, "--log-format", "json") as server:
        assert httpx.get(f"{server.url}/ready").json()["code"] == "NOT_READY"  # the script is applied meanwhile
        until(lambda: httpx.get(f"{server.url}/ready", timeout=60).status_code == 200, "the hub is ready", 120)
        assert [p["status"]["state"] for p in server.get("/api/v1/pipelines")] == ["running"]
        jvm = json.loads((server.directory / "lock").read_text())["jvm"]
        os.kill(jvm, signal.SIGKILL)
        until(lambda: httpx.get(f"{server.url}/ready").status_code == 503, "the hub is not ready", 60)
        until(lambda: "stream s" in server.get("/ready").get("detail", ""), "the stream is named as culprit", 60)
        answer = server.sql("CREATE PIPELINE q INTO out AS SELECT b FROM s")
        assert answer.status_code == 200 or answer.json()["code"] != "INTERNAL_ERROR"
        assert ("q" in {p["name"] for p in server.get("/api/v1/pipelines")}) == (answer.status_code == 200)
        put(tmp_path / "in" / "0.json", ['{"a": 1}'])
        until(lambda: server.get("/api/v1/pipelines/p/results")["total"] == 1, "Spark runs again", 120)
        server.process.terminate()
        assert server.process.wait(60) == 0
        lines = [json.loads(line) for line in server.errors.splitlines() if line.startswith("{")]
        assert [line for line in lines if line.get("event") == "stream_retrying" and line["stream"] == "s"]
        assert [line for line in lines if line.get("event") == "epoch" and line["rows"] == 1]
    shown = call(tmp_path / "state", "logs", "-n", "1000")
    assert shown.returncode == 0
    assert "stream_retrying" in shown.stdout
    assert "hub.log: " in shown.stderr
