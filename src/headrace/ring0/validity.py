"""What a bad record does, per pipeline: validity does not depend on who is listening (see
docs/design/2026-11-16-founding.md).

Bad *structure* and a bad *event time* concern everybody: the record is no row for anyone. A bad *value* is a fact of
(row, column): it concerns the pipelines whose view contains the column, on rows that their filter does not drop. A
filter speaks only through those of its AND-ed conditions that read no bad column of the row: if one of them is not
true, the row is dropped whatever the bad value was meant to be; if all are, nobody can know, and the row is concerned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import BadRecordFailure
from headrace.exec import duck
from headrace.exec.aggregates import where
from headrace.exec.sizing import in_pieces
from headrace.formats.bad import BadRecord, BadRecords
from headrace.model.program import Condition, PipelineDef, Ring0Program, StreamDef
from headrace.model.schema import Schema

Policy = Literal["null", "skip", "fail", "dead_letter", "permissive"]
_MODES: dict[str, Policy] = {"permissive": "permissive", "dropmalformed": "skip", "failfast": "fail"}
LineOf = Callable[[BadRecord], int | None]
Mask = npt.NDArray[np.bool_]


def policy_of(stream: StreamDef) -> Policy:
    """The stream's `on_error`, or what its `mode` stands for; CREATE STREAM has checked them. `permissive` is `null`,
    and records with a bad structure or a bad event time are rows, too."""
    options = {name.lower(): value.lower() for name, value in stream.options.items()}
    if "mode" in options:
        return _MODES[options["mode"]]
    given = options.get("on_error", "null")
    policies: tuple[Policy, ...] = ("skip", "fail", "dead_letter")
    return next((p for p in policies if p == given), "null")


@dataclass(frozen=True, slots=True)
class Judged:
    """The rows a pipeline gets, how many of its rows had a bad value that concerns it, and which of the batch's bad
    values do."""

    rows: pa.Table
    bad: int
    concerned: Mask


@dataclass(frozen=True, slots=True)
class Judge:
    """Applies a stream's policy to one batch after the other. `line` tells a record's line, for errors."""

    policy: Policy
    schema: Schema
    line: LineOf

    def __call__(self, pipeline: PipelineDef, rows: pa.Table, rejected: BadRecords, cells: BadRecords) -> Judged:
        """What one pipeline gets of one batch: `rejected` are records that are no row for anyone, `cells` the bad
        values in `rows`. Raises BadRecordFailure under `fail`, for the first of them in the input."""
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
        """Which of the bad values are in columns that the pipeline reads."""
        if not len(cells):
            return np.zeros(0, dtype=bool)
        read = np.zeros(len(self.schema), dtype=bool)
        read[list(pipeline.program.view.indexes(len(self.schema)))] = True
        found: Mask = read[cells.columns]
        return found

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


def _not_dropped(pipeline: PipelineDef, rows: pa.Table, touched: Mask, cells: BadRecords) -> Mask:
    """Which of the rows that have a bad value of this pipeline its filter does not drop."""
    conditions = _conditions(pipeline.program.ring0)
    if not conditions:
        return touched
    places = np.flatnonzero(touched)
    read = sorted({c for condition in conditions for c in condition.columns})
    meaning, growth = pipeline.program.meaning, pipeline.program.ring0.growth
    if not growth.in_filter:  # else sizes of values are computed first, from any column
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
