"""`headrace serve`, `sql`, `status` and `logs` as processes, with Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import headrace
from headrace.errors import StateInUse
from headrace.model.status import Resumes
from headrace.state.state_dir import SOCKET_NAME, StateDir
from tests.e2e.support import put, until
from tests.service.conftest import TOKEN
from tests.service.process import Server, serving

pytestmark = pytest.mark.spark


def call(state: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headrace.app.cli", *arguments, "--state-dir", str(state)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_a_terminal_adds_and_stops_pipelines_of_a_hub_that_another_process_serves(process: Server, name: str) -> None:
    state = process.directory
    joined = call(state, "sql", "-c", f"CREATE PIPELINE {name} INTO out AS SELECT a FROM s WHERE b = '{name}'")
    assert joined.returncode == 0, joined.stderr
    put(process.work / "in" / f"{name}.json", [json.dumps({"a": i, "b": name}) for i in range(3)])
    until(lambda: process.get(f"/api/v1/pipelines/{name}/results")["total"] == 3, "it has three rows", 60)
    shown = json.loads(call(state, "status", "--format", "json").stdout)
    assert [row["state"] for row in shown[1]["rows"] if row["name"] in ("base", name)] == ["running", "running"]
    wrong = call(state, "sql", "-c", "DROP STREAM nothing")
    assert wrong.returncode == 2
    assert "UNKNOWN_STREAM" in wrong.stderr
    assert call(state, "sql", "-c", f"STOP PIPELINE {name}").returncode == 0
    assert process.get(f"/api/v1/pipelines/{name}")["status"]["state"] == "stopped"
    assert process.sql(f"DROP PIPELINE {name}").status_code == 200


def test_a_directory_in_use_is_refused_with_the_ways_to_reach_its_hub(process: Server) -> None:
    with pytest.raises(StateInUse) as in_use:
        StateDir.open(process.directory)
    assert in_use.value.params["pid"] == process.process.pid
    assert "headrace sql" in in_use.value.advice
    assert f"headrace.connect('{process.directory / SOCKET_NAME}')" in in_use.value.advice
    with headrace.connect(str(process.directory / SOCKET_NAME), token=None) as client:
        assert list(client.streams) == ["s"]
    assert process.url not in process.errors  # announced once, on standard output
    assert TOKEN not in "".join(p.read_text(errors="replace") for p in process.directory.rglob("*.json"))


def test_a_server_that_does_not_answer_gives_exit_code_3(tmp_path: Path) -> None:
    gone = call(tmp_path, "status", "--server", "http://127.0.0.1:9")
    assert gone.returncode == 3
    assert "HUB_UNREACHABLE" in gone.stderr


def test_a_killed_spark_gives_a_coded_answer_restarts_and_is_logged(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "app.sql").write_text(
        f"CREATE STREAM s (a BIGINT, b STRING) WITH (source = 'files', format = 'json', path = '{tmp_path / 'in'}');"
        "CREATE SINK out WITH (type = 'memory'); CREATE PIPELINE p INTO out AS SELECT a FROM s"
    )
    with serving(tmp_path, "--log-format", "json") as server:
        assert server.get("/ready")["code"] == "NOT_READY"  # the script is applied meanwhile
        server.wait_ready()
        assert [p["status"]["state"] for p in server.get("/api/v1/pipelines")] == ["running"]
        put(tmp_path / "in" / "0.json", ['{"a": 0}'])
        until(lambda: server.get("/api/v1/pipelines/p/results")["total"] == 1, "an epoch is committed", 120)
        server.wait_settled()
        threads, declared = server.threads(), server.declared()
        jvm = json.loads((server.directory / "lock").read_text())["jvm"]
        os.kill(jvm, signal.SIGKILL)
        until(lambda: "stream s" in server.get("/ready").get("detail", ""), "the stream is the culprit", 60)
        assert server.declared() == declared
        answer = server.sql("CREATE PIPELINE q INTO out AS SELECT b FROM s")
        assert answer.status_code == 200 or (answer.status_code, answer.json()["code"]) != (500, "INTERNAL_ERROR")
        joined = {"q": "CREATE PIPELINE q INTO out AS SELECT b FROM s"} if answer.status_code == 200 else {}
        assert server.declared() == declared | {"pipelines": declared["pipelines"] | joined}
        put(tmp_path / "in" / "1.json", ['{"a": 1}'])
        until(lambda: server.get("/api/v1/pipelines/p")["status"]["rows_out"] == 2, "Spark runs again", 120)
        server.wait_ready()
        server.wait_threads(threads)
        if joined:
            assert server.sql("STOP PIPELINE q").status_code == 200
        server.process.terminate()
        assert server.process.wait(60) == 0
        assert server.process.stdout is not None
        assert server.url not in server.process.stdout.read()  # the first line is the only one with the address
        lines = [json.loads(line) for line in server.errors.splitlines() if line.startswith("{")]
        assert [line for line in lines if line.get("event") == "stream_retrying" and line["stream"] == "s"]
        assert [line for line in lines if line.get("event") == "epoch" and line["rows"] == 1]
    shown = call(tmp_path / "state", "logs", "-n", "1000")
    assert shown.returncode == 0
    assert "stream_retrying" in shown.stdout
    assert "hub.log: " in shown.stderr
    offline = call(tmp_path / "state", "status", "--format", "json")
    assert offline.returncode == 0
    streams, pipelines = json.loads(offline.stdout)
    assert [row["state"] for row in streams["rows"]] == ["stopped"]
    states = {row["name"]: row["state"] for row in pipelines["rows"]}
    assert states == {"p": get_args(Resumes)[0]} | dict.fromkeys(joined, "stopped")
