"""The fault soak really makes disks full and directories read-only, and restores them afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.base.durable import write_atomic
from tests.soak.places import Clock, SmallDisk, read_only


def test_a_full_disk_takes_nothing_until_there_is_room(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path / "disk", megabytes=2)
    try:
        with disk.full(), pytest.raises(OSError):
            write_atomic(disk.path / "file", bytes(10_000))
        write_atomic(disk.path / "file", bytes(10_000))
        assert (disk.path / "file").stat().st_size == 10_000
    finally:
        disk.close()


def test_nothing_can_be_written_below_a_read_only_directory(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    with read_only(tmp_path / "a"):
        for place in (tmp_path / "a", tmp_path / "a" / "b"):
            with pytest.raises(OSError):
                (place / "file").write_text("x")
    (tmp_path / "a" / "b" / "file").write_text("x")


def test_the_clock_of_a_process_jumps_while_it_runs(tmp_path: Path) -> None:
    clock = Clock(tmp_path / "clock")
    child = subprocess.Popen(
        [sys.executable, "-uc", "import time\nwhile input() != 'end': print(time.time(), time.time_ns())"],
        env={**os.environ, **clock.env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None and child.stdout is not None
    for shift in (0, 3600, -3600, 0):
        clock.shift(shift)
        print("go", file=child.stdin, flush=True)
        seconds, nanoseconds = map(float, child.stdout.readline().split())
        assert abs(seconds - time.time() - shift) < 60
        assert abs(nanoseconds / 1e9 - time.time() - shift) < 60
    child.communicate("end\n")
    assert child.returncode == 0
