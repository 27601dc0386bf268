"""The process of one system, seen from the harness: send it work, and measure what its whole process tree uses."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers.environments import ROOT, System, python, sources
from bench.processes import usage

SAMPLE_SECONDS = 0.5
LIMIT_SECONDS = 900.0  # for an answer; then the process is killed


class ContenderFailed(Exception):
    """A system that could not do its work."""


@dataclass(frozen=True, slots=True)
class Timed:
    """One timed run. `cpu` is in seconds and `peak` in bytes, of all processes of the system."""

    seconds: float
    cpu: float
    peak: int


class Contender:
    """A running system. `close` ends it."""

    def __init__(self, system: System, log: Path, java_home: Path) -> None:
        self.name = system.name
        self._log = log
        env = os.environ | {"JAVA_HOME": str(java_home), "PYTHONPATH": ":".join(map(str, sources(system))), "TZ": "UTC"}
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [str(python(system)), "-m", system.module],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT, env=env, text=True,
            )  # fmt: skip
        try:
            self.versions: dict[str, str] = self._answer()["ready"]
        except ContenderFailed:
            self.close()
            raise

    def check(self, workload: str, count: int, files: Sequence[Path], out: Path) -> None:
        """Write the outputs of the first `count` queries to `out`."""
        self._send({"do": "check", "workload": workload, "count": count, "files": _texts(files), "out": str(out)})
        self._answer()

    @property
    def pid(self) -> int:
        return self._process.pid

    def time(
        self,
        workload: str,
        count: int,
        warm: Sequence[Path],
        files: Sequence[Path],
        place: Path,
        begun: Callable[[], None] = lambda: None,
    ) -> Timed:
        """Time the first `count` queries over `files`. `begun` is called when the clock starts."""
        place.mkdir(parents=True)
        self._send(
            {"do": "time", "workload": workload, "count": count, "warm": _texts(warm), "files": _texts(files),
             "place": str(place)}
        )  # fmt: skip
        self._answer("begin")
        begun()
        with _Watched(self._process.pid) as watched:
            self._answer("end")
        return Timed(float(self._answer()["done"]), watched.cpu, watched.peak)

    def close(self) -> None:
        """End the process, in its own time if it can."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.close()  # it ends when there are no more requests
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _send(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ContenderFailed(f"{self.name} has ended") from None

    def _answer(self, mark: str | None = None) -> dict[str, Any]:
        assert self._process.stdout is not None
        watchdog = threading.Timer(LIMIT_SECONDS, self._process.kill)
        watchdog.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            raise ContenderFailed(f"{self.name} ended: {self._log.read_text(errors='replace')[-1500:]}")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise ContenderFailed(f"{self.name}: {answer['failed']}")
        if mark is not None and answer.get("mark") != mark:
            raise ContenderFailed(f"{self.name}: expected {mark}, got {line.strip()}")
        return answer


class _Watched:
    """Processor time and peak memory of a process tree while the block runs."""

    def __init__(self, root: int) -> None:
        self._root, self._stop = root, threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.cpu, self.peak = 0.0, 0

    def __enter__(self) -> _Watched:
        self._before, self.peak = usage(self._root)
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._stop.set()
        self._thread.join()
        after, memory = usage(self._root)
        self.cpu, self.peak = after - self._before, max(self.peak, memory)

    def _sample(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self.peak = max(self.peak, usage(self._root)[1])


def _texts(paths: Sequence[Path]) -> list[str]:
    return [str(path) for path in paths]
