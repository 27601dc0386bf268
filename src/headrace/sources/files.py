"""The source `files`: NDJSON, CSV and other record files in a directory. Each is read once, by all cores.

New files are read as they appear. By default files are immutable (written elsewhere, then renamed into place), and the
end of a file ends its last record. With `tail = 'true'` files grow, and a last record without a delimiter waits for the
rest. The files of one listing are ordered by (mtime, path).

Unit of parallelism: a byte range of a file. Delivery: exactly once into an epoch, replayable as long as the files stay.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

from headrace.base.options import boolean, choice, duration, option, text
from headrace.errors import BadOption
from headrace.formats import FORMATS
from headrace.formats.codecs import CODECS, codec_of
from headrace.formats.tables import TableFormat
from headrace.model.definitions import StreamDef
from headrace.model.stored import parsed, store_text
from headrace.sources.arrivals import Arrivals
from headrace.sources.badfiles import BadFile, BadRange, handed_over, taken, write_summary
from headrace.sources.file_facts import FILE_METADATA
from headrace.sources.filelog import FileLog
from headrace.sources.listing import Listing
from headrace.sources.object_listing import ObjectListing
from headrace.sources.reading import FileRange, FileSplit
from headrace.sources.source_kind import InputSplit, SourceKind, SourceOffset, WallClock
from headrace.sources.timed_listing import FilePlaces, LocalPlaces, StorePlaces, TimedListing
from headrace.sources.timed_path import TimedPath, is_timed
from headrace.stores.object_store import ObjectStore
from headrace.stores.store_options import OPTIONS as STORE_OPTIONS
from headrace.stores.store_options import (
    StoreAccess,
    absolute,
    access_key_option,
    check_access,
    endpoint_option,
    is_remote,
    region_option,
    secret_key_option,
    session_token_option,
)

DAY = 86400.0
SMALLEST_SPLIT = 256 << 10  # less is not worth a task
POLL = 0.1  # minimum seconds between two checks of the directory
# Minimum seconds between two listings of an object store. The wait is also this many times as long as a listing.
STORE_POLL, STORE_SHARE = 1.0, 4
# In a directory that has not changed, all files are checked every FULL seconds. If that takes long, they are checked so
# rarely that it takes a fiftieth of a core, but at least every FULL_AT_MOST seconds. For growing files a check is the
# only way to see new bytes, so it may take a fortieth.
FULL, FULL_AT_MOST, FULL_SHARE, TAIL_SHARE = 5.0, 60.0, 50, 40
CHEAP = 0.005  # CPU seconds: a listing that takes no longer is made whenever a caller needs an exact answer


@dataclass(frozen=True, slots=True)
class FileSettings:
    """The options of `source = 'files'`."""

    path: str = option(
        text, required=True, help="a directory, a glob pattern or a file; also s3://bucket/path and the like"
    )
    tail: bool = option(
        boolean, default=False, help="files grow at their end; a last record without a delimiter waits for the rest"
    )
    lookback: int | None = option(
        duration,
        help="of a path with the time in it, such as /data/{yyyy}/{MM}/{dd}: how long after its time a directory may "
        "get files (default 24h)",
    )
    start: Literal["earliest", "latest"] = option(
        choice("earliest", "latest"),
        default="earliest",
        help="where a new stream begins: with the files that are there, or with those that come later",
    )
    codec: str = option(
        choice("auto", "none", *CODECS),
        default="auto",
        help="how files are compressed; auto decides by .gz .zst .lz4 .sz .bz2; one task reads each compressed file; "
        "with tail they are not read",
    )
    on_bad_file: Literal["fail", "skip"] = option(
        choice("fail", "skip"),
        default="fail",
        help="what a file that cannot be read does: fail stops the stream, skip leaves the file out and reports it",
    )
    endpoint: str | None = endpoint_option()
    region: str | None = region_option()
    access_key: str | None = access_key_option()
    secret_key: str | None = secret_key_option()
    session_token: str | None = session_token_option()


class Files:
    """Plans the epochs of a file stream. `headrace.sources.source_kind.StreamSource` states the promises."""

    def __init__(self, stream: StreamDef, settings: FileSettings, state_dir: Path, clock: WallClock) -> None:
        self.format = FORMATS[stream.format].make(stream.record_schema, stream.options)
        self.tail = settings.tail
        self.remote = is_remote(settings.path)
        self.timed = _timed(settings, state_dir, clock) if is_timed(settings.path) else None
        objects = ObjectListing(StoreAccess.of(settings)) if self.remote and self.timed is None else None
        self.listing = self.timed or objects or Listing(settings.path, may_be_away=self.tail)
        self.store = None if isinstance(self.listing, Listing) else self.listing.store
        self.log = FileLog(state_dir / "files.log")
        self.skip = settings.on_bad_file == "skip"
        self.arrivals = Arrivals(
            self.log,
            self.format,
            tail=self.tail,
            codec="none" if isinstance(self.format, TableFormat) else settings.codec,
            headed=self.format.has_header,
            skip=self.skip,
            listed=None if isinstance(self.listing, Listing) else self.listing,
        )
        self.start = settings.start
        self._directory, self._start_file = state_dir, state_dir / "start.json"
        self.clock = clock
        self._polled = self._next_poll = self._next_full = 0.0
        self._cost = 0.0  # CPU seconds of the newest listing
        self._looked = False  # true if the newest call of `latest` has checked the directory
        self._present: set[str] | None = None
        self._take_over()

    def initial(self) -> SourceOffset:
        """With start = 'latest', the end of the files that exist at the first call. Later calls return the same offset:
        Spark may ask again after a crash, and files that came in between must not be skipped."""
        if self.start == "earliest":
            return {"extent": 0, "pos": 0}
        if not self._start_file.exists():
            self._next_poll = 0.0
            self._poll()
            extent, pos = self.log.place(self.log.total) if self.log.total else (0, 0)
            store_text(self._start_file, json.dumps({"extent": extent, "pos": pos}))
        return parsed(self._start_file, _place) or {"extent": 0, "pos": 0}

    def latest(self, start: SourceOffset, max_bytes: int | None) -> SourceOffset:
        if self.log.empty:
            self._address(start)  # a lost log cannot be rebuilt from a listing: files might get another order
        self._looked = self._poll()
        begin = self._address(start)
        if begin >= self.log.total:
            return start
        end = self.log.total if max_bytes is None else min(self.log.total, begin + max(1, max_bytes))
        extent, pos = self.log.place(end)
        if self.log.extent(extent).whole:
            pos = self.log.extent(extent).end
        return {"extent": extent, "pos": pos}

    def splits(self, start: SourceOffset, end: SourceOffset, parallelism: int) -> list[InputSplit]:
        low, high = self._address(start), self._address(end)
        count = max(1, min(parallelism, -(-(high - low) // SMALLEST_SPLIT)))
        cuts = [low + (high - low) * i // count for i in range(count + 1)]
        cuts = [self._movable(c) for c in cuts]
        splits = (FileSplit(tuple(self._ranges(a, b)), self.skip, self.store) for a, b in pairwise(cuts))
        return [s for s in splits if s.ranges]

    def exhausted(self, at: SourceOffset) -> bool:
        """True only after a check of the directory, now or in the call of `latest` just before. False if a check would
        take too much of a core."""
        if self._address(at) < self.log.total:
            return False
        looked, self._looked = self._poll(force=True) or self._looked, False
        return looked and self._address(at) >= self.log.total

    def backlog(self, at: SourceOffset) -> int:
        self._poll()
        return self.log.total - self._address(at)

    def commit(self, end: SourceOffset) -> None:
        """Compact the log if it has grown: no epoch will read the committed extents again."""
        if self.log.grown and self._present is not None:
            never = (lambda path: False) if self.timed is None else self.timed.beyond
            self.log.compact(end["extent"], self._present, self.clock(), never)

    def _address(self, offset: SourceOffset) -> int:
        return self.log.address(offset["extent"], offset["pos"])

    def _movable(self, address: int) -> int:
        """`address`, or the end of the extent that contains it if one task must read the whole extent."""
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
            if extent not in self.log.left_out:
                yield FileRange(found, begin, end, extent)
            low += end - begin

    def _take_over(self) -> None:
        """Leave out the files that tasks could not read in an earlier run, before any epoch is planned."""
        logged = range(self.log.first, self.log.first + len(self.log.extents))
        first: dict[int, BadRange] = {}  # by extent: the report with the lowest byte
        for bad in sorted(handed_over(self._directory), key=lambda bad: bad.begin):
            if bad.extent in logged and bad.extent not in self.log.left_out:
                first.setdefault(bad.extent, bad)
        self.log.leave_out(
            [
                BadFile(
                    path=bad.path,
                    code=bad.code,
                    message=bad.message,
                    stamp=bad.stamp,
                    unread=self._unread(bad.extent, bad.begin),
                    extent=bad.extent,
                )
                for bad in first.values()
            ]
        )
        taken(self._directory)
        self._publish_bad()

    def _unread(self, extent: int, begin: int) -> bool:
        """True if no epoch has read anything of an extent's file before byte `begin`."""
        return self.log.extent(extent).begin == 0 == begin

    def _publish_bad(self) -> None:
        write_summary(self._directory, self.log.bad_count, list(self.log.bad.values()))

    def _poll(self, force: bool = False) -> bool:
        """Log new files. Returns True if the log is up to date now. Checks the directory every POLL seconds, less often
        if a check takes long, and with `force` at once unless that would take too much of a core."""
        now = self.clock()
        due = not self._polled <= now < self._next_poll  # a clock that was set back must not block the stream
        if not due and not force:
            return False
        full = due and not self._polled <= now < self._next_full
        full = full or (self.tail and force and self._cost <= CHEAP)
        if not full and self.listing.unchanged():
            if due:
                self._polled, self._next_poll = now, now + POLL
            return not self.tail  # files may have grown
        if not due and self._cost > CHEAP:
            return False
        self._list(now, full or self.tail)
        return True

    def _list(self, now: float, full: bool) -> None:
        """List the directory and log new files. With `full`, check the known files, too."""
        began, used, known = time.perf_counter(), time.thread_time(), (self.log.bad_count, len(self.log.bad))
        paths = self.listing.paths()
        self.arrivals.take(paths, all_of_them=full)
        if self.timed is not None:
            self.timed.logged()
        self._present = {*paths, *self.log.followed}
        self._cost, took = time.thread_time() - used, time.perf_counter() - began
        self._polled, self._next_poll = now, now + max(POLL, min(1.0, 10 * self._cost), took)
        if self.remote:  # a listing costs requests
            self._cost, self._next_poll = took, now + max(STORE_POLL, STORE_SHARE * took)
        if full:
            pause = max(POLL, TAIL_SHARE * self._cost) if self.tail else max(FULL, FULL_SHARE * self._cost)
            self._next_full = now + min(FULL_AT_MOST, pause)
        if (self.log.bad_count, len(self.log.bad)) != known:
            self._publish_bad()


