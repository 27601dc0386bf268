"""Small durable facts about a journal that must be writable even on a full disk: the mark and the consumer positions.

The mark records how far the files are synced, which distinguishes a lost end from damage. It has two slots in a file
that never grows. Writes alternate between the slots, so an interrupted write leaves the previous value intact."""

from __future__ import annotations

import json
import os
import struct
import threading
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import xxhash

from headrace.base.durable import write_atomic
from headrace.errors import JournalDamaged
from headrace.ingress.entries import damaged, numbers

_SLOT = 512
_HEADER = struct.Struct("<QIQ")  # turn, length, checksum
MARK = "synced"  # the name of its file


@dataclass(frozen=True, slots=True)
class JournalPosition:
    """A position between two records: byte `pos` of the ready log `file`, after the units below `address`."""

    file: int = 0
    pos: int = 0
    address: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """Everything before `synced` is on disk. Every consumer is past `consumed`, so files before it may be deleted.
    `boot` identifies the boot of the machine that wrote the mark. `closed` is true if the writer ended cleanly after
    it."""

    synced: JournalPosition = JournalPosition()
    consumed: JournalPosition = JournalPosition()
    boot: str = ""
    closed: bool = False


class MarkFile:
    """The mark of a journal. Thread-safe. `value` always equals the mark on disk."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / MARK
        self._lock = threading.Lock()
        self.found = self._read()  # None in a new journal and in a copied one
        self.value = self.found or Mark()
        self._handle = -1

    def _read(self) -> Mark | None:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            self._turn = 0
            return None
        found = max((_slot(data, at) for at in (0, _SLOT)), key=lambda slot: slot[0])
        self._turn = found[0]
        if found[1] is None and data.strip(b"\0"):
            raise JournalDamaged(
                f"{self._path} is damaged",
                advice="Delete this file: the journal then opens without it, and cannot detect whether its newest file "
                "lost its end.",
                path=str(self._path),
            )
        return found[1]

    def open(self) -> None:
        """Allocate the space that all later writes need."""
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if os.fstat(self._handle).st_size < 2 * _SLOT:
            os.pwrite(self._handle, bytes(2 * _SLOT), 0)

    def write(self, **changes: Any) -> None:
        """Change some values. They are on disk when this returns."""
        with self._lock:
            value = replace(self.value, **changes)
            text = json.dumps(asdict(value)).encode()
            turn = self._turn + 1
            slot = _HEADER.pack(turn, len(text), xxhash.xxh3_64_intdigest(text, seed=turn)) + text
            os.pwrite(self._handle, slot.ljust(_SLOT, b"\0"), turn % 2 * _SLOT)
            os.fdatasync(self._handle)
            self._turn, self.value = turn, value

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def _slot(data: bytes, at: int) -> tuple[int, Mark | None]:
    if len(data) < at + _HEADER.size:
        return 0, None
    turn, length, digest = _HEADER.unpack_from(data, at)
    text = data[at + _HEADER.size : at + _HEADER.size + length]
    if not length or xxhash.xxh3_64_intdigest(text, seed=turn) != digest:
        return 0, None
    values = json.loads(text)
    return turn, Mark(
        JournalPosition(**values["synced"]), JournalPosition(**values["consumed"]), values["boot"], values["closed"]
    )


def begun_path(directory: Path) -> Path:
    """A file beside the journal. If it exists, there was a journal, even if its directory is gone."""
    return directory.with_name(f"{directory.name}.begun")


def note_begun(directory: Path) -> None:
    """Store that the journal exists. Called before the first byte is taken."""
    if not begun_path(directory).exists():
        write_atomic(begun_path(directory), b"")


def is_gone(directory: Path, read_to: JournalPosition) -> bool:
    """True if nothing is left of the data of a journal that was begun, or that epochs have read up to `read_to`. From
    its beginning on, a journal has at least one log. A journal that was repaired after all logs were gone has a mark.
    The positions of consumers do not count: `rm journal/*` leaves them."""
    if not read_to.file and not begun_path(directory).exists():
        return False
    return not (numbers(directory) or (directory / MARK).exists())


def require_journal(directory: Path, read_to: JournalPosition = JournalPosition()) -> None:  # noqa: B008
    """Raise JournalDamaged if the journal is gone. A new one would begin with address 0, so that its records would be
    taken for those of the old one, and the loss of these would not be noticed."""
    if is_gone(directory, read_to):
        raise damaged(directory, 0, "is missing")


def boot() -> str:
    """The id of this boot of the machine. Data written since then is at least in the page cache, synced or not. Empty
    if the system has no such id."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def commit(directory: Path, consumer: str, place: JournalPosition, lost: int = 0) -> None:
    """Store that a consumer is past `place` and never reads anything before it again. `lost` counts bytes that it had
    planned to read and that were gone."""
    text = json.dumps([asdict(place), lost])
    digest = xxhash.xxh3_64_hexdigest(text.encode())
    write_atomic(consumer_path(directory, consumer), json.dumps({"at": text, "digest": digest}).encode())


def consumer_path(directory: Path, consumer: str) -> Path:
    return directory / "consumers" / f"{consumer}.json"


def read_consumer(path: Path) -> tuple[JournalPosition, int] | None:
    """The position that `commit` stored, and the lost bytes. None if there is no file or it is damaged: the mark has a
    position too."""
    try:
        found = json.loads(path.read_bytes())
        if found.keys() == {"file", "pos", "address"}:  # of an earlier version
            return JournalPosition(**found), 0
        if xxhash.xxh3_64_hexdigest(found["at"].encode()) != found["digest"]:
            return None
        at, lost = json.loads(found["at"])
        return JournalPosition(**at), int(lost)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
