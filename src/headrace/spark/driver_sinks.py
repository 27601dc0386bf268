"""The driver side of all sinks of one stream: opened on first use, kept until the stream closes or forgets them."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path

from headrace.bridge.messages import STREAM_LANE
from headrace.errors import HeadraceError, SinkFailed, StateDamaged
from headrace.model.definitions import DEAD_LETTER, FEED, PipelineDef, SinkDef
from headrace.model.schema import Schema
from headrace.model.stream_options import StreamSettings
from headrace.sinks import SINKS
from headrace.sinks.console import ConsoleSink
from headrace.sinks.owner_mark import HasOwner, owner_of
from headrace.sinks.secret_options import pipeline_for_tasks, revealed
from headrace.sinks.sink_kind import DriverSink, EpochMark, SinkKey
from headrace.sinks.staging import pipeline_staged_in, staged_in
from headrace.spark.hanging import HangingSinks
from headrace.state.checkpoint import known_checkpoint
from headrace.state.progress import Debt

# How long an epoch waits for a sink that owes an older one. Most commits take milliseconds.
SETTLE_SECONDS = 10.0
HANGS = "a commit hangs in it"
_log = logging.getLogger(__name__)
Require = Callable[[], None]


def _always() -> None:
    """What a caller that is never given up requires."""


def settle_limit(settings: StreamSettings) -> float:
    """How many seconds an epoch waits for a sink that owes an older one: a small part of the time that it may take."""
    most = settings.max_epoch_time
    return SETTLE_SECONDS if most is None else min(SETTLE_SECONDS, most / 1e6 / 4)


def still_owed(debts: Iterable[Debt], settled: Callable[[Debt], bool]) -> tuple[Debt, ...]:
    """Try to commit the epochs that sinks owe, each sink's oldest first. Returns those that are still owed. A sink that
    fails is not asked for its later epochs: committing one deletes the staged rows of the older ones."""
    left: list[Debt] = []
    failed: set[tuple[int, str]] = set()
    for debt in sorted(debts, key=lambda debt: debt.epoch):
        sink = (debt.pipeline.instance, debt.sink)
        if sink in failed or not settled(debt):
            failed.add(sink)
            left.append(debt)
    return tuple(left)


class DriverSinks:
    """One object per sink and instance. The streaming thread and readers of results share them.

    `in_use` says which sink the commit of an epoch uses now, for the status of an epoch that hangs. `user` is the
    instance of its pipeline, or STREAM_LANE for the dead letters, and `used` is its name. `hanging` are the sinks in
    which a call hangs: nothing may touch them until it returns. Then the same objects are used again: two would write
    the same files.

    An epoch that a sink owes is committed in a thread of its own. If that takes longer than `settle_seconds`, the sink
    hangs, and the epoch stays owed. The stream goes on, unless the pipeline itself has rows for that sink. None means
    no limit.
    """

    def __init__(
        self, checkpoint: str, directory: Path, reveal: Callable[[str], str] = str, feeds: Path | None = None
    ) -> None:
        """Sinks stage rows in `directory`, which is that of the stream unless `feeds` is. `reveal` returns the value of
        a secret (`headrace.state.secrets`)."""
        self._checkpoint, self._directory, self._reveal = checkpoint, directory, reveal
        self._feeds = feeds
        self._sinks: dict[tuple[int, str], DriverSink] = {}
        self._fed: dict[tuple[int, str], SinkDef] = {}  # the definitions of the feeds among them
        self.in_use = self.used = ""
        self.user: int | None = None
        self.turn = threading.Lock()  # held while a commit takes its next sink, and while it is given up
        self.hanging = HangingSinks()
        self.settle_seconds: float | None = SETTLE_SECONDS

    def moved(self, checkpoint: str) -> None:
        """Write under the keys of another checkpoint from now on. Sinks that are open keep their rows."""
        self._checkpoint = checkpoint

    @property
    def opened(self) -> list[tuple[int, str]]:
        """The sinks that are open, by instance and name. Dead letters are under `STREAM_LANE`."""
        return list(self._sinks)

    @property
    def steps(self) -> int:
        """Grows while sinks take rows of epochs that were promised, if they are sinks that may take long for that."""
        return sum(getattr(sink, "steps", 0) for sink in list(self._sinks.values()))

    def of(self, pipeline: PipelineDef, name: str) -> DriverSink:
        """One of a pipeline's sinks."""
        key = (pipeline.instance, name)
        changed = self._changed_feed(pipeline, name)
        if key not in self._sinks or changed:
            sink, columns = next((s, columns) for s, columns in pipeline.outlets if s.name == name)
            # setdefault: a reader and the streaming thread may ask at the same time, and must get the same object.
            made = self._made(sink, columns)
            if isinstance(made, ConsoleSink):
                made.title = f"pipeline {pipeline.name}, sink {sink.name}"
            if changed:  # what it keeps is on disk
                self._sinks[key] = made
            self._sinks.setdefault(key, made)
            if sink.kind == FEED:
                self._fed[key] = sink
        return self._sinks[key]

    def _changed_feed(self, pipeline: PipelineDef, name: str) -> bool:
        """True if a feed has another limit or strategy than when it was opened. Other sinks keep their definition for
        as long as the instance lives."""
        opened = self._fed.get((pipeline.instance, name))
        return opened is not None and any(sink.name == name and sink != opened for sink in pipeline.sinks)

    def for_commit(self, pipeline: PipelineDef, name: str, require: Require = _always) -> DriverSink:
        """One of a pipeline's sinks, which the commit is about to use."""
        self.use(f"sink {name} of pipeline {pipeline.name}", pipeline.instance, name, require)
        return self.of(pipeline, name)

    def use(self, what: str, instance: int | None = None, sink: str = "", require: Require = _always) -> None:
        """Note what the commit waits for from now on. `require` raises if the commit was given up: it can be given up
        for the sink that it uses, and not on its way to the next one."""
        with self.turn:
            require()
            self.in_use, self.user, self.used = what, instance, sink

    def letters_for_commit(self, sink: SinkDef, require: Require = _always) -> DriverSink:
        """The sink of the stream's dead letters, which the commit is about to use."""
        self.use(f"sink {sink.name} with the dead letters", STREAM_LANE, sink.name, require)
        return self.letters(sink)

    def letters(self, sink: SinkDef) -> DriverSink:
        """The sink of the stream's dead letters."""
        made = self._sinks.get((STREAM_LANE, sink.name))
        return made or self._sinks.setdefault((STREAM_LANE, sink.name), self._made(sink, DEAD_LETTER))

    def _made(self, sink: SinkDef, columns: Schema) -> DriverSink:
        """Raises SinkTakenOver if the stream was restored elsewhere, and the restored hub writes to the sink."""
        made = SINKS[sink.kind].driver(revealed(staged_in(sink, self._directory, self._feeds), self._reveal), columns)
        mark = made.owner_mark if isinstance(made, HasOwner) else None
        if mark is not None:
            directory = self._feeds or self._directory
            mark.require(known_checkpoint(directory) or self._checkpoint, owner_of(directory))
        return made

    def staged(self, pipeline: PipelineDef) -> PipelineDef:
        """`pipeline` as tasks need it: with the directory in which they stage rows for sinks that have none of their
        own, and with the secrets of object stores."""
        return pipeline_for_tasks(pipeline_staged_in(pipeline, self._directory, self._feeds), self._reveal)

    def key(self, instance: int, epoch: int, digest: str = "", mark: EpochMark | None = None) -> SinkKey:
        """The key of an instance's output in an epoch."""
        return SinkKey(self._checkpoint, instance, epoch, digest=digest, mark=mark)

    def owed(self, debt: Debt) -> SinkKey:
        """The key of an epoch that a sink owes."""
        return replace(self.key(debt.pipeline.instance, debt.epoch), promised=debt.promised)

    def settle(self, debt: Debt, require: Require = _always) -> None:
        """Commit an epoch that a sink owes. Raises what the sink raises, and SinkFailed if it takes too long."""
        pipeline, name = debt.pipeline, debt.sink
        if self.hanging.takes(pipeline.instance, name):
            raise SinkFailed(f"an earlier commit of pipeline {pipeline.name} still hangs in one of its sinks")
        what = f"sink {name} of pipeline {pipeline.name}, which owes epoch {debt.epoch}"
        self.use(what, pipeline.instance, name, require)

        def commit() -> None:
            self.of(pipeline, name).commit(self.owed(debt), [])

        if self.settle_seconds is None:
            commit()
        else:
            self.hanging.limited(pipeline.instance, name, commit, self.settle_seconds)

    def settled(self, debt: Debt, declared: bool = True, require: Require = _always) -> bool:
        """Try to commit an epoch that a sink owes. True if that worked. Also true if files of the sink are damaged or
        gone, and the pipeline is not `declared` any more: then nothing can bring the rows back."""
        try:
            self.settle(debt, require)
        except StateDamaged as problem:
            if declared:
                return False
            _log.warning("pipeline %s was dropped, and its sink lacks rows: %s", debt.pipeline.name, problem.message)
        except HeadraceError:  # then it stays owed
            return False
        return True

    def notes(self, pipeline: PipelineDef) -> dict[str, str]:
        """Remarks of a pipeline's sinks that fail no epoch, by sink name."""
        found = {s.name: self._sinks.get((pipeline.instance, s.name)) for s in pipeline.sinks}
        notes = {name: getattr(sink, "note", "") for name, sink in found.items()}
        hanging = self.hanging.sinks(pipeline.instance, seconds=SETTLE_SECONDS)
        return {name: note for name, note in notes.items() if note} | dict.fromkeys(hanging, HANGS)

    def forget(self, pipelines: Collection[PipelineDef], epoch: int, require_current: Require = _always) -> None:
        """Close the sinks of dropped pipelines and delete the rows or manifests that they keep. `require_current`
        raises when another commit may use the sinks."""
        for p in pipelines:
            self.use(f"the sinks of pipeline {p.name}", p.instance, require=require_current)
            for outlet, _ in p.outlets:
                with contextlib.suppress(HeadraceError):  # the leftovers are small, and invisible to readers
                    self.of(p, outlet.name).forget(self.key(p.instance, epoch))
        require_current()
        self._close({p.instance for p in pipelines})

    def _close(self, instances: set[int]) -> None:
        for key in [key for key in self.opened if key[0] in instances]:
            self._sinks.pop(key).close()
            self._fed.pop(key, None)

    def forget_stream(
        self, pipelines: Iterable[PipelineDef], letters: SinkDef | None, epoch: int, owing: set[tuple[int, str]]
    ) -> None:
        """Delete what the sinks of a dropped stream keep beside their output. The newest committed epoch is `epoch`. A
        sink that is `owing` keeps the epoch that it has promised."""
        used = [(p.instance, s.name, p) for p in pipelines for s, _ in p.outlets]
        for instance, name, pipeline in used:
            if (instance, name) not in owing and not self.hanging.takes(instance, name):
                with contextlib.suppress(HeadraceError):
                    self._clear(self.of(pipeline, name), instance, epoch)
        if letters is not None and not self.hanging.takes(STREAM_LANE, letters.name):
            with contextlib.suppress(HeadraceError):
                self._clear(self.letters(letters), STREAM_LANE, epoch)

    def _clear(self, sink: DriverSink, instance: int, epoch: int) -> None:
        for number in (epoch, epoch + 1):  # the epoch after it may have been staged
            sink.discard(self.key(instance, number))
        sink.forget(self.key(instance, epoch + 1))

    def close(self, used: int | None = None) -> None:
        """Close all sinks, except those in which a commit hangs: they might not return. The commit that runs now uses
        sinks of the instance `used`."""
        for (instance, name), sink in list(self._sinks.items()):
            if instance != used and not self.hanging.takes(instance, name):
                sink.close()
