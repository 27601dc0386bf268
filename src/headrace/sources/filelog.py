"""The durable log of a file source: which bytes of which files make up the stream, in order.

An *extent* is a byte range of one file. The log has JSON lines with checksums, which are appended and synced before
`append` returns. So an offset (extent, position) means the same bytes after any restart. Sometimes the log is
compacted: replaced by one without the extents that were read. Only the process that plans epochs writes it. The file
`files.count` beside it has the number of extents, to detect that the end of the log is missing.

A line is an extent, or one of
    {"first", "bytes", "lines", ...}    at the beginning of a compacted log: totals of the removed lines
    {"known": extent, "gone": time}     the newest extent of a file whose extents were removed
    {"rotated": {new: old}}             growing files that were renamed; one line for all of one listing
    {"unknown": path}                   the file of this name was rotated away, and there is no new one
    {"bad": file}                       a file that is left out; its extent, if it has one, is never read
    {"good": path}                      a left-out file has its old content again
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from headrace.base.durable import fsync, private_opener, write_atomic
from headrace.base.log_lines import from_line, to_line
from headrace.errors import DiskFull, HeadraceError, StateDamaged, StateUnavailable
from headrace.model.stored import store_text, stored_text
from headrace.sources.badfiles import BadFile
from headrace.sources.extent import Extent

COMPACT_LINES = 1000  # a shorter log is not compacted
KEEP_GONE = 7 * 24 * 3600.0  # seconds
_ADVICE = "Restore it from a backup, restore a savepoint, or drop the stream and create it again."


class FileLog:
    """The extents of a stream, in memory and on disk.

    The numbers of extents never change. Extents before `first` were read and removed; only the newest extent of each
    file is kept. A file that was read and is gone is remembered for KEEP_GONE seconds. If it comes back in that time,
    with a mount for instance, it is not read again.

    `bad` are the files that are left out now, `left_out` their extents (and those of repaired files), and `bad_count`
    is how often a file was found bad. `followed` are growing files that were rotated: they are read under their new
    names, even if the stream's path does not match those.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.first = 0
        self.extents: list[Extent] = []  # number `first` and later
        self.last: dict[str, Extent] = {}  # path -> its newest extent
        self.followed: set[str] = set()
        self.bad: dict[str, BadFile] = {}  # by path, oldest first
        self.left_out: set[int] = set()
        self.bad_count = 0
        self._gone: dict[str, float] = {}  # path -> since when it is missing, as far as compactions know
        self._before: list[int] = [0]  # bytes before extent `first` + i
        self._lines = self._compacted = 0  # lines now, and lines after the newest compaction
        self._load()

    def _load(self) -> None:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            content = b""
        whole = content.rfind(b"\n") + 1
        for number, line in enumerate(content[:whole].splitlines(), 1):
            try:
                self._read(from_line(line))
            except (ValueError, TypeError, KeyError) as problem:
                raise StateDamaged(
                    f"{self.path}, line {number}, is damaged", advice=_ADVICE, path=str(self.path), line=number
                ) from problem
        if (counted := self._counted()) > (found := self.first + len(self.extents)):
            raise StateDamaged(
                f"{self.path} was truncated or lost: it has {found} of {counted} extents",
                advice=_ADVICE,
                path=str(self.path),
            )
        if whole != len(content):  # a crash cut the last line; no epoch was planned with it
            os.truncate(self.path, whole)

    def _counted(self) -> int:
        """How many extents were logged, as far as known. If the file is damaged, only this check is lost."""
        with contextlib.suppress(HeadraceError):
            return int(stored_text(self._count_file, lambda text: False) or 0)
        return 0

    @property
    def _count_file(self) -> Path:
        return self.path.with_suffix(".count")

    def _read(self, line: dict[str, Any]) -> None:
        self._lines += 1
        if "first" in line:
            self.first, self._before = int(line["first"]), [int(line["bytes"])]
            self._compacted = int(line["lines"])
            self.left_out = set(map(int, line.get("left_out", [])))
            self.bad_count = int(line.get("bad_count", 0))
        elif "known" in line:
            self._know(Extent.parse(line["known"]), line["gone"], bool(line.get("followed")))
        elif "rotated" in line:
            self._rotate(line["rotated"])
        elif "unknown" in line:
            self.last.pop(line["unknown"], None)
        elif "bad" in line:
            self._leave_out(BadFile.parse(line["bad"]), counted=not line.get("kept"))
        elif "good" in line:
            self.bad.pop(line["good"], None)
        else:
            self._add(Extent.parse(line))

    def _know(self, extent: Extent, gone: float | None, followed: bool) -> None:
        self.last[extent.path] = extent
        if gone is not None:
            self._gone[extent.path] = float(gone)
        if followed:
            self.followed.add(extent.path)

    def _leave_out(self, file: BadFile, counted: bool) -> None:
        self.bad_count += counted and (file.path not in self.bad or not file.unread)
        self.bad.pop(file.path, None)
        self.bad[file.path] = file
        if file.extent is not None:
            self.left_out.add(file.extent)

    def _add(self, extent: Extent) -> None:
        self.extents.append(extent)
        self.last[extent.path] = extent
        if extent.path in self.bad and self.bad[extent.path].unread:  # it was repaired
            del self.bad[extent.path]
        self._before.append(self._before[-1] + extent.end - extent.begin)

    def append(self, extents: Sequence[Extent]) -> None:
        """Add extents. They are durable when this returns."""
        self._write([asdict(e) for e in extents])
        for extent in extents:
            self._add(extent)
        if extents:
            self._count()

    def leave_out(self, files: Sequence[BadFile]) -> None:
        """Leave files out from now on. Durable when this returns."""
        self._write([{"bad": asdict(f)} for f in files])
        for file in files:
            self._leave_out(file, counted=True)

    def take_back(self, path: str) -> None:
        """Use a left-out file again: it has its old content."""
        self._write([{"good": path}])
        self.bad.pop(path, None)

    def rotate(self, moves: Mapping[str, str]) -> None:
        """Rename growing files. `moves` maps new to old names. Durable when this returns."""
        if moves:
            self._write([{"rotated": dict(moves)}])
            self._rotate(moves)

    def _rotate(self, moves: Mapping[str, str]) -> None:
        moved = {new: replace(self.last[old], path=new) for new, old in moves.items()}
        for old in moves.values():
            self.last.pop(old)
            self.followed.discard(old)
        self.last |= moved
        self.followed |= moved.keys()

    def _write(self, lines: Sequence[dict[str, Any]]) -> None:
        if not lines:
            return
        fresh = not self.path.exists()
        with open(self.path, "ab", opener=private_opener) as log:
            log.write(b"".join(map(to_line, lines)))
            log.flush()
            os.fsync(log.fileno())
        if fresh:
            fsync(self.path.parent)
        self._lines += len(lines)

    def _count(self) -> None:
        """Note how many extents there are. Nothing but a check depends on it, so it need not be durable, and if it
        cannot be written, the extents are logged anyway. The number only grows."""
        with contextlib.suppress(DiskFull, StateUnavailable):
            store_text(self._count_file, str(self.first + len(self.extents)), durable=False)

    @property
    def grown(self) -> bool:
        """True if the log should be compacted: it is twice as long as after the last time. So all compactions together
        cost no more than writing the log."""
        return self._lines >= max(COMPACT_LINES, 2 * self._compacted)

    def compact(
        self, oldest: int, present: Set[str], now: float, never: Callable[[str], bool] = lambda path: False
    ) -> None:
        """Remove the extents before number `oldest`, which no epoch will read again, and the files that were read and
        have been missing for KEEP_GONE seconds, or that are `never` listed again. `present` are the files that
        exist."""
        dropped = max(0, min(oldest - self.first, len(self.extents)))
        extents = self.extents[dropped:]
        open_paths = {e.path: e for e in extents}
        names = self.last.keys() | self.bad.keys()
        gone = {p: self._gone.get(p, now) for p in names - present}
        forgotten = {p for p, since in gone.items() if now - since > KEEP_GONE} | {p for p in names if never(p)}
        forgotten -= open_paths.keys()
        first = self.first + dropped
        left_out = {n for n in self.left_out if n >= first}

        def known(paths: Iterable[str]) -> Iterator[dict[str, Any]]:
            for p in paths:
                yield {"known": asdict(self.last[p]), "gone": gone.get(p), "followed": p in self.followed}

        lines = list(known(p for p in self.last if p not in open_paths and p not in forgotten))
        lines += [asdict(e) for e in extents]
        # If files were rotated, the remaining extents do not show which file has which name now.
        rotated = (p for p in open_paths if p in self.last and (p in self.followed or self.last[p] != open_paths[p]))
        lines += known(rotated)
        lines += [{"unknown": p} for p in open_paths if p not in self.last]
        lines += [{"bad": asdict(f), "kept": True} for p, f in self.bad.items() if p not in forgotten]
        head: dict[str, Any] = {"first": first, "bytes": self._before[dropped], "lines": len(lines) + 1}
        head |= {"left_out": sorted(left_out), "bad_count": self.bad_count}
        write_atomic(self.path, b"".join(map(to_line, [head, *lines])))
        self.first, self.extents, self._before = first, extents, self._before[dropped:]
        self.last = {p: e for p, e in self.last.items() if p not in forgotten}
        self.bad = {p: f for p, f in self.bad.items() if p not in forgotten}
        self.followed -= forgotten
        self.left_out = left_out
        self._gone = {p: since for p, since in gone.items() if p not in forgotten}
        self._lines = self._compacted = len(lines) + 1

    @property
    def empty(self) -> bool:
        """True if nothing was ever logged."""
        return not self.first and not self.extents

    @property
    def total(self) -> int:
        """The number of logged bytes."""
        return self._before[-1]

    def address(self, extent: int, pos: int) -> int:
        """The position of (extent, position in its file) in the concatenation of all extents."""
        if (extent, pos) == (0, 0) and self.empty:
            return 0
        if extent >= self.first + len(self.extents):
            raise StateDamaged(
                f"{self.path} was truncated or lost: an epoch has read up to extent {extent}, but it has only "
                f"{self.first + len(self.extents)}",
                advice=_ADVICE,
                path=str(self.path),
            )
        if extent < self.first:
            raise StateDamaged(
                f"{self.path} has no extent {extent} any more, but an epoch needs it", path=str(self.path), line=extent
            )
        return self._before[extent - self.first] + pos - self.extents[extent - self.first].begin

    def place(self, address: int) -> tuple[int, int]:
        """The (extent, position) of an address. At a boundary it is the end of the earlier extent."""
        i = max(0, bisect_right(self._before, address - 1) - 1) if address else 0
        i = min(i, len(self.extents) - 1)
        return self.first + i, self.extents[i].begin + address - self._before[i]

    def extent(self, number: int) -> Extent:
        """The extent with this number, which must not be removed."""
        return self.extents[number - self.first]