def _place(text: str) -> SourceOffset:
    found = json.loads(text)
    return {"extent": int(found["extent"]), "pos": int(found["pos"])}


def _check(stream: StreamDef, settings: FileSettings) -> None:
    check_access(settings)
    if is_timed(settings.path):
        _check_timed(settings)
    elif settings.lookback is not None:
        raise BadOption(
            "lookback has no effect without a time in the path",
            advice="Remove it, or write the time into the path, as in /data/{yyyy}/{MM}/{dd}.",
            option="lookback",
        )
    elif is_remote(settings.path):
        if settings.tail:
            raise BadOption(
                "tail has no meaning on an object store",
                advice="Remove tail: an object does not grow, it is replaced as a whole.",
                option="tail",
            )
        ObjectListing(StoreAccess.of(settings)).check()
    else:
        Listing(settings.path).check()
    fmt = FORMATS[stream.format].make(stream.record_schema, stream.options)
    if stream.format == "avro" and not isinstance(fmt, TableFormat):
        raise BadOption(
            "a schema has no effect with source 'files'",
            advice="Remove schema, schema_file, framing and schema_id: Avro files carry their own schema.",
            option="schema",
        )
    if isinstance(fmt, TableFormat):
        _check_table(fmt.unit, stream.format, settings)
    if settings.tail and (fmt.in_order or settings.codec in CODECS):
        raise BadOption(
            "tail needs a format whose files several tasks can share",
            advice="Remove tail, or the option that forces one task to read a whole file (multiline, codec).",
            option="tail",
        )
    if settings.tail and settings.codec == "auto" and codec_of(settings.path):
        raise BadOption(
            "tail does not read compressed files",
            advice="Remove tail: a compressed file does not grow. If the files are not compressed, set codec = 'none'.",
            option="tail",
        )


