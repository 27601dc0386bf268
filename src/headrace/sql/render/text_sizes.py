"""Bounds the size of what functions make of texts: see `headrace.sql.render.sizes`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.exec.sizing import HELD_BYTES, PASS_BYTES
from headrace.sql.functions.format_functions import FormatRefused, format_parts
from headrace.sql.plan.expr import Call, Expr, Literal
from headrace.sql.render.byte_bounds import SHORT, Bytes, added, constant, counted, is_variable
from headrace.sql.render.duckdb import render

if TYPE_CHECKING:
    from headrace.sql.render.sizes import Sizes

ELEMENT = 16.0  # bytes of an element of a list of texts in DuckDB, beside those of its text
# Functions whose result takes at most so many times the bytes of the first argument. An element of a list may be empty.
FACTORS = {
    "lower": 1.5, "upper": 3.0, "initcap": 3.0, "mask": 4.0, "quote": 2.0, "hex": 2.0, "base64": 1.5, "encode": 4.0,
    "decode": 3.0, "url_encode": 3.0, "make_valid_utf8": 3.0, "to_base32": 2.0, "to_json": 6.0,
    "split": 1.0 + ELEMENT, "regexp_extract_all": 1.0 + ELEMENT, "str_to_map": 1.0 + 2 * ELEMENT,
    "json_object_keys": 1.0 + ELEMENT / 4,
}  # fmt: skip
# Texts inside an expression count when they may be more than so many times as large as the columns that they read.
_MUCH = 4.0


def multiplies(expr: Call) -> bool:
    """True if a call takes many times the memory of the columns that it reads, as `hex(hex(hex(k)))` does. The result
    of the expression may be small nevertheless."""
    return expr.name in FACTORS and _factor(expr) > _MUCH


def passing(inner: Sequence[Bytes]) -> Bytes:
    """The bounds of what a row needs only while it is computed. They cut batches. A row is refused for them only if
    they are very large, because they are far from exact: half a pass is the most that they count below that."""
    total = added(inner)
    return Bytes(
        f"(least({total.sql}, {PASS_BYTES / 2}) + greatest({total.sql} - {HELD_BYTES}, 0))", total.columns, total.fixed
    )


def _factor(expr: Expr) -> float:
    largest, stack = 1.0, [(expr, 1.0)]
    while stack:
        node, factor = stack.pop()
        if isinstance(node, Call):
            factor *= FACTORS.get(node.name, 1.0)
        largest = max(largest, factor)
        stack.extend((child, factor) for child in node.children if is_variable(child.type))
    return largest


def multiplied_size(sizes: Sizes, expr: Call) -> Bytes:
    """An upper bound of a call of one of FACTORS."""
    text, *rest = expr.args
    size = sizes.size(text)
    bound = added([constant(SHORT), size.times(FACTORS[expr.name])])
    between = rest[0].value if expr.name == "split" and rest and isinstance(rest[0], Literal) else None
    if (
        not isinstance(between, str)
        or not between
        or (not between.isalnum() and between not in ",;:/ ")
        or sizes.opaque(text)
    ):
        return bound
    x = render(text, sizes.column)
    found = f"(strlen({x}) - strlen(replace({x}, '{between}', ''))) / {len(between.encode())}"
    return counted(bound, f"(strlen({x}) + coalesce({found}, 0) * {ELEMENT} + {SHORT})")


def formatted_size(sizes: Sizes, expr: Call) -> Bytes:
    """An upper bound of `format_string`, which may write an argument many times."""
    form = expr.args[0].value if isinstance(expr.args[0], Literal) else None
    if not isinstance(form, str):
        return constant(SHORT)
    try:
        parts = format_parts(form, [a.type for a in expr.args[1:]])
    except FormatRefused:  # the call is refused elsewhere
        return constant(SHORT)
    written = [0] * len(expr.args)
    fixed = 0.0
    for part in parts:
        if isinstance(part, str):
            fixed += len(part.encode())
        else:
            written[part[0] + 1] += 1
            fixed += 8 * SHORT
    texts = [(a, n) for a, n in zip(expr.args, written, strict=True) if n and is_variable(a.type)]
    return added([constant(fixed), *(sizes.size(a).times(float(n)) for a, n in texts)])
