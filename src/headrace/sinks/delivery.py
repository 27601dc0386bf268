"""Delivers one epoch to all sinks of a pipeline, so that they all show the same epochs even if one of them fails.

First every sink promises the epoch, then every sink commits it. If a sink cannot promise, nothing of the epoch becomes
visible anywhere: the pipeline stops, or continues without that sink (`on_failure`). If a sink has promised and then
cannot commit, it *owes* the epoch: the promise is durable, and the sink commits it before it gets any later epoch. So
no epoch is in one sink and lost in another, and none is written twice.

A call of a sink may hang, and the stream may go on without the pipeline (`headrace.spark.committer`). Whether the epoch
is decided is known then (`Delivery.left`). Before the first sink commits, it is not: no sink shows it. From then on it
is, because the sink that hangs may pass its commit point at any time: all sinks that have not committed it owe it. They
have promised it, except a single sink. That one owes what it may have begun to show: its commit without rows completes
an epoch with a manifest, and does nothing if there is none.

EpochMismatch concerns the whole epoch: it is raised, and nothing more is committed. Errors that the stream waits for
(`headrace.exec.failures.WAITED_FOR`) are raised, too, unless the sink may be detached: the epoch is then run again,
with the same keys, until the sink can be written to.

A failed step is retried, with a wait that doubles each time. A task that cannot stage rows retries in the same way.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import pyarrow as pa

from headrace.base.faults import fault_point
from headrace.errors import EpochMismatch, HeadraceError
from headrace.exec.failures import WAITED_FOR, failure_text, waited_for
from headrace.model.definitions import PipelineDef, SinkDef
from headrace.sinks import SINKS
from headrace.sinks.sink_kind import DriverSink, DurablePromises, SinkKey, SinkSettings, Staged

T = TypeVar("T")
LONGEST_WAIT = 10.0


def retried(sink: SinkDef, step: Callable[[], T], sleep: Callable[[float], None] = time.sleep) -> T:
    """The result of `step`. Retries it as the sink's options say, as long as a retry may help."""
    settings: SinkSettings = SINKS[sink.kind].settings_of(sink.options)
    left, wait = settings.retries, settings.retry_backoff / 1e6
    while True:
        try:
            return step()
        except HeadraceError as problem:
            if left == 0 or not problem.retry_helps:
                raise
        sleep(min(wait, LONGEST_WAIT))
        left, wait = left - 1, wait * 2


def detaches(sink: SinkDef) -> bool:
    """True if the pipeline continues without the sink after it has failed."""
    settings: SinkSettings = SINKS[sink.kind].settings_of(sink.options)
    return settings.on_failure == "detach"


def stage(sinks: Sequence[SinkDef], table: pa.Table, key: SinkKey, lost: dict[str, str]) -> list[tuple[str, Staged]]:
    """Stage rows in every sink that is not in `lost`. If a sink fails after all retries and may be detached, it is
    added to `lost` with the reason; the failure of any other sink is raised."""
    receipts = []
    for sink in sinks:
        if sink.name in lost:
            continue
        step = partial(SINKS[sink.kind].task(sink).stage, table, key)
        try:
            receipts.append((sink.name, retried(sink, step)))
        except HeadraceError as problem:
            if not detaches(sink):
                raise
            lost[sink.name] = failure_text(problem)
        fault_point("after-task-file")
    return receipts


@dataclass(slots=True)
class Delivered:
    """The result of delivering an epoch. `rows` is the number of rows in the first sink that shows it. A `failure`
    stops the pipeline. `detached` sinks are not written to any more, with the reason. `owed` are sinks that have not
    committed the epoch, although others may have; those in `promised` have certainly promised rows. `committed` has the
    rows that each sink shows now, and the milliseconds that its commit took."""

    rows: int | None = None
    failure: str = ""
    detached: dict[str, str] = field(default_factory=dict)
    owed: list[str] = field(default_factory=list)
    promised: list[str] = field(default_factory=list)
    committed: dict[str, tuple[int, float]] = field(default_factory=dict)