def _check_timed(settings: FileSettings) -> None:
    timed = TimedPath(absolute(settings.path))
    if settings.tail:
        raise BadOption(
            "tail has no meaning with a time in the path",
            advice="Remove tail: only complete files are read there.",
            option="tail",
        )
    if is_remote(settings.path):
        ObjectStore(replace(StoreAccess.of(settings), url=timed.root)).check()
    else:
        Listing(timed.root).check()


def _timed(settings: FileSettings, state: Path, clock: WallClock) -> TimedListing:
    timed = TimedPath(absolute(settings.path))
    places: FilePlaces = LocalPlaces(timed.root)
    if is_remote(settings.path):
        places = StorePlaces(ObjectListing(replace(StoreAccess.of(settings), url=timed.root)))
    lookback = DAY if settings.lookback is None else settings.lookback / 1e6
    return TimedListing(
        timed, lookback, places=places, state=state, clock=clock, all_first=settings.start == "earliest"
    )


def _check_table(unit: str, name: str, settings: FileSettings) -> None:
    for option_, wrong in (("tail", settings.tail), ("codec", settings.codec in CODECS)):
        if wrong:
            raise BadOption(
                f"{option_} has no meaning with format '{name}'",
                advice=f"Remove {option_}: a file is complete when it appears, and each {unit} says how it is "
                "compressed.",
                option=option_,
            )


FILES = SourceKind(
    name="files",
    help="files in a directory, as they appear",
    settings=FileSettings,
    build=Files,
    check_settings=_check,
    changeable=("on_bad_file", "lookback", *STORE_OPTIONS),
    metadata=FILE_METADATA,
    guarantee="exactly once into an epoch; the files must stay until they are read",
)
