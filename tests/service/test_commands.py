"""`headrace serve`, `sql`, `status` and `top` as processes, with Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from headrace.errors import StateInUse
from headrace.state.state_dir import StateDir
from tests.e2e.support import put, until

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
        until(lambda: '"p"' in httpx.get(f"{url}/api/v1/pipelines", headers=headers).text, "p is declared", 60)
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
        served.send_signal(signal.SIGTERM)
        _, said = served.communicate(timeout=60)
        assert served.returncode == 0, said
    finally:
        if served.poll() is None:
            served.kill()
            served.communicate()
    offline = call(state, "status", "--format", "csv")
    assert offline.returncode == 0
    assert offline.stdout.splitlines()[0].startswith("name,state")
    assert "secret-token" not in "".join(p.read_text(errors="replace") for p in state.rglob("*.json"))
    gone = subprocess.run(
        command("status", "--server", "http://127.0.0.1:9"), capture_output=True, text=True, timeout=60
    )
    assert gone.returncode == 3
    assert "HUB_UNREACHABLE" in gone.stderr
