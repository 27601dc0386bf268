"""The disk space that is kept for stopping."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.base.background import BackgroundQueue
from headrace.errors import DiskFull
from headrace.hub.reserve import Reserve


class Later(BackgroundQueue):
    """Tasks that were put off. `run` runs them at once."""

    def __init__(self) -> None:
        super().__init__(lambda stream, problem: None)
        self.tasks: list[Callable[[], None]] = []

    def later(self, stream: str, task: Callable[[], None], seconds: float | None = None) -> None:
        self.tasks.append(task)

    def run(self) -> None:
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            task()


def test_the_reserve_is_not_created_again_while_a_call_needs_its_room(tmp_path: Path) -> None:
    later, file = Later(), tmp_path / "reserve"
    reserve = Reserve(tmp_path, later)
    reserve.keep()

    def write() -> str:
        later.run()  # an earlier call may have put off what creates it again
        if file.exists():
            raise DiskFull("there is no room")
        return "written"

    for _ in range(3):
        assert reserve.with_room(write) == "written"
        assert not file.exists()
    later.run()
    assert file.exists()


def test_a_call_that_fails_all_the_same_gives_the_reserve_back(tmp_path: Path) -> None:
    later, file = Later(), tmp_path / "reserve"
    reserve = Reserve(tmp_path, later)
    reserve.keep()

    def write() -> None:
        raise DiskFull("there is no room")

    with pytest.raises(DiskFull):
        reserve.with_room(write, needed=False)
    assert file.exists()
    with pytest.raises(DiskFull):
        reserve.with_room(write)
    assert not file.exists()
    later.run()
    assert file.exists()
