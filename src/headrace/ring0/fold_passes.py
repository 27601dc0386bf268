"""Runs the passes of a batch with kernels, as far as the kernels can: many passes read one statement's columns."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from headrace.exec.sizing import fits
from headrace.model.program import Meaning
from headrace.ring0.cuts import CutRule
from headrace.ring0.fold_columns import CannotFold, FoldColumns
from headrace.ring0.fold_program import FoldProgram, fold_program
from headrace.ring0.folding import fold
from headrace.ring0.runner import Runner

# The columns that one statement computes take at most this many bytes: a bit per row for a filter, eight bytes for
# any other expression.
COLUMN_BYTES = 32 * 1024 * 1024

_log = logging.getLogger(__name__)

FoldedPass = tuple[CutRule, list[tuple[int, FoldProgram]]]  # instances of one family that are cut alike


def run_folded(
    runners: Mapping[int, Runner],
    passes: Iterable[list[int]],
    rows: pa.Table,
    known: Mapping[str, str],
    watermark: int | None,
) -> dict[int, Exception | None]:
    """Run what the kernels can run of these passes over `rows`. `known` maps filters to columns that hold their result.
    Returns the instances that are done, each with its failure if its sink for late rows failed. An instance whose
    expressions fail on some row is not among them: then DuckDB aggregates, which shows which one fails."""
    alike: dict[Meaning, list[FoldedPass]] = defaultdict(list)
    for members in passes:
        rules: dict[CutRule, list[tuple[int, FoldProgram]]] = defaultdict(list)
        for instance in members:
            pipeline = runners[instance].pipeline
            program = fold_program(pipeline.program)
            if program is not None and fits(pipeline.program.ring0.growth, rows):
                rules[CutRule.of(pipeline)].append((instance, program))
        if rules:
            alike[runners[members[0]].pipeline.program.meaning] += rules.items()
    done: dict[int, Exception | None] = {}
    for meaning, found in alike.items():
        for together in _in_statements(found, rows.num_rows):
            done |= _run(runners, meaning, passes=together, rows=rows, known=known, watermark=watermark)
    return done


def _in_statements(passes: list[FoldedPass], rows: int) -> Iterator[list[FoldedPass]]:
    """The passes in groups whose columns are computed together."""
    together: list[FoldedPass] = []
    held = 0.0
    for one in passes:
        size = sum(rows * program.computed for _, program in one[1])
        if together and held + size > COLUMN_BYTES:
            yield together
            together, held = [], 0.0
        together.append(one)
        held += size
    if together:
        yield together


def _run(
    runners: Mapping[int, Runner],
    meaning: Meaning,
    passes: list[FoldedPass],
    rows: pa.Table,
    known: Mapping[str, str],
    watermark: int | None,
) -> dict[int, Exception | None]:
    began = time.perf_counter()
    try:
        columns = FoldColumns(meaning, rows, [[program for _, program in members] for _, members in passes], known)
    except Exception:  # some expression fails on some row, or has values that the kernels do not know
        # The other passes need not suffer from it. DuckDB runs the one that fails, and shows why.
        alone: dict[int, Exception | None] = {}
        for one in passes if len(passes) > 1 else []:
            alone |= _run(runners, meaning, passes=[one], rows=rows, known=known, watermark=watermark)
        return alone
    members = sum(len(members) for _, members in passes)
    spent = (time.perf_counter() - began) / max(1, members)
    done: dict[int, Exception | None] = {}
    for rule, found in passes:
        began = time.perf_counter()
        lanes = [runners[instance].pipeline.lane for instance, _ in found]
        try:
            shares = fold(columns, [program for _, program in found], lanes=lanes, rule=rule, watermark=watermark)
        except CannotFold:  # its values are not those that the kernels know, so DuckDB aggregates
            continue
        except Exception:  # a defect of ours: DuckDB gives the same rows, only slower
            _log.warning("the kernels failed, and DuckDB aggregates instead", exc_info=True)
            continue
        own = (time.perf_counter() - began) / len(found) + spent
        for (instance, _), share in zip(found, shares, strict=True):
            runner = runners[instance]
            runner.seconds += own
            done[instance] = None
            try:
                runner.take_encoded(share.entries, share.late, rows)
            except Exception as problem:  # its sink for late rows failed, or its groups take too much memory
                done[instance] = problem
    return done
