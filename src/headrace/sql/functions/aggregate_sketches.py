"""approx_count_distinct: a HyperLogLog sketch of bounded size per group. `headrace.exec.kernels.sketches` says how."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.schema import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
)
from headrace.sql.functions.aggregate_states import (
    FLAT,
    AggregateFunction,
    Constants,
    PartialState,
    SplitAggregate,
    present,
)
from headrace.sql.plan.types import FRACTIONAL, INTEGRAL


def _distinct(args: Sequence[str], kinds: Sequence[DataType], result: DataType, constants: Constants) -> SplitAggregate:
    number = _number(args[0], kinds[0])
    kernel, carrier = ("hr_sketch_doubles", "DOUBLE") if kinds[0] in FRACTIONAL else ("hr_sketch_numbers", "BIGINT")
    values = f"list(CAST({number} AS {carrier})) FILTER (WHERE {present(args[0])})"
    merge = "hr_merge_sketches(list({p}) FILTER (WHERE {p} IS NOT NULL))"
    state = PartialState(BINARY, f"{kernel}({values}, {constants[0]})", merge)
    return SplitAggregate((state,), "hr_distinct({0})")


def _number(text: str, kind: DataType) -> str:
    """A number for the value, different for different values. For texts it is a part of the MD5 digest, because the
    hash of DuckDB may change with its version."""
    if kind in INTEGRAL or kind in FRACTIONAL or kind == BOOLEAN:
        return text
    if kind == DATE:
        return f"({text} - DATE '1970-01-01')"
    if kind in (TIMESTAMP, TIMESTAMP_NTZ):
        return f"epoch_us({text})"
    written = text if kind == STRING else f"hex({text})" if kind == BINARY else f"CAST({text} AS VARCHAR)"
    return f"md5_number_lower({written}) >> 1"


def sketch_functions() -> list[AggregateFunction]:
    """Approximate counts."""
    return [AggregateFunction("approx_count_distinct", (kind,), BIGINT, _distinct) for kind in FLAT]
