"""Where a pipeline on the dedicated host keeps the state of its query, in the directory of its first stream.

    <stream>/dedicated/<instance>-<fresh>/<turn>/checkpoint       Spark's checkpoint of the query
    <stream>/dedicated/<instance>-<fresh>/<turn>/checkpoint.id    part of the key of its output in sinks
    <stream>/dedicated/<instance>-<fresh>/<turn>/progress.json    its newest committed batch
    <stream>/dedicated/<instance>-<fresh>/<turn>/begin.json       where it begins to read; written last
    <stream>/dedicated/<instance>-<fresh>/<turn>/pipeline.json    the pipeline, as its newest batch was delivered
    <stream>/dedicated/<instance>-<fresh>/staging                 what its sinks have staged and promised

`headrace.stream.dedicated_runtime` says when a new directory begins. Spark counts the batches of each from 0. In sinks
the epochs of an instance go on from one directory to the next, under one checkpoint id: a sink then holds nothing of an
instance that a savepoint from before does not know (`headrace.state.restore`). The first id of an instance is derived
from that of its first stream, so that a restore also finds the output of instances that are newer than the savepoint.

A state that is dropped leaves behind what concerns its sinks: the epochs that they owe, those that only some of them
may have, and the directory `staging`, which holds the rows of both. The next state takes them over (`left_behind`,
`take_staging`), and only then the old directory is deleted.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace.base.durable import fsync, private_directory, state_errors
from headrace.errors import HeadraceError
from headrace.model.definitions import PipelineDef
from headrace.model.stored import damaged, store, stored
from headrace.sinks.staging import STAGING
from headrace.state.checkpoint import CHECKPOINT, checkpoint_id
from headrace.state.progress import Debt, Progress, read_progress
from headrace.state.spark_log import OFFSETS, newest_commit, newest_offset

DEDICATED = "dedicated"
BEGIN = "begin.json"
DEFINITION = "pipeline.json"


@dataclass(frozen=True, slots=True)
class Begin:
    """Where a query without a checkpoint begins to read: the position in the feed of each stream. `skipped` rows were
    in the feeds and are not read, because the pipeline lost its state. Batch 0 is epoch `first` in sinks. The epoch
    `undecided` is the newest one of a state that was dropped: some sinks may have committed it and others not. The same
    is true of the epochs in `earlier`, of states before that one which were dropped before they committed a batch.
    `sinks` are the names of the sinks that such an epoch was for, by epoch: a sink that was detached before gets
    nothing of it. Earlier versions did not store these."""

    positions: dict[str, int]
    skipped: int = 0
    first: int = 0
    undecided: int | None = None
    earlier: tuple[int, ...] = ()
    sinks: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def all_undecided(self) -> tuple[int, ...]:
        """The undecided epochs, oldest first."""
        return self.earlier if self.undecided is None else (*self.earlier, self.undecided)


def sinks_of(known: Mapping[str, tuple[str, ...]], epoch: int, pipeline: PipelineDef) -> list[str]:
    """The sinks of a pipeline that an undecided epoch was for: all of them, unless more is `known`, as in
    `Begin.sinks`."""
    took = known.get(str(epoch))
    return [sink.name for sink in pipeline.sinks if took is None or sink.name in took]


def dedicated_home(stream_directory: Path, pipeline: PipelineDef) -> Path:
    """The directory of a pipeline's query; `stream_directory` is that of its first stream."""
    return stream_directory / DEDICATED / f"{pipeline.instance}-{pipeline.fresh}"


def stream_directory_of(turn: Path) -> Path:
    """The directory of the stream in which the directory of a turn lies."""
    return turn.parents[2]


@dataclass(frozen=True, slots=True)
class SinkEpochs:
    """The epochs that a turn may have written to sinks: the checkpoint id in their keys, and the newest one."""

    checkpoint: str
    newest: int


def sink_epochs(turn: Path, pipeline: str) -> SinkEpochs:
    """The epochs of a turn that the sinks of a pipeline may have. Raises StateDamaged."""
    begin = stored(Begin, turn / BEGIN) or Begin({})
    planned = max(read_progress(turn).epoch, newest_offset(turn / CHECKPOINT))
    return SinkEpochs(checkpoint_id(turn, pipeline), begin.first + planned)


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """What a state that is dropped leaves to the next one: the epochs that its sinks may have, those of them that are
    `undecided`, oldest first, with the `sinks` that they were for, and those that sinks owe."""

    epochs: SinkEpochs
    undecided: tuple[int, ...]
    debts: tuple[Debt, ...]
    sinks: dict[str, tuple[str, ...]]


def states_of(directory: Path, instance: int) -> list[Path]:
    """The directories of all states of an instance. The newest is the last."""
    return sorted(directory.glob(f"{instance}-*"), key=_fresh)


def _fresh(home: Path) -> int:
    number = home.name.rpartition("-")[2]
    return int(number) if number.isdigit() else -1


def dropped_states(home: Path, instance: int) -> list[Path]:
    """The directories of the earlier states of an instance. The newest is the last."""
    return [state for state in states_of(home.parent, instance) if state != home]


def begun(states: Sequence[Path]) -> list[Path]:
    """Those of these states that have begun."""
    return [home for home in states if newest_turn(home) >= 0 or lost_begin(home) is not None]


