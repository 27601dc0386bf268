"""Writes a feed (`headrace.sinks.feed_log`): a two-phase sink that no statement can name.

The planner gives it to pipelines whose output is a stream, or that the dedicated host or a Spark reader reads.
Tasks write segments under the epoch's key, the driver commits them with one manifest.

**Why it is exactly once.** A segment counts only if a manifest names it. The commit looks at the newest manifest of the
writer, which is kept for that (`headrace.sinks.feed_retention`), and at the promise: if one of them has this key, it
stays valid and what this run staged is deleted. Else one atomic write makes the manifest at the next position: that is
the commit point. Spark runs only the newest epoch again, so no older key of a writer ever comes back, however many
epochs of other writers follow it. A crash before the commit point leaves segments that no manifest names; the next
commit or `discard` of the epoch deletes its directory except for the named files.

**When the consumer is too slow.** The strategies `pause` and `spill` let the planner of the stream pause while the feed
holds more than `limit` bytes (`is_full`); nothing is lost. They differ in the default of `limit` only: rows always go
through the disk. `drop` leaves out the rows of an epoch for which there is no room, and counts them in its manifest.
That is decided once, at the commit or promise, so that a re-run of the epoch drops the same rows. If there is no room
for the rows of a single task, the task does not write them, and the commit then drops the whole epoch.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

import pyarrow as pa

from headrace.base.durable import fsync, private_directory
from headrace.base.faults import fault_point
from headrace.base.options import choice, integer, option, size, text
from headrace.errors import DiskFull, EpochMismatch, SinkUnavailable, StateDamaged, StateUnavailable
from headrace.model.definitions import FEED as NAME
from headrace.model.definitions import PipelineDef, SinkDef
from headrace.model.schema import Schema
from headrace.model.stored import store, stored
from headrace.sinks.feed_lock import feed_locked
from headrace.sinks.feed_log import (
    FEEDS,
    FeedEpoch,
    FeedLog,
    FeedSegment,
    may_feed,
    stream_feed,
    sync_names,
    write_segment,
)
from headrace.sinks.feed_retention import end_writer, remove_feed
from headrace.sinks.sink_kind import SinkKey, SinkKind, Staged
from headrace.sinks.staged_sink import StagedSettings

# A feed in memory would have about this much: the strategy `pause` keeps the consumer close behind.
PAUSE_BYTES = 64 * 1024 * 1024
SPILL_BYTES = 4 * 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FeedSettings(StagedSettings):
    """The options of a feed. Its directory is beside the staging directory of the stream."""

    strategy: Literal["spill", "pause", "drop"] = option(
        choice("spill", "pause", "drop"), default="spill", help="what happens when the reader is too slow"
    )
    limit: int | None = option(size, help="how many bytes may wait (default 4GB; 64MB with strategy 'pause' or 'drop')")

    @property
    def most(self) -> int:
        """How many bytes may wait."""
        if self.limit is not None:
            return self.limit
        return SPILL_BYTES if self.strategy == "spill" else PAUSE_BYTES

    stream: str | None = option(text, help="the directory of the stream that is made of these rows")
    shift: int | None = option(
        integer(-(1 << 62), 1 << 62), help="how far the event time of these rows is ahead of the watermark"
    )

    def directory(self, instance: int) -> Path:
        """The feed of an instance, or that of the stream that is made of its rows."""
        if self.stream is not None:
            return stream_feed(self._streams / self.stream)
        return Path(self.staging).parent / FEEDS / str(instance)

    def abandoned(self, instance: int) -> bool:
        """True if the stream that is made of the rows of this instance was dropped."""
        return self.stream is not None and not may_feed(self._streams / self.stream, instance)

    @property
    def _streams(self) -> Path:
        return Path(self.staging).parent.parent

    def event_time(self, watermark: int | None) -> int | None:
        """How far the event time of the rows has come when the stream has this watermark."""
        if self.stream is None or watermark is None:
            return watermark
        return None if self.shift is None else watermark + self.shift


def feed_settings(sink: SinkDef) -> FeedSettings:
    """The settings of a feed."""
    return FEED.settings_of(sink.options)


def is_full(settings: FeedSettings, log: FeedLog) -> bool:
    """True if the stream must pause until a consumer has read more. One epoch may go beyond the limit: its size is not
    known before it has run."""
    return settings.strategy != "drop" and log.backlog().bytes >= settings.most


class FeedWatch:
    """Finds the feeds of a stream that are full. Remembers the manifests that it has parsed, because the planner asks
    at every poll. One thread at a time."""

    def __init__(self, stream_directory: Path) -> None:
        self._staging = stream_directory / "staging"  # the same directory as in `headrace.sinks.staging`
        self._logs: dict[Path, FeedLog] = {}

    def full(self, pipelines: Iterable[PipelineDef]) -> list[str]:
        """The pipelines whose feeds make the stream pause, by name."""
        found: dict[Path, FeedLog] = {}
        full: dict[str, None] = {}
        for pipeline, sink in ((p, s) for p in pipelines for s in p.sinks if s.kind == NAME):
            settings = feed_settings(replace(sink, options={"staging": str(self._staging), **sink.options}))
            place = settings.directory(pipeline.instance)
            found[place] = self._logs.get(place) or FeedLog(place)
            if is_full(settings, found[place]):
                full[pipeline.name] = None
        self._logs = found
        return list(full)


UNWRITTEN = ""  # the name of a segment that found no room
NOWHERE = Staged(0)  # the receipt for rows of a stream that was dropped


class FeedTask:
    """The task side: each call writes one durable segment."""

    def __init__(self, sink: SinkDef, settings: FeedSettings) -> None:
        self._sink, self._settings = sink, settings

    def stage(self, table: pa.Table, key: SinkKey) -> Staged:
        if self._settings.abandoned(key.instance):
            return NOWHERE
        log = FeedLog(self._settings.directory(key.instance))
        directory, name = log.segments, f"{_tag(key)}/{uuid.uuid4().hex}"
        with _writing(self._sink.name, directory):
            waiting = log.backlog().bytes if self._settings.strategy == "drop" else 0
            if waiting and waiting + table.nbytes > self._settings.most:
                return _receipt(FeedSegment(UNWRITTEN, table.num_rows, table.nbytes, 0))
            try:
                written = write_segment(directory, name, table)
            except BaseException:
                with contextlib.suppress(OSError):  # half a file must not use the disk space that the stream waits for
                    (directory / name).unlink(missing_ok=True)
                if self._settings.abandoned(key.instance):
                    return NOWHERE
                raise
        fault_point("after-feed-segment")
        return _receipt(written)


def _receipt(segment: FeedSegment) -> Staged:
    return Staged(segment.rows, file=json.dumps([segment.file, segment.rows, segment.bytes, segment.crc]))


class FeedSink:
    """The driver side; see the module. Only the thread that commits the pipeline's epochs uses it."""

    guarantee = "exactly once per epoch"

    def __init__(self, sink: SinkDef, settings: FeedSettings) -> None:
        self._name, self._settings = sink.name, settings
        self._logs: dict[int, FeedLog] = {}

    def promise(self, key: SinkKey, staged: list[Staged]) -> None:
        if self._settings.abandoned(key.instance):
            return
        with self._at(key) as log, self._alone(log):
            if not self.committed(key) and self._promised(key, log) is None:
                self._prepare(key, log)
                store(log.promise(key.instance), self._made(key, staged, log))

    def commit(self, key: SinkKey, staged: list[Staged]) -> int:
        if self._settings.abandoned(key.instance):
            return 0
        with self._at(key) as log, self._alone(log):
            done = self._found(key, log)
            if done is None:
                promised = self._promised(key, log)
                if promised is None and key.promised and not staged and not self._followed(key, log):
                    raise _lost_promise(self._name, key, log)
                made = self._made(key, staged, log) if promised is None else self._placed(promised, log)
                if promised is not None or not _says_nothing(made, log):
                    self._prepare(key, log)
                    store(log.path(made.position), made)
                    done = made
                    fault_point("after-feed-manifest")
                    with contextlib.suppress(DiskFull, StateUnavailable):  # the epoch is written
                        log.count(made.position + 1)
            _delete_promise(key, log)
            self._clean_up(key, log, () if done is None else done.segments)
            return 0 if done is None else done.rows

    def committed(self, key: SinkKey) -> bool:
        with self._at(key) as log:
            return self._found(key, log) is not None

    def promised(self, key: SinkKey) -> bool:
        """True if there is a promise under this key."""
        with self._at(key) as log:
            return self._promised(key, log) is not None

    def verify(self, key: SinkKey) -> None:
        with self._at(key) as log:
            for found in (self._found(key, log), self._promised(key, log)):
                if found is not None and key.digest and found.digest not in ("", key.digest):
                    raise EpochMismatch(
                        f"the feed {log.directory} has epoch {key.epoch} with other input",
                        advice="Nothing was overwritten. Spark's checkpoint and the feed do not match: the checkpoint "
                        "was partly lost or replaced by hand. Restore a savepoint with --rewind, or drop the stream "
                        "and create it again.",
                        sink=self._name,
                        epoch=key.epoch,
                    )

    def discard(self, key: SinkKey) -> None:
        with self._at(key) as log:
            if self._found(key, log) is None:
                _delete_promise(key, log)
                self._clean_up(key, log, ())

    def ahead(self, key: SinkKey) -> int:
        """Later epochs of the same checkpoint and instance. A savepoint has a copy of the feed, so there are none after
        a restore."""
        with self._at(key) as log:
            return len([e for e in self._of(key, log) if e.epoch > key.epoch])

    def rewind(self, key: SinkKey) -> None:
        """Newest first: after a crash the positions still have no gap."""
        with self._at(key) as log:
            _delete_promise(key, log)
            log.count(0, durable=True)  # until the next epoch is written
            for later in reversed([e for e in self._of(key, log) if e.epoch > key.epoch]):
                log.path(later.position).unlink(missing_ok=True)
                for segment in later.segments:
                    (log.segments / segment.file).unlink(missing_ok=True)
            sync_names(log.manifests)
            self._logs.clear()

    def forget(self, key: SinkKey) -> None:
        """The instance is dropped, and its feed with it. The feed of a stream stays as long as the stream."""
        with self._at(key) as log:
            if self._settings.stream is not None:
                _delete_promise(key, log)
                end_writer(log, key.instance)
                return
            with feed_locked(log.directory):  # a query that advances would write its position again
                remove_feed(log.directory)
            self._logs.pop(key.instance, None)

    def close(self) -> None:
        """Nothing to release. Committed epochs stay."""

    def _alone(self, log: FeedLog) -> AbstractContextManager[object]:
        """Keeps other writers away. Two pipelines may write to the feed of a stream when one replaces the other: a
        query on the dedicated host has a thread of its own."""
        return contextlib.nullcontext() if self._settings.stream is None else _writer(log.directory)

    @contextmanager
    def _at(self, key: SinkKey) -> Iterator[FeedLog]:
        log = self._logs.setdefault(key.instance, FeedLog(self._settings.directory(key.instance)))
        with _writing(self._name, log.directory):
            yield log

    def _found(self, key: SinkKey, log: FeedLog) -> FeedEpoch | None:
        """The manifest of this key. A writer runs only its newest epoch again, but others may have written since."""
        for position in reversed(log.positions()):
            found = log.kept_epoch(position)  # None: an older one of another writer was deleted just now
            if found is not None and (found.checkpoint, found.instance) == (key.checkpoint, key.instance):
                if found.epoch == key.epoch:
                    return found
                if found.epoch < key.epoch:
                    break
        return None

    def _followed(self, key: SinkKey, log: FeedLog) -> bool:
        """True if the writer has written a later epoch. Then the manifest of this one may be deleted."""
        kept = (log.kept_epoch(position) for position in log.positions())
        same = (e.epoch for e in kept if e is not None and (e.checkpoint, e.instance) == (key.checkpoint, key.instance))
        return any(epoch > key.epoch for epoch in same)

    def _promised(self, key: SinkKey, log: FeedLog) -> FeedEpoch | None:
        for path in (log.promise(key.instance), log.earlier_promise):
            found = stored(FeedEpoch, path)
            if found is not None and _is_of(found, key):
                return found
        return None

    def _of(self, key: SinkKey, log: FeedLog) -> list[FeedEpoch]:
        kept = (log.epoch(p) for p in log.positions())
        return [e for e in kept if (e.checkpoint, e.instance) == (key.checkpoint, key.instance)]

    def _made(self, key: SinkKey, staged: list[Staged], log: FeedLog) -> FeedEpoch:
        segments = tuple(FeedSegment(*json.loads(s.file)) for s in staged if s.file)
        mark = key.mark
        made = FeedEpoch(
            position=log.end(),
            checkpoint=key.checkpoint,
            instance=key.instance,
            epoch=key.epoch,
            digest=key.digest,
            watermark=self._settings.event_time(None if mark is None else mark.watermark),
            segments=segments,
            ending=mark is not None and mark.ending,
        )
        waiting = log.backlog().bytes if segments and self._settings.strategy == "drop" else 0
        unwritten = any(segment.file == UNWRITTEN for segment in segments)
        # An empty feed takes an epoch of any size.
        if unwritten or (waiting and waiting + made.bytes > self._settings.most):
            made = replace(made, segments=(), dropped=made.rows)
        return self._placed(made, log)

    def _placed(self, made: FeedEpoch, log: FeedLog) -> FeedEpoch:
        """`made` as the next epoch of the feed. Another pipeline may have written there since it was promised: the one
        that replaces it, or that it replaces."""
        newest, watermark = log.newest(), made.watermark
        before, dropped = (None, 0) if newest is None else (newest.watermark, newest.dropped_so_far)
        if before is not None and (watermark is None or watermark < before):
            watermark = before
        return replace(made, position=log.end(), watermark=watermark, dropped_so_far=dropped + made.dropped)

    def _prepare(self, key: SinkKey, log: FeedLog) -> None:
        private_directory(log.manifests)
        for directory in (log.segments / _tag(key), log.segments):
            sync_names(directory)

    def _clean_up(self, key: SinkKey, log: FeedLog, named: tuple[FeedSegment, ...]) -> None:
        """Delete what attempts of this epoch left, except for the files of its manifest."""
        directory = log.segments / _tag(key)
        keep = {Path(segment.file).name for segment in named}
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(directory):
                if name not in keep:
                    os.unlink(directory / name)
            if not keep:
                os.rmdir(directory)
                fsync(log.segments)


