"""Recognizes programs whose closed windows the kernels of `headrace.bridge.kernels.merges` can merge and finish.

DuckDB takes a millisecond to merge and finish a few rows, and different pipelines need a statement each. The kernels
know sums, minima and maxima of numbers and times, and the output expressions that most queries have: a column, the
bounds of the window, a sum as BIGINT, a compensated sum, an average of whole numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.arrays import Ints
from headrace.base.identity import kept_by_identity
from headrace.bridge.merge_form import MergeForm, merge_form
from headrace.bridge.merging import CannotMerge, Counted
from headrace.bridge.rows import decode_counted, view_rows
from headrace.errors import InternalError
from headrace.exec.aggregates import schema_of
from headrace.model.program import Ring1Program
from headrace.model.schema import DataType

KEPT = 4096
# So many rows that need no merging are merged with the others: one call takes less time than two.
FEW = 4096
OutputColumn = Any  # a `pa.ChunkedArray`
OutputMaker = Callable[[pa.Table], OutputColumn]
_compute: Any = pc  # its types do not know mixed arguments

_SUM = pa.decimal128(38, 0)
_INSTANT = pa.timestamp("us", "UTC")
_COLUMN = re.compile(r"\(*((?:k|p)\d+)\)*")
_BOUND = re.compile(r"make_timestamptz\((window_start|window_end)\)")
_NARROWED = re.compile(r"\(*CAST\((p\d+) AS BIGINT\)\)*")
_FINITE = re.compile(r"\(*CASE WHEN isfinite\((p\d+)\) THEN \1 ELSE (p\d+) END\)*")
_MEAN = re.compile(r"\(*CASE WHEN (p\d+) > 0 THEN CAST\((p\d+) AS DOUBLE\) / \1 END\)*")
# A whole number below this has a double of its own. DuckDB may round a larger sum in another way.
_EXACT = 1 << 53


@dataclass(frozen=True, slots=True)
class MergeProgram:
    """A program for the kernels: how its partials are merged, and the output columns of merged partials. Programs with
    equal `shape` can run together."""

    form: MergeForm
    outputs: tuple[OutputMaker, ...]
    schema: pa.Schema
    shape: str

    def close(self, lanes: Sequence[Sequence[Counted]], whole: Sequence[Sequence[Counted]] = ()) -> list[pa.Table]:
        """The output of each lane, from its segments, with columns `o0, o1, ...`. The segments in `whole` need no
        merging: each has all rows of its window, one for each group. Raises CannotMerge if the segments are damaged, or
        if the kernels cannot handle a value."""
        if sum([rows for lane in whole for rows, _ in lane]) <= FEW:
            return self._merged([[*lane, *more] for lane, more in zip(lanes, whole, strict=True)] if whole else lanes)
        finished = self._output(*self._decoded(whole))
        if not any(lanes):
            return finished
        return [pa.concat_tables(parts) for parts in zip(self._merged(lanes), finished, strict=True)]

    def _merged(self, lanes: Sequence[Sequence[Counted]]) -> list[pa.Table]:
        blob, sizes = self.form.merge_lanes(lanes)
        return self._output(view_rows(blob, self.form.layout), sizes)

    def _output(self, groups: pa.Table, sizes: Ints) -> list[pa.Table]:
        """The output of each lane, of which `sizes` says how many groups it has."""
        output = pa.Table.from_arrays([make(groups) for make in self.outputs], schema=self.schema)
        ends = np.cumsum(sizes).tolist()
        return [output.slice(begin, end - begin) for begin, end in zip([0, *ends], ends, strict=False)]

    def _decoded(self, lanes: Sequence[Sequence[Counted]]) -> tuple[pa.Table, Ints]:
        """The rows of all lanes, and the number of rows of each."""
        segments = [segment for lane in lanes for segment in lane]
        try:
            groups, counts = decode_counted([data for _, data in segments], self.form.layout.schema)
        except InternalError as damage:
            raise CannotMerge("a blob is damaged") from damage
        if counts.tolist() != [rows for rows, _ in segments]:
            raise CannotMerge("a blob has another number of rows than it should")
        return groups, np.array([sum(rows for rows, _ in lane) for lane in lanes], np.int64)


@kept_by_identity(KEPT)
def merge_program(program: Ring1Program) -> MergeProgram | None:
    """The kernels' form of this program object, None if only DuckDB can run it."""
    form = merge_form(program)
    if form is None or program.window is None or program.having or program.ranks or program.growth.values:
        return None
    schema = schema_of(program)
    outputs = [_output(o.sql, o.type, schema) for o in program.outputs]
    found = [output for output in outputs if output is not None]
    if len(found) < len(outputs):
        return None
    return MergeProgram(
        form=form,
        outputs=tuple(found),
        schema=pa.schema([pa.field(f"o{i}", o.type.arrow) for i, o in enumerate(program.outputs)]),
        shape=repr((form.layout.digest, form.kinds.tolist(), [(o.sql, str(o.type)) for o in program.outputs])),
    )


def _output(sql: str, declared: DataType, schema: pa.Schema) -> OutputMaker | None:
    """Computes an output column from merged groups, None if only DuckDB can."""
    kind = declared.arrow

    def typed(name: str, wanted: pa.DataType) -> bool:
        return name in schema.names and schema.field(name).type == wanted

    if found := _COLUMN.fullmatch(sql):
        return partial(_column, found[1]) if typed(found[1], kind) else None
    if (found := _BOUND.fullmatch(sql)) and kind == _INSTANT:
        return partial(_instant, found[1])
    if (found := _NARROWED.fullmatch(sql)) and kind == pa.int64() and typed(found[1], _SUM):
        return partial(_narrowed, found[1])
    if (found := _FINITE.fullmatch(sql)) and all(typed(name, kind) for name in found.groups()):
        return partial(_finite, found[1], found[2]) if kind == pa.float64() else None
    if (found := _MEAN.fullmatch(sql)) and typed(found[1], pa.int64()) and typed(found[2], _SUM):
        return partial(_mean, found[1], found[2]) if kind == pa.float64() else None
    return None


def _column(name: str, groups: pa.Table) -> OutputColumn:
    return groups.column(name)


def _instant(name: str, groups: pa.Table) -> OutputColumn:
    column: Any = groups.column(name)  # microseconds: the same bytes as another type
    chunks: Any = [chunk.view(_INSTANT) for chunk in column.chunks]
    return pa.chunked_array(chunks) if chunks else column.cast(_INSTANT)


def _narrowed(name: str, groups: pa.Table) -> OutputColumn:
    try:
        return groups.column(name).cast(pa.int64())
    except pa.ArrowInvalid:  # does not fit, and DuckDB says which pipeline has failed
        raise CannotMerge("a sum does not fit into 64 bits") from None


def _finite(compensated: str, plain: str, groups: pa.Table) -> OutputColumn:
    total = groups.column(compensated)
    return _compute.if_else(_compute.fill_null(_compute.is_finite(total), False), total, groups.column(plain))


def _mean(count: str, total: str, groups: pa.Table) -> OutputColumn:
    counts, sums = groups.column(count), _narrowed(total, groups)
    for column in (counts, sums):
        bounds = _compute.min_max(column).as_py()
        if max(abs(bounds["min"] or 0), abs(bounds["max"] or 0)) >= _EXACT:
            raise CannotMerge("a double would have to be rounded")
    quotients = _compute.divide(sums.cast(pa.float64()), counts.cast(pa.float64()))
    return _compute.if_else(_compute.greater(counts, 0), quotients, None)