class Delivery:
    """Delivers one epoch of one pipeline. `debts` are older epochs that a sink still owes, by sink name.

    `left` are the sinks that have not committed the epoch, with what is staged there, once it is decided. It is empty
    if no sink has committed the epoch, and None as long as that is not known. `promised` are the sinks that have
    promised rows of it to this delivery. Any thread may read both.
    """

    def __init__(
        self,
        pipeline: PipelineDef,
        open_sink: Callable[[str], DriverSink],
        key: SinkKey,
        debts: Mapping[str, Sequence[SinkKey]],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._pipeline, self._open, self._key = pipeline, open_sink, key
        self._debts, self._sleep = debts, sleep
        self._sinks = {s.name: s for s, _ in pipeline.outlets}
        self._result = Delivered()
        self.left: Mapping[str, list[Staged]] | None = None
        self.promised: frozenset[str] = frozenset()

    def deliver(
        self, receipts: Mapping[str, list[Staged]], failure: str, lost: Mapping[str, str], gone: Mapping[str, str]
    ) -> Delivered:
        """Deliver the epoch to every sink, or to none. `failure` is why the pipeline failed in a task, if it did.
        `lost` are sinks for which tasks could not stage rows, `gone` are sinks that were detached in an earlier epoch.
        Raises an error of WAITED_FOR; the stream then waits and runs the epoch again."""
        try:
            return self._deliver(receipts, failure, lost, gone)
        except WAITED_FOR:
            self._make_room()
            raise

    def _make_room(self) -> None:
        """Delete the rows staged for an epoch that will be run again. Attempts that wait for disk space must not use it
        up."""
        with contextlib.suppress(HeadraceError):  # a sink that does not answer may have committed
            if not any(self._open(name).committed(self._key) for name in self._sinks):
                self.left = {}  # before a promise is taken back
                for name in self._sinks:
                    self._discard(name)

    def _deliver(
        self, receipts: Mapping[str, list[Staged]], failure: str, lost: Mapping[str, str], gone: Mapping[str, str]
    ) -> Delivered:
        for name in gone:
            self._discard(name)
            del self._sinks[name]
        if (waiting := waited_for(failure)) is not None:
            raise waiting
        # In a re-run, a sink may have committed the epoch already. Then all sinks promised it, and no failure undoes
        # that.
        decided = any(self._open(name).committed(self._key) for name in self._sinks)
        late = {name: reason for name, reason in lost.items() if name in self._sinks}
        if not decided:
            self.left = {}
            for name, reason in late.items():
                self._detach(name, reason)
        if not failure and not decided:
            failure = self._promise(receipts)
        if failure and not decided:
            for name in self._sinks:
                self._discard(name)
            self._result.failure = failure
            return self._result
        self._commit({name: staged for name, staged in receipts.items() if name not in late}, decided)
        if decided:  # detached only after this epoch, because they promised it
            for name, reason in late.items():
                self._result.detached.setdefault(name, reason)
                del self._sinks[name]
            failure = failure or self._deserted()
        self._result.failure = self._result.failure or failure
        return self._result

    def _promise(self, receipts: Mapping[str, list[Staged]]) -> str:
        """Let every sink promise the epoch. Returns why the pipeline must stop, or an empty text. A single sink needs
        no promise: its commit decides. A sink that gets nothing of the epoch need not settle what it owes either."""
        alone = len(self._sinks) == 1
        for name, sink in list(self._sinks.items()):
            if not receipts.get(name) and not SINKS[sink.kind].every_epoch:
                continue
            staged = [] if alone else receipts.get(name, [])
            try:
                retried(sink, partial(self._settle_and_promise, name, staged), self._sleep)
            except EpochMismatch:
                raise
            except HeadraceError as problem:
                if not detaches(sink):
                    if isinstance(problem, WAITED_FOR):
                        raise
                    return failure_text(problem)
                self._detach(name, failure_text(problem))
        return self._deserted()

    def _deserted(self) -> str:
        left = any(sink.name in self._sinks for sink in self._pipeline.sinks)
        return "" if left else "\n".join(["every sink is detached", *self._result.detached.values()])

    def _settle_and_promise(self, name: str, staged: list[Staged]) -> None:
        sink = self._settled(name)
        if staged:
            sink.promise(self._key, staged)
            self.promised |= {name}

    def _settled(self, name: str) -> DriverSink:
        """A sink that has committed the older epochs that it owes. A later commit would delete their staged rows. The
        sink is opened again after each: while one hung, the epoch may have been given up."""
        sink = self._open(name)
        for older in sorted(self._debts.get(name, ()), key=lambda key: key.epoch):
            sink.commit(older, [])
            sink = self._open(name)
        return sink

    def _commit_one(self, name: str, staged: list[Staged], settle: bool) -> int:
        sink = self._settled(name) if settle else self._open(name)
        return sink.commit(self._key, staged)

    def _commit(self, receipts: Mapping[str, list[Staged]], decided: bool) -> None:
        """Let every sink commit. A sink that the stream waits for does not block the others."""
        waiting: HeadraceError | None = None
        asked = [n for n, s in self._sinks.items() if decided or receipts.get(n) or SINKS[s.kind].every_epoch]
        self.left = {name: receipts.get(name, []) for name in asked}
        for name, sink in self._sinks.items():
            staged = receipts.get(name, [])
            try:
                if name in asked:
                    began = time.perf_counter()
                    commit = partial(self._commit_one, name, staged, settle=decided)  # else settled by the promise
                    rows = retried(sink, commit, self._sleep)
                    self.left = {other: rest for other, rest in self.left.items() if other != name}
                    self._result.committed[name] = (rows, (time.perf_counter() - began) * 1000)
                    if self._result.rows is None and sink in self._pipeline.sinks:
                        self._result.rows = rows
                    fault_point("between-sinks")
            except EpochMismatch:
                raise
            except HeadraceError as problem:
                if isinstance(problem, WAITED_FOR) and not detaches(sink):
                    waiting = waiting or problem
                else:
                    self._fail(name, failure_text(problem), staged)
        if waiting is not None:
            raise waiting

    def _fail(self, name: str, reason: str, staged: list[Staged]) -> None:
        """Record that a sink cannot commit. It owes the epoch if it has promised it. A single sink has not promised: it
        loses the epoch, unless it failed after its commit point."""
        alone = len(self._sinks) == 1
        if not alone or self._open(name).committed(self._key):
            self._result.owed.append(name)
            if alone or self._has_promised(name, staged):
                self._result.promised.append(name)
        if not alone and detaches(self._sinks[name]):
            self._result.detached[name] = reason
        else:
            self._result.failure = self._result.failure or reason

    def _has_promised(self, name: str, staged: list[Staged]) -> bool:
        """True if the sink has certainly promised rows. Promises again: that changes nothing, and an epoch that was
        decided when a sink could not be written to has no promise there. If this run has staged no rows, an earlier one
        may have."""
        with contextlib.suppress(HeadraceError):
            sink = self._open(name)
            if not staged:
                return isinstance(sink, DurablePromises) and sink.promised(self._key)
            sink.promise(self._key, staged)
            return True
        return False

    def _detach(self, name: str, reason: str) -> None:
        self._result.detached[name] = reason
        self._discard(name)
        del self._sinks[name]

    def _discard(self, name: str) -> None:
        if name in self._debts:  # discarding an epoch also deletes staged rows of older ones, which the sink still owes
            return
        with contextlib.suppress(HeadraceError):  # leftovers are invisible, and deleted with a later epoch
            self._open(name).discard(self._key)
