"""A savepoint becomes a state directory, here or on another machine. Input before the cut is not needed any more.

**Why nothing is lost or doubled.** Sinks know output by (checkpoint, instance, epoch), and a restored stream goes on
with the checkpoint and the instances of the savepoint. So sinks must not hold anything of these instances from epochs
after the cut, visible or not: a manifest that was left there would be taken for that of the epoch which the restored
stream writes under the same key. Such output is refused, or removed on request, before the new directory appears; a
restore that was killed on the way is run again and finds what is left.

Pipelines that the old hub created after the cut have output under instance numbers that the savepoint does not know. So
a restored catalog goes on counting from a number that no other hub comes to.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from headrace.bridge.messages import STREAM_LANE
from headrace.errors import AlreadyExists, BadSavepoint, HeadraceError, SinkAhead, StateInUse
from headrace.faults import fault_point
from headrace.program import DEAD_LETTER, SinkDef
from headrace.savepoints import READABLE_FORMATS, Savepoint, copy_tree, finish, half_of
from headrace.schema import Schema
from headrace.sinks import SINKS, DriverSink, SinkKey
from headrace.stored import stored
from headrace.streams.catalog import Catalog, CatalogFile
from headrace.streams.checkpoint import CHECKPOINT, relocate
from headrace.streams.state_dir import SAVEPOINTS, STREAMS, StateDir, write_version


def restore(savepoint: Path, state_dir: Path, rewind: bool = False) -> Savepoint:
    """Make the new state directory `state_dir` of a savepoint. Sinks that hold output of epochs after the cut would get
    it twice: that is SinkAhead, or with `rewind` such output is removed."""
    facts = read(savepoint)
    if state_dir.exists() and (not state_dir.is_dir() or any(state_dir.iterdir())):
        raise AlreadyExists(
            f"{state_dir} is not empty", advice="Name a new directory with --state-dir.", name=str(state_dir)
        )
    _refuse_living_owner(savepoint)
    file = CatalogFile(savepoint)
    catalog = file.read()
    if gone := [cut.stream for cut in facts.cuts if catalog.stream(cut.stream) is None]:
        raise _unusable(savepoint, f"its catalog does not declare {', '.join(gone)}")
    ahead = list(_ahead(catalog, facts))
    if ahead and not rewind:
        names = ", ".join(sorted({f"{sink} ({files} files)" for sink, files, _, _ in ahead}))
        raise SinkAhead(
            f"there is output from after the savepoint in {names}",
            advice="Restore with --rewind to remove it: the pipelines write it again. Or put the sinks back by hand.",
            sinks=sorted({sink for sink, _, _, _ in ahead}),
        )
    _remove_halves(state_dir)
    with half_of(state_dir) as half:
        for cut in facts.cuts:
            copy_tree(savepoint / STREAMS / cut.directory, half / STREAMS / cut.directory)
            place = state_dir.absolute() / STREAMS / cut.directory / CHECKPOINT
            relocate(half / STREAMS / cut.directory / CHECKPOINT, place)
        CatalogFile(half, file.vault).save(_counting_elsewhere(catalog))
        write_version(half)
        fault_point("restore-copied")
        for _, _, sink, key in ahead:
            sink.rewind(key)
            fault_point("restore-between-sinks")
        with contextlib.suppress(FileNotFoundError):
            state_dir.rmdir()
        fault_point("restore-before-rename")
        finish(half, state_dir)
    fault_point("restore-finished")
    return facts


def read(savepoint: Path) -> Savepoint:
    """What a directory says it is a savepoint of. Raises BadSavepoint."""
    try:
        facts = stored(Savepoint, savepoint / "savepoint.json")
        if facts is None:
            raise ValueError("it has no savepoint.json")
        if facts.format not in READABLE_FORMATS:
            raise ValueError(f"its format is {facts.format}, not one of {READABLE_FORMATS}")
        for cut in facts.cuts:
            if Path(cut.directory).name != cut.directory or cut.directory in ("", ".", ".."):
                raise ValueError(f"{cut.directory!r} is not the name of a stream's directory")
    except (HeadraceError, ValueError) as problem:
        raise _unusable(savepoint, problem.message if isinstance(problem, HeadraceError) else problem) from problem
    return facts


def _unusable(savepoint: Path, problem: object) -> BadSavepoint:
    return BadSavepoint(
        f"{savepoint} cannot be used as a savepoint: {problem}",
        advice=f"Name a directory that SAVEPOINT made: <state directory>/{SAVEPOINTS}/<name>.",
        path=str(savepoint),
    )


def _counting_elsewhere(catalog: Catalog) -> Catalog:
    """The hub that took the savepoint may have given the numbers that follow, and so may other hubs that were restored
    from it. Among 2^48 places to go on from, two hubs do not meet."""
    return replace(catalog, next_instance=catalog.next_instance + 1 + secrets.randbits(48))


def _remove_halves(state_dir: Path) -> None:
    """Remove the copies of restores that were killed."""
    for half in state_dir.absolute().parent.glob(".*"):
        if re.fullmatch(rf"\.{re.escape(state_dir.name)}\.[0-9a-f]{{32}}", half.name):
            shutil.rmtree(half, ignore_errors=True)


def _ahead(catalog: Catalog, facts: Savepoint) -> Iterator[tuple[str, int, DriverSink, SinkKey]]:
    """The sinks with output from after the cut, how much, and the key of the cut."""
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
