"""What a bad record does, per pipeline: validity does not depend on who is listening (DESIGN section 3).

Bad *structure* and a bad *event time* concern everybody: the record is no row for anyone. A bad *value* is a fact of
(row, column): it concerns the pipelines whose view contains the column, on rows that their filter does not drop. A
filter speaks only through those of its AND-ed conditions that read no bad column of the row: if one of them is not
true, the row is dropped whatever the bad value was meant to be; if all are, nobody can know, and the row is concerned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace import duck
from headrace.aggregates import where
from headrace.errors import BadRecordFailure
from headrace.formats.base import BadRecord
from headrace.program import Condition, PipelineDef, Ring0Program, StreamDef
from headrace.schema import Schema
from headrace.sizing import in_pieces

Policy = Literal["null", "skip", "fail", "dead_letter"]
LineOf = Callable[[BadRecord], int | None]


def policy_of(stream: StreamDef) -> Policy:
    """The stream's `on_error`; CREATE STREAM has checked it."""
    given = stream.options.get("on_error", "null").lower()
    policies: tuple[Policy, ...] = ("skip", "fail", "dead_letter")
    return next((p for p in policies if p == given), "null")


@dataclass(frozen=True, slots=True)
class Judged:
    """The rows a pipeline gets, how many of its rows had a bad value that concerns it, and those values."""

    rows: pa.Table
    bad: int = 0
    concerned: tuple[BadRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Judge:
    """Applies a stream's policy to one batch after the other. `line` tells a record's line, for errors."""

    policy: Policy
    schema: Schema
    line: LineOf

    def __call__(
        self, pipeline: PipelineDef, rows: pa.Table, rejected: Sequence[BadRecord], cells: Sequence[BadRecord]
    ) -> Judged:
        """What one pipeline gets of one batch: `rejected` are records that are no row for anyone, `cells` the bad
        values in `rows`. Raises BadRecordFailure under `fail`, for the first of them in the input."""
        wanted = set(pipeline.program.view.indexes(len(self.schema))) if cells else set()
        mine = [b for b in cells if b.column in wanted]
        kept = _not_dropped(pipeline, rows, mine) if mine else set()
        concerned = tuple(b for b in mine if b.row in kept)
        if self.policy == "fail" and (found := [*rejected, *concerned]):
            raise self._failure(min(found, key=lambda b: (b.offset, -1 if b.column is None else b.column)))
        if mine and self.policy in ("skip", "dead_letter"):
            good = np.ones(rows.num_rows, dtype=bool)
            good[[b.row for b in mine]] = False
            rows = rows.filter(pa.array(good))
        return Judged(rows, len(kept), concerned)

    def _failure(self, record: BadRecord) -> BadRecordFailure:
        """The error that stops a pipeline under `fail`: where the record is, what is wrong, and its text."""
        column = None if record.column is None else self.schema[record.column].name
        line = self.line(record)
        text = record.raw[:200].decode("utf-8", "replace")
        return BadRecordFailure(
            f"{record.origin}, "
            + (f"line {line}, " if line is not None else "")
            + f"byte {record.offset}: {record.reason}"
            + (f" in column {column}" if column else "")
            + f": {text}",
            advice="Mend the input, or create the stream with on_error = 'null', 'skip' or 'dead_letter'.",
            origin=record.origin,
            offset=record.offset,
            line=line,
            reason=record.reason,
            column=column,
        )


def _not_dropped(pipeline: PipelineDef, rows: pa.Table, bad: Sequence[BadRecord]) -> set[int]:
    """The rows with a bad value of this pipeline that its filter does not drop."""
    places = np.unique(np.fromiter((b.row for b in bad), np.int64))
    conditions = _conditions(pipeline.program.ring0)
    if not conditions:
        return set(places.tolist())
    few = rows.take(places).append_column("_row", pa.array(places))
    guarded = []
    for number, condition in enumerate(conditions):
        touched = _touched(condition, places, bad)
        if touched is None:
            guarded.append(condition.sql)
        else:
            few = few.append_column(f"_bad{number}", pa.array(touched))
            guarded.append(f"CASE WHEN _bad{number} THEN true ELSE ({condition.sql}) END")
    meaning, growth, kept = pipeline.program.meaning, pipeline.program.ring0.growth, set[int]()
    for piece in in_pieces(growth, meaning, "rows", few) if growth.in_filter else [few]:
        found = duck.run(meaning, f"SELECT _row FROM rows{where(*guarded)}", {"rows": piece})
        kept.update(found.column(0).to_numpy().tolist())
    return kept


def _conditions(ring0: Ring0Program) -> tuple[Condition, ...]:
    if ring0.conditions or ring0.filter is None:
        return ring0.conditions
    return (Condition(ring0.filter, ring0.filter_columns),)


def _touched(
    condition: Condition, places: npt.NDArray[np.int64], bad: Sequence[BadRecord]
) -> npt.NDArray[np.bool_] | None:
    """For each of the rows at `places`, whether the condition reads a bad value there; None if it never does."""
    read = set(condition.columns)
    rows = [b.row for b in bad if b.column in read]
    return np.isin(places, rows) if rows else None
