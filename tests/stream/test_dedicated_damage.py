"""A pipeline on the dedicated host whose files are gone does not begin again without its state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.base.durable import private_directory
from headrace.errors import kind_of
from headrace.state.progress import Progress, write_progress
from headrace.stream.dedicated_runtime import DedicatedRequest, DedicatedRuntime

OFFSETS = 'v1\n{}\n{"stream": "s", "position": 0, "closed": false}\n'


class Host:
    """A hub that starts no query."""

    def __init__(self) -> None:
        self.launched: list[DedicatedRequest] = []
        self.failures: list[str] = []

    def launch_dedicated(self, request: DedicatedRequest) -> Any:
        self.launched.append(request)
        return SimpleNamespace(stop=lambda: None, last_epoch=lambda: None)

    def dedicated_failed(self, pipeline: object, failure: str, detached: dict[str, str]) -> None:
        self.failures.append(failure)

    def reveal(self, secret: str) -> str:
        return secret


def _runtime(root: Path, host: Host) -> DedicatedRuntime:
    program = SimpleNamespace(stream="s", dedicated=SimpleNamespace(closes=False))
    pipeline: Any = SimpleNamespace(name="p", instance=7, fresh=0, streams=("s",), program=program, run="7/0", sinks=())
    return DedicatedRuntime(pipeline, lambda stream: root / stream, host)


@pytest.fixture
def turn(tmp_path: Path) -> Path:
    """The directory of a query that has committed a batch."""
    host = Host()
    runtime = _runtime(tmp_path, host)
    runtime.start()
    assert len(host.launched) == 1
    runtime.close()
    for log in ("offsets", "commits"):
        private_directory(runtime.directory / "checkpoint" / log)
    (runtime.directory / "checkpoint" / "offsets" / "0").write_text(OFFSETS)
    (runtime.directory / "checkpoint" / "commits" / "0").write_text("v1\n{}")
    write_progress(runtime.directory, Progress(epoch=0))
    return runtime.directory


def _remove(path: Path) -> None:
    path.unlink()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [_remove, _empty])
@pytest.mark.parametrize("name", ["begin.json", "progress.json", "checkpoint.id"])
def test_a_lost_file_is_named_and_the_state_stays(
    turn: Path, tmp_path: Path, name: str, harm: Callable[[Path], None]
) -> None:
    harm(turn / name)
    host = Host()
    runtime = _runtime(tmp_path, host)
    runtime.start()
    assert not host.launched
    assert kind_of(runtime.supervisor.problem or "") is not None
    assert any(name in failure for failure in host.failures)
    assert (turn / "checkpoint" / "commits" / "0").exists()
    runtime.close()


def test_a_query_whose_files_are_there_goes_on(turn: Path, tmp_path: Path) -> None:
    host = Host()
    runtime = _runtime(tmp_path, host)
    runtime.start()
    assert [request.directory for request in host.launched] == [turn]
    runtime.close()
