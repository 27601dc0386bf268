"""The commit of one epoch: check that it is complete, deliver it to the sinks, count it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from headrace.bridge.messages import STREAM_LANE
from headrace.control.barrier import align
from headrace.errors import HeadraceError, InternalError, SinkFailed, SinkUnavailable, TooManyGroups
from headrace.exec.failures import WAITED_FOR, failure_text
from headrace.model.definitions import FEED, PipelineDef
from headrace.model.stream_options import stream_settings
from headrace.ring0.letters import for_stream
from headrace.ring1.lane_state import require_group_limit
from headrace.sinks import SINKS
from headrace.sinks.delivery import Delivered, Delivery
from headrace.sinks.sink_kind import DriverSink, EpochMark, SinkKey
from headrace.spark.broken_off import BrokenOff, owed_by_hanging
from headrace.spark.counting import FinishedEpoch, watermark_after
from headrace.spark.driver_sinks import DriverSinks, settle_limit, still_owed
from headrace.spark.epoch_query import EpochQuery, QueryRunner, query_limit
from headrace.spark.epoch_reports import EpochReports, Failures, members_of
from headrace.spark.summary import EpochSummary, summarise
from headrace.state.plans import PlanStore
from headrace.state.progress import Debt, Progress, digest_of, require_same_epoch
from headrace.state.quarantine import Quarantine

LOOK_SECONDS = 0.05  # how often a commit that waits for a sink looks whether it has answered


class EpochCommit:
    """One epoch whose tasks have all reported. Call the steps in the order in which they are written here.

    Every step is idempotent under the epoch's key, so that a crash anywhere only makes Spark run the epoch again.
    """

    def __init__(
        self,
        sinks: DriverSinks,
        plans: PlanStore,
        found: EpochReports,
        before: Progress,
        require_current: Callable[[], None] = lambda: None,
        broken_off: Mapping[int, BrokenOff] = MappingProxyType({}),
    ) -> None:
        """`before` is the stream's progress before the epoch. `require_current` raises when another commit of the epoch
        may run: then no further sink may be used. `broken_off` is how far commits of the epoch came that were given up,
        by instance. Raises EpochMismatch when the epoch is older than that, or another one with the same number."""
        self._require_current, self._broken_off = require_current, broken_off
        planned = found.first.planned
        self._sinks, self._found, self._before = sinks, found, before
        self._epoch, self._barrier = planned.epoch, planned.barrier
        self._digest = digest_of(planned.end) if planned.end else ""
        require_same_epoch(before, self._epoch, self._digest)
        self._plan = plans.load(found.first.plan)
        self.members = members_of(self._plan, found.first.leaving)
        self._watermark = watermark_after(self._plan, found, before)
        staying = {p.instance for p in self._plan.pipelines}
        flushed = {e.pipeline.instance for e in self._plan.left if e.flush}
        gone = set(found.first.leaving) - staying
        self._closing = flushed & gone
        self._dropped = {e.pipeline.instance for e in self._plan.left if e.drop} & gone
        self._failed: Failures = {}
        self._quit: set[int] = set()
        self._delivered: dict[int, Delivered] = {}
        self._deliveries: dict[int, Delivery] = {}
        self._letters = 0
        self._keys: dict[int, SinkKey] = {}
        self._marks = {ending: EpochMark(self._watermark, ending) for ending in (False, True)}
        self.query_ms: dict[int, float] = {}  # the time that the Spark queries took

    def check(self) -> None:
        """Check the epoch before any sink commits it: every bucket has reported, no sink holds another epoch under
        this number, no pipeline has too many groups."""
        self._verify()
        self._align_lanes()
        self._limit_groups()

    def leave_out(self, quarantine: Quarantine, quit_now: set[int]) -> None:
        """Commit nothing of instances that failed before, are in quarantine, or were stopped at once. One that was
        taken off the quarantine list while the epoch ran has no rows in it, but has not failed."""
        version, out = self._plan.version, self._found.first.planned.out
        reasons, ended = quarantine.reasons(version), quarantine.ended(version)
        self._failed = self._failed_before() | {i: reasons[i] for i in out if i in reasons}
        self._found.failures |= self._failed
        self._quit = quit_now | {i for i, p in self.members.items() if p.run in ended}
        self._quit |= {i for i in out if i in self.members and i not in reasons}
        self._found.failures |= dict.fromkeys(self._quit - self._failed.keys(), "it was stopped at once")

    def run_queries(self, queries: QueryRunner | None, quit_now: Callable[[PipelineDef], bool]) -> None:
        """Run the Spark queries of the pipelines on the epoch host over the rows that they staged. Afterwards the
        results are staged in the sinks, like the rows of other pipelines. Raises when Spark itself fails."""
        planned = self._found.first.planned
        asked = [
            EpochQuery(
                self._sinks.staged(p), self._key(p.instance), tuple(self._found.staged[p.instance]), planned.now or 0
            )
            for p in self.members.values()
            if p.program.spark is not None and p.instance in self._found.staged
            if p.instance not in self._found.failures
        ]
        if not asked:
            return
        if queries is None:
            raise InternalError("a pipeline on the epoch host needs Spark")
        names = ", ".join(q.pipeline.name for q in asked[:8])
        self._sinks.use(f"the Spark queries of {names}", require=self._require_current)
        settings = stream_settings(self._plan.stream)
        for instance, outcome in queries.run(asked, query_limit(settings), quit_now).items():
            self.query_ms[instance] = outcome.ms
            self._found.receipts[instance].update(outcome.receipts)
            self._found.lost[instance].update(outcome.lost)
            if outcome.failure:
                self._found.failures.setdefault(instance, outcome.failure)

    def deliver(self) -> None:
        """Deliver the epoch to the sinks of every pipeline. Raises errors for which the stream waits. The other sinks
        have the epoch by then, and keep one copy of it when it is run again."""
        waiting: HeadraceError | None = None
        behind: set[str] = set()  # streams whose feed lacks rows of a pipeline that is replaced in this epoch
        for p in self.members.values():
            fed = {sink.options["stream"] for sink in p.sinks if sink.kind == FEED and "stream" in sink.options}
            if not self._gets_nothing(p):
                self._await_settling(p)
            given_up = self._sinks.hanging.given_up(p.instance)
            if self._hanging(p) and not given_up and self._gets_nothing(p):
                self._delivered[p.instance] = Delivered()
                continue
            if given_up or self._hanging(p):
                failure = self._found.failures.get(p.instance)
                if failure is None and p.instance in self._closing:  # no other pipeline has its last rows
                    waiting = waiting or _awaited(p)
                    behind |= fed
                else:
                    self._delivered[p.instance] = self._undelivered(p, failure or hangs(p))
                continue
            if fed & behind:  # its rows must follow those of the pipeline that it replaces
                continue
            try:
                self._delivered[p.instance] = self._deliver(p)
            except WAITED_FOR as problem:
                if p.instance in self._quit:  # the stream does not wait for a pipeline that was stopped at once
                    self._delivered[p.instance] = Delivered(failure=self._found.failures[p.instance])
                else:
                    waiting = waiting or problem
                    behind |= fed
        if waiting is not None:
            raise waiting

    def commit_letters(self) -> None:
        """Commit the dead letters. A failure here stops the stream: the epoch is not done before they are safe. While
        a commit that was given up hangs in their sink, that is SinkUnavailable: the stream waits. The pipelines have
        the epoch by then, and keep one copy of it when it is run again."""
        sink = self._plan.stream.dead_letters
        staged = self._found.receipts[STREAM_LANE].get(sink.name, []) if sink is not None else []
        if sink is None or not staged:
            return
        if self._sinks.hanging.takes(STREAM_LANE, sink.name):
            raise letters_hang(self._plan.stream.name, sink.name)
        try:
            opened = self._sinks.letters_for_commit(sink, self._require_current)
            self._letters = opened.commit(self._key(STREAM_LANE), staged)
        except SinkFailed as problem:
            raise for_stream(problem) from problem

    @property
    def settle_seconds(self) -> float:
        """How long the epoch may wait for a sink that owes an older one."""
        return settle_limit(stream_settings(self._plan.stream))

    def debts(self, declared: set[int]) -> tuple[Debt, ...]:
        """The epochs that sinks owe after this one. Asks them, each for a limited time (`DriverSinks.settle`)."""
        if self._before.epoch >= self._epoch:
            return self._before.debts
        new = [
            Debt(self.members[i], sink, self._epoch, sink in d.promised)
            for i, d in self._delivered.items()
            for sink in d.owed
        ]
        known = declared | self.members.keys()

        def settled(debt: Debt) -> bool:
            return self._sinks.settled(debt, debt.pipeline.instance in known, self._require_current)

        return (*still_owed(self._before.debts, settled), *new)

    def progress(self, declared: set[int], debts: tuple[Debt, ...]) -> Progress:
        """The stream's progress after the epoch, with which sinks owe these debts."""
        if self._before.epoch >= self._epoch:  # it was committed before and is run again: do not count it twice
            return self._before
        finished = FinishedEpoch(
            plan=self._plan,
            members=self.members,
            found=self._found,
            delivered=self._delivered,
            quit_at_once=self._quit,
            debts=debts,
            letters=self._letters,
        )
        return finished.progress(self._before, declared)

    def summary(self, progress: Progress, sinks_ms: float) -> EpochSummary:
        """What happened in the epoch, after which the stream's progress is `progress`. The commit took `sinks_ms`."""
        known = self._quit | self._failed.keys()
        failures = {i: d.failure for i, d in self._delivered.items() if d.failure and i not in known}
        detached = {i: d.detached for i, d in self._delivered.items() if d.detached}
        found = summarise(self._found, progress, failures, detached)
        spent = {i: found.pipeline_ms.get(i, 0.0) + ms for i, ms in self.query_ms.items()}
        return replace(found, sinks_ms=sinks_ms, sinks=self._committed_by_sink(), pipeline_ms=found.pipeline_ms | spent)

    def _committed_by_sink(self) -> dict[str, tuple[int, float]]:
        """The rows that each sink got from all pipelines, and the milliseconds that its commits took."""
        found: dict[str, tuple[int, float]] = {}
        for one in self._delivered.values():
            for sink, (rows, took) in one.committed.items():
                before = found.get(sink, (0, 0.0))
                found[sink] = (before[0] + rows, before[1] + took)
        return found

    def _open(self, pipeline: PipelineDef, name: str) -> DriverSink:
        return self._sinks.for_commit(pipeline, name, self._require_current)

    def _key(self, instance: int) -> SinkKey:
        found = self._keys.get(instance)
        if found is None:
            found = self._keys[instance] = self._made_key(instance)
        return found

    def _made_key(self, instance: int) -> SinkKey:
        ending = self._found.first.ending or instance in self._closing
        # What a dropped one kept may be deleted already, so nothing is written for it.
        mark = None if instance in self._dropped else self._marks[ending]
        return self._sinks.key(instance, self._epoch, self._digest, mark)

    def _verify(self) -> None:
        hanging = self._sinks.hanging
        for p in self.members.values():
            for sink, _ in p.outlets:
                if not hanging.takes(p.instance, sink.name):
                    self._verify_one(partial(self._open, p, sink.name), p.instance)
        letters = self._plan.stream.dead_letters
        if letters is not None and not hanging.takes(STREAM_LANE, letters.name):
            self._verify_one(partial(self._sinks.letters_for_commit, letters, self._require_current), STREAM_LANE)
        self._sinks.use("", require=self._require_current)

    def _verify_one(self, opened: Callable[[], DriverSink], instance: int) -> None:
        try:
            sink = opened()
        except (SinkFailed, *WAITED_FOR):  # that matters only if it gets rows, and its pipeline was not stopped at once
            return
        sink.verify(self._key(instance))

    def _align_lanes(self) -> None:
        out = self._found.first.planned.out
        for p in self.members.values():
            if p.program.ring1 is not None and p.instance not in out:
                where = f"the sinks of pipeline {p.name} in epoch {self._epoch}"
                arrived = self._found.barriers[p.instance]
                align(where, "bucket", count=p.buckets, arrived=arrived, wanted=self._barrier)

    def _limit_groups(self) -> None:
        """A lane checks its own groups. Only here are the groups of all lanes of a pipeline known."""
        for p in self._plan.pipelines:
            try:
                lanes = self._found.lanes.get(p.instance, {})
                require_group_limit(sum(lane.groups for lane in lanes.values()), p.max_groups)
            except TooManyGroups as problem:
                self._found.failures.setdefault(p.instance, failure_text(problem))

    def _failed_before(self) -> Failures:
        """The instances that failed in an earlier epoch, when this one was already planned with them. One that was
        started again since has another `run`."""
        failures = self._before.failures
        return {p.instance: failures[p.run] for p in self._plan.pipelines if p.run in failures}

    def broken_off(self, instance: int) -> BrokenOff | None:
        """How far the delivery of an instance has come, when this commit is given up because it hangs in one of its
        sinks. None if that is not known."""
        delivery = self._deliveries.get(instance)
        if delivery is None or (left := delivery.left) is None:
            return None
        return BrokenOff(self._epoch, left, delivery.promised)

    def _hanging(self, p: PipelineDef) -> set[str]:
        """The sinks of a pipeline in which a call hangs, except those that were detached before."""
        return self._sinks.hanging.sinks(p.instance) & set(self._attached(p))

    def _attached(self, p: PipelineDef) -> list[str]:
        gone = self._before.detached.get(p.run, {})
        return [sink.name for sink, _ in p.outlets if sink.name not in gone]

    def _gets_nothing(self, p: PipelineDef) -> bool:
        """True if a pipeline has no output in this epoch, and has not failed either."""
        told = (self._found.failures, self._found.receipts, self._found.lost)
        silent = not any(SINKS[sink.kind].every_epoch for sink, _ in p.outlets)
        return silent and not any(p.instance in found for found in told)

    def _await_settling(self, p: PipelineDef) -> None:
        """Wait as long as a sink takes to commit an older epoch that it owes. Nobody waits for a pipeline that has
        failed or was stopped."""
        while p.instance not in self._found.failures and not self._sinks.hanging.given_up(p.instance):
            sinks = ", ".join(sorted(self._hanging(p)))
            if not sinks:
                return
            what = f"sink {sinks} of pipeline {p.name}, which owes an older epoch"
            self._sinks.use(what, p.instance, sinks, self._require_current)
            time.sleep(LOOK_SECONDS)

    def _undelivered(self, p: PipelineDef, failure: str) -> Delivered:
        """The outcome for a pipeline that is left out because a call hangs in one of its sinks. If the epoch is decided
        there, its sinks owe it: they show it when they answer, even after a restart."""
        if p.run in self._before.failures:  # it was left out of this epoch from the beginning
            return Delivered(failure=failure)
        return owed_by_hanging(
            p,
            self._key(p.instance),
            failure,
            asked=self._attached(p),
            hanging=self._sinks.hanging.sinks(p.instance),
            known=self._broken_off.get(p.instance),
            open_sink=partial(self._open, p),
        )

    def _deliver(self, p: PipelineDef) -> Delivered:
        debts: dict[str, list[SinkKey]] = defaultdict(list)
        for debt in self._before.debts:
            if debt.pipeline.instance == p.instance:
                debts[debt.sink].append(self._sinks.owed(debt))
        gone = self._before.detached.get(p.run, {})
        if self._gets_nothing(p) and not debts and not gone:
            return Delivered()
        names = {s.name for s, _ in p.outlets}
        delivery = Delivery(p, partial(self._open, p), self._key(p.instance), debts)
        self._deliveries[p.instance] = delivery
        return delivery.deliver(
            self._found.receipts.get(p.instance, {}),
            self._found.failures.get(p.instance, ""),
            self._found.lost.get(p.instance, {}),
            {sink: reason for sink, reason in gone.items() if sink in names},
        )


def hangs(pipeline: PipelineDef) -> str:
    """The failure of a pipeline that was started again while an earlier commit still hangs in one of its sinks."""
    return SinkFailed(
        f"an earlier commit still hangs in a sink of pipeline {pipeline.name}",
        advice="Find out why the sink does not answer. When it has answered, start the pipeline again.",
    ).render()


def letters_hang(stream: str, sink: str) -> SinkUnavailable:
    """The error for dead letters while a commit hangs in their sink."""
    return SinkUnavailable(
        f"sink {sink} with the dead letters of stream {stream} does not answer",
        advice="Find out why. When it has answered, the stream continues by itself. Nothing is lost.",
        stream=stream,
        sink=sink,
    )


def _awaited(pipeline: PipelineDef) -> SinkUnavailable:
    """The error for the last rows of a replaced pipeline, while an earlier commit hangs in one of its sinks."""
    return SinkUnavailable(
        f"an earlier commit still hangs in a sink of pipeline {pipeline.name}, which has to get its last rows",
        advice="Find out why the sink does not answer. When it has answered, the stream continues by itself.",
    )
