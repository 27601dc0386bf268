"""A lost or truncated file log is an error: it is never rebuilt from a listing."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.base import durable
from headrace.errors import DiskFull, StateDamaged
from headrace.sources.bufferlog import BufferLog, Forgotten, LoggedBuffer
from headrace.sources.extent import Extent
from headrace.sources.filelog import FileLog


def test_an_offset_beyond_the_log_is_an_error(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "files.log")
    assert log.address(0, 0) == 0
    with pytest.raises(StateDamaged):
        log.address(0, 11)
    log.append([Extent("/in/a", 1, 0, 11, "0", True)])
    with pytest.raises(StateDamaged):
        log.address(1, 0)


def test_a_damaged_log_of_buffers_is_named(tmp_path: Path) -> None:
    (tmp_path / "buffers.log").write_bytes(b"{not json\n")
    with pytest.raises(StateDamaged):
        BufferLog(tmp_path / "buffers.log").read()


def _every_damage(data: bytes) -> Iterator[bytes | None]:
    """One bit of each byte inverted, every shorter length, and no file."""
    for at in range(len(data)):
        yield data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]
        yield data[:at]
    yield None


def _damage(path: Path, damaged: bytes | None) -> None:
    path.unlink(missing_ok=True)
    if damaged is not None:
        path.write_bytes(damaged)


def test_a_damaged_log_of_files_never_names_other_files(tmp_path: Path) -> None:
    """A changed path would be another file: its rows would be read twice."""
    extents = [Extent(f"/in/{name}", 1, 0, 11, "0", True) for name in "ab"]
    FileLog(tmp_path / "files.log").append(extents)
    for damaged in _every_damage((tmp_path / "files.log").read_bytes()):
        _damage(tmp_path / "files.log", damaged)
        with pytest.raises(StateDamaged) as raised:
            FileLog(tmp_path / "files.log")
        assert str(tmp_path / "files.log") in raised.value.message
    assert not (tmp_path / "files.log").exists(), "nothing was written over what is left"


def test_the_count_of_a_log_is_only_a_check(tmp_path: Path) -> None:
    extents = [Extent(f"/in/{name}", 1, 0, 11, "0", True) for name in "ab"]
    FileLog(tmp_path / "files.log").append(extents)
    for damaged in _every_damage((tmp_path / "files.count").read_bytes()):
        _damage(tmp_path / "files.count", damaged)
        assert FileLog(tmp_path / "files.log").extents == extents


def _no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full whenever a count is written."""

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    for name in ("write_quickly", "write_atomic"):
        monkeypatch.setattr(f"headrace.model.stored.{name}", full)


def test_extents_are_logged_although_their_count_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extents = [Extent(f"/in/{name}", 1, 0, 11, "0", True) for name in "ab"]
    log = FileLog(tmp_path / "files.log")
    log.append(extents[:1])
    with monkeypatch.context() as patch:
        _no_count(patch)
        log.append(extents[1:])
    assert log.extents == FileLog(tmp_path / "files.log").extents == extents


def logged(origin: str, size: int) -> LoggedBuffer:
    return LoggedBuffer(f"/in/{origin}.1.buf", size, 1, origin, ends=False, outcomes=[[1, size, 0]])


def test_buffers_are_logged_although_their_count_cannot_be_written_and_are_forgotten_only_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = logged("x", 3), logged("y", 3)
    log = BufferLog(tmp_path / "buffers.log")
    log.append([x])
    with monkeypatch.context() as patch:
        _no_count(patch)
        log.append([y])
        assert BufferLog(tmp_path / "buffers.log").read()[1] == [x, y]
        with pytest.raises(DiskFull):
            log.forget(Forgotten(1, 3, 0), {"x"})
        assert BufferLog(tmp_path / "buffers.log").read()[1] == [x, y]
    synced: list[Path] = []

    def note(path: Path, data: bytes) -> None:
        synced.append(path)
        durable.write_atomic(path, data)

    monkeypatch.setattr("headrace.model.stored.write_atomic", note)
    log.forget(Forgotten(1, 3, 0), {"x"})
    assert synced == [tmp_path / "buffers.count"], "after a power loss, the old count would be a damage"
    assert BufferLog(tmp_path / "buffers.log").read()[1] == [y]


def test_a_log_whose_last_line_was_not_written_completely_continues(tmp_path: Path) -> None:
    extents = [Extent(f"/in/{name}", 1, 0, 11, "0", True) for name in "ab"]
    FileLog(tmp_path / "files.log").append(extents[:1])
    with open(tmp_path / "files.log", "ab") as file:
        file.write(b'{"path":"/in/b","ino')
    log = FileLog(tmp_path / "files.log")
    assert log.extents == extents[:1]
    log.append(extents[1:])
    assert FileLog(tmp_path / "files.log").extents == extents


def test_a_damaged_log_of_buffers_never_names_other_buffers(tmp_path: Path) -> None:
    log = BufferLog(tmp_path / "buffers.log")
    log.append([logged("x", 3)])
    log.append([logged("y", 4)])
    log.forget(Forgotten(1, 3, 0), {"x"})
    for damaged in _every_damage((tmp_path / "buffers.log").read_bytes()):
        _damage(tmp_path / "buffers.log", damaged)
        with pytest.raises(StateDamaged):
            BufferLog(tmp_path / "buffers.log").read()
