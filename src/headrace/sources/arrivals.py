"""Compares a listing with the file log: finds new files, files that grew or were rotated, and bad files.

One thread calls it, in the process that plans epochs. With `on_bad_file = 'fail'` a bad file is an error, and nothing
of the listing is logged. With 'skip' the file is logged as left out, and checked again when it has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import replace
from functools import partial
from typing import Protocol

from headrace.errors import FileChanged, MissingFile
from headrace.formats.codecs import Decompressor, codec_of
from headrace.formats.format_kind import Format
from headrace.formats.tables import TableFormat
from headrace.sources.badfiles import BadFile, in_short
from headrace.sources.extent import (
    BAD_FILE,
    Extent,
    Siblings,
    Stamp,
    changed,
    look_at,
    rotated_to,
    stamp_of,
)
from headrace.sources.filelog import FileLog
from headrace.sources.handles import SKIP_ADVICE, Handle, as_file, closing_file, open_file, read_at, size_of
from headrace.sources.reading import CHUNK, HEADER, naming
from headrace.stores.object_store import ObjectStore

Fresh = list[tuple[int, Extent]]  # with the modification time
_FORGET = 10_000  # how many stamps of files that are no longer listed are kept at least


class Listed(Protocol):
    """A listing that knows the stamps of its files."""

    @property
    def store(self) -> ObjectStore | None: ...

    def stamps(self, paths: Iterable[str]) -> dict[str, Stamp]: ...


class Arrivals:
    """Adds the new files of listings to a log. Opens only files whose stamp has changed."""

    def __init__(
        self,
        log: FileLog,
        fmt: Format,
        *,
        tail: bool,
        codec: str,
        headed: bool,
        skip: bool,
        listed: Listed | None = None,
    ) -> None:
        """`codec` is the value of the option. `headed` is true if each file has a header that must match the schema.
        `listed` says how files are found if not by their path in a file system."""
        self._store = None if listed is None else listed.store
        self._look = _stamps if listed is None else listed.stamps
        self._log, self._format, self._tail, self._codec = log, fmt, tail, codec
        self._headed, self._skip = headed, skip
        self._stamps = {p: e.stamp for p, e in log.last.items() if e.sealed and e.stamp is not None}
        self._seen: dict[str, Stamp] = {}  # stamps of the current listing; they replace `_stamps` when it is logged
        self._present: frozenset[str] | None = None

    def take(self, paths: Iterable[str], all_of_them: bool) -> None:
        """Log the new files of a listing. Checks known files only with `all_of_them`."""
        listed = {path for path in paths if not (self._tail and self._codec_of(path))}
        self._seen = {}
        if self._tail:
            found = self._look(listed | self._log.followed)
            self._take_growing(found)
            self._present = frozenset(found)
        else:
            last, bad = self._log.last, self._log.bad
            new = listed if all_of_them else {path for path in listed if path not in last or path in bad}
            self._take_sealed(self._look(new))
        self._stamps |= self._seen
        if len(self._stamps) > 2 * len(listed) + _FORGET:
            self._stamps = {path: stamp for path, stamp in self._stamps.items() if path in listed}

    # --- immutable files --------------------------------------------------------------------------

    def _take_sealed(self, found: dict[str, Stamp]) -> None:
        fresh: Fresh = []
        bad: list[BadFile] = []
        for path, stamp in found.items():
            if self._unchanged(path, stamp):
                continue
            left_out, known = self._log.bad.get(path), self._log.last.get(path)
            if known is None or (left_out is not None and left_out.unread):
                fresh += self._judged(
                    path=path, stamp=stamp, unread=True, bad=bad, judge=partial(self._extent, path, None)
                )
            else:
                self._judged(path=path, stamp=stamp, unread=False, bad=bad, judge=partial(self._same, known))
        self._log_all(fresh, bad)

    def _same(self, known: Extent) -> Fresh:
        """Check a known file whose stamp has changed. Raises FileChanged unless it still has the logged bytes."""
        with closing_file(open_file(known.path, self._store)) as fd:
            known.verify(fd)
            self._trust(known.path, stamp_of(fd))
        if known.path in self._log.bad:
            self._log.take_back(known.path)
        return []

    def _judged(
        self, path: str, stamp: Stamp | None, unread: bool, bad: list[BadFile], judge: Callable[[], Fresh]
    ) -> Fresh:
        """The result of `judge`. If the file is bad, adds it to `bad` or raises its error. FileChanged of a growing
        file is always raised, because the file may have been rotated."""
        try:
            return judge()
        except MissingFile:
            return []  # deleted since the directory was listed; no epoch was planned with it
        except BAD_FILE as problem:
            if not self._skip or (self._tail and isinstance(problem, FileChanged)):
                raise
            code, message = in_short(problem)
            bad.append(BadFile(path=path, code=code, message=message, stamp=stamp, unread=unread))
            return []

    # --- growing files ----------------------------------------------------------------------------

    def _take_growing(self, found: dict[str, Stamp]) -> None:
        fresh: Fresh = []
        bad: list[BadFile] = []
        displaced: dict[str, Extent] = {}
        for path, known in list(self._log.last.items()):
            if path in found:
                if not self._unchanged(path, found[path]) and not self._grown(known, found[path], fresh, bad):
                    displaced[path] = known
            elif self._present is None or path in self._present:
                displaced[path] = known
        moves = self._moves(displaced, found.keys() & self._log.last.keys() - displaced.keys())
        begun = displaced.keys() & found.keys() - set(moves.values()) - moves.keys()
        bad += [self._lost(path) for path in begun]
        self._log.rotate(moves)
        for path, stamp in found.items():
            new = path not in moves and path not in self._log.last and not self._unchanged(path, stamp)
            if new or path in begun:
                fresh += self._judged(
                    path=path, stamp=stamp, unread=True, bad=bad, judge=partial(self._extent, path, None)
                )
        for path in moves:  # including those that the stream's path does not match
            self._grown(self._log.last[path], None, fresh, bad)
        self._log_all(fresh, bad)

    def _grown(self, known: Extent, stamp: Stamp | None, fresh: Fresh, bad: list[BadFile]) -> bool:
        """Add the bytes that a growing file has gained. Returns False if it is another file now."""
        try:
            fresh += self._judged(
                path=known.path, stamp=stamp, unread=False, bad=bad, judge=partial(self._extent, known.path, known)
            )
        except FileChanged:
            return False
        return True

    def _moves(self, displaced: dict[str, Extent], intact: Set[str]) -> dict[str, str]:
        """The new names of growing files that were rotated, as {new: old}. The name of an `intact` file is never a new
        name."""
        siblings, moves = Siblings(), dict[str, str]()
        for path, known in displaced.items():
            home = rotated_to(known, siblings)
            if home is not None and home not in moves and home not in intact:
                moves[home] = path
        return moves

    def _lost(self, path: str) -> BadFile:
        """The entry for a growing file whose content was replaced and whose old content was not found. The last bytes
        of the old content may not have been read."""
        size = self._log.last[path].end
        problem = changed(path, f"was replaced or truncated, and no other file there has its {size} old bytes,")
        if not self._skip:
            raise problem
        return BadFile(path, *in_short(problem), None, unread=False)

    # --- both -------------------------------------------------------------------------------------

    def _log_all(self, fresh: Fresh, bad: list[BadFile]) -> None:
        news = [b for b in bad if b != self._log.bad.get(b.path)]
        self._log.leave_out(news)
        self._log.append([e for _, e in sorted(fresh, key=lambda pair: (pair[0], pair[1].path))])

    def _unchanged(self, path: str, stamp: Stamp) -> bool:
        """True if a file has not changed since it was last checked, good or bad."""
        left_out = self._log.bad.get(path)
        return self._stamps.get(path) == stamp or (left_out is not None and left_out.stamp == stamp)

    def _trust(self, path: str, stamp: Stamp) -> None:
        self._stamps.pop(path, None)
        if stamp.settled:
            self._seen[path] = stamp

    def _extent(self, path: str, known: Extent | None) -> Fresh:
        """The bytes of a file that are not logged yet, with its modification time. Empty if they are not a whole record
        yet."""
        with closing_file(open_file(path, self._store)) as fd:
            stamp, begin = stamp_of(fd), 0 if known is None else known.end
            if known is not None:
                known.verify(fd)
                self._log.last[path] = replace(known, inode=stamp.inode)  # a copied directory has other inodes
            end = self._last_record_end(fd, begin, stamp.size) if self._tail else stamp.size
            codec = self._codec_of(path)
            if begin == 0 and not (self._tail and end == begin):
                self._check_header(fd, path, codec)
            self._trust(path, stamp)
            if self._tail and end == begin:
                return []
            whole = bool(codec or self._format.in_order)
            extent = Extent.of(fd, path, begin, end, sealed=not self._tail, whole=whole, codec=codec)
            return [(stamp.mtime_ns, extent)]

    def _codec_of(self, path: str) -> str:
        """How a file is compressed; empty if it is not. With `tail` such a file is not read: it is a log that was
        compressed after it was rotated, so its lines were read before."""
        return codec_of(path) if self._codec == "auto" else self._codec.removeprefix("none")

    def _check_header(self, fd: Handle, path: str, codec: str) -> None:
        """Raise HeaderMismatch or SchemaMismatch while the file can still be repaired: no epoch has been planned with
        it."""
        if isinstance(self._format, TableFormat):
            with as_file(fd) as file:
                list(self._format.units(file, path, size=size_of(fd), begin=0, end=0))
            return
        if not self._headed:
            return
        with as_file(fd) as file:
            try:
                head = Decompressor(file, codec, path).read(HEADER) if codec else file.read(HEADER)
                with naming(path):
                    self._format.preamble(head, True, len(head) < HEADER)
            except BAD_FILE as problem:
                problem.advice += (
                    " If only this file is wrong: correct or remove it, then START a pipeline of the stream. "
                    f"To leave such files out: {SKIP_ADVICE}"
                )
                raise

    def _last_record_end(self, fd: Handle, begin: int, size: int) -> int:
        if self._format.row_bytes:
            return size - size % self._format.row_bytes
        delimiter = self._format.delimiter
        high, window = size, 4096
        while high > begin:
            low = max(begin, high - window)
            found = read_at(fd, min(size, high + len(delimiter) - 1) - low, low).rfind(delimiter)
            if found >= 0:
                return low + found + len(delimiter)
            high, window = low, min(window * 4, CHUNK)
        return begin


def _stamps(paths: Iterable[str]) -> dict[str, Stamp]:
    """The stamps of the files that exist."""
    return {path: stamp for path in paths if (stamp := look_at(path)) is not None}
