"""Events of many lanes in one message: as they are, compressed, or in a file."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from headrace.bridge.packs import FREE_BYTES, LARGE_FROM, PACK_BYTES, PackEntry, packs, unpack
from headrace.errors import InternalError, StateUnavailable


def entries(count: int, size: int) -> list[PackEntry]:
    chances = random.Random(count * size)
    return [
        PackEntry(lane, start=-lane, end=2**40, rows=lane * 3, payload=chances.randbytes(size // 2) + bytes(size // 2))
        for lane in range(count)
    ]


@pytest.mark.parametrize("filed", [True, False])
@pytest.mark.parametrize("size", [0, 8, LARGE_FROM // 10 - 2, LARGE_FROM // 10 + 2, LARGE_FROM, 1 << 20])
def test_entries_come_back_from_small_and_large_packs(size: int, filed: bool, tmp_path: Path) -> None:
    given = entries(10, size)
    messages = list(packs(given, str(tmp_path) if filed else ""))
    for _ in range(2):  # Spark may run a task again
        found = [entry for message in messages for entry in unpack(message)]
        assert found == given
    assert all(type(entry.payload) is bytes for entry in found)  # what decodes rows needs their address
    assert len(messages) == -(-10 * max(size, 1) // PACK_BYTES)
    assert len(list(tmp_path.iterdir())) == (len(messages) if filed and 10 * size >= LARGE_FROM else 0)


def test_large_packs_are_compressed() -> None:
    small, large = entries(1, LARGE_FROM - 2), entries(1, 2 * LARGE_FROM)
    assert len(b"".join(packs(small))) > LARGE_FROM - 2
    assert len(b"".join(packs(large))) < 1.2 * LARGE_FROM


def test_a_large_pack_in_a_file_is_a_small_message(tmp_path: Path) -> None:
    given = entries(10, LARGE_FROM)
    (message,) = packs(given, str(tmp_path))
    assert len(message) < 1024
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    list(packs(given, str(tmp_path)))
    assert len(list(tmp_path.iterdir())) == 2  # every attempt of a task has files of its own


def test_where_no_file_can_be_written_the_message_has_the_pack(tmp_path: Path) -> None:
    given = entries(10, LARGE_FROM)
    assert list(packs(given, str(tmp_path / "missing"))) == list(packs(given))


def test_a_full_disk_leaves_no_half_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write to a full disk may take only the first bytes, or fail."""
    given = entries(10, LARGE_FROM)
    limits = [4096, 0]

    class FullDisk:
        def __init__(self, path: str, mode: str, **_: object) -> None:
            self._path, self._limit = Path(path), limits.pop()

        def __enter__(self) -> FullDisk:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def write(self, data: bytes) -> int:
            self._path.write_bytes(data[: self._limit])
            if not self._limit:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return self._limit

    monkeypatch.setattr("headrace.bridge.packs.open", FullDisk, raising=False)
    while limits:
        assert list(packs(given, str(tmp_path))) == list(packs(given))
        assert list(tmp_path.iterdir()) == []


def damaged(data: bytes) -> list[bytes]:
    chances = random.Random(len(data))
    flipped = bytearray(data)
    flipped[chances.randrange(len(data))] ^= 1 << chances.randrange(8)
    return [bytes(flipped), data[:-1], data + b"\0", b"", data[:4096] + bytes(4096) + data[8192:]]


@pytest.mark.parametrize("size", [LARGE_FROM, LARGE_FROM + 3])
def test_a_file_that_is_gone_or_damaged_is_an_error(size: int, tmp_path: Path) -> None:
    given = entries(10, size)
    (message,) = packs(given, str(tmp_path))
    (file,) = tmp_path.iterdir()
    written = file.read_bytes()
    for wrong in damaged(written):
        file.write_bytes(wrong)
        with pytest.raises(StateUnavailable):
            list(unpack(message))
    file.write_bytes(written)
    assert list(unpack(message)) == given
    file.unlink()
    with pytest.raises(StateUnavailable):
        list(unpack(message))


def test_files_leave_room_on_an_almost_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of the same epoch needs that room."""
    given, disk = entries(10, LARGE_FROM), os.statvfs(tmp_path)
    for free, files in ((FREE_BYTES, 0), (FREE_BYTES + 11 * LARGE_FROM, 1)):
        found = os.statvfs_result([*disk[:4], free // disk.f_frsize, *disk[5:]])
        monkeypatch.setattr(os, "statvfs", lambda _, found=found: found)
        assert (list(packs(given, str(tmp_path))) == list(packs(given))) == (not files)
        assert len(list(tmp_path.iterdir())) == files


def test_the_same_entries_are_the_same_bytes() -> None:
    """A re-run of an epoch sends the same messages again."""
    given = entries(10, LARGE_FROM)
    assert list(packs(given)) == list(packs(list(given)))


@pytest.mark.parametrize("size", [8, LARGE_FROM])
def test_other_bytes_are_refused(size: int) -> None:
    (message,) = packs(entries(2, size))
    for wrong in (message[:-1], message[:20], b"HRPX" + message[4:], message + bytes(8)):
        with pytest.raises(InternalError):
            list(unpack(wrong))
