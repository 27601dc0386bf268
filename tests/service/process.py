"""`headrace serve` as a process, for tests that need a real one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.support import until


@dataclass
class Server:
    """A running server. `errors` is its output on standard error so far."""

    process: subprocess.Popen[str]
    url: str
    work: Path
    token: str | None = None
    _http: httpx.Client = field(default_factory=lambda: httpx.Client(trust_env=False))

    @property
    def directory(self) -> Path:
        return self.work / "state"

    @property
    def errors(self) -> str:
        return (self.work / "stderr").read_text()

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    def request(self, method: str, path: str, *, timeout: float = 180, **arguments: Any) -> httpx.Response:
        headers = self.headers | arguments.pop("headers", {})
        return self._http.request(method, self.url + path, headers=headers, timeout=timeout, **arguments)

    def close(self) -> None:
        """Close the connections of `request`."""
        self._http.close()

    def get(self, path: str) -> Any:
        return self.request("GET", path).json()

    def sql(self, text: str, timeout: float = 180) -> httpx.Response:
        return self.request("POST", "/api/v1/sql", json={"text": text}, timeout=timeout)

    def wait_ready(self) -> None:
        until(lambda: self.request("GET", "/ready").status_code == 200, "the hub is ready", 180)

    def declared(self) -> dict[str, dict[str, str]]:
        """The statement, or the type, of everything that is declared."""
        kinds = {"streams": "create_sql", "sinks": "type", "pipelines": "sql"}
        return {k: {o["name"]: o[text] for o in self.get(f"/api/v1/{k}")} for k, text in kinds.items()}

    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def wait_settled(self) -> None:
        """Wait until the number of threads has been the same for three seconds: Spark starts some of them late."""
        since, before = time.monotonic(), self.threads()
        while time.monotonic() < since + 3:
            time.sleep(0.2)
            if self.threads() != before:
                since, before = time.monotonic(), self.threads()

    def wait_threads(self, most: int) -> None:
        """Wait until the process has at most this many threads. An idle worker thread of the server ends ten seconds
        after its last request, when the next request comes."""

        def few() -> bool:
            self.request("GET", "/api/v1/sinks")
            time.sleep(0.2)
            return self.threads() <= most

        until(few, f"at most {most} threads are left", 60)


@contextmanager
def serving(work: Path, *arguments: str, token: str | None = None) -> Iterator[Server]:
    """Serve `app.sql` in `work` on a free port. Ends the server with SIGTERM if it still runs, and fails if it does not
    end cleanly."""
    command = [sys.executable, "-m", "headrace.app.cli", "serve", str(work / "app.sql"), "--port", "0"]
    command += ["--state-dir", str(work / "state"), *arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    if token is not None:
        (work / "token").write_text(f"{token}\n")
        command += ["--token-file", str(work / "token")]
    with open(work / "stderr", "w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, (work / "stderr").read_text()
        with closing(Server(process, line.split()[-1], work, token)) as server:
            yield server
    finally:
        process.terminate()
        try:
            process.wait(90)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
    assert process.returncode == 0, (work / "stderr").read_text()
