"""Bounds the size of what functions make of texts: see `headrace.sql.render.sizes`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.exec.sizing import HELD_BYTES, PASS_BYTES
from headrace.model.schema import Array, DataType, Map, Struct
from headrace.sql.functions.format_functions import FormatRefused, format_parts
from headrace.sql.functions.nesting import parts
from headrace.sql.plan.expr import Call, Expr, Literal
from headrace.sql.render.byte_bounds import MOST_REPEATED, SHORT, Bytes, added, constant, counted, is_variable
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
# They make elements, keys and values of parts of the first argument. These functions take one of them.
_CUTTING = ("split", "regexp_extract_all", "str_to_map", "json_object_keys")
_TAKING = ("element", "element_at", "try_element_at", "get")
# A pattern that matches one text: without special characters, or with escaped ones.
_PLAIN_PATTERN = re.compile(r"(?:[^\\.\[\]{}()*+?^$|'\x00-\x1f]|\\[^\w'\x00-\x20])+")
# Texts inside an expression count when they may be more than so many times as large as the columns that they read.
_MUCH = 4.0
_SHORTEST_RECORD = 3.0  # bytes of `{},` in a JSON array
_NULL = 8.0  # bytes of a missing field in the text from which DuckDB reads a record, beside its name


def multiplies(expr: Call) -> bool:
    """True if a call takes many times the memory of the columns that it reads, as `hex(hex(hex(k)))` does. The result
    of the expression may be small nevertheless."""
    return _times(expr) > 1.0 and _factor(expr) > _MUCH


def _times(expr: Call) -> float:
    """How many times the bytes of its first argument a call takes at most."""
    if expr.name == "from_json":
        repeated = any(isinstance(part, Array | Map) for part in parts(expr.type))
        return 1.0 + max(_record_width(expr.type) / _SHORTEST_RECORD, ELEMENT / 2) if repeated else 1.0
    return FACTORS.get(expr.name, 1.0)


def _record_width(kind: DataType) -> float:
    """Bytes of the fields of a record in an array, which are there even if the text names none of them."""
    widths = [0.0]
    for part in parts(kind):
        inner = part.element if isinstance(part, Array) else part.value if isinstance(part, Map) else None
        if inner is not None:
            fields = [f for struct in parts(inner) if isinstance(struct, Struct) for f in struct.fields]
            widths.append(sum(ELEMENT + len(f.name.encode()) + _NULL for f in fields))
    return max(widths)


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
            factor *= _times(node)
        largest = max(largest, factor)
        stack.extend((child, factor) for child in node.children if is_variable(child.type))
    return largest


def multiplied_size(sizes: Sizes, expr: Call) -> Bytes:
    """An upper bound of a call of one of FACTORS, or of from_json."""
    text, *rest = expr.args
    size = sizes.size(text)
    bound = added([constant(SHORT + _record_width(expr.type)), size.times(_times(expr))])
    if expr.name not in ("split", "from_json") or sizes.opaque(text):
        return bound
    x = render(text, sizes.column)
    if len(x) > MOST_REPEATED:
        return bound
    if expr.name == "from_json":
        records, elements = (f"(strlen({x}) - strlen(replace({x}, '{mark}', '')))" for mark in ("{", ","))
        more = f"{records} * {_record_width(expr.type)} + {elements} * {ELEMENT}"
        return counted(bound, f"(coalesce(strlen({x}) + {more}, 0) + {SHORT})")
    pattern = rest[0].value if isinstance(rest[0], Literal) else None
    if not isinstance(pattern, str) or not _PLAIN_PATTERN.fullmatch(pattern):
        return bound
    between = re.sub(r"\\(.)", r"\1", pattern)
    found = f"(strlen({x}) - strlen(replace({x}, '{between}', ''))) / {len(between.encode())}"
    exact = f"(coalesce(strlen({x}) + {found} * {ELEMENT}, 0) + {SHORT})"  # much faster to compute than the list
    return Bytes(exact, bound.columns, bound.fixed)


def taken_size(sizes: Sizes, expr: Call) -> Bytes | None:
    """An upper bound of an element of what `split` and the like make of a text: it is a part of the text. None for all
    other calls."""
    if expr.name not in _TAKING or not isinstance(expr.args[0], Call) or expr.args[0].name not in _CUTTING:
        return None
    return added([constant(SHORT), sizes.size(expr.args[0].args[0])])


def formatted_size(sizes: Sizes, expr: Call) -> Bytes:
    """An upper bound of `format_string`, which may write an argument many times."""
    form = expr.args[0].value if isinstance(expr.args[0], Literal) else None
    if not isinstance(form, str):
        return constant(SHORT)
    try:
        found = format_parts(form, [a.type for a in expr.args[1:]])
    except FormatRefused:  # the call is refused elsewhere
        return constant(SHORT)
    written = [0] * len(expr.args)
    fixed = 0.0
    for part in found:
        if isinstance(part, str):
            fixed += len(part.encode())
        else:
            written[part[0] + 1] += 1
            fixed += 8 * SHORT
    texts = [(a, n) for a, n in zip(expr.args, written, strict=True) if n and is_variable(a.type)]
    return added([constant(fixed), *(sizes.size(a).times(float(n)) for a, n in texts)])
