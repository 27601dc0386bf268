"""Savepoints: a consistent cut of streams and all their pipelines, as a directory of its own.

    savepoint.json          what it is a cut of: streams, epochs, checkpoint ids
    catalog.json            the declarations, as in a state directory
    secrets.json            the tokens that they name; only the owner can read a savepoint
    streams/<name>/         the stream's directory as it stood behind the cut

It is made while the streams stand still behind a `savepoint` barrier: every epoch up to it is committed, none behind it
is planned. Whoever calls `take` sees to it that nobody starts, drops or stops them meanwhile (`headrace.exclusive`).
A copy becomes visible when it is whole; one that fails is removed. `headrace.restoring` makes a state directory of it.
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

from headrace.control.barrier import BarrierAligner
from headrace.control.signals import SAVEPOINT, Barrier, Signal
from headrace.durable import fsync, private_directory
from headrace.errors import AlreadyExists, MissingInput, SavepointTimeout, UnwritablePath
from headrace.ingress.mark import MARK
from headrace.program import StreamDef
from headrace.stored import store
from headrace.streams.catalog import Catalog, CatalogFile
from headrace.streams.progress import HOLD, Progress
from headrace.streams.secrets import Vault

FORMAT = 2  # since 2 streams name their secrets
READABLE_FORMATS = (1, FORMAT)


@dataclass(frozen=True, slots=True)
class Cut:
    """One stream of a savepoint: everything up to and with `epoch` is in it. `directory` is below `streams`."""

    stream: str
    directory: str
    checkpoint: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Savepoint:
    """What a savepoint holds."""

    format: int
    name: str
    at: float
    cuts: tuple[Cut, ...]


Source = tuple[Path, Cut]  # what is to be copied of a stream, and what it is then


class Standing(Protocol):
    """A stream that can be made to stand still."""

    @property
    def stream(self) -> StreamDef: ...

    @property
    def directory(self) -> Path: ...

    @property
    def running(self) -> bool: ...

    @property
    def progress(self) -> Progress: ...

    def checkpoint_id(self) -> str: ...

    def stand_still(self, timeout: float) -> int | None:
        """Come to a stand behind a barrier; the epoch that carried it, None when that takes too long."""
        ...

    def release(self) -> None:
        """Go on."""
        ...


def take(
    target: Path,
    streams: Mapping[str, Standing],
    catalog: Callable[[], Catalog],
    timeout: float,
    vault: Vault | None = None,
) -> Path:
    """Take a savepoint of streams. Raises SavepointTimeout, naming those that do not pause in time. `vault` has the
    secrets that the catalog names.

    Streams meet here: none is copied before all have come to their barriers, and none goes on before all are copied.
    """
    refuse_existing(target)
    with unwritable(target):
        private_directory(target.parent)
    barrier = Barrier(SAVEPOINT.name, 1)
    # Blocking: what is to be copied of a stream waits behind its barrier for the other streams.
    aligner: BarrierAligner[Source] = BarrierAligner(f"savepoint {target.name}", streams, blocking=True, limit=timeout)
    aligner.expect(barrier)
    passed: list[Source | Signal] = []
    with half_of(target) as half:
        try:
            for name, stream in streams.items():
                epoch = stream.stand_still(aligner.time_left()) if stream.running else stream.progress.epoch
                if epoch is not None:
                    cut = Cut(stream.stream.name, stream.directory.name, stream.checkpoint_id(), epoch)
                    passed += [*aligner.offer(name, barrier), *aligner.offer(name, (stream.directory, cut))]
            aligner.check_time()
            aligner.require(barrier)
            collect(half, target.name, catalog(), [item for item in passed if isinstance(item, tuple)], vault)
        except MissingInput:
            raise too_late(aligner.missing, timeout) from None
        finally:
            for stream in streams.values():
                stream.release()
        return finish(half, target)


def too_late(streams: Iterable[str], timeout: float) -> SavepointTimeout:
    """These streams did not come to a stand in time."""
    names = sorted(streams)
    return SavepointTimeout(
        f"{', '.join(names)} did not come to a stand in {timeout:g} s; there is no savepoint",
        advice="Nothing is lost and the streams go on. Try again, or give the epochs in flight more time with "
        "hub.savepoint(name, timeout=seconds).",
        streams=names,
        timeout=timeout,
    )


def collect(half: Path, name: str, catalog: Catalog, sources: Sequence[Source], vault: Vault | None = None) -> None:
    """Copy streams that stand still to `half`; `finish` makes that the savepoint."""
    for directory, cut in sources:
        copy_tree(directory, half / "streams" / cut.directory)
    CatalogFile(half, vault).save(_part_of(catalog, {cut.stream for _, cut in sources}))
    facts = Savepoint(FORMAT, name, time.time(), tuple(cut for _, cut in sources))
    store(half / "savepoint.json", facts)


@contextlib.contextmanager
def half_of(target: Path) -> Iterator[Path]:
    """A new directory beside `target`, to be renamed to it. It is removed when that does not come about."""
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
            advice="Check that its directory may be written to and has space, then try again.",
            path=str(target),
        ) from problem


def refuse_existing(target: Path) -> None:
    """Raise AlreadyExists when there is a savepoint of this name."""
    if target.exists():
        raise AlreadyExists(
            f"there is a savepoint {target.name}", advice="Choose another name, or remove it.", name=target.name
        )


def finish(half: Path, target: Path) -> Path:
    """Make the copy durable, and then visible under its name."""
    for directory, _, files in os.walk(half):
        for name in files:
            fsync(Path(directory) / name)
        fsync(Path(directory))
    half.rename(target)
    fsync(target.parent)
    return target


def copy_tree(source: Path, target: Path) -> None:
    """Copy a directory that its owner may be tidying up: what vanishes meanwhile was not needed any more."""
    private_directory(target)
    for entry in list(os.scandir(source)) if source.exists() else ():
        with contextlib.suppress(FileNotFoundError):
            if entry.is_dir():
                copy_tree(Path(entry.path), target / entry.name)
            elif entry.name not in (HOLD, MARK):  # a journal's mark may be newer than the files that were copied
                shutil.copy2(entry.path, target / entry.name)
                (target / entry.name).chmod(0o600)  # Spark's files let others read them, behind a closed door


def _part_of(catalog: Catalog, streams: set[str]) -> Catalog:
    wanted = {name.lower() for name in streams}
    for name in list(catalog.streams):
        if name not in wanted:
            for record in list(catalog.of_stream(name)):
                catalog = catalog.without("pipeline", record.definition.name)
            catalog = catalog.without("stream", name)
    return catalog
