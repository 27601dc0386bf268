"""The loop of a process that runs one system: requests come as JSON lines on standard input, answers go back likewise.

Requests are `check` (run the queries to their end and write their outputs to files) and `time` (let files appear and
tell when the work on them begins and ends). What the system itself prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Protocol

from bench.peers.workloads import WORKLOADS, Workload

Mark = Callable[[str], None]


class Runner(Protocol):
    """One system."""

    def versions(self) -> dict[str, str]: ...

    def check(self, workload: Workload, count: int, files: list[Path], out: Path) -> None:
        """Write the output of query i over `files` to `out/i`, as `.parquet` or `.json` files at any depth."""

    def time(
        self, workload: Workload, count: int, warm: list[Path], measured: list[Path], place: Path, mark: Mark
    ) -> float:
        """Work off `warm`, then `measured`, into a sink that does nothing. Calls mark("begin") and mark("end") around
        the second. The seconds between them, without what only this way of measuring costs."""

    def close(self) -> None: ...


def serve(make: Callable[[], Runner]) -> None:
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    runner = make()
    _send(answers, {"ready": runner.versions()})
    for line in sys.stdin:
        request = json.loads(line)
        workload, count = WORKLOADS[request["workload"]], request["count"]
        try:
            if request["do"] == "check":
                runner.check(workload, count, _paths(request["files"]), Path(request["out"]))
                _send(answers, {"done": None})
            else:
                seconds = runner.time(
                    workload,
                    count,
                    _paths(request["warm"]),
                    _paths(request["files"]),
                    Path(request["place"]),
                    lambda event: _send(answers, {"mark": event}),
                )
                _send(answers, {"done": seconds})
        except Exception as failure:
            _send(answers, {"failed": f"{type(failure).__name__}: {failure}"[:2000]})
    runner.close()


def link(directory: Path, files: list[Path]) -> None:
    """Let files appear in a directory, each whole."""
    directory.mkdir(parents=True, exist_ok=True)
    for file in files:
        os.link(file, directory / file.name)


def _paths(texts: list[str]) -> list[Path]:
    return [Path(text) for text in texts]


def _send(answers: IO[str], message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()
