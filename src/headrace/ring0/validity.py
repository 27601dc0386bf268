"""The policy for bad records, per pipeline. Which rows a pipeline gets does not depend on the other pipelines.

Bad *structure* and a bad *event time* reject the record for all pipelines. A bad *value* is a fact of one cell. It
concerns the pipelines whose view contains the column, on rows that their filter does not drop. A filter is a
conjunction, and a condition that reads a bad value of the row has no result. If one of the other conditions is not
true, the row is dropped, whatever the bad value should have been. If all of them are true, the bad value concerns the
pipeline. Why: docs/design/2026-11-16-founding.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import BadRecordFailure
from headrace.exec import duck
from headrace.exec.aggregates import where
from headrace.exec.sizing import in_pieces
from headrace.formats import FORMATS
from headrace.formats.bad import BadRecord, BadRecords
from headrace.formats.format_settings import FormatSettings, Policy
from headrace.model.definitions import PipelineDef, StreamDef
from headrace.model.program import Condition, Ring0Program
from headrace.model.schema import Schema, field_at

LineOf = Callable[[BadRecord], int | None]
Mask = npt.NDArray[np.bool_]


def policy_of(stream: StreamDef) -> Policy:
    """The stream's `on_error`, or what its `mode` stands for; CREATE STREAM has checked them. `permissive` is `null`,
    and records with a bad structure or a bad event time are rows, too."""
    settings: FormatSettings = FORMATS[stream.format].settings_of(stream.options)
    return settings.policy


@dataclass(frozen=True, slots=True)
class Judged:
    """The rows that a pipeline gets of a batch. `bad` rows have a bad value that concerns the pipeline, and `concerned`
    marks these values among all bad values of the batch."""

    rows: pa.Table
    bad: int
    concerned: Mask


@dataclass(frozen=True, slots=True)
class Judge:
    """Applies a stream's policy to batches. `line` returns the line number of a record, for errors."""

    policy: Policy
    schema: Schema
    line: LineOf

    def __call__(self, pipeline: PipelineDef, rows: pa.Table, rejected: BadRecords, cells: BadRecords) -> Judged:
        """The rows that one pipeline gets of a batch. `rejected` are records that are not rows for any pipeline, and
        `cells` the bad values in `rows`. Under `fail` it raises BadRecordFailure for the first of them."""
        if not len(cells) and not (self.policy == "fail" and len(rejected)):  # nearly all batches, once per pipeline
            return Judged(rows, 0, np.zeros(0, dtype=bool))
        mine = self._in_view(pipeline, cells)
        touched = np.zeros(rows.num_rows, dtype=bool)  # rows with a bad value of this pipeline
        touched[cells.rows if mine.all() else cells.rows[mine]] = True
        kept = _not_dropped(pipeline, rows, touched, cells) if touched.any() else touched
        concerned = mine & kept[cells.rows]
        if self.policy == "fail":
            found = (rejected.first(), cells.pick(concerned).first())
            if first := min((b for b in found if b is not None), key=lambda b: b.place, default=None):
                raise self._failure(first)
        if self.policy in ("skip", "dead_letter") and touched.any():
            rows = rows.filter(pa.array(~touched))
        return Judged(rows, int(np.count_nonzero(kept)), concerned)

    def _in_view(self, pipeline: PipelineDef, cells: BadRecords) -> Mask:
        """Marks the bad values in columns that the pipeline reads."""
        if not len(cells):
            return np.zeros(0, dtype=bool)
        found: Mask = np.isin(cells.columns, pipeline.program.view.indexes(len(self.schema)))
        return found

    def _failure(self, record: BadRecord) -> BadRecordFailure:
        """The error that stops a pipeline under `fail`: the position of the record, the reason, and its text."""
        column = None if record.column is None else field_at(self.schema, record.column).name
        line = self.line(record)
        text = record.raw[:200].decode("utf-8", "replace")
        return BadRecordFailure(
            f"{record.origin}, "
            + (f"line {line}, " if line is not None else "")
            + f"byte {record.offset}: {record.reason}"
            + (f" in column {column}" if column else "")
            + f": {text}",
            advice="Correct the input, or create the stream with on_error = 'null', 'skip' or 'dead_letter'.",
            origin=record.origin,
            offset=record.offset,
            line=line,
            reason=record.reason,
            column=column,
        )


def _not_dropped(pipeline: PipelineDef, rows: pa.Table, touched: Mask, cells: BadRecords) -> Mask:
    """Marks the rows that have a bad value of this pipeline and that its filter does not drop."""
    conditions = _conditions(pipeline.program.ring0)
    if not conditions:
        return touched
    places = np.flatnonzero(touched)
    read = sorted({c for condition in conditions for c in condition.columns})
    meaning, growth = pipeline.program.meaning, pipeline.program.ring0.growth
    if not growth.in_filter:  # otherwise the sizes of values are computed first, and may read any column
        rows = rows.select([*(f"c{c}" for c in read), "_t"])
    few = rows.take(places).append_column("_row", pa.array(places))
    guarded = []
    for number, condition in enumerate(conditions):
        bad = np.zeros(len(touched), dtype=bool)  # rows in which the condition reads a bad value
        bad[cells.rows[np.isin(cells.columns, condition.columns)]] = True
        if bad.any():
            few = few.append_column(f"_bad{number}", pa.array(bad[places]))
            guarded.append(f"CASE WHEN _bad{number} THEN true ELSE ({condition.sql}) END")
        else:
            guarded.append(condition.sql)
    kept = np.zeros(len(touched), dtype=bool)
    for piece in in_pieces(growth, meaning, "rows", few) if growth.in_filter else [few]:
        found = duck.run(meaning, f"SELECT _row FROM rows{where(*guarded)}", {"rows": piece})
        kept[found.column(0).to_numpy()] = True
    return kept


def _conditions(ring0: Ring0Program) -> tuple[Condition, ...]:
    if ring0.conditions or ring0.filter is None:
        return ring0.conditions
    return (Condition(ring0.filter, ring0.filter_columns),)
