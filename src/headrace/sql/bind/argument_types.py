"""Types of arguments that Spark refuses although it casts them elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.sql.parse.syntax import Apply
from headrace.sql.plan.expr import Expr
from headrace.sql.plan.types import VOID, type_class

if TYPE_CHECKING:
    from headrace.sql.bind.expression_binder import ExprBinder

_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")
_NESTED = ("ARRAY", "MAP", "STRUCT")
# The types that all arguments of a function have.
_TAKEN: dict[str, tuple[str, ...]] = {
    "get_json_object": ("STRING",), "parse_url": ("STRING",), "try_parse_url": ("STRING",),
}  # fmt: skip
# The types that the first two arguments have. Spark casts the third one.
_TAKEN_FIRST_TWO: dict[str, tuple[str, ...]] = {"hmac": ("STRING", "BINARY")}
# The types that no argument of a function has.
_REFUSED: dict[str, tuple[str, ...]] = {"concat": ("MAP", "STRUCT")}
_NO_TEXT = (*_NUMBERS, *_NESTED, "BOOLEAN", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ")
# The types that the first of two arguments does not have.
_REFUSED_FIRST: dict[str, tuple[str, ...]] = {
    "format_number": ("STRING",), "from_json": _NO_TEXT, "to_number": _NESTED, "to_timestamp": _NUMBERS,
    "to_timestamp_ltz": _NUMBERS, "try_to_number": _NESTED, "try_to_timestamp": _NUMBERS,
}  # fmt: skip


def check_argument_types(binder: ExprBinder, name: str, args: Sequence[Expr], node: Apply) -> None:
    """Raises TypeMismatch for an argument that Spark refuses."""
    refused = _REFUSED.get(name, ())
    for place, arg in enumerate(args):
        kind = type_class(arg.type)
        taken = _TAKEN.get(name) or (_TAKEN_FIRST_TWO.get(name) if place < 2 else None)
        wrong = kind in refused or (taken is not None and kind not in taken and arg.type != VOID)
        if wrong or (place == 0 and len(args) == 2 and kind in _REFUSED_FIRST.get(name, ())):
            binder.mismatch(f"{node.name} does not take {arg.type}", "Cast it, for example to STRING.", arg.at)