@cache
def _writer(directory: Path) -> threading.Lock:
    """One lock for each feed of a stream. All writers are in the process of the hub."""
    return threading.Lock()


def _is_of(found: FeedEpoch, key: SinkKey) -> bool:
    return (found.checkpoint, found.instance, found.epoch) == (key.checkpoint, key.instance, key.epoch)


def _delete_promise(key: SinkKey, log: FeedLog) -> None:
    """Delete the promise of an instance. The file of an earlier version may hold the promise of another one."""
    log.promise(key.instance).unlink(missing_ok=True)
    with contextlib.suppress(StateDamaged):  # a damaged promise may not name its instance; a commit reports the damage
        found = stored(FeedEpoch, log.earlier_promise)
        if found is not None and found.instance == key.instance:
            log.earlier_promise.unlink(missing_ok=True)


def _lost_promise(name: str, key: SinkKey, log: FeedLog) -> StateDamaged:
    path = log.promise(key.instance)
    return StateDamaged(
        f"{name} lacks epoch {key.epoch} of a pipeline, and the promise {path} is missing",
        advice="Files of the state directory were removed by hand. Restore them, restore a savepoint, or drop the "
        "pipeline and create it again: then the rows of this epoch are not in the stream that it feeds.",
        path=str(path),
    )


