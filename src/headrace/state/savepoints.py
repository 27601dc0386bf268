"""Savepoints: a consistent copy of streams and all their pipelines, in a directory of its own.

    savepoint.json          its streams, their epochs and checkpoint ids
    catalog.json            the declarations, as in a state directory
    secrets.json            the tokens that they name; only the owner can read a savepoint
    streams/<name>/         the stream's directory as it was after the savepoint's epoch

The streams pause after a `savepoint` barrier while they are copied: all epochs up to the barrier are committed, and no
later epoch is planned. The caller of `take` makes sure that no other operation starts, stops or drops these streams
meanwhile (`headrace.hub.reservations`). A savepoint becomes visible when it is complete; a failed copy is deleted.
`headrace.state.restore` makes a state directory from a savepoint.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headrace.base.durable import fsync, private_directory
from headrace.bridge.spark_rows import clear_staging
from headrace.control.barrier import BarrierAligner
from headrace.control.signals import SAVEPOINT, Barrier, Signal
from headrace.errors import AlreadyExists, MissingInput, SavepointTimeout, UnwritablePath
from headrace.ingress.entries import numbers
from headrace.ingress.mark import MARK
from headrace.model.definitions import StreamDef
from headrace.model.stored import store
from headrace.sinks.feed_lock import LOCK, feed_locked
from headrace.sinks.feed_log import CONSUMERS, copy_order
from headrace.state.catalog import Catalog, CatalogFile
from headrace.state.progress import HOLD, Progress
from headrace.state.secrets import Vault

# Since 2 streams name their secrets. Since 3 pools may be spread (`PipelineDef.spread`), and stored rows of one window
# may have its bounds only once.
FORMAT = 3
READABLE_FORMATS = (1, 2, FORMAT)


@dataclass(frozen=True, slots=True)
class Cut:
    """One stream of a savepoint, up to and including `epoch`. `directory` is its name below `streams`."""

    stream: str
    directory: str
    checkpoint: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Savepoint:
    """The description of a savepoint, stored as savepoint.json."""

    format: int
    name: str
    at: float
    cuts: tuple[Cut, ...]


Source = tuple[Path, Cut]  # the directory of a stream to copy, and its entry in the savepoint


class PausableStream(Protocol):
    """A stream that can be paused."""

    @property
    def stream(self) -> StreamDef: ...

    @property
    def directory(self) -> Path: ...

    @property
    def running(self) -> bool: ...

    @property
    def progress(self) -> Progress: ...

    def checkpoint_id(self) -> str: ...

    def pause_at_barrier(self, timeout: float) -> int | None:
        """Pause after a barrier. Returns the epoch that carried it, or None if that takes too long."""
        ...

    def release(self) -> None:
        """Resume."""
        ...


def take(
    target: Path,
    streams: Mapping[str, PausableStream],
    catalog: Callable[[], Catalog],
    timeout: float,
    vault: Vault | None = None,
) -> Path:
    """Take a savepoint of streams. `vault` has the secrets that the catalog names. Raises SavepointTimeout, which names
    the streams that did not pause in time.

    The streams are synchronized: none is copied before all have paused, and none resumes before all are copied.
    """
    refuse_existing(target)
    with unwritable(target):
        private_directory(target.parent)
    # Blocking: a paused stream is not copied until the other streams have reached their barriers.
    aligner: BarrierAligner[Source] = BarrierAligner(f"savepoint {target.name}", streams, blocking=True, limit=timeout)
    with half_of(target) as half:
        try:
            sources = _pause(streams, aligner)
            collect(half=half, name=target.name, catalog=catalog(), sources=sources, vault=vault)
        except MissingInput:
            raise too_late(aligner.missing, timeout) from None
        finally:
            for stream in streams.values():
                stream.release()
        return finish(half, target)


def _pause(streams: Mapping[str, PausableStream], aligner: BarrierAligner[Source]) -> list[Source]:
    """Pause all streams, each after an epoch. Raises MissingInput for those that do not pause in time."""
    barrier = Barrier(SAVEPOINT.name, 1)
    aligner.expect(barrier)
    passed: list[Source | Signal] = []
    for name, stream in streams.items():
        epoch = stream.pause_at_barrier(aligner.time_left()) if stream.running else stream.progress.epoch
        if epoch is not None:
            cut = Cut(stream.stream.name, stream.directory.name, stream.checkpoint_id(), epoch)
            passed += [*aligner.offer(name, barrier), *aligner.offer(name, (stream.directory, cut))]
    aligner.check_time()
    aligner.require(barrier)
    return [item for item in passed if isinstance(item, tuple)]


def too_late(streams: Iterable[str], timeout: float) -> SavepointTimeout:
    """The error for streams that did not pause in time."""
    names = sorted(streams)
    return SavepointTimeout(
        f"{', '.join(names)} did not pause within {timeout:g} s; no savepoint was taken",
        advice="Nothing is lost, and the streams continue. Try again, or allow more time for the current epochs with "
        "hub.savepoint(name, timeout=seconds).",
        streams=names,
        timeout=timeout,
    )


def collect(half: Path, name: str, catalog: Catalog, sources: Sequence[Source], vault: Vault | None = None) -> None:
    """Copy paused streams to `half`. `finish` turns that directory into the savepoint."""
    for directory, cut in sources:
        copy_tree(directory, half / "streams" / cut.directory)
        clear_staging(half / "streams" / cut.directory)  # a task that was cancelled may have left files
    CatalogFile(half, vault).save(_part_of(catalog, {cut.stream for _, cut in sources}))
    facts = Savepoint(FORMAT, name, time.time(), tuple(cut for _, cut in sources))
    store(half / "savepoint.json", facts)


@contextlib.contextmanager
def half_of(target: Path) -> Iterator[Path]:
    """A temporary directory beside `target` that the caller renames to `target`. It is deleted if the block fails."""
    half = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        with unwritable(target):
            half.parent.mkdir(parents=True, exist_ok=True)
            half.mkdir(mode=0o700)
            yield half
    except BaseException:
        shutil.rmtree(half, ignore_errors=True)
        raise


@contextlib.contextmanager
def unwritable(target: Path) -> Iterator[None]:
    """Turn an OSError into UnwritablePath."""
    try:
        yield
    except OSError as problem:
        raise UnwritablePath(
            f"{target} cannot be written: {problem.strerror or problem}",
            advice="Check that its directory is writable and has space, then try again.",
            path=str(target),
        ) from problem


def refuse_existing(target: Path) -> None:
    """Raise AlreadyExists if there is a savepoint with this name."""
    if target.exists():
        raise AlreadyExists(
            f"the savepoint {target.name} exists already", advice="Choose another name, or delete it.", name=target.name
        )


def finish(half: Path, target: Path) -> Path:
    """Make the copy durable, then rename it to `target`."""
    for directory, _, files in os.walk(half):
        for name in files:
            fsync(Path(directory) / name)
        fsync(Path(directory))
    half.rename(target)
    fsync(target.parent)
    return target


def copy_tree(source: Path, target: Path) -> None:
    """Copy a directory whose owner may delete files meanwhile. A file that vanishes is no longer needed."""
    private_directory(target)
    for entry in sorted(os.scandir(source), key=lambda e: copy_order(e.name)) if source.exists() else ():
        with contextlib.suppress(FileNotFoundError):
            if entry.is_dir():
                # Else a reader that is taken over may be missing under both names.
                with feed_locked(source) if entry.name == CONSUMERS else contextlib.nullcontext():
                    copy_tree(Path(entry.path), target / entry.name)
            elif entry.name not in (HOLD, MARK, LOCK):  # a journal's mark may be newer than the copied files
                shutil.copy2(entry.path, target / entry.name)
                (target / entry.name).chmod(
                    0o600
                )  # Spark makes its files readable by others, inside a private directory
    # The gateway may have deleted the only log that was listed, after it began the next one.
    if numbers(source) and not numbers(target):
        copy_tree(source, target)


def _part_of(catalog: Catalog, streams: set[str]) -> Catalog:
    wanted = {name.lower() for name in streams}
    for name in list(catalog.streams):
        if name not in wanted:
            for record in list(catalog.of_stream(name)):
                catalog = catalog.without("pipeline", record.definition.name)
            catalog = catalog.without("stream", name)
    return catalog.without_loose_views()
