"""What a bad record does, per pipeline: validity does not depend on who is listening (DESIGN section 3).

Bad *structure* concerns everybody: the record is no row for anyone. A bad *value* is a fact of (row, column): it
concerns only the pipelines whose view contains the column, and only on rows that their filter keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from headrace import duck
from headrace.aggregates import where
from headrace.errors import BadRecordFailure
from headrace.formats.base import BadRecord
from headrace.program import PipelineDef, StreamDef
from headrace.schema import Schema

Policy = Literal["null", "skip", "fail"]


def policy_of(stream: StreamDef) -> Policy:
    """The stream's `on_error`; CREATE STREAM has checked it."""
    given = stream.options.get("on_error", "null").lower()
    return "skip" if given == "skip" else "fail" if given == "fail" else "null"


@dataclass(frozen=True, slots=True)
class Judged:
    """The rows a pipeline gets, and how many of its rows had a bad value in its view."""

    rows: pa.Table
    bad: int


def judge(pipeline: PipelineDef, policy: Policy, schema: Schema, rows: pa.Table, bad: Sequence[BadRecord]) -> Judged:
    """Apply `policy` to one batch for one pipeline. Raises BadRecordFailure under `fail`."""
    if policy == "fail":
        for record in bad:
            if record.column is None:
                raise failure(record, schema)
    wanted = set(pipeline.program.view.indexes(len(schema)))
    concerned = [b for b in bad if b.column in wanted and 0 <= b.row < rows.num_rows]
    if not concerned:
        return Judged(rows, 0)
    mask = np.zeros(rows.num_rows, dtype=bool)
    mask[[b.row for b in concerned]] = True
    numbered = rows.append_column("_row", pa.array(np.arange(rows.num_rows)))
    sql = f"SELECT _row FROM rows{where(pipeline.program.ring0.filter)}"
    kept = duck.run(pipeline.program.meaning, sql, {"rows": numbered.filter(pa.array(mask))}).column(0).to_pylist()
    if policy == "fail" and kept:
        raise failure(next(b for b in concerned if b.row in set(kept)), schema)
    return Judged(rows.filter(pa.array(~mask)) if policy == "skip" else rows, len(kept))


def failure(record: BadRecord, schema: Schema) -> BadRecordFailure:
    """The error that stops a pipeline under `on_error = 'fail'`."""
    column = None if record.column is None else schema[record.column].name
    text = record.raw[:200].decode("utf-8", "replace")
    return BadRecordFailure(
        f"{record.origin}, byte {record.offset}: {record.reason}"
        + (f" in column {column}" if column else "")
        + f": {text}",
        advice="Mend the input, or create the stream with on_error = 'null' or 'skip'.",
        origin=record.origin,
        offset=record.offset,
        reason=record.reason,
        column=column,
    )
