"""A savepoint becomes a state directory, here or on another machine. Input before the cut is not needed any more."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from headrace.bridge.messages import STREAM_LANE
from headrace.codec import load
from headrace.errors import AlreadyExists, BadSavepoint, HeadraceError, SinkAhead, StateInUse
from headrace.program import DEAD_LETTER, SinkDef
from headrace.savepoints import FORMAT, Savepoint, copy_tree, finish, half_of
from headrace.schema import Schema
from headrace.sinks import SINKS, DriverSink, SinkKey
from headrace.streams.catalog import Catalog, CatalogFile
from headrace.streams.state_dir import SAVEPOINTS, StateDir


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
    if gone := [cut.stream for cut in facts.cuts if catalog.stream(cut.stream) is None]:
        raise _unusable(savepoint, f"its catalog does not declare {', '.join(gone)}")
    ahead = list(_ahead(catalog, facts))
    if ahead and not rewind:
        names = ", ".join(sorted({f"{sink} ({rows} files)" for sink, rows, _, _ in ahead}))
        raise SinkAhead(
            f"there is output from behind the savepoint in {names}",
            advice="Restore with --rewind to remove it: the pipelines write it again. Or put the sinks back by hand.",
            sinks=sorted({sink for sink, _, _, _ in ahead}),
        )
    with half_of(state_dir) as half:
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
        raise _unusable(savepoint, problem) from problem
    return facts


def _unusable(savepoint: Path, problem: object) -> BadSavepoint:
    return BadSavepoint(
        f"{savepoint} cannot be used as a savepoint: {problem}",
        advice=f"Name a directory that SAVEPOINT made: <state directory>/{SAVEPOINTS}/<name>.",
        path=str(savepoint),
    )


def _relocate(checkpoint: Path, place: Path) -> None:
    """Spark's metadata names the files of its state schema by their full path: let them be those at `place`."""
    for path in checkpoint.glob("state/*/_metadata/*/*"):
        if path.suffix == ".crc":
            path.unlink()  # of the text as it was; without one nothing is checked
        else:
            named = re.sub(r'"[^"]*/(state/\d+/_stateSchema/[^"]*)"', rf'"{place.as_uri()}/\1"', path.read_text())
            path.write_text(named)


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
    if (owner / "catalog.json").exists() and savepoint.absolute().parent.name == SAVEPOINTS:
        try:
            StateDir.open(owner).close()
        except StateInUse as problem:
            problem.advice = "Stop the hub that made the savepoint first: both would write to the same sinks."
            raise
        except HeadraceError:
            return  # not one that could run
