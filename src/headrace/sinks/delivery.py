"""One pipeline's sinks in one epoch: they all show the same cut, also when one of them fails.

First every sink promises the epoch, then every sink commits it. When one cannot promise, nothing of the epoch is
visible anywhere: the pipeline stops, or goes on without that sink (`on_failure`). When one has promised and then cannot
commit, it *owes* the epoch: the promise is durable, and is kept before the sink is given anything else. So no epoch is
ever in one sink and lost to another, and none is written twice.

EpochMismatch concerns the whole epoch: it is raised, and nothing more is committed. So is SinkUnavailable, unless the
sink may be detached: the epoch is run again, with the same keys, until the sink can be written to.

A failing step is tried again, with a wait that doubles. A task that cannot stage for a sink tries again likewise.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import pyarrow as pa

from headrace.errors import DiskFull, EpochMismatch, HeadraceError, SinkUnavailable
from headrace.failures import describe, waited_for
from headrace.faults import fault_point
from headrace.program import PipelineDef, SinkDef
from headrace.sinks import SINKS
from headrace.sinks.base import DriverSink, SinkKey, Staged

T = TypeVar("T")
LONGEST_WAIT = 10.0


def retried(sink: SinkDef, step: Callable[[], T], sleep: Callable[[float], None] = time.sleep) -> T:
    """The result of `step`, tried again as the sink's options say while trying again may help."""
    options = SINKS[sink.kind].values(sink.options)
    left, wait = int(options["retries"]), options["retry_backoff"] / 1e6
    while True:
        try:
            return step()
        except HeadraceError as problem:
            if left == 0 or not problem.retry_helps:
                raise
        sleep(min(wait, LONGEST_WAIT))
        left, wait = left - 1, wait * 2


def detaches(sink: SinkDef) -> bool:
    """Whether the pipeline goes on without the sink when that has failed."""
    return bool(SINKS[sink.kind].values(sink.options)["on_failure"] == "detach")


def stage(sinks: Sequence[SinkDef], table: pa.Table, key: SinkKey, lost: dict[str, str]) -> list[tuple[str, Staged]]:
    """Stage rows in every sink but those that are `lost`. One that fails for good and may be detached is added there;
    the failure of any other is raised."""
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
            lost[sink.name] = describe(problem)
        fault_point("after-task-file")
    return receipts


@dataclass(slots=True)
class Delivered:
    """What became of an epoch. `rows` are those in the first sink that shows it; `failure` stops the pipeline;
    `detached` sinks are no longer written to; `owed` are sinks that have promised the epoch and not shown it yet;
    `committed` has the rows that each sink shows now, and the milliseconds that its commit took."""

    rows: int | None = None
    failure: str = ""
    detached: dict[str, str] = field(default_factory=dict)
    owed: list[str] = field(default_factory=list)
    committed: dict[str, tuple[int, float]] = field(default_factory=dict)


class Delivery:
    """The end of one epoch for one pipeline. `debts` are older epochs that a sink still owes, by its name."""

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

    def deliver(
        self, receipts: Mapping[str, list[Staged]], failure: str, lost: Mapping[str, str], gone: Mapping[str, str]
    ) -> Delivered:
        """Bring the epoch to every sink, or to none. `failure` says that the pipeline failed in a task; `lost` are
        sinks that tasks could not stage for, `gone` those that were detached in an earlier epoch. Raises
        SinkUnavailable and DiskFull, for which the stream waits."""
        try:
            return self._deliver(receipts, failure, lost, gone)
        except (SinkUnavailable, DiskFull):
            self._make_room()
            raise

    def _make_room(self) -> None:
        """Remove what was staged for an epoch that is run again: tries that wait for room must not fill it up."""
        with contextlib.suppress(HeadraceError):  # a sink that cannot be asked may have committed
            if not any(self._open(name).committed(self._key) for name in self._sinks):
                for name in self._sinks:
                    self._discard(name)

    def _deliver(
        self, receipts: Mapping[str, list[Staged]], failure: str, lost: Mapping[str, str], gone: Mapping[str, str]
    ) -> Delivered:
        if (waiting := waited_for(failure)) is not None:
            raise waiting
        for name in gone:
            self._discard(name)
            del self._sinks[name]
        # An epoch that is run again: what one sink has committed, all had promised. Then no failure can undo it.
        decided = any(self._open(name).committed(self._key) for name in self._sinks)
        late = {name: reason for name, reason in lost.items() if name in self._sinks}
        if not decided:
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
        if decided:  # detached behind the epoch that they had promised
            for name, reason in late.items():
                self._result.detached.setdefault(name, reason)
                del self._sinks[name]
            failure = failure or self._deserted()
        self._result.failure = self._result.failure or failure
        return self._result

    def _promise(self, receipts: Mapping[str, list[Staged]]) -> str:
        """Why the pipeline must stop, or nothing. A single sink needs no promise: its commit is the decision."""
        alone = len(self._sinks) == 1
        for name, sink in list(self._sinks.items()):
            staged = [] if alone else receipts.get(name, [])
            try:
                retried(sink, partial(self._settle_and_promise, name, staged), self._sleep)
            except EpochMismatch:
                raise
            except HeadraceError as problem:
                if not detaches(sink):
                    if isinstance(problem, SinkUnavailable):
                        raise
                    return describe(problem)
                self._detach(name, describe(problem))
        return self._deserted()

    def _deserted(self) -> str:
        left = any(sink.name in self._sinks for sink in self._pipeline.sinks)
        return "" if left else "\n".join(["every sink is detached", *self._result.detached.values()])

    def _settle_and_promise(self, name: str, staged: list[Staged]) -> None:
        sink = self._open(name)
        for older in self._debts.get(name, ()):
            sink.commit(older, [])
        if staged:
            sink.promise(self._key, staged)

    def _commit(self, receipts: Mapping[str, list[Staged]], decided: bool) -> None:
        for name, sink in self._sinks.items():
            staged, target = receipts.get(name, []), self._open(name)
            try:
                if staged or decided:
                    began = time.perf_counter()
                    rows = retried(sink, partial(target.commit, self._key, staged), self._sleep)
                    self._result.committed[name] = (rows, (time.perf_counter() - began) * 1000)
                    if self._result.rows is None and sink in self._pipeline.sinks:
                        self._result.rows = rows
                    fault_point("between-sinks")
            except EpochMismatch:
                raise
            except HeadraceError as problem:
                if isinstance(problem, SinkUnavailable) and not detaches(sink):
                    raise
                self._fail(name, describe(problem))

    def _fail(self, name: str, reason: str) -> None:
        """A sink cannot commit. It owes the epoch if it has promised it; one that is alone loses it, unless it failed
        behind its commit."""
        alone = len(self._sinks) == 1
        if not alone or self._open(name).committed(self._key):
            self._result.owed.append(name)
        if not alone and detaches(self._sinks[name]):
            self._result.detached[name] = reason
        else:
            self._result.failure = self._result.failure or reason

    def _detach(self, name: str, reason: str) -> None:
        self._result.detached[name] = reason
        self._discard(name)
        del self._sinks[name]

    def _discard(self, name: str) -> None:
        if name in self._debts:  # discarding an epoch tidies up what was staged for older ones
            return
        with contextlib.suppress(HeadraceError):  # what stays behind is invisible, and removed with a later epoch
            self._open(name).discard(self._key)
