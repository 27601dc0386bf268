"""A full file system, a read-only directory, a clock that jumps."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

# Python imports this by itself when it starts: every Python process of a hub sees the clock shifted by the seconds that
# a file holds. The JVM's clock is left alone.
_SITECUSTOMIZE = """
import os, time
_file, _time, _time_ns = os.environ["SOAK_CLOCK"], time.time, time.time_ns
def _shift():
    try:
        with open(_file) as found:
            return int(found.read() or 0)
    except (OSError, ValueError):
        return 0
time.time = lambda: _time() + _shift()
time.time_ns = lambda: _time_ns() + _shift() * 10**9
"""


def can_mount() -> bool:
    """True if this process may mount file systems."""
    return os.geteuid() == 0 and subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


class SmallDisk:
    """A file system of a few MB at `path` that can be filled. Without the right to mount it is an ordinary directory,
    and `full` makes every fsync of this process fail as on a full disk."""

    def __init__(self, path: Path, megabytes: int) -> None:
        self.path, self.real = path, can_mount()
        path.mkdir(parents=True)
        if self.real:
            _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "headrace-soak", str(path))

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """There is no room until the block ends."""
        if not self.real:
            with _failing_fsync():
                yield
            return
        ballast = self.path / "ballast"
        try:
            with open(ballast, "wb", buffering=0) as out:
                for size in (1 << 20, 1 << 12):
                    with contextlib.suppress(OSError):
                        while True:
                            out.write(bytes(size))
            yield
        finally:
            ballast.unlink()

    def close(self) -> None:
        if self.real:
            _run("umount", "--lazy", str(self.path))


@contextlib.contextmanager
def read_only(path: Path) -> Iterator[None]:
    """Make `path` read-only until the block ends. Open files stay open."""
    if can_mount():  # permissions do not bind root
        _run("mount", "--bind", str(path), str(path))
        try:
            _run("mount", "-o", "remount,ro,bind", str(path))
            yield
        finally:
            _run("umount", "--lazy", str(path))
        return
    directories = [path, *(p for p in path.rglob("*") if p.is_dir())]
    modes = {p: stat.S_IMODE(p.stat().st_mode) for p in directories}
    try:
        for directory in directories:
            directory.chmod(modes[directory] & ~0o222)
        yield
    finally:
        for directory, mode in modes.items():
            directory.chmod(mode)


class Clock:
    """The clock of a hub in a process of its own; `env` goes into its environment."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        (directory / "sitecustomize.py").write_text(_SITECUSTOMIZE)
        self._file = directory / "shift"
        path = os.pathsep.join([str(directory), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.env = {"SOAK_CLOCK": str(self._file), "PYTHONPATH": path}

    def shift(self, seconds: int) -> None:
        """From now on the clock is this far from the true time."""
        aside = self._file.with_suffix(".new")
        aside.write_text(str(seconds))
        aside.rename(self._file)


@contextlib.contextmanager
def _failing_fsync() -> Iterator[None]:
    true = os.fsync

    def fail(handle: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    setattr(os, "fsync", fail)  # noqa: B010
    try:
        yield
    finally:
        setattr(os, "fsync", true)  # noqa: B010


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
