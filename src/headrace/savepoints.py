"""Savepoints: a consistent cut of streams and all their pipelines, as a directory of its own.

    savepoint.json          what it is a cut of: streams, epochs, checkpoint ids
    catalog.json            the declarations, as in a state directory
    streams/<name>/         the stream's directory as it stood behind the cut

It is made while the streams stand still behind a `savepoint` barrier: every epoch up to it is committed, none behind it
is planned. `restore` makes a state directory of it, here or on another machine. Input before the cut is not needed any
more.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headrace.bridge.messages import STREAM_LANE
from headrace.codec import dump, load
from headrace.control.barrier import BarrierAligner
from headrace.control.signals import SAVEPOINT, Barrier
from headrace.durable import fsync, write_atomic
from headrace.errors import AlreadyExists, BadSavepoint, HeadraceError, SinkAhead, StateInUse
from headrace.program import DEAD_LETTER, SinkDef, StreamDef
from headrace.schema import Schema
from headrace.sinks import SINKS, DriverSink, SinkKey
from headrace.streams.catalog import Catalog, CatalogFile
from headrace.streams.progress import HOLD, Progress
from headrace.streams.state_dir import StateDir

FORMAT = 1
DIRECTORY = "savepoints"


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


def take(target: Path, streams: Mapping[str, Standing], catalog: Callable[[], Catalog], timeout: float) -> Path:
    """Take a savepoint of running streams. Raises MissingInput, naming those that do not come to a stand in time.

    Streams meet here: none goes on behind its barrier before all have come to theirs and are copied.
    """
    refuse_existing(target)
    barrier = Barrier(SAVEPOINT.name, 1)
    aligner: BarrierAligner[None] = BarrierAligner(f"savepoint {target.name}", streams, blocking=True, limit=timeout)
    aligner.expect(barrier)
    cuts = []
    try:
        for name, stream in streams.items():
            epoch = stream.stand_still(aligner.time_left()) if stream.running else stream.progress.epoch
            if epoch is not None:
                aligner.offer(name, barrier)
                cut = Cut(stream.stream.name, stream.directory.name, stream.checkpoint_id(), epoch)
                cuts.append((stream.directory, cut))
        aligner.check_time()
        aligner.require(barrier)
        half = collect(target, catalog(), cuts)
    finally:
        for stream in streams.values():
            stream.release()
    return finish(half, target)


def collect(target: Path, catalog: Catalog, sources: Sequence[tuple[Path, Cut]]) -> Path:
    """Copy streams that stand still beside `target`; `finish` makes the copy the savepoint."""
    half = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    for directory, cut in sources:
        copy_tree(directory, half / "streams" / cut.directory)
    CatalogFile(half).save(_part_of(catalog, {cut.stream for _, cut in sources}))
    facts = Savepoint(FORMAT, target.name, time.time(), tuple(cut for _, cut in sources))
    write_atomic(half / "savepoint.json", dump(facts).encode())
    return half


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


def restore(savepoint: Path, state_dir: Path, rewind: bool = False) -> Savepoint:
    """Make the new state directory `state_dir` of a savepoint. Sinks that hold output from behind the cut would get it
    twice: that is SinkAhead, or with `rewind` such output is removed."""
    facts = read(savepoint)
    if state_dir.exists() and (not state_dir.is_dir() or any(state_dir.iterdir())):
        raise AlreadyExists(
            f"{state_dir} is not empty", advice="Name a new directory with --state-dir.", name=str(state_dir)
        )
    _refuse_living_owner(savepoint)
    catalog = CatalogFile(savepoint).read()
    ahead = list(_ahead(catalog, facts))
    if ahead and not rewind:
        names = ", ".join(sorted({f"{sink} ({rows} files)" for sink, rows, _, _ in ahead}))
        raise SinkAhead(
            f"there is output from behind the savepoint in {names}",
            advice="Restore with --rewind to remove it: the pipelines write it again. Or put the sinks back by hand.",
            sinks=sorted({sink for sink, _, _, _ in ahead}),
        )
    state_dir.parent.mkdir(parents=True, exist_ok=True)
    half = state_dir.with_name(f".{state_dir.name}.{uuid.uuid4().hex}")
    half.mkdir()
    for cut in facts.cuts:
        copy_tree(savepoint / "streams" / cut.directory, half / "streams" / cut.directory)
        place = state_dir.absolute() / "streams" / cut.directory / "checkpoint"
        _relocate(half / "streams" / cut.directory / "checkpoint", place)
    CatalogFile(half).save(catalog)
    for _, _, sink, key in ahead:
        sink.rewind(key)
    with contextlib.suppress(FileNotFoundError):
        state_dir.rmdir()
    finish(half, state_dir)
    StateDir.open(state_dir).close()  # writes its format
    return facts


def read(savepoint: Path) -> Savepoint:
    """What a directory says it is a savepoint of. Raises BadSavepoint."""
    try:
        facts = load(Savepoint, (savepoint / "savepoint.json").read_bytes())
        if facts.format != FORMAT:
            raise ValueError(f"its format is {facts.format}, not {FORMAT}")
    except (OSError, ValueError, TypeError) as problem:
        raise BadSavepoint(
            f"{savepoint} cannot be used as a savepoint: {problem}",
            advice=f"Name a directory that SAVEPOINT made: <state directory>/{DIRECTORY}/<name>.",
            path=str(savepoint),
        ) from problem
    return facts


def copy_tree(source: Path, target: Path) -> None:
    """Copy a directory that its owner may be tidying up: what vanishes meanwhile was not needed any more."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in os.scandir(source) if source.exists() else ():
        with contextlib.suppress(FileNotFoundError):
            if entry.is_dir():
                copy_tree(Path(entry.path), target / entry.name)
            elif entry.name != HOLD:
                shutil.copy2(entry.path, target / entry.name)


