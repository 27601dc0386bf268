"""`headrace serve` as a process, for tests that need a real one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx


@dataclass
class Server:
    """A running one. `errors` is what it has written to standard error so far."""

    process: subprocess.Popen[str]
    url: str
    directory: Path
    _errors: Path

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    def get(self, path: str) -> Any:
        return httpx.get(self.url + path, timeout=60).json()

    def sql(self, text: str, timeout: float = 180) -> httpx.Response:
        return httpx.post(f"{self.url}/api/v1/sql", json={"text": text}, timeout=timeout)


@contextmanager
def serving(work: Path, *arguments: str) -> Iterator[Server]:
    """Serve `app.sql` in `work` on a free port; killed at the end if it still runs."""
    command = [sys.executable, "-m", "headrace.cli", "serve", str(work / "app.sql"), "--port", "0"]
    command += ["--state-dir", str(work / "state"), *arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with open(work / "stderr", "w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (work / "stderr").read_text()
        yield Server(process, line.split()[-1], work / "state", work / "stderr")
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()
