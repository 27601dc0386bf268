"""One pipeline on the dedicated host while the hub is open: its state, its feeds, its query.

`headrace.state.dedicated_state` has the names of its files. A pipeline that loses its state (STOP NOW, START after a
failure) gets a new number `fresh`, a new directory with that number, and a new position in its feeds; the old directory
is deleted. So a crash in between never leaves a query with half of its state. Sinks still get the epochs of the old
state that they owe, and those that only some of them have committed: the new directory takes over what they have
staged.

At the end of a finite source the query closes all windows, and its watermark moves to the end of time. Every later row
would be late, so the query reads nothing after that end. If more rows arrive, a new `turn` begins there, without state:
no window is open at that point.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from headrace.base.durable import private_directory, state_errors
from headrace.errors import HeadraceError, StateDamaged
from headrace.model.definitions import PipelineDef
from headrace.model.stored import store, stored
from headrace.sinks.feed_log import FeedLog, feed_directory
from headrace.sinks.feed_retention import remove_feed
from headrace.sinks.feed_sink import FEED
from headrace.state.checkpoint import CHECKPOINT, checkpoint_id, continue_checkpoint, own_checkpoint_id
from headrace.state.dedicated_state import (
    BEGIN,
    Begin,
    begun,
    dedicated_home,
    delete_earlier_turns,
    dropped_states,
    left_behind,
    lost_begin,
    lost_with_state,
    newest_turn,
    remember,
    require_whole_turns,
    sink_epochs,
    take_staging,
)
from headrace.state.plans import PlanStore
from headrace.state.progress import Debt, Progress, read_progress, write_progress
from headrace.state.spark_log import feeds_closed, newest_commit
from headrace.stream.host import OnEnd, Query
from headrace.stream.supervisor import QuerySupervisor

if TYPE_CHECKING:
    from headrace.spark.dedicated_committer import BatchSummary, DedicatedCommitter
    from headrace.spark.dedicated_frame import FeedPlace
    from headrace.spark.dedicated_run import TendedPipeline


SPILL = "spill"  # the strategy whose rows may wait; 'pause' would hold up the streams, 'drop' would lose rows
WAITING_BYTES = 256 << 20  # at most, for a query that gives way: STOP and sync have to wait until they are read
LOOK_SECONDS = 1.0  # how often a thread that drains looks whether that still makes sense
SETTLE_SECONDS = 0.5  # between two attempts to write epochs that sinks owe
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DedicatedRequest:
    """A query to start. It calls `on_end` in its own thread when it ends."""

    directory: Path
    committer: DedicatedCommitter
    places: dict[str, FeedPlace]
    runtime: TendedPipeline
    on_end: OnEnd


class DedicatedRun(Query, Protocol):
    """A running query of a pipeline."""

    def drain(self, timeout: float) -> bool:
        """Wait until all that the feeds hold is in the sinks."""
        ...


class DedicatedHost(Protocol):
    """The hub, as a pipeline on the dedicated host sees it. No method waits for the hub's lock."""

    def launch_dedicated(self, request: DedicatedRequest) -> DedicatedRun:
        """Start a query. Starts Spark first, if it does not run."""
        ...

    def dedicated_failed(self, pipeline: PipelineDef, failure: str, detached: dict[str, str]) -> None:
        """The pipeline failed, or lost sinks. Returns at once."""
        ...

    def reads_backlog(self, pipeline: PipelineDef) -> bool:
        """True if a stream of the pipeline reads a backlog, and not only for queries on the dedicated host."""
        ...

    def reveal(self, secret: str) -> str:
        """The value of a secret in a sink's options."""
        ...