def _relocate(checkpoint: Path, place: Path) -> None:
    """Spark's metadata names the files of its state schema by their full path: let them be those at `place`."""
    for path in checkpoint.glob("state/*/_metadata/*/*"):
        if path.suffix == ".crc":
            path.unlink()  # of the text as it was; without one nothing is checked
        else:
            named = re.sub(r'"[^"]*/(state/\d+/_stateSchema/[^"]*)"', rf'"{place.as_uri()}/\1"', path.read_text())
            path.write_text(named)


def _part_of(catalog: Catalog, streams: set[str]) -> Catalog:
    wanted = {name.lower() for name in streams}
    for name in list(catalog.streams):
        if name not in wanted:
            for record in list(catalog.of_stream(name)):
                catalog = catalog.without("pipeline", record.definition.name)
            catalog = catalog.without("stream", name)
    return catalog


def _ahead(catalog: Catalog, facts: Savepoint) -> Iterator[tuple[str, int, DriverSink, SinkKey]]:
    """The sinks with output from behind the cut, how much, and the key of the cut."""
    for cut in facts.cuts:
        for instance, definition, output in _written(catalog, cut.stream):
            key = SinkKey(cut.checkpoint, instance, cut.epoch)
            sink = SINKS[definition.kind].driver(definition, output)
            if found := sink.ahead(key):
                yield definition.name, found, sink, key


def _written(catalog: Catalog, stream: str) -> Iterator[tuple[int, SinkDef, Schema]]:
    """Every sink that a stream writes to: those of its pipelines, and that of its dead letters."""
    for record in catalog.of_stream(stream):
        for sink, output in record.definition.outlets:
            yield record.definition.instance, sink, output
    letters = catalog.streams[stream.lower()].dead_letters
    if letters is not None:
        yield STREAM_LANE, letters, DEAD_LETTER


def _refuse_living_owner(savepoint: Path) -> None:
    """A hub that still runs on the directory where the savepoint was made would write to the same sinks."""
    owner = savepoint.absolute().parent.parent
    if (owner / "catalog.json").exists() and savepoint.absolute().parent.name == DIRECTORY:
        try:
            StateDir.open(owner).close()
        except StateInUse as problem:
            problem.advice = "Stop the hub that made the savepoint first: both would write to the same sinks."
            raise
        except HeadraceError:
            return  # not one that could run
