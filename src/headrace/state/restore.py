"""Makes a state directory from a savepoint, here or on another machine. Input before the savepoint is not needed.

**Why no row is lost or duplicated.** Sinks identify output by (checkpoint, instance, epoch), and a restored stream
continues with the checkpoint and the instances of the savepoint. Therefore sinks must not hold output of these
instances from epochs after the savepoint, visible or staged: the restored stream writes these epochs again under the
same keys, and would take an old manifest for its own. Such output is an error, or `rewind` deletes it, before the new
directory appears. A restore that was killed can be run again: it finds the output that is still there. Before that
output is deleted, file sinks get a mark, so that the old hub cannot write to them again (`headrace.sinks.owner_mark`).

Pipelines that the old hub created or replaced after the savepoint have the instance numbers that follow those of the
savepoint. The output that they wrote into the same sinks counts as well: the restored stream reads the same input
again, for the pipeline of the savepoint or for one that the script creates again. A restored catalog continues with a
random high number that no other hub uses. So what pipelines of another hub wrote, one restored from the same savepoint
for example, never counts: that hub may still run.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from headrace.base.faults import fault_point
from headrace.bridge.messages import STREAM_LANE
from headrace.errors import AlreadyExists, BadSavepoint, HeadraceError, SinkAhead, StateDamaged, StateInUse
from headrace.model.definitions import DEAD_LETTER, PipelineDef, SinkDef
from headrace.model.schema import Schema
from headrace.model.stored import stored
from headrace.sinks import SINKS, DriverSink, SinkKey
from headrace.sinks.secret_options import revealed
from headrace.sinks.sink_kind import KnowsWriters, SinkWriter
from headrace.sinks.staging import staged_in
from headrace.state.catalog import Catalog, CatalogFile
from headrace.state.checkpoint import CHECKPOINT, own_checkpoint_id, relocate
from headrace.state.dedicated_state import DEDICATED, dedicated_home, newest_turn, sink_epochs
from headrace.state.handing_over import hand_over
from headrace.state.progress import read_progress, write_progress
from headrace.state.savepoints import READABLE_FORMATS, Cut, Savepoint, copy_tree, finish, half_of
from headrace.state.state_dir import SAVEPOINTS, STREAMS, StateDir, write_version


def restore(savepoint: Path, state_dir: Path, rewind: bool = False) -> Savepoint:
    """Make the new state directory `state_dir` from a savepoint. Raises SinkAhead if sinks hold output of epochs after
    the savepoint, which they would get twice. With `rewind` that output is deleted."""
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
    with contextlib.ExitStack() as opened:
        used = {cut: list(_uses(savepoint, file, catalog, cut=cut, opened=opened)) for cut in facts.cuts}
        ahead = [found for cut, uses in used.items() for found in _ahead(catalog, cut, uses)]
        _restore(
            savepoint=savepoint,
            state_dir=state_dir,
            file=file,
            catalog=catalog,
            used=used,
            ahead=ahead,
            rewind=rewind,
        )
    fault_point("restore-finished")
    return facts


# A hub assigns at most this many instance numbers after a savepoint. A restored hub begins after them.
NEXT_INSTANCES = 1 << 20

_Ahead = tuple[str, int, DriverSink, SinkKey]


@dataclass(frozen=True, slots=True)
class _Use:
    """A sink of the savepoint's pipelines, open, with the key of the newest epoch that one of them has written."""

    name: str
    sink: DriverSink
    key: SinkKey


def _restore(
    savepoint: Path,
    state_dir: Path,
    file: CatalogFile,
    catalog: Catalog,
    used: Mapping[Cut, Sequence[_Use]],
    ahead: list[_Ahead],
    rewind: bool,
) -> None:
    if ahead and not rewind:
        names = ", ".join(sorted({f"{sink} ({files} files)" for sink, files, _, _ in ahead}))
        raise SinkAhead(
            f"these sinks hold output written after the savepoint: {names}",
            advice="Restore with --rewind to delete that output: the pipelines write it again. Or restore the sinks by "
            "hand.",
            sinks=sorted({sink for sink, _, _, _ in ahead}),
        )
    _remove_halves(state_dir)
    with half_of(state_dir) as half:
        for cut in used:
            copy_tree(savepoint / STREAMS / cut.directory, half / STREAMS / cut.directory)
            place = state_dir.absolute() / STREAMS / cut.directory / CHECKPOINT
            relocate(half / STREAMS / cut.directory / CHECKPOINT, place)
            for own in (half / STREAMS / cut.directory / DEDICATED).glob(f"*/*/{CHECKPOINT}"):
                relocate(own, place.parent / own.relative_to(half / STREAMS / cut.directory))
            _forget_promises(half / STREAMS / cut.directory)
        CatalogFile(half, file.vault).save(_counting_elsewhere(catalog))
        write_version(half)
        fault_point("restore-copied")
        for cut, uses in used.items():
            owned = half / STREAMS / cut.directory
            hand_over(owned, cut.checkpoint, (use.sink for use in uses), state_dir=state_dir, at_once=rewind)
        fault_point("restore-handed-over")
        for _, _, sink, key in ahead:
            sink.rewind(key)
            fault_point("restore-between-sinks")
        with contextlib.suppress(FileNotFoundError):
            state_dir.rmdir()
        fault_point("restore-before-rename")
        finish(half, state_dir)


