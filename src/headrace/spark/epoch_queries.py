"""The epoch host: runs the Spark query of each pipeline over the rows that the rings staged in one epoch.

The commit of an epoch calls `EpochQueries.run` in Spark's streaming thread, before any sink commits. Every query is an
ordinary batch query on the hub's session, so tables, views, functions and variables of the session resolve as the user
expects. Its rows are staged in the pipeline's sinks under the epoch's key, as tasks and lanes stage theirs. Nothing
here is durable: after a crash the epoch is run again, and so are its queries.

Queries of one epoch run at once, in threads of their own and in a FAIR pool. A query that fails, or takes longer than
it may, fails its pipeline and no other. A query whose worker dies, that runs out of memory, or whose disk fails, runs
again first: something else may have used up the memory, such as the query of another pipeline. So it runs alone, after
the others have ended.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from headrace.base.faults import fault_point
from headrace.errors import DiskFailed, EvaluationFailed, OutOfMemory, QueryTimeout, StreamFailed, WorkerDied
from headrace.model.definitions import PipelineDef
from headrace.model.program import SparkQuery
from headrace.spark.analyzed_query import AnalyzedQuery, reusable
from headrace.spark.epoch_query import EpochQuery, QueryOutcome
from headrace.spark.failing_row import SECONDS, described, failing_row
from headrace.spark.jvm_plans import parse_query, query_over, reads_nothing_else
from headrace.spark.query_failures import is_of_spark, on_row, query_failure
from headrace.spark.query_log import muted
from headrace.spark.query_output import write_output
from headrace.spark.session import Engine
from headrace.spark.staged_input import are_narrow, is_large, staged_input
from headrace.spark.static_tables import StaticTables
from headrace.sql.hosts.clock_calls import clock_edits
from headrace.sql.hosts.text_edits import edited

POOL = "headrace-queries"
# More threads than cores: small queries wait for the planner of Spark, not for cores.
THREADS = 8
ATTEMPTS = 3  # of a query that fails in a way that may pass
MAY_PASS = (DiskFailed, OutOfMemory, WorkerDied)
LOOK_SECONDS = 0.2
# A limit in bytes makes Spark add up the sizes of all vectors after every row: half of the CPU time of tasks that hand
# narrow rows to Python. This value means no limit. Rows of joined tables may be wide, and a limit that the user has set
# in the session stays as it is.
BATCH_LIMIT, NO_LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch", str(2**31 - 1)
CANCEL_SECONDS = 10.0  # Spark kills the Python workers of cancelled tasks after two seconds
_numbers = itertools.count(1)
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Running:
    """A query. An attempt that runs has begun at `began`, earlier ones took `spent` seconds. `again` is set if the
    newest failed in a way that may pass."""

    query: EpochQuery
    group: str
    limit: float | None = None
    began: float | None = None
    spent: float = 0.0
    given_up: bool = False
    again: bool = False

    @property
    def seconds(self) -> float:
        """How long all its attempts took."""
        return self.spent + (0.0 if self.began is None else time.perf_counter() - self.began)


@dataclass(slots=True)
class _KnownQuery:
    """What is kept of a query between epochs: its parsed text, and the analyzed plan if that means the same in all."""

    text: str
    parsed: Any
    analyzed: AnalyzedQuery | None = None
    tried: bool = False


class EpochQueries:
    """Runs the queries of one stream's epochs. `run` is called by one thread at a time, `cancel` by any thread."""

    def __init__(self, engine: Engine) -> None:
        self._spark = engine.spark
        self._static = StaticTables(engine.spark)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="headrace-query")
        self._lock = threading.Lock()
        self._groups: set[str] = set()
        self._known: dict[int, _KnownQuery] = {}
        self._cancelled = False

    def run(
        self, asked: Sequence[EpochQuery], limit: float | None, quit_now: Callable[[PipelineDef], bool]
    ) -> dict[int, QueryOutcome]:
        """The outcome of every query, by instance. A query that takes longer than `limit` seconds fails, and one whose
        pipeline is stopped at once (`quit_now`) is given up. Raises when Spark itself fails or the stream's query is
        stopped: the epoch is then run again."""
        queries = [_Running(query, f"headrace-query-{next(_numbers)}", limit) for query in asked]
        found = self._together(queries, limit, quit_now)
        for one in queries * (ATTEMPTS - 1):
            if one.again and not one.given_up and not self._cancelled:  # Spark kills the workers of cancelled tasks
                pipeline, epoch, one.again = one.query.pipeline, one.query.key.epoch, False
                said = found[pipeline.instance].failure.split("\n", 1)[0]
                _log.warning("the query of pipeline %s runs again in epoch %d: %s", pipeline.name, epoch, said)
                found |= self._together([one], limit, quit_now)
        if self._cancelled:
            raise StreamFailed("the query of this commit was stopped")
        fault_point("after-epoch-queries")
        return found

    def _together(
        self, queries: Sequence[_Running], limit: float | None, quit_now: Callable[[PipelineDef], bool]
    ) -> dict[int, QueryOutcome]:
        """Run one attempt of each query, all at once."""
        found: dict[int, QueryOutcome] = {}
        running = {self._threads.submit(self._timed, one): one for one in queries}
        try:
            while running:
                done, _ = wait(running, LOOK_SECONDS, FIRST_COMPLETED)
                for future in done:
                    found[running.pop(future).query.pipeline.instance] = future.result()
                for future, one in list(running.items()):
                    reason = self._over(one, limit, quit_now)
                    if reason:
                        del running[future]
                        found[one.query.pipeline.instance] = self._give_up(future, one, reason)
        finally:
            for one in running.values():  # Spark itself failed
                self._cancel(one.group)
        return found

    def _over(self, one: _Running, limit: float | None, quit_now: Callable[[PipelineDef], bool]) -> str:
        """Why a running query must end now; empty if it may go on."""
        if self._cancelled:
            return "it was stopped"
        if quit_now(one.query.pipeline):
            return "it was stopped at once"
        if limit is not None and one.began is not None and one.seconds > limit:
            return QueryTimeout(
                f"the Spark query of the pipeline took more than {limit:g} s in one epoch",
                advice="A function may hang. Correct it and start the pipeline again, or raise max_epoch_time or "
                "pipeline_time_budget of the stream.",
                limit=limit,
            ).render()
        return ""

    def _give_up(self, future: Future[QueryOutcome], one: _Running, reason: str) -> QueryOutcome:
        one.given_up = True
        self._cancel(one.group)
        if not future.cancel():
            wait([future], CANCEL_SECONDS)
        return QueryOutcome(failure=reason, ms=one.seconds * 1000)

    def _timed(self, one: _Running) -> QueryOutcome:
        one.began = time.perf_counter()
        context = self._spark.sparkContext
        with self._lock:
            self._groups.add(one.group)
        try:
            context.setLocalProperty("spark.scheduler.pool", POOL)
            described = f"headrace pipeline {one.query.pipeline.name}, epoch {one.query.key.epoch}"
            context.setJobGroup(one.group, described, interruptOnCancel=True)
            with muted():
                outcome = self._attempt(one)
        finally:
            with self._lock:
                self._groups.discard(one.group)
        spent, one.began = one.seconds, None
        one.spent, outcome.ms = spent, spent * 1000
        return outcome

    def _attempt(self, one: _Running) -> QueryOutcome:
        """Run a query. What a failed attempt staged is not in its receipts, and is deleted with the epoch's other
        staged files."""
        try:
            return self._run(one.query)
        except Exception as problem:
            if is_of_spark(problem):
                raise
            failure = query_failure(problem, one.query.pipeline)
            one.again = isinstance(failure, MAY_PASS)
            if isinstance(failure, EvaluationFailed) and not (self._cancelled or one.given_up):
                failure = self._with_row(one, failure)
            return QueryOutcome(failure=failure.render())

    def _with_row(self, one: _Running, failure: EvaluationFailed) -> EvaluationFailed:
        """The failure with the row on which the query fails, if that is found in time."""
        program, until = _program(one.query), time.perf_counter() + SECONDS
        if one.limit is not None and one.began is not None:  # a query that takes too long fails for that reason
            until = min(until, one.began + one.limit / 2)

        def fails(rows: DataFrame) -> bool:
            try:
                self._over_rows(one.query, rows).write.format("noop").mode("overwrite").save()
            except Exception as problem:
                if is_of_spark(problem):
                    raise
                return isinstance(query_failure(problem, one.query.pipeline), EvaluationFailed)
            return False

        def go_on() -> bool:
            return not (self._cancelled or one.given_up) and time.perf_counter() < until

        row = failing_row(self._spark, program.staged, one.query.staged, fails=fails, go_on=go_on)
        return failure if row is None else on_row(failure, described(row))

    def _over_rows(self, query: EpochQuery, rows: DataFrame) -> DataFrame:
        """The query of a pipeline over some rows."""
        program = _program(query)
        known = self._known_query(query)
        if known.analyzed is not None:
            return known.analyzed.over(rows)
        frame = query_over(self._spark, known.parsed, program.relation, rows)
        if not known.tried:
            known.tried, known.analyzed = True, reusable(program, frame)
        return frame

    def _run(self, query: EpochQuery) -> QueryOutcome:
        outcome = QueryOutcome()
        rows = staged_input(self._spark, _program(query).staged, query.staged)
        result = self._over_rows(query, rows)
        large = is_large(query.staged)
        context: Any = self._spark.sparkContext
        alone = large and (
            self._known[query.pipeline.instance].analyzed is not None or reads_nothing_else(result, rows)
        )
        context.setLocalProperty(BATCH_LIMIT, NO_LIMIT if alone and are_narrow(query.staged) else None)
        outcome.receipts = write_output(result, query.pipeline, query.key, outcome.lost, in_tasks=large)
        return outcome

    def _known_query(self, query: EpochQuery) -> _KnownQuery:
        """The parsed query. Its text only changes with a clock or with kept tables, so most epochs parse nothing."""
        program, instance = _program(query), query.pipeline.instance
        zone = query.pipeline.program.meaning.time_zone
        edits = [*clock_edits(program.clocks, query.now, zone), *self._static.edits(instance, program)]
        text = edited(program.sql, edits).text
        known = self._known.get(instance)
        if known is None or known.text != text:
            known = self._known[instance] = _KnownQuery(text, parse_query(self._spark, text))
        return known

    def forget(self, instances: set[int]) -> None:
        """Forget what is kept for these instances."""
        self._static.forget(instances)
        for instance in instances:
            self._known.pop(instance, None)

    def cancel(self) -> None:
        """End all queries: the stream's query is stopped. The epoch is run again later."""
        self._cancelled = True
        with self._lock:
            groups = list(self._groups)
        for group in groups:
            self._cancel(group)
        self._threads.shutdown(wait=False, cancel_futures=True)
        with contextlib.suppress(Exception):  # Spark may be gone, and the views with it
            self._static.forget()

    def _cancel(self, group: str) -> None:
        try:
            self._spark.sparkContext.cancelJobGroup(group)
        except Exception as problem:
            if not is_of_spark(problem):
                raise


def _program(query: EpochQuery) -> SparkQuery:
    program = query.pipeline.program.spark
    assert program is not None, "only pipelines with a Spark query come here"
    return program
