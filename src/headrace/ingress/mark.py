"""Small facts about a journal that must be durable, and must be written when the disk is full: the mark and the
positions of consumers.

The mark says how far the files are synced, so that a lost end is told from damage. It has two slots of its own bytes in
a file that never grows: a write that is cut short leaves the slot before it."""

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

_SLOT = 512
_HEADER = struct.Struct("<QIQ")  # turn, length, checksum
MARK = "synced"  # the name of its file


@dataclass(frozen=True, slots=True)
class JournalPosition:
    """A place between two records: byte `pos` of the ready log `file`, after the units below `address`."""

    file: int = 0
    pos: int = 0
    address: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """Everything before `synced` is on the disk; every consumer is past `consumed`, and files before it may be gone.
    `boot` is the run of the machine that wrote it; `closed` says that the writer ended well and wrote nothing more."""

    synced: JournalPosition = JournalPosition()
    consumed: JournalPosition = JournalPosition()
    boot: str = ""
    closed: bool = False


class MarkFile:
    """The mark of a journal. Any thread may call; the newest of `value` is always the one on the disk."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / MARK
        self._lock = threading.Lock()
        self.found = self._read()  # None in a new journal, and in a copy of one
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
                f"{self._path} is not what was written",
                advice="Remove this file: the journal is then opened without it. Whether its newest file lost its end "
                "is not noticed then.",
                path=str(self._path),
            )
        return found[1]

    def open(self) -> None:
        """Take the room that all writes need."""
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if os.fstat(self._handle).st_size < 2 * _SLOT:
            os.pwrite(self._handle, bytes(2 * _SLOT), 0)

    def write(self, **changes: Any) -> None:
        """Change some values: on the disk when this returns."""
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


def boot() -> str:
    """Which run of the machine this is: what was written since it began is in the page cache, synced or not. Empty
    where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def commit(directory: Path, consumer: str, place: JournalPosition, lost: int = 0) -> None:
    """A consumer is past `place` and will never ask for anything before it. `lost` are bytes that it had planned to
    read and that were gone."""
    text = json.dumps([asdict(place), lost])
    digest = xxhash.xxh3_64_hexdigest(text.encode())
    write_atomic(consumer_path(directory, consumer), json.dumps({"at": text, "digest": digest}).encode())


def consumer_path(directory: Path, consumer: str) -> Path:
    return directory / "consumers" / f"{consumer}.json"


def read_consumer(path: Path) -> tuple[JournalPosition, int] | None:
    """What `commit` has written; None if there is none, or if it is damaged: the mark holds a position too."""
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