def read(savepoint: Path) -> Savepoint:
    """The description of the savepoint in a directory. Raises BadSavepoint."""
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
        advice=f"Name a directory that SAVEPOINT created: <state directory>/{SAVEPOINTS}/<name>.",
        path=str(savepoint),
    )


def _counting_elsewhere(catalog: Catalog) -> Catalog:
    """Continue with a random instance number. The hub that took the savepoint may have assigned the next numbers, and
    so may other hubs that were restored from it. With 2^48 starting points, two hubs do not collide."""
    return replace(catalog, next_instance=catalog.next_instance + NEXT_INSTANCES + secrets.randbits(48))


def _forget_promises(directory: Path) -> None:
    """Sinks may have committed what they owed at the time of the savepoint, and forgotten the promises since."""
    for path in (directory, *directory.glob(f"{DEDICATED}/*/*")):
        with contextlib.suppress(StateDamaged):  # the stream says so, with the path, when it is opened
            progress = read_progress(path)
            if any(debt.promised for debt in progress.debts):
                write_progress(path, replace(progress, debts=tuple(replace(d, promised=False) for d in progress.debts)))


def _remove_halves(state_dir: Path) -> None:
    """Delete the unfinished copies of killed restores."""
    for half in state_dir.absolute().parent.glob(".*"):
        if re.fullmatch(rf"\.{re.escape(state_dir.name)}\.[0-9a-f]{{32}}", half.name):
            shutil.rmtree(half, ignore_errors=True)


def _uses(
    savepoint: Path, file: CatalogFile, catalog: Catalog, cut: Cut, opened: contextlib.ExitStack
) -> Iterator[_Use]:
    """The sinks that the pipelines of a stream write to, with the keys of the savepoint. `opened` closes them."""
    directory = savepoint / STREAMS / cut.directory

    def use(definition: SinkDef, placed: SinkDef, output: Schema, key: SinkKey) -> _Use:
        sink = SINKS[definition.kind].driver(revealed(placed, file.vault.reveal), output)
        opened.callback(sink.close)
        return _Use(definition.name, sink, key)

    for instance, definition, output in _written(catalog, cut.stream):
        key = SinkKey(cut.checkpoint, instance, cut.epoch)
        yield use(definition, staged_in(definition, directory), output, key)
    for pipeline, home, key in _dedicated(directory, catalog, cut.stream):
        for definition in pipeline.sinks:
            yield use(definition, staged_in(definition, home, feeds=directory), pipeline.program.output, key)


def _ahead(catalog: Catalog, cut: Cut, uses: Iterable[_Use]) -> Iterator[_Ahead]:
    """The sinks with output written after the savepoint: name, number of files, sink, and the key of the savepoint."""
    seen: set[tuple[str, SinkWriter]] = set()
    newer = partial(newer_ids, cut.checkpoint, catalog.next_instance)
    for use in uses:
        keys = {(use.key.checkpoint, use.key.instance): use.key}
        if use.key.checkpoint == cut.checkpoint and isinstance(use.sink, KnowsWriters):
            for writer in use.sink.writers(newer):  # a newer pipeline on the dedicated host counts epochs of its own
                keys.setdefault(writer, SinkKey(*writer, cut.epoch if writer[0] == cut.checkpoint else -1))
        for writer, key in sorted(keys.items()):
            if (use.name, writer) not in seen and (found := use.sink.ahead(key)):
                yield use.name, found, use.sink, key
            seen.add((use.name, writer))


def newer_ids(checkpoint: str, next_instance: int, instance: int) -> tuple[str, ...]:
    """The ids under which an instance may have written that was created after the savepoint: as a pipeline of the
    stream with this checkpoint, or on the dedicated host."""
    if not next_instance <= instance < next_instance + NEXT_INSTANCES:
        return ()
    return checkpoint, own_checkpoint_id(checkpoint, instance)


def _dedicated(directory: Path, catalog: Catalog, stream: str) -> Iterator[tuple[PipelineDef, Path, SinkKey]]:
    """The pipelines on the dedicated host whose first stream this is, with the directory of their state. The savepoint
    has the log of their newest batch, which runs again with the same input, so only batches after it are ahead."""
    for record in catalog.of_stream(stream):
        pipeline = record.definition
        home = dedicated_home(directory, pipeline)
        turn = newest_turn(home)
        if pipeline.program.dedicated is None or pipeline.program.stream.lower() != stream.lower() or turn < 0:
            continue
        known = sink_epochs(home / str(turn), pipeline.name)
        yield pipeline, home, SinkKey(known.checkpoint, pipeline.instance, known.newest)


def _written(catalog: Catalog, stream: str) -> Iterator[tuple[int, SinkDef, Schema]]:
    """Every sink that a stream writes to: the sinks of its pipelines and its dead letter sink."""
    for record in catalog.of_stream(stream):
        for sink, output in record.definition.outlets:
            yield record.definition.instance, sink, output
    letters = catalog.streams[stream.lower()].dead_letters
    if letters is not None:
        yield STREAM_LANE, letters, DEAD_LETTER


def _refuse_living_owner(savepoint: Path) -> None:
    """Raise StateInUse if the hub that took the savepoint still runs: it would write to the same sinks."""
    owner = savepoint.absolute().parent.parent
    if (owner / "catalog.json").exists() and savepoint.absolute().parent.name == SAVEPOINTS:
        try:
            StateDir.open(owner).close()
        except StateInUse as problem:
            problem.advice = "Stop the hub that took the savepoint first: both would write to the same sinks."
            raise
        except HeadraceError:
            return  # no hub can run on that directory
