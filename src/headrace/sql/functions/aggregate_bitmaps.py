"""The aggregates of bitmaps. The state is the bitmap itself, which `headrace.exec.kernels.bitmaps` describes."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.schema import BINARY, DataType
from headrace.sql.functions.aggregate_states import (
    AggregateFunction,
    Constants,
    PartialState,
    SplitAggregate,
    Splitter,
    present,
)

_KERNELS = {"bitmap_construct_agg": "hr_bitmap", "bitmap_or_agg": "hr_bitmap_or", "bitmap_and_agg": "hr_bitmap_and"}


def _folding(name: str) -> Splitter:
    def split(args: Sequence[str], kinds: Sequence[DataType], result: DataType, constants: Constants) -> SplitAggregate:
        values = f"list({args[0]}) FILTER (WHERE {present(args[0])})"
        merged = "hr_bitmap_and" if name == "bitmap_and_agg" else "hr_bitmap_or"
        state = PartialState(BINARY, f"{_KERNELS[name]}({values})", f"{merged}(list({{p}}))")
        return SplitAggregate((state,), "{0}")

    return split


def bitmap_functions() -> list[AggregateFunction]:
    """The aggregates of positions (BIGINT) and of bitmaps (BINARY)."""
    return [
        AggregateFunction(name, ("BIGINT" if name == "bitmap_construct_agg" else "BINARY",), BINARY, _folding(name))
        for name in _KERNELS
    ]
