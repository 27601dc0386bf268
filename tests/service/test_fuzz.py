"""Fuzzes the API of a real server from its own OpenAPI description: no request is answered with a 500. No route is left
out: requests wait for real epochs, and the hooks end the event stream after one event."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service.process import Server

pytestmark = pytest.mark.spark
HERE = Path(__file__).parent


def fuzz(server: Server, name: str, examples: int, seed: int) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "schemathesis")]
    command = command if Path(command[0]).exists() else [sys.executable, "-m", "schemathesis.cli"]
    arguments = ["--config-file", str(HERE / "schemathesis.toml")]
    arguments += ["run", f"{server.url}/api/v1/openapi.json", "--url", server.url, "--seed", str(seed)]
    arguments += [f"--header={key}: {value}" for key, value in server.headers.items()]
    arguments += ["--checks", "not_a_server_error", "--phases", "examples,coverage,fuzzing", "--request-timeout", "60"]
    arguments += ["--max-examples", str(examples)]
    hooks = {"SCHEMATHESIS_HOOKS": "fuzz_hooks", "PYTHONPATH": str(HERE), "FUZZED": name}
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=600, env=os.environ | hooks)


def test_no_request_that_the_description_allows_is_answered_with_500(process: Server, name: str) -> None:
    (process.work / name).mkdir()
    made = process.sql(
        f"CREATE SINK {name}_gone WITH (type = 'memory'); CREATE SINK {name} WITH (type = 'memory');"
        f"CREATE STREAM {name} (x BIGINT) WITH (source = 'files', "
        f"format = 'json', path = '{process.work / name}', on_error = 'dead_letter', dead_letter_sink = '{name}');"
        f"CREATE PIPELINE {name} INTO {name} AS SELECT x FROM {name}"
    )
    assert made.status_code == 200, made.text
    done = fuzz(process, name, 3, seed=1)
    assert done.returncode == 0, done.stdout[-3000:]
    described = process.get("/api/v1/openapi.json")["paths"]
    tested = re.search(r"Tested: (\d+)", done.stdout)
    assert tested is not None, done.stdout[-3000:]
    assert int(tested[1]) == sum(len(methods) for methods in described.values()), done.stdout[-3000:]
    assert process.request("GET", f"/api/v1/sinks/{name}_gone").status_code == 404  # it was dropped
    assert process.sql(f"DROP PIPELINE {name}; DROP STREAM {name}; DROP SINK {name}").status_code == 200
    assert process.request("GET", "/ready").status_code == 200
