"""Recognizes programs whose partial aggregates the kernels of `headrace.bridge.kernels.folds` can compute.

DuckDB takes half a millisecond for a small aggregation, and a stream of hundreds of pipelines has dozens of them in
every epoch. The kernels take some microseconds. They know counts, sums, minima and maxima of numbers and times, by keys
that are not floating-point numbers, without a window or in tumbling windows. DuckDB still evaluates every expression,
so values, overflow and time zones are the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from headrace.base.arrays import Ints
from headrace.base.identity import kept_by_identity
from headrace.bridge.kernels import folds as k
from headrace.bridge.rows import layout_of
from headrace.exec.aggregates import schema_of
from headrace.model.program import MEMBER, Partial, PipelineProgram, Window

RowCondition = tuple[str, ...] | None  # the filters of which one must be true; None for no condition
KEPT = 4096
_CALL = re.compile(r"(count|sum|fsum|min|max)\((.*)\)", re.DOTALL)
_COLUMN = re.compile(r"c\d+")
_SUM = pa.decimal128(38, 0)


@dataclass(frozen=True, slots=True)
class FoldStep:
    """How one partial is computed: the kernel's operation, the SQL of its argument (empty for `count(*)`), and the type
    that the argument must have; None if any will do, or any signed integer for `SUM_INTS`."""

    kind: int
    argument: str
    type: pa.DataType | None

    @property
    def slots(self) -> int:
        """How many accumulators it needs."""
        return 2 if self.kind in (k.SUM_INTS, k.KAHAN) else 1


@dataclass(frozen=True, slots=True)
class FoldKey:
    """A key: the SQL of its value, the same with a cast to the key's type, and the type."""

    sql: str
    cast: str
    type: pa.DataType

    @property
    def text(self) -> bool:
        return pa.types.is_string(self.type)


@dataclass(frozen=True, slots=True)
class FoldProgram:
    """A program for the kernels. `widths` and `digest` are those of the layout of its partials, `computed` is how many
    bytes per row its expressions take."""

    filter: str | None
    window: Window | None
    keys: tuple[FoldKey, ...]
    steps: tuple[FoldStep, ...]
    widths: Ints
    digest: int
    computed: float

    @property
    def guard(self) -> RowCondition:
        """The condition under which its arguments may be evaluated."""
        return None if self.filter is None else (self.filter,)


@lru_cache(maxsize=4096)
def is_column(sql: str) -> bool:
    """True if an expression is just a column of the relation `rows`. Reading it never fails."""
    return _COLUMN.fullmatch(sql) is not None


@kept_by_identity(KEPT)
def fold_program(program: PipelineProgram) -> FoldProgram | None:
    """The program for the kernels; None if DuckDB has to aggregate. Built once per process."""
    ring0 = program.ring0
    tumbling = ring0.window is None or ring0.window.kind == "tumble"
    if program.family is None or not tumbling or ring0.growth.values or ring0.growth.in_filter:
        return None
    keys = [FoldKey(key.sql, f"CAST(({key.sql}) AS {key.type.duckdb})", key.type.arrow) for key in ring0.keys]
    steps = [step for step in map(_step, ring0.partials) if step is not None]
    layout = layout_of(schema_of(ring0))
    if layout is None or len(steps) < len(ring0.partials) or not all(map(_usable, keys)):
        return None
    values = [*(key.sql for key in keys), *(step.argument for step in steps if step.argument)]
    return FoldProgram(
        filter=ring0.filter,
        window=ring0.window,
        keys=tuple(keys),
        steps=tuple(steps),
        widths=layout.widths,
        digest=layout.digest,
        computed=(ring0.filter is not None) / 8 + 8.0 * sum(not is_column(sql) for sql in values),
    )


def _usable(key: FoldKey) -> bool:
    # A text that is computed may be large, so a pass has to cut its batch into pieces.
    return is_column(key.sql) if key.text else pa.types.is_boolean(key.type) or _whole(key.type)


def _whole(kind: pa.DataType) -> bool:
    """True if values are whole numbers of at most 64 bits."""
    return pa.types.is_signed_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind)


def _step(partial: Partial) -> FoldStep | None:
    kind = partial.type.arrow
    if partial.sql == "count(*)":
        return FoldStep(k.COUNT, "", None)
    found = _CALL.fullmatch(partial.sql)
    # The text of `filtered` shows that the parentheses belong together, and that there is nothing else in the call.
    if found is None or partial.filtered != f"{found[1]}(CASE WHEN {MEMBER} THEN {found[2]} END)":
        return None
    function, argument = found[1], found[2]
    if function == "count":
        return FoldStep(k.COUNT, argument, None) if kind == pa.int64() else None
    if function == "sum" and kind == _SUM:
        return FoldStep(k.SUM_INTS, argument, None)
    if kind == pa.float64():
        doubles = {"sum": k.SUM_DOUBLES, "fsum": k.KAHAN, "min": k.MIN_DOUBLES, "max": k.MAX_DOUBLES}
        return FoldStep(doubles[function], argument, kind)
    if function in ("min", "max") and _whole(kind):
        return FoldStep(k.MIN_INTS if function == "min" else k.MAX_INTS, argument, kind)
    return None
