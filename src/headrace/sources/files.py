"""The source `files`: NDJSON, CSV and other record files in a directory, read once each, by all cores.

New files are picked up as they appear. A file is immutable by default (written elsewhere, renamed into place) and its
end ends the last record; with `tail = 'true'` files grow and a last record without delimiter waits. Within one listing
files are ordered by (mtime, path).

unit of parallelism: a byte range of a file; delivery: exactly once into an epoch, replayable as long as the files stay.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from headrace.durable import write_atomic
from headrace.errors import BadOption, HeadraceError
from headrace.formats import FORMATS
from headrace.formats.codecs import CODECS, codec_of
from headrace.options import Option, boolean, choice, text
from headrace.program import StreamDef
from headrace.sources.base import Clock, Offset, SourceKind, Split
from headrace.sources.filelog import HEAD, Extent, FileLog, changed, fingerprint, unreadable
from headrace.sources.listing import Listing
from headrace.sources.reading import CHUNK, HEADER, FileRange, FileSplit

SMALLEST_SPLIT = 256 << 10  # less is not worth a task
POLL = 0.1  # seconds between listings, at least


class Files:
    """Plans the epochs of a file stream. See `headrace.sources.base.Source` for the promises."""

    def __init__(self, stream: StreamDef, values: Mapping[str, Any], state_dir: Path, clock: Clock) -> None:
        self.format = FORMATS[stream.format].make(stream.schema, stream.options)
        self.listing = Listing(values["path"])
        self.tail: bool = values["tail"]
        self.codec: str = values["codec"]
        self.log = FileLog(state_dir / "files.log")
        self.start: str = values["start"]
        self._start_file = state_dir / "start.json"
        self.clock = clock
        self._next_poll = 0.0
        self._present: set[str] | None = None

    def initial(self) -> Offset:
        """With start = 'latest', the end of what is there when this is asked first; later the same, because Spark may
        ask again after a crash, and what came meanwhile must not be passed over."""
        if self.start == "earliest":
            return {"extent": 0, "pos": 0}
        if not self._start_file.exists():
            self._poll(force=True)
            extent, pos = self.log.place(self.log.total) if self.log.total else (0, 0)
            write_atomic(self._start_file, json.dumps({"extent": extent, "pos": pos}).encode())
        offset: Offset = json.loads(self._start_file.read_bytes())
        return offset

    def latest(self, start: Offset, max_bytes: int | None) -> Offset:
        self._poll()
        begin = self._address(start)
        if begin >= self.log.total:
            return start
        end = self.log.total if max_bytes is None else min(self.log.total, begin + max(1, max_bytes))
        extent, pos = self.log.place(end)
        if self.log.extent(extent).whole:
            pos = self.log.extent(extent).end
        return {"extent": extent, "pos": pos}

    def splits(self, start: Offset, end: Offset, parallelism: int) -> list[Split]:
        low, high = self._address(start), self._address(end)
        count = max(1, min(parallelism, -(-(high - low) // SMALLEST_SPLIT)))
        cuts = [low + (high - low) * i // count for i in range(count + 1)]
        cuts = [self._movable(c) for c in cuts]
        splits = (FileSplit(tuple(self._ranges(a, b))) for a, b in pairwise(cuts))
        return [s for s in splits if s.ranges]

    def exhausted(self, at: Offset) -> bool:
        if self._address(at) < self.log.total:
            return False
        self._poll(force=True)
        return self._address(at) >= self.log.total

    def backlog(self, at: Offset) -> int:
        self._poll()
        return self.log.total - self._address(at)

    def commit(self, end: Offset) -> None:
        """Let the log forget what no epoch can ask for, when it has grown."""
        if self.log.grown and self._present is not None:
            self.log.compact(end["extent"], self._present, self.clock())

    def _address(self, offset: Offset) -> int:
        return self.log.address(offset["extent"], offset["pos"])

    def _movable(self, address: int) -> int:
        """`address`, or the end of the extent that holds it if that must be read whole."""
        if address == 0 or not self.log.extents:
            return address
        extent, _ = self.log.place(address)
        found = self.log.extent(extent)
        return self.log.address(extent, found.end) if found.whole else address

    def _ranges(self, low: int, high: int) -> Iterator[FileRange]:
        while low < high:
            extent, pos = self.log.place(low + 1)
            found = self.log.extent(extent)
            begin = pos - 1
            end = min(found.end, begin + high - low)
            yield FileRange(found, begin, end)
            low += end - begin

    def _poll(self, force: bool = False) -> None:
        """Log what is new. A listing is due every POLL seconds, less often when listing itself takes long."""
        now = self.clock()
        if now < self._next_poll and not force:
            return
        began = time.perf_counter()
        fresh: list[tuple[int, Extent]] = []
        listed = list(self.listing.files())
        cost = time.perf_counter() - began
        for found in listed:
            known = self.log.last.get(found.path)
            if known is None:
                fresh += self._extent(found.path, 0)
            elif known.inode != found.inode:
                raise changed(found.path, "was replaced")
            elif self.tail:
                fresh += self._extent(found.path, known.end)
            else:
                known.verify_size(found.size)
        self.log.append([e for _, e in sorted(fresh, key=lambda pair: (pair[0], pair[1].path))])
        self._present = {found.path for found in listed}
        self._next_poll = now + min(1.0, max(POLL, 10 * cost))

    def _extent(self, path: str, begin: int) -> list[tuple[int, Extent]]:
        """What the file has beyond `begin`, with its mtime; nothing if that is no whole record yet."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return []  # gone since the directory was listed: it was never promised to anyone
        except PermissionError:
            raise unreadable(path) from None
        try:
            stat = os.fstat(fd)
            if stat.st_size < begin:
                raise changed(path, f"shrank from {begin} to {stat.st_size} bytes")
            end = self._last_record_end(fd, begin, stat.st_size) if self.tail else stat.st_size
            if self.tail and end == begin:
                return []
            codec = codec_of(path) if self.codec == "auto" else self.codec.removeprefix("none")
            if begin == 0 and not codec:
                self._check_header(fd, path, stat.st_size)
            head = min(HEAD, end)
            digest = fingerprint(fd, head)
            whole = bool(codec or self.format.in_order)
            extent = Extent(path, stat.st_ino, begin, end, head, digest, not self.tail, whole, codec)
            return [(stat.st_mtime_ns, extent)]
        finally:
            os.close(fd)

    def _check_header(self, fd: int, path: str, size: int) -> None:
        try:
            self.format.header(os.pread(fd, min(size, HEADER), 0), True, size <= HEADER)
        except HeadraceError as problem:
            problem.message = f"{path}: {problem.message}"
            problem.params["path"] = path
            raise

    def _last_record_end(self, fd: int, begin: int, size: int) -> int:
        if self.format.row_bytes:
            return size - size % self.format.row_bytes
        delimiter = self.format.delimiter
        high, window = size, 4096
        while high > begin:
            low = max(begin, high - window)
            found = os.pread(fd, min(size, high + len(delimiter) - 1) - low, low).rfind(delimiter)
            if found >= 0:
                return low + found + len(delimiter)
            high, window = low, min(window * 4, CHUNK)
        return begin


def _verify(stream: StreamDef, values: Mapping[str, Any]) -> None:
    Listing(values["path"]).check()
    fmt = FORMATS[stream.format].make(stream.schema, stream.options)
    if values["tail"] and (fmt.in_order or values["codec"] in CODECS):
        raise BadOption(
            "tail needs a format whose files can be cut",
            advice="Drop tail, or the option that makes a file one piece (multiline, codec).",
            option="tail",
        )


FILES = SourceKind(
    "files",
    "files in a directory, as they appear",
    (
        Option("path", text, required=True, help="a directory, a glob pattern or a file"),
        Option("tail", boolean, default=False, help="files grow at their end; a last record without delimiter waits"),
        Option(
            "start",
            choice("earliest", "latest"),
            default="earliest",
            help="what the stream's first use begins with: all that is there, or what comes after",
        ),
        Option(
            "codec",
            choice("auto", "none", *CODECS),
            default="auto",
            help="how files are compressed; auto goes by .gz .zst .lz4 .sz .bz2; one task reads a compressed file",
        ),
    ),
    Files,
    _verify,
)