def left_behind(dropped: Sequence[Path], pipeline: str) -> LeftBehind | None:
    """What the newest of these states that has begun leaves behind. None if there is none, or if its files are damaged:
    then the next state begins under a checkpoint id of its own."""
    states = begun(dropped)
    if not states or lost_begin(states[-1]) is not None:
        return None
    turn = states[-1] / str(newest_turn(states[-1]))
    with contextlib.suppress(HeadraceError):
        epochs, progress = sink_epochs(turn, pipeline), read_progress(turn)
        begin = stored(Begin, turn / BEGIN) or Begin({})
        passed_on = begin.all_undecided if progress.epoch < 0 else ()  # else they are debts now, or all sinks have them
        newest = () if epochs.newest <= begin.first + progress.epoch else (epochs.newest,)
        sinks = {key: names for key, names in begin.sinks.items() if int(key) in passed_on}
        took = _sinks_in_use(turn, progress)
        if took is not None:
            sinks |= {str(epoch): took for epoch in newest}
        undecided = sorted({*passed_on, *newest})
        return LeftBehind(epochs, tuple(undecided), progress.debts, sinks)
    return None


def lost_with_state(dropped: Sequence[Path], pipeline: str) -> str:
    """A warning if the newest of these states that has begun is damaged: which rows the sinks may lack when it is
    dropped. Else empty."""
    states = begun(dropped)
    if not states:
        return ""
    turn = states[-1] / str(max(0, newest_turn(states[-1])))
    progress, first, newest = None, 0, newest_offset(turn / CHECKPOINT)
    try:
        progress = read_progress(turn)
        first = (stored(Begin, turn / BEGIN) or Begin({})).first
        checkpoint_id(turn, pipeline)
        require_whole_turns(states[-1])
        return ""
    except HeadraceError as problem:
        why = problem.message
    if progress is None or newest_commit(turn / CHECKPOINT) > progress.epoch:
        lacking = [f"any epoch up to {first + newest}" if newest >= 0 else "any epoch"]
    else:
        lacking = [f"{debt.sink} epoch {debt.epoch}" for debt in progress.debts]
        lacking += [f"epoch {first + newest}"] if newest > progress.epoch else []
    if not lacking:
        return ""
    return f"pipeline {pipeline} begins without its state, which is damaged ({why}). Its sinks may lack rows: " + (
        "; ".join(lacking)
    )


def remember(turn: Path, pipeline: PipelineDef) -> None:
    """Store a pipeline as its next batch is delivered: when it is dropped, its sinks may still have to get that batch,
    and no catalog has it then."""
    store(turn / DEFINITION, pipeline)


def remembered(turn: Path) -> PipelineDef | None:
    """The pipeline as its newest batch was delivered. None if that is not known: earlier versions did not store it.
    Raises StateDamaged."""
    return stored(PipelineDef, turn / DEFINITION)


def last_definition(states: Sequence[Path]) -> PipelineDef | None:
    """The pipeline that these states are of, with the number `fresh` of the newest. None if nothing was delivered, or
    if that is not known. Raises StateDamaged."""
    found = None
    if states and (known := begun(states)):
        turn = known[-1] / str(max(0, newest_turn(known[-1])))
        debts = read_progress(turn).debts
        found = remembered(turn) or (debts[-1].pipeline if debts else None)
    return None if found is None else replace(found, fresh=_fresh(states[-1]))


def _sinks_in_use(turn: Path, progress: Progress) -> tuple[str, ...] | None:
    """The sinks that the newest batch was for. None if that is not known."""
    pipeline = None
    with contextlib.suppress(HeadraceError):  # damaged: then it was for all sinks, as far as anyone knows
        pipeline = remembered(turn)
    if pipeline is None:
        return None
    gone = progress.detached.get(pipeline.run, {})
    return tuple(sink.name for sink in pipeline.sinks if sink.name not in gone)


def take_staging(dropped: Sequence[Path], home: Path) -> None:
    """Move what sinks have staged and promised from the newest dropped state to the new one, before that begins: its
    sinks look for it there. Manifests name files relative to it. Does nothing if it was moved before a crash."""
    found, target = [old / STAGING for old in dropped if (old / STAGING).is_dir()], home / STAGING
    if found and not target.exists():
        with state_errors(target):
            private_directory(home)
            os.rename(found[-1], target)
            fsync(home)
            fsync(found[-1].parent)


def lost_begin(home: Path) -> Path | None:
    """The missing `begin.json` of a turn that has run. None if there is no such turn. A turn before the newest is only
    a leftover: a crash may have interrupted its deletion."""
    newest = newest_turn(home)
    ran = {p.parent.parent.parent for p in home.glob(f"*/{CHECKPOINT}/{OFFSETS}/*")}
    return next((turn / BEGIN for turn in sorted(ran) if turn.name.isdigit() and int(turn.name) > newest), None)


def require_whole_turns(home: Path) -> None:
    """Raise StateDamaged if the newest turn lost a file. Without it the query would begin again without its state, or
    its sinks would not get an epoch that they owe."""
    if (path := lost_begin(home)) is not None:
        raise damaged(path, "is missing, but the query has run")
    turn = home / str(max(0, newest_turn(home)))
    newest = newest_commit(turn / CHECKPOINT)
    if newest > read_progress(turn).epoch:
        how = f"is missing or older than the checkpoint: Spark has committed batch {newest}"
        raise damaged(turn / "progress.json", how)


def delete_earlier_turns(home: Path) -> None:
    """Delete what is left of the turns before the newest."""
    newest = newest_turn(home)
    for turn in home.iterdir() if home.is_dir() else ():
        if turn.name.isdigit() and int(turn.name) < newest:
            shutil.rmtree(turn, ignore_errors=True)


def newest_turn(home: Path) -> int:
    """The newest turn that has begun. -1 before the first."""
    return max((int(p.parent.name) for p in home.glob(f"*/{BEGIN}") if p.parent.name.isdigit()), default=-1)