def _says_nothing(made: FeedEpoch, log: FeedLog) -> bool:
    """True for an epoch that changes nothing for a consumer: no rows, and the same watermark."""
    newest = log.newest()
    known = None if newest is None else newest.watermark
    return not made.segments and not made.dropped and not made.ending and made.watermark == known


def _tag(key: SinkKey) -> str:
    """The directory of an epoch's segments. Two checkpoints of a stream never share one."""
    return f"{key.checkpoint[:16]}-{key.instance}-{key.epoch}"


@contextmanager
def _writing(name: str, directory: Path) -> Iterator[None]:
    """A feed is part of the state directory. The stream waits until it can be written to: no row of it is lost, and
    rows of a later epoch never come first."""
    try:
        yield
    except (OSError, DiskFull, StateUnavailable) as problem:
        said = problem.message if isinstance(problem, DiskFull | StateUnavailable) else problem.strerror or problem
        raise SinkUnavailable(
            f"{name} cannot be written to {directory}: {said}",
            advice="Free disk space there, or check its permissions and its mount. The stream then continues by "
            "itself, and nothing is lost. STOP PIPELINE ... NOW or DROP PIPELINE lets the other pipelines continue "
            "without it.",
            sink=name,
            path=str(directory),
        ) from problem


def _task(sink: SinkDef, settings: FeedSettings) -> FeedTask:
    return FeedTask(sink, settings)


def _driver(sink: SinkDef, settings: FeedSettings, output: Schema) -> FeedSink:
    return FeedSink(sink, settings)


FEED = SinkKind(
    name=NAME,
    help="hands rows to another query",
    guarantee=FeedSink.guarantee,
    settings=FeedSettings,
    make_task=_task,
    make_driver=_driver,
    every_epoch=True,
)
