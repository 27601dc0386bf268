"""Calls of functions on the list with arguments that only Spark takes: another number of them, or other types.

Without this, such a call would be a mistake of the user. So it goes to another host instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.model.schema import BINARY, STRING, DataType
from headrace.sql.parse.syntax import Apply
from headrace.sql.plan.types import INTEGRAL, VOID

if TYPE_CHECKING:
    from headrace.sql.bind.expression_binder import ExprBinder

# The numbers of arguments that only Spark takes, and what to write instead.
_COUNTS: dict[str, tuple[tuple[int, ...], str]] = {
    "arrays_zip": ((0,), ""),
    "ceil": ((2,), "Use round(x, n), which takes digits."),
    "concat": ((0,), "Write ''."),
    "concat_ws": ((1,), "Write ''."),
    "floor": ((2,), "Use round(x, n), which takes digits."),
    "format_string": ((1,), "Write the text itself."),
    "instr": ((3, 4), "Use locate(text, string, position)."),
    "make_timestamp": ((1, 2, 3), "Pass year, month, day, hour, minute and second."),
    "make_timestamp_ltz": ((2, 3), "Pass year, month, day, hour, minute and second."),
    "make_timestamp_ntz": ((2,), "Pass year, month, day, hour, minute and second."),
    "map_concat": ((0,), ""),
    "named_struct": ((0,), ""),
    "struct": ((0,), ""),
    "to_json": ((2,), "Leave the options out."),
    "try_make_timestamp": ((1, 2, 3), "Pass year, month, day, hour, minute and second."),
    "try_make_timestamp_ltz": ((2, 3), "Pass year, month, day, hour, minute and second."),
    "try_make_timestamp_ntz": ((2,), "Pass year, month, day, hour, minute and second."),
}  # fmt: skip
_OF_BINARY = ("btrim", "elt", "lpad", "ltrim", "overlay", "rpad", "rtrim", "trim")
_UNTYPED = (
    "array_compact", "array_distinct", "array_max", "array_min", "array_size", "map_entries", "map_keys", "map_values",
    "size", "sort_array", "to_json",
)  # fmt: skip


def refuse_spark_only_call(binder: ExprBinder, name: str, node: Apply, kinds: Sequence[DataType]) -> None:
    """Raises UnsupportedOnShared if Spark takes these arguments although no overload does."""
    counts, advice = _COUNTS.get(name, ((), ""))
    if len(kinds) in counts:
        what = f"{len(kinds)} argument{'s' * (len(kinds) != 1)}" if kinds else "no arguments"
        binder.unsupported(f"{node.name} with {what}", advice, node.at)
    if name == "format_number" and len(kinds) == 2 and kinds[1] == STRING:
        binder.unsupported(f"{node.name} with a pattern", "Pass the number of digits after the point.", node.at)
    place = {"timestampadd": 1, "shiftleft": 0, "shiftright": 0, "shiftrightunsigned": 0}.get(name)
    if place is not None and len(kinds) > place and kinds[place] not in (*INTEGRAL, VOID):
        binder.unsupported(f"{node.name} of {kinds[place]}", "Cast it to INT or BIGINT.", node.at)
    if name in _OF_BINARY and BINARY in kinds:
        binder.unsupported(f"{node.name} of BINARY", "Cast it to STRING, if it is text.", node.at)
    if name in _UNTYPED and VOID in kinds:
        binder.unsupported(f"{node.name} of NULL without a type", "Write CAST(NULL AS ...) with the type.", node.at)
