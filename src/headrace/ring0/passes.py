"""Runs the pipelines of a task on its batches, in as few passes as give the same result.

Batches wait until there are enough rows for a pass. Equal filters are evaluated once, and the pipelines of a family
share one pass. A pipeline that fails is left out of later passes, and the others continue without it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import pyarrow as pa

from headrace.exec.failures import failure_text
from headrace.exec.families import family_pass
from headrace.exec.sizing import fits
from headrace.ring0.cuts import CutRule, PartialsCut, cutting
from headrace.ring0.failing_rows import PlaceOf, explained
from headrace.ring0.filters import evaluate, in_common, using
from headrace.ring0.fold_passes import run_folded
from headrace.ring0.fold_program import fold_program
from headrace.ring0.projecting import run_projected
from headrace.ring0.projection import projection_of
from headrace.ring0.runner import Runner
from headrace.ring0.task_input import TaskInput
from headrace.sinks.sink_kind import SinkKey

# Batches are folded together, because DuckDB takes milliseconds to plan a pass however few rows it has. With 32
# pipelines 250,000 rows took 0.93 s in batches of 4 MB of input, 0.32 s in four batches, 0.22 s in one.
FOLD_ROWS = 256 * 1024
FOLD_BYTES = 32 * 1024 * 1024


class Passes:
    """The pipelines of one task: `runners` of those that work, `failures` of those that have failed."""

    def __init__(self, given: TaskInput) -> None:
        planned = given.planned
        self.runners = {
            p.instance: Runner(
                p, SinkKey(planned.checkpoint, p.instance, planned.epoch), planned.watermark, planned.staging
            )
            for p in given.plan.pipelines
        }
        self.failures: dict[int, str] = {}
        self.watermark = planned.watermark
        self.projection = projection_of(given.plan)
        self.schema = given.plan.stream.schema
        self.place_of: PlaceOf | None = None  # where the record of a row is, by the number in its column PLACE
        self.waiting: list[pa.Table] = []
        self.waiting_rows = self.waiting_bytes = 0

    def add(self, batches: dict[int, pa.Table], rows: pa.Table) -> None:
        """Add a batch, with the rows that each pipeline gets of it. It waits if all pipelines get all of its `rows`."""
        if any(own is not rows for own in batches.values()):
            self.fold()
            self._run(batches, rows)
            return
        self.waiting.append(rows)
        self.waiting_rows += rows.num_rows
        self.waiting_bytes += sum(rows.column(f"c{c}").nbytes for c in self.projection.wanted)
        if self.waiting_rows >= FOLD_ROWS or self.waiting_bytes >= FOLD_BYTES:
            self.fold()

    def fold(self) -> None:
        """Run the pipelines on the waiting batches."""
        if self.waiting:
            rows = pa.concat_tables(self.waiting)
            self.waiting, self.waiting_rows, self.waiting_bytes = [], 0, 0
            self._run(dict.fromkeys(self.runners, rows), rows)

    def _run(self, batches: dict[int, pa.Table], rows: pa.Table) -> None:
        """Run every working pipeline on its batch. Members of a family that get all `rows` run in one pass."""
        batches = {i: batch for i, batch in batches.items() if i in self.runners}
        alike = [[i for i in members if batches.get(i) is rows] for members in self.projection.families]
        passes = [members for members in alike if len(members) > 1]
        together = {i for members in passes for i in members}
        passes += [[i] for i, batch in batches.items() if batch is rows and i not in together]
        flagged, known = self._filters_in_common(passes, rows)
        for instance, problem in run_folded(
            self.runners, passes, rows=flagged, known=known, watermark=self.watermark
        ).items():
            del batches[instance]
            if problem is not None:
                self.fail(instance, problem)
        passes = [left for members in passes if (left := [i for i in members if i in batches])]
        for members in passes:
            if len(members) > 1 and self._feed_family([self.runners[i] for i in members], flagged, known):
                for instance in members:
                    del batches[instance]
        whole = [instance for instance, own in batches.items() if own is rows]
        for instance, problem in run_projected(self.runners, whole, flagged, known).items():
            del batches[instance]
            if problem is not None:
                self.fail(instance, problem)
        for instance, own in batches.items():
            try:
                if own is rows:
                    self.runners[instance].feed(flagged, known)
                else:
                    self.runners[instance].feed(own)
            except Exception as problem:
                program = self.runners[instance].pipeline.program
                self.fail(instance, explained(problem, program, schema=self.schema, rows=own, place_of=self.place_of))

    def _filters_in_common(self, passes: list[list[int]], rows: pa.Table) -> tuple[pa.Table, dict[str, str]]:
        """The batch with the results of the filters that several passes have in common. Their pipelines share the
        time."""
        began = time.perf_counter()
        programs = {i: r.pipeline.program.ring0 for i, r in self.runners.items()}
        # A filter that may make large values runs in its pipeline's own pass, which cuts the batch into pieces.
        filters = {i: None if program.growth.in_filter else program.filter for i, program in programs.items()}
        # What kernels can run has its filters evaluated in one statement anyway.
        folded = {
            i for members in passes for i in members if fold_program(self.runners[i].pipeline.program) is not None
        }
        others = [[i for i in members if i not in folded] for members in passes]
        shared = in_common([filters[i] for i in members] for members in (*others, folded))
        if not shared or self.projection.meaning is None:
            return rows, {}
        try:
            found = evaluate(shared, self.projection.meaning, rows)
        except Exception:  # each pass evaluates its own filters then, which shows whose filter fails
            return rows, {}
        users = [i for members in passes for i in members if filters[i] in shared]
        for instance in users:
            self.runners[instance].seconds += (time.perf_counter() - began) / len(users)
        return found

    def _feed_family(self, runners: list[Runner], rows: pa.Table, known: Mapping[str, str]) -> bool:
        """Aggregate a batch for a whole family in one pass. False if that failed, or if a member may make more bytes
        of the batch than a pass is allowed: then every member runs by itself."""
        began = time.perf_counter()
        if not all(fits(r.pipeline.program.ring0.growth, rows) for r in runners):
            return False
        meaning = runners[0].pipeline.program.meaning
        family = family_pass([using(r.pipeline.program.ring0, known) for r in runners])
        try:
            table, cut = _ordered(family.run(meaning, rows), runners)
            closed = family.closed(table, self.watermark)
        except Exception:  # each member runs by itself then, which shows which one fails
            return False
        spent = (time.perf_counter() - began) / len(runners)
        for i, runner in enumerate(runners):
            began = time.perf_counter()
            try:
                share, present = family.share(table, i, closed)
                runner.take(share, rows, None if cut is None else cut.of(present))
            except Exception as problem:  # its sink for late rows failed
                self.fail(runner.pipeline.instance, problem)
            runner.seconds += spent + time.perf_counter() - began
        return True

    def fail(self, instance: int, problem: Exception) -> None:
        """Leave the pipeline out from here on. Only its first failure is reported."""
        if self.runners.pop(instance, None) is not None:
            self.failures[instance] = failure_text(problem)


def _ordered(table: pa.Table, runners: list[Runner]) -> tuple[pa.Table, PartialsCut | None]:
    """The groups of a family in the order in which every member's share is cut, if all members are cut alike."""
    rules = {CutRule.of(r.pipeline) for r in runners}
    if len(rules) > 1:
        return table, None
    order, cut = cutting(table, rules.pop())
    return (table if order is None else table.take(order)), cut
