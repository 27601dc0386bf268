"""`sequence` over whole numbers, dates and timestamps."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.schema import Array, DataType
from headrace.sql.functions.overload import Overload
from headrace.sql.plan.expr import Expr, Literal
from headrace.sql.plan.types import INTERVAL_MICROS

_BOUNDS = "error('Illegal sequence boundaries')"
_DAY = 86_400_000_000
# A month has at least 28 days, which is more than 0.9 of the 31 of January; a day has at least 23 hours.
SHORTEST = 0.9


def _array_of(kinds: Sequence[DataType]) -> DataType:
    return Array(kinds[0])


def _whole(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    start, stop = args[0], args[1]
    step = args[2] if len(args) == 3 else f"(CASE WHEN {start} <= {stop} THEN 1 ELSE -1 END)"
    legal = f"({step} > 0 AND {start} <= {stop}) OR ({step} < 0 AND {start} >= {stop}) OR {start} = {stop}"
    made = f"CAST(generate_series({start}::BIGINT, {stop}::BIGINT, {step}::BIGINT) AS {result.duckdb})"
    return (
        f"CASE WHEN {start} IS NULL OR {stop} IS NULL OR {step} IS NULL THEN NULL WHEN NOT ({legal}) THEN {_BOUNDS} "
        f"WHEN {step} = 0 OR {start} = {stop} THEN [{start}] ELSE {made} END"
    )


def micros_between(start: str, stop: str) -> str:
    """The distance of two times in microseconds, as DOUBLE SQL."""
    return f"abs(epoch_us(CAST({stop} AS TIMESTAMP))::DOUBLE - epoch_us(CAST({start} AS TIMESTAMP))::DOUBLE)"


def _times(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    """Each element is the start plus a multiple of the step: months are not added to a shorter month's last day."""
    start, stop = args[0], args[1]
    step = args[2] if len(args) == 3 else f"(CASE WHEN {start} <= {stop} THEN to_days(1) ELSE to_days(-1) END)"
    assert isinstance(result, Array)
    one = f"epoch_us(TIMESTAMP '1970-01-01' + {step})"
    count = f"CAST({micros_between(start, stop)} / (abs({one}) * {SHORTEST}) + 2 AS BIGINT)"
    made = f"list_transform(range({count}), lambda x_1: CAST({start} + {step} * x_1 AS {result.element.duckdb}))"
    return (
        f"CASE WHEN {start} IS NULL OR {stop} IS NULL THEN NULL "
        f"WHEN {one} > 0 AND {start} <= {stop} THEN list_filter({made}, lambda x_1: x_1 <= {stop}) "
        f"WHEN {one} < 0 AND {start} >= {stop} THEN list_filter({made}, lambda x_1: x_1 >= {stop}) "
        f"ELSE {_BOUNDS} END"
    )


def _plain_step(args: Sequence[Expr]) -> str | None:
    step = args[2]
    if not isinstance(step, Literal) or not step.value:
        return "a step of no length"
    if args[0].type.ddl == "DATE" and step.type == INTERVAL_MICROS and step.value % _DAY:
        return "a step that is not a number of days"
    if (
        args[0].type.ddl == "TIMESTAMP"
        and step.type == INTERVAL_MICROS
        and abs(step.value) > _DAY
        and step.value % _DAY
    ):
        return "a step of days and hours"  # DuckDB adds negative hours before days
    return None


OVERLOADS: tuple[Overload, ...] = (
    *(
        Overload("sequence", (kind,) * count, _array_of, _whole, throws=True)
        for kind in ("TINYINT", "SMALLINT", "INT", "BIGINT")
        for count in (2, 3)
    ),
    *(
        Overload("sequence", (kind, kind), _array_of, _times, throws=True)
        for kind in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")
    ),
    *(
        Overload("sequence", (kind, kind, step), _array_of, _times, throws=True, constant=(2,), check=_plain_step)
        for kind in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")
        for step in ("INTERVAL SECOND", "INTERVAL MONTH")
    ),
)
