"""A pipeline on the dedicated host whose files are gone does not begin again without its state."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.base.durable import private_directory
from headrace.errors import kind_of
from headrace.model.definitions import PipelineDef
from headrace.model.program import DedicatedQuery, FeedInput
from headrace.state.progress import Progress, write_progress
from headrace.stream.dedicated_runtime import DedicatedRequest, DedicatedRuntime
from tests.ring0.tasks import N, stateless

OFFSETS = 'v1\n{}\n{"stream": "s", "position": 0, "closed": false}\n'


class Host:
    """A hub that starts no query."""

    def __init__(self) -> None:
        self.launched: list[DedicatedRequest] = []
        self.failures: list[str] = []
        self.backlog = False

    def launch_dedicated(self, request: DedicatedRequest) -> Any:
        self.launched.append(request)
        return SimpleNamespace(stop=lambda: None, last_epoch=lambda: None)

    def dedicated_failed(self, pipeline: object, failure: str, detached: dict[str, str]) -> None:
        self.failures.append(failure)

    def reads_backlog(self, pipeline: object) -> bool:
        return self.backlog

    def reveal(self, secret: str) -> str:
        return secret


def _runtime(root: Path, host: Host) -> DedicatedRuntime:
    given = stateless(7, N)
    inputs = (FeedInput("s", "s", given.program.view, given.program.ring0, given.program.output),)
    program = replace(given.program, dedicated=DedicatedQuery("SELECT n FROM s", inputs))
    return DedicatedRuntime(PipelineDef("p", 7, (), program, 1), lambda stream: root / stream, host)


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


def test_a_query_whose_files_are_there_continues(turn: Path, tmp_path: Path) -> None:
    host = Host()
    runtime = _runtime(tmp_path, host)
    runtime.start()
    assert [request.directory for request in host.launched] == [turn]
    runtime.close()


def _next_turn(turn: Path, number: int) -> Path:
    """A complete turn after `turn`, as it is when the deletion of `turn` begins."""
    new = turn.parent / str(number)
    private_directory(new)
    write_progress(new, Progress())
    for name in ("checkpoint.id", "begin.json"):
        shutil.copy(turn / name, new / name)
    return new


@pytest.mark.parametrize("gone", ["begin.json", "progress.json", "checkpoint.id", "checkpoint/offsets/0"])
def test_a_turn_whose_deletion_was_interrupted_is_no_damage(turn: Path, tmp_path: Path, gone: str) -> None:
    new = _next_turn(turn, 1)
    (turn / gone).unlink()
    host = Host()
    runtime = _runtime(tmp_path, host)
    runtime.start()
    assert [request.directory for request in host.launched] == [new], host.failures
    assert not turn.exists()
    runtime.close()


def test_a_lost_begin_of_the_newest_turn_is_named_although_an_earlier_turn_is_left(turn: Path, tmp_path: Path) -> None:
    """Turns are numbers: 10 comes after 9."""
    nine = turn.rename(turn.with_name("9"))
    ten = _next_turn(nine, 10)
    shutil.copytree(nine / "checkpoint", ten / "checkpoint")
    (ten / "begin.json").unlink()
    host = Host()
    runtime = _runtime(tmp_path, host)
    runtime.start()
    assert not host.launched
    assert any("10/begin.json" in failure for failure in host.failures)
    assert (nine / "begin.json").exists()
    runtime.close()
