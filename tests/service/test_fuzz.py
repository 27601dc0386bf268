"""Fuzzes the API from its own OpenAPI description: no request is answered with a 500."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.service.conftest import Served

CONFIG = Path(__file__).parent / "schemathesis.toml"
# These wait for epochs, which the in-process runner plans only on request.
WAITING = ("/api/v1/pipelines/{name}/stop", "/api/v1/streams/{name}/sync", "/api/v1/savepoints")
ENDLESS = ("/api/v1/events",)


def fuzz(url: str, examples: int, excluded: tuple[str, ...], seed: int | None) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "schemathesis")]
    command = command if Path(command[0]).exists() else [sys.executable, "-m", "schemathesis.cli"]
    arguments = ["--config-file", str(CONFIG), "run", f"{url}/api/v1/openapi.json", "--url", url]
    arguments += ["--checks", "not_a_server_error", "--phases", "examples,coverage,fuzzing", "--request-timeout", "60"]
    arguments += ["--max-examples", str(examples), *(["--seed", str(seed)] if seed is not None else [])]
    for path in excluded:
        arguments += ["--exclude-path", path]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=1800)


def test_no_request_that_the_description_allows_is_answered_with_500(served: Served) -> None:
    served.mini.hub.sql("CREATE PIPELINE p INTO out AS SELECT a FROM s")
    done = fuzz(served.url, 3, (*WAITING, *ENDLESS), seed=1)
    assert done.returncode == 0, done.stdout[-3000:]
    tested = re.search(r"Tested: (\d+)", done.stdout)
    assert tested is not None and int(tested[1]) >= 20, done.stdout[-3000:]
