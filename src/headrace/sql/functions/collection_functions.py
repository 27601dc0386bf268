"""Functions on arrays and maps."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.schema import BOOLEAN, INT, Array, DataType, Map
from headrace.sql.functions.overload import Overload


def _element(kinds: Sequence[DataType]) -> DataType | None:
    return kinds[0].element if isinstance(kinds[0], Array) else None


def _value(kinds: Sequence[DataType]) -> DataType | None:
    return kinds[0].value if isinstance(kinds[0], Map) else None


OVERLOADS: tuple[Overload, ...] = (
    Overload(
        "element",
        ("ARRAY", "BIGINT"),
        _element,
        "CASE WHEN {0} IS NULL THEN NULL WHEN {1} < 0 OR {1} >= len({0}) THEN error('INVALID_ARRAY_INDEX') "
        "ELSE {0}[{1} + 1] END",
        throws=True,
    ),
    Overload("element", ("MAP", "STRING"), _value, "{0}[{1}]"),
    Overload("size", ("ARRAY",), INT, "CAST(len({0}) AS INTEGER)"),
    Overload("size", ("MAP",), INT, "CAST(cardinality({0}) AS INTEGER)"),
    Overload(
        "array_contains",
        ("ARRAY", "STRING"),
        BOOLEAN,
        # As in SQL: NULL when the value is not found and the array has a NULL element.
        "CASE WHEN {1} IS NULL THEN NULL WHEN list_contains({0}, {1}) THEN TRUE "
        "WHEN len(list_filter({0}, lambda x: x IS NULL)) > 0 THEN NULL ELSE list_contains({0}, {1}) END",
    ),
)
