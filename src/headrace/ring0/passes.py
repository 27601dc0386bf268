"""Runs the pipelines of a task on its batches, in as few passes as give the same result.

Batches wait until folding them together is worth a pass; equal filters are evaluated once, and a family of pipelines
shares its pass. A pipeline that fails is left out from there on, and its neighbours do not notice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import pyarrow as pa

from headrace.exec.aggregates import aggregate_family
from headrace.exec.failures import failure_text
from headrace.exec.sizing import fits
from headrace.ring0.filters import evaluate, in_common, using
from headrace.ring0.projection import projection_of
from headrace.ring0.runner import Runner
from headrace.ring0.task_input import TaskInput
from headrace.sinks.base import SinkKey

# Batches are folded together: a pass of DuckDB costs milliseconds to plan however few rows it sees. With 32 pipelines
# 250,000 rows took 0.93 s in batches of 4 MB of input, 0.32 s in four, 0.22 s in one.
FOLD_ROWS = 256 * 1024
FOLD_BYTES = 32 * 1024 * 1024


class Passes:
    """The pipelines of one task: `runners` of those that live, `failures` of those that do not."""

    def __init__(self, given: TaskInput) -> None:
        planned = given.planned
        self.runners = {
            p.instance: Runner(p, SinkKey(planned.checkpoint, p.instance, planned.epoch), planned.watermark)
            for p in given.plan.pipelines
        }
        self.failures: dict[int, str] = {}
        self.watermark = planned.watermark
        self.projection = projection_of(given.plan)
        self.waiting: list[pa.Table] = []
        self.waiting_rows = self.waiting_bytes = 0

    def add(self, batches: dict[int, pa.Table], rows: pa.Table) -> None:
        """Take what each pipeline gets of a batch; it waits for others unless they get different rows of it."""
        if any(own is not rows for own in batches.values()):
            self.fold()
            self._run(batches, rows)
            return
        self.waiting.append(rows)
        self.waiting_rows += rows.num_rows
        self.waiting_bytes += sum(rows.column(c).nbytes for c in self.projection.wanted)
        if self.waiting_rows >= FOLD_ROWS or self.waiting_bytes >= FOLD_BYTES:
            self.fold()

    def fold(self) -> None:
        """Run the pipelines on the batches that wait."""
        if self.waiting:
            rows = pa.concat_tables(self.waiting)
            self.waiting, self.waiting_rows, self.waiting_bytes = [], 0, 0
            self._run(dict.fromkeys(self.runners, rows), rows)

    def _run(self, batches: dict[int, pa.Table], rows: pa.Table) -> None:
        """Run every pipeline that lives on its batch; those of a family that all get `rows` in one pass."""
        batches = {i: batch for i, batch in batches.items() if i in self.runners}
        alike = [[i for i in members if batches.get(i) is rows] for members in self.projection.families]
        passes = [members for members in alike if len(members) > 1]
        together = {i for members in passes for i in members}
        passes += [[i] for i, batch in batches.items() if batch is rows and i not in together]
        flagged, known = self._filters_in_common(passes, rows)
        for members in passes:
            if len(members) > 1 and self._feed_family([self.runners[i] for i in members], flagged, known):
                for instance in members:
                    del batches[instance]
        for instance, own in batches.items():
            try:
                if own is rows:
                    self.runners[instance].feed(flagged, known)
                else:
                    self.runners[instance].feed(own)
            except Exception as problem:
                self.fail(instance, problem)

    def _filters_in_common(self, passes: list[list[int]], rows: pa.Table) -> tuple[pa.Table, dict[str, str]]:
        """The batch with the answers of the filters that several passes have, which share the time it took."""
        began = time.perf_counter()
        programs = {i: r.pipeline.program.ring0 for i, r in self.runners.items()}
        # A filter that makes values of any size runs in its pipeline's own pass, which cuts the batch.
        filters = {i: None if program.growth.in_filter else program.filter for i, program in programs.items()}
        shared = in_common([filters[i] for i in members] for members in passes)
        if not shared or self.projection.meaning is None:
            return rows, {}
        try:
            found = evaluate(shared, self.projection.meaning, rows)
        except Exception:  # whose failure it is shows when each evaluates its own
            return rows, {}
        users = [i for members in passes for i in members if filters[i] in shared]
        for instance in users:
            self.runners[instance].seconds += (time.perf_counter() - began) / len(users)
        return found

    def _feed_family(self, runners: list[Runner], rows: pa.Table, known: Mapping[str, str]) -> bool:
        """Fold a batch for a whole family in one pass. When that fails, members run singly to find the guilty one;
        also when one of them may make more of the batch than a pass may."""
        began = time.perf_counter()
        if not all(fits(r.pipeline.program.ring0.growth, rows) for r in runners):
            return False
        meaning = runners[0].pipeline.program.meaning
        members = [using(r.pipeline.program.ring0, known) for r in runners]
        try:
            shares = aggregate_family(members, meaning, rows, self.watermark)
        except Exception:  # whose failure it is shows when each runs alone
            return False
        for runner, share in zip(runners, shares, strict=True):
            runner.seconds += (time.perf_counter() - began) / len(runners)
            try:
                runner.take(share, rows)
            except Exception as problem:  # its sink for late rows
                self.fail(runner.pipeline.instance, problem)
        return True

    def fail(self, instance: int, problem: Exception) -> None:
        """Do without the pipeline from here on; its first failure is the one that is told."""
        if self.runners.pop(instance, None) is not None:
            self.failures[instance] = failure_text(problem)