class DedicatedRuntime:
    """The running side of one pipeline on the dedicated host. Any thread may call.

    `directory_of` returns the directory of a stream.
    """

    def __init__(self, pipeline: PipelineDef, directory_of: Callable[[str], Path], host: DedicatedHost) -> None:
        self.pipeline, self._directory_of, self._host = pipeline, directory_of, host
        self.home = dedicated_home(directory_of(pipeline.program.stream), pipeline)
        self.supervisor = QuerySupervisor(self.home, PlanStore(self.home), self)
        self._committer: DedicatedCommitter | None = None
        self._lock = threading.RLock()
        self._run: DedicatedRun | None = None
        self.given_up = False  # the last attempt to deliver what its sinks owe took too long
        self._draining = 0  # threads that wait until the feeds are read
        self._logs: dict[str, FeedLog] = {}  # for `gives_way`; each remembers the manifests that it has parsed
        self.batch_ms: float | None = None
        self._warnings: list[str] = []

    # --- the directory and the feeds --------------------------------------------------------------

    @property
    def consumer(self) -> str:
        """The name under which it keeps its positions in feeds."""
        return f"query-{self.pipeline.instance}-{self.pipeline.fresh}"

    @property
    def directory(self) -> Path:
        """The directory of its current turn."""
        return self.home / str(max(0, newest_turn(self.home)))

    def feeds(self) -> dict[str, FeedLog]:
        """The feed of each stream that it reads."""
        instance = self.pipeline.instance
        return {s: FeedLog(feed_directory(self._directory_of(s), instance)) for s in self.pipeline.streams}

    def prepare(self) -> None:
        """Make the directory and a place in every feed, before the streams write the first row for it. Does nothing if
        they are there."""
        with self._lock:
            if newest_turn(self.home) >= 0 or lost_begin(self.home) is not None:  # `launch_query` names a lost file
                return
            begin, skipped = {}, 0
            for stream, log in self.feeds().items():
                with state_errors(log.directory):
                    private_directory(log.directory)
                others = [c for c in log.consumers() if c != self.consumer]  # of a state that is dropped
                skipped += log.backlog().rows if others else 0
                begin[stream] = log.register(self.consumer, log.end())
                for other in others:
                    log.unregister(other)
                log.trim()
            dropped = dropped_states(self.home, self.pipeline.instance)
            left = left_behind(dropped, self.pipeline.name)
            if lost := lost_with_state(dropped, self.pipeline.name):
                self._warnings.append(lost)
                _log.warning(lost)
            if left is None:
                self._begin_turn(0, Begin(begin, skipped), None if dropped else self._own_checkpoint())
            else:
                take_staging(dropped, self.home)
                *earlier, undecided = left.undecided or (None,)
                newest = left.epochs.newest
                first = Begin(begin, skipped, newest + 1, undecided=undecided, earlier=tuple(earlier), sinks=left.sinks)
                self._begin_turn(0, first, left.epochs.checkpoint, left.debts)
            for old in dropped:
                shutil.rmtree(old, ignore_errors=True)

    def take_warnings(self) -> list[str]:
        """What its sinks may lack because its earlier state was damaged. Each warning is returned once."""
        found, self._warnings = self._warnings, []
        return found

    def _own_checkpoint(self) -> str | None:
        """The id for its first state; None for a random one, if the files of the stream are damaged."""
        stream = self.pipeline.program.stream
        with contextlib.suppress(StateDamaged):
            return own_checkpoint_id(checkpoint_id(self._directory_of(stream), stream), self.pipeline.instance)
        return None

    def _begin_turn(self, turn: int, begin: Begin, checkpoint: str | None, debts: tuple[Debt, ...] = ()) -> None:
        """Make the directory of a turn. It writes to sinks under `checkpoint`, or under a new id."""
        directory = self.home / str(turn)
        shutil.rmtree(directory, ignore_errors=True)
        with state_errors(directory):
            private_directory(directory)
        if turn:
            before = read_progress(self.home / str(turn - 1))
            write_progress(directory, Progress(pipelines=before.pipelines, detached=before.detached))
        elif debts:
            write_progress(directory, Progress(debts=debts))
        if checkpoint is not None:
            continue_checkpoint(directory, checkpoint)
            remember(directory, self.pipeline)
        checkpoint_id(directory, self.pipeline.name)
        store(directory / BEGIN, begin)
        delete_earlier_turns(self.home)

    def _positions(self) -> dict[str, int]:
        """Where each feed is read up to, as far as Spark has logged it as done."""
        return {stream: log.position_of(self.consumer) or 0 for stream, log in self.feeds().items()}

    def _closed(self) -> bool:
        """True if this turn has read the end of all of its inputs, and has run once more since: its windows are closed
        and its watermark is at the end of time."""
        checkpoint = self.directory / CHECKPOINT
        newest = newest_commit(checkpoint)
        return newest >= 0 and feeds_closed(checkpoint, newest)

    def _ended(self) -> bool:
        """True if this turn is over. What a sink still owes belongs to it; the first batch after a start delivers
        that."""
        return self._closed() and not self.progress.debts

    def _next_turn(self) -> None:
        """Begin without state after the end of the input, if there is more input. Only while no query runs."""
        with self._lock:
            self.committer.release()
            if self._ended():
                turn = newest_turn(self.home) + 1
                before = stored(Begin, self.directory / BEGIN)
                skipped = 0 if before is None else before.skipped
                known = sink_epochs(self.directory, self.pipeline.name)
                begin = Begin(self._positions(), skipped, known.newest + 1)
                self._begin_turn(turn, begin, known.checkpoint)
                self.committer.moved(self.directory, known.checkpoint)

    def tend(self) -> None:
        """Restart the query if there is input after the end that it has read. Called at intervals while it runs. Raises
        coded errors only, also for a disk that fails."""
        with state_errors(self.home):
            at = self._positions()
            again = self._ended() and any(log.end() > at[stream] for stream, log in self.feeds().items())
        if again:
            self.supervisor.bounce()

    def deliver_owed(self) -> list[str]:
        """The pipeline is dropped and its query has ended: try once to deliver what its sinks owe, until that is given
        up. Returns what they may lack afterwards."""
        states = [*dropped_states(self.home, self.pipeline.instance), self.home]
        if left_behind(states, self.pipeline.name) is None:
            return ["the state is damaged; what they were owed is not known"] if begun(states) else []
        if newest_turn(self.home) < 0:
            self.prepare()  # takes over what the state that was dropped before owes
        left = left_behind([self.home], self.pipeline.name)
        lacking = () if left is None else self.committer.settle_last(self.pipeline, left, self._is_awaited)
        return [f"{debt.sink} epoch {debt.epoch}" for debt in lacking]

    def _is_awaited(self) -> bool:
        return not self.given_up

    @property
    def steps(self) -> int:
        """Grows while its sinks take rows."""
        return 0 if self._committer is None else self._committer.sinks.steps

    def release(self) -> None:
        """Let the sinks forget the pipeline, and close them."""
        self.close()
        if self.home.exists():
            with contextlib.suppress(HeadraceError):  # damaged: then the notes that sinks keep beside their output stay
                known = sink_epochs(self.directory, self.pipeline.name)
                if known.newest >= 0:
                    self.committer.sinks.forget([self.pipeline], known.newest + 1)

    def delete(self) -> None:
        """Delete everything that it keeps on disk, with its feeds. No task of its streams may run for it any more."""
        for log in self.feeds().values():
            remove_feed(log.directory)
        for own in self.home.parent.glob(f"{self.pipeline.instance}-*"):
            shutil.rmtree(own, ignore_errors=True)
        remove_empty(self.home.parent)

    @property
    def committer(self) -> DedicatedCommitter:
        """Commits its batches. One object for as long as the hub is open."""
        with self._lock:
            if self._committer is None:
                from headrace.spark.dedicated_committer import DedicatedCommitter, FeedConsumer

                self._committer = DedicatedCommitter(
                    self.directory,
                    checkpoint_id(self.directory, self.pipeline.name),
                    tuple(FeedConsumer(stream, log, self.consumer) for stream, log in self.feeds().items()),
                    done=self._batch_done,
                    reveal=self._host.reveal,
                )
            return self._committer

    # --- the query --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the query unless it runs. A failure to start is retried like any failure of the query."""
        self.given_up = False
        self.prepare()
        self.supervisor.start(patient=True)

    def stop(self) -> None:
        """End the query at once. A batch in flight runs again with the next start."""
        self.supervisor.stop()
        self._run = None

    def close(self) -> None:
        """End the query and release the sinks."""
        self.stop()
        if self._committer is not None:
            self._committer.close()

    @property
    def waits_for_room(self) -> bool:
        """True while a batch waits because a stream that is made of the output has no room."""
        return self._committer is not None and self._committer.waits_for_room

    def drain(self, timeout: float, gives_up: Callable[[], bool] = lambda: False) -> bool:
        """Wait until all that the feeds hold now is in the sinks. True if that happened in time, or if the query is
        dead or stopped, so that there is nothing to wait for, or if `gives_up` returns True."""
        deadline = time.monotonic() + timeout
        ends = {stream: log.end() for stream, log in self.feeds().items()}
        with self._at_full_speed():
            while (left := deadline - time.monotonic()) > 0:
                if self.supervisor.problem is not None or not self.supervisor.started or gives_up():
                    return True
                run = self._run
                if run is not None and run.drain(min(left, LOOK_SECONDS)) and self._reached(ends):
                    return True
                time.sleep(min(0.1, left))
        return False

    @contextmanager
    def _at_full_speed(self) -> Iterator[None]:
        """The query gives way to nobody meanwhile."""
        with self._lock:
            self._draining += 1
        try:
            yield
        finally:
            with self._lock:
                self._draining -= 1

    def gives_way(self) -> bool:
        """True while its streams read a backlog for other pipelines, and its own rows can wait: they may spill, there
        is room for as many again, and nobody waits for them, nor for a stream that is made of its output. Called by the
        thread that commits its batches."""
        query = self.pipeline.program.dedicated
        if query is None or query.strategy != SPILL or self._draining or not self._host.reads_backlog(self.pipeline):
            return False
        if any(sink.kind == FEED.name for sink in self.pipeline.sinks):
            return False
        most = FEED.settings_of(self.pipeline.on_stream(query.inputs[0].stream).sinks[0].options).most
        self._logs = self._logs or self.feeds()
        return all(log.backlog().bytes < min(most / 2, WAITING_BYTES) for log in self._logs.values())

    def settle(self, timeout: float) -> bool:
        """Wait until no sink owes an epoch. True if that happened in time."""
        deadline = time.monotonic() + timeout
        while self.progress.debts and self.committer.settle():
            if time.monotonic() > deadline:
                return False
            time.sleep(SETTLE_SECONDS)
        return True

    def _reached(self, ends: dict[str, int]) -> bool:
        """True if these positions are read, and windows are closed if they are the end of all inputs."""
        begin = stored(Begin, self.directory / BEGIN) or Begin({})
        read = begin.positions | self.committer.read()
        if any(read.get(stream, 0) < end for stream, end in ends.items()):
            return False
        query, newest = self.pipeline.program.dedicated, [log.newest() for log in self.feeds().values()]
        over = all(epoch is not None and epoch.ending for epoch in newest)
        begun = all(end <= begin.positions.get(stream, 0) for stream, end in ends.items())
        return query is None or not query.closes or not over or begun or self._closed()

    def redefine(self, pipeline: PipelineDef) -> None:
        """Take the definition as it is now: other sinks may be attached. Its query and its state are the same."""
        self.pipeline = pipeline

    def launch_query(self, on_end: OnEnd) -> Query:
        """Start a query, for the supervisor."""
        from headrace.spark.dedicated_frame import FeedPlace

        require_whole_turns(self.home)
        delete_earlier_turns(self.home)  # a crash may have left some
        self._next_turn()
        directory = self.directory
        begin = stored(Begin, directory / BEGIN) or Begin({})
        places = {s: FeedPlace(log.directory, begin.positions.get(s, 0)) for s, log in self.feeds().items()}
        run = self._host.launch_dedicated(
            DedicatedRequest(directory, self.committer, places=places, runtime=self, on_end=on_end)
        )
        self._run = run
        return run

    def blame(self, guilty: dict[str, str]) -> None:
        """No other pipeline can kill this query."""

    def query_changed(self) -> None:
        """The supervisor gave up, or retries."""
        problem = self.supervisor.problem
        if problem is not None:
            self._host.dedicated_failed(self.pipeline, problem, {})

    def _batch_done(self, summary: BatchSummary) -> None:
        self.batch_ms = summary.ms
        self.supervisor.retries.reset()
        self.supervisor.well()
        if summary.detached:
            self._host.dedicated_failed(self.pipeline, "", summary.detached)

    # --- status -----------------------------------------------------------------------------------

    @property
    def progress(self) -> Progress:
        """The pipeline after its newest committed batch."""
        return read_progress(self.directory)

    @property
    def trouble(self) -> tuple[str, str]:
        """`retrying` and why, if the query is being restarted; else two empty texts."""
        retrying = self.supervisor.retrying
        return ("", "") if retrying is None else ("retrying", retrying.problem)


def remove_empty(directory: Path) -> None:
    """Remove a directory if nothing is in it."""
    with contextlib.suppress(OSError):  # not empty
        directory.rmdir()
