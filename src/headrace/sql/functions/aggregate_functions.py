"""The aggregates of the shared host. Ring 0 computes partial states, both rings merge them, Ring 1 computes the result.

`aggregate_states` says what an aggregate is. A name may have a suffix for what the SQL writes elsewhere:
`sum distinct`, `first ignore nulls`, `listagg desc`.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.schema import DataType
from headrace.sql.functions.aggregate_bitmaps import bitmap_functions
from headrace.sql.functions.aggregate_lists import list_functions
from headrace.sql.functions.aggregate_moments import moment_functions
from headrace.sql.functions.aggregate_picks import pick_functions
from headrace.sql.functions.aggregate_sketches import sketch_functions
from headrace.sql.functions.aggregate_states import AggregateFunction
from headrace.sql.functions.aggregate_sums import SEVERAL_DISTINCT, sum_functions

AGGREGATE_ALIASES = {
    "mean": "avg", "stddev": "stddev_samp", "std": "stddev_samp", "variance": "var_samp", "every": "bool_and",
    "some": "bool_or", "any": "bool_or", "first_value": "first", "last_value": "last",
    "array_agg": "collect_list", "string_agg": "listagg", "approx_percentile": "percentile_approx",
}  # fmt: skip

AGGREGATES: tuple[AggregateFunction, ...] = (
    *sum_functions(), *pick_functions(), *moment_functions(),
    *list_functions(), *sketch_functions(), *bitmap_functions(),
)  # fmt: skip
_BY_NAME: dict[str, list[AggregateFunction]] = {}
for _function in AGGREGATES:
    _BY_NAME.setdefault(_function.name, []).append(_function)

AGGREGATE_NAMES = frozenset({*(name.partition(" ")[0] for name in _BY_NAME), "count_if", "median"})


def find_aggregate(name: str, kinds: Sequence[DataType]) -> AggregateFunction | None:
    """The aggregate of `name`, with its suffix, for exactly these argument types."""
    if name == "count distinct" and len(kinds) > 1:
        return SEVERAL_DISTINCT
    return next((f for f in _BY_NAME.get(name, ()) if f.accepts(kinds)), None)
