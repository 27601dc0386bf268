"""The first `headrace run` on a disk that cannot be written to: a coded error, and the next run works."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.app.cli import app
from tests.shared.mini import Mini
from tests.soak.places import SmallDisk, can_mount, read_only

SCRIPT = "CREATE SINK out WITH (type = 'memory')"
CODES = {errno.ENOSPC: {"DISK_FULL", "UNWRITABLE_PATH"}, errno.EROFS: {"STATE_UNAVAILABLE", "UNWRITABLE_PATH"}}


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mini]:
    """Replaces Spark, also for `headrace run`."""
    mini = Mini(tmp_path / "other", monkeypatch)
    yield mini
    mini.hub.close()


class Disk:
    """The disk of `state`: it takes `room` more changes, and then refuses each with the error `number`."""

    def __init__(self, state: Path, room: int, number: int, patch: pytest.MonkeyPatch) -> None:
        self._state, self._room, self._number = str(state), room, number
        self.refused = 0
        for name in ("mkdir", "rename", "replace", "fsync", "pwrite", "posix_fallocate"):
            patch.setattr(os, name, self._limited(getattr(os, name)))
        patch.setattr(os, "open", self._limited(os.open, lambda path, flags, *_: bool(flags & os.O_CREAT)))

    def _limited(
        self, call: Callable[..., Any], changes: Callable[..., bool] = lambda *given: True
    ) -> Callable[..., Any]:
        def limited(where: Any, *given: Any, **named: Any) -> Any:
            path = os.readlink(f"/proc/self/fd/{where}") if isinstance(where, int) else os.fspath(where)
            if path.startswith(self._state) and changes(where, *given):
                if self._room == 0:
                    self.refused += 1
                    raise OSError(self._number, os.strerror(self._number), path)
                self._room -= 1
            return call(where, *given, **named)

        return limited


def run(script: Path, state: Path) -> tuple[int, str]:
    """The exit code of `headrace run`, and the code of the error that it printed."""
    answer = CliRunner().invoke(app, ["run", str(script), "--until-end", "--state-dir", str(state)])
    assert "Traceback" not in answer.stderr
    return answer.exit_code, answer.stderr.partition("[")[2].partition("]")[0]


@pytest.mark.parametrize("number", CODES)
def test_a_first_start_that_cannot_write_is_a_coded_error_wherever_the_disk_fails(
    tmp_path: Path, mini: Mini, number: int
) -> None:
    script = tmp_path / "app.sql"
    script.write_text(SCRIPT)
    for room in range(50):
        state = tmp_path / f"state{room}"
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(state, room, number, patch)
            found = run(script, state)
        if found[0] == 0:  # the rest is only the reserve, which is created later
            break
        assert disk.refused and found[0] == 2 and found[1] in CODES[number]
        assert run(script, state) == (0, ""), "the directory is free, and the next run works"
    assert 5 < room < 49


def test_a_first_start_on_a_full_or_read_only_file_system_is_a_coded_error(tmp_path: Path, mini: Mini) -> None:
    if not can_mount():
        pytest.skip("needs the right to mount a file system")
    script = tmp_path / "app.sql"
    script.write_text(SCRIPT)
    disk = SmallDisk(tmp_path / "disk", megabytes=16)
    try:
        with disk.full():
            assert run(script, disk.path / "state") == (2, "DISK_FULL")
        with read_only(disk.path):
            assert run(script, disk.path / "another") == (2, "UNWRITABLE_PATH")
            assert run(script, disk.path / "state") == (2, "UNWRITABLE_PATH")
        for name in ("state", "another"):
            assert run(script, disk.path / name) == (0, "")
    finally:
        disk.close()
