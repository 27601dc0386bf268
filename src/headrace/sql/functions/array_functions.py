"""Functions on arrays. `bind` has already cast the elements to the type that Spark gives them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headrace.model.schema import BIGINT, BOOLEAN, DOUBLE, FLOAT, INT, STRING, Array, DataType, Field
from headrace.model.schema import Struct as StructType
from headrace.sql.functions.nesting import (
    first_problem,
    is_nested,
    kept,
    let,
    mapped,
    no_fraction_inside,
    no_map_inside,
    sort_key,
    without_negative_zero,
)
from headrace.sql.functions.overload import Overload, same
from headrace.sql.plan.expr import Expr
from headrace.sql.plan.types import VOID

_DAY = 86_400_000_000
_ATOM = re.compile(r"\w+")  # a column or a variable: it takes no time and cannot fail


def element(kinds: Sequence[DataType]) -> DataType | None:
    """A result type: the element of the first argument."""
    return kinds[0].element if isinstance(kinds[0], Array) else None


def _array_of(kinds: Sequence[DataType]) -> DataType:
    return Array(kinds[0])


def _make(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    return f"CAST([{', '.join(args)}] AS {result.duckdb})"


# --- order ----------------------------------------------------------------------------------------


def sorted_by(array: str, kind: DataType, descending: bool, nulls_first: bool) -> str:
    """`array` in Spark's order. Equal elements (0.0 and -0.0) keep their order."""
    assert isinstance(kind, Array)
    inner = kind.element
    nulls, way = "FIRST" if nulls_first else "LAST", "DESC" if descending else "ASC"
    plain = f"list_sort({array}, '{way}', 'NULLS {nulls}')"
    if inner in (FLOAT, DOUBLE):  # DuckDB sorts the lists of many rows at once, and 0.0 and -0.0 in any order
        placed = _sorted_by_place(array, inner, descending, nulls_first)
        return f"CASE WHEN len(list_filter({array}, lambda x_1: x_1 = 0)) > 1 THEN {placed} ELSE {plain} END"
    return _sorted_by_place(array, inner, descending, nulls_first) if is_nested(inner) else plain


def _sorted_by_place(array: str, inner: DataType, descending: bool, nulls_first: bool) -> str:
    """As `sorted_by`. The place of an element decides between equal ones."""
    null = ("1", "0") if nulls_first == descending else ("0", "1")
    x, i = "x_1", "x_2"
    place = f"-{i}" if descending else i
    keyed = (
        f"list_transform({array}, lambda {x}, {i}: struct_pack("
        f"n := CASE WHEN {x} IS NULL THEN {null[0]} ELSE {null[1]} END, "
        f"k := {sort_key(x, inner)}, i := {place}, v := {x}))"
    )
    return f"list_transform(list_sort({keyed}, '{'DESC' if descending else 'ASC'}', 'NULLS LAST'), lambda {x}: {x}.v)"


def _sort_array(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    up = sorted_by(args[0], kinds[0], descending=False, nulls_first=True)
    if len(args) == 1:
        return up
    down = sorted_by(args[0], kinds[0], descending=True, nulls_first=False)
    return f"CASE WHEN {args[1]} THEN {up} WHEN NOT {args[1]} THEN {down} END"


def _extreme(descending: bool) -> Overload:
    """The first of the sorted elements: of equal ones (0.0 and -0.0) the first in the array, as in Spark."""

    def sql(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
        first = f"{sorted_by(args[0], kinds[0], descending=descending, nulls_first=False)}[1]"
        if is_nested(result):
            return first
        found = f"list_{'max' if descending else 'min'}({args[0]})"
        return f"CASE WHEN {found} = 0 THEN {first} ELSE {found} END" if result in (FLOAT, DOUBLE) else found

    return Overload("array_max" if descending else "array_min", ("ARRAY",), element, sql, check=no_map_inside)


# --- sets -----------------------------------------------------------------------------------------


# Up to this many elements every pair is compared. For eight elements that is two to four times as fast as sorting.
_FEW = 64


def _set(array: str, other: str | None, kind: DataType, common: bool = False) -> str:
    """The distinct elements of `array`, in the order of their first occurrence: those that are also in `other`
    (`common`), or those that are not."""
    assert isinstance(kind, Array)
    inner = kind.element
    if inner in (FLOAT, DOUBLE):
        array = mapped(array, lambda x: without_negative_zero(x, inner))

    def chosen(a: str, b: str | None) -> str:
        member = "" if b is None else f" AND list_position({b}, x_1) IS {'NOT ' if common else ''}NULL"
        compared = f"list_filter({a}, lambda x_1, x_2: list_position({a}, x_1) = x_2{member})"
        count = f"len({a})" if b is None else f"len({a}) + len({b})"
        return f"CASE WHEN {count} <= {_FEW} THEN {compared} ELSE {_set_by_sorting(a, b, common)} END"

    if other is None:
        return let(array, lambda a: chosen(a, None))
    return let(array, lambda a: let(other, lambda b: chosen(a, b)))


def _set_by_sorting(array: str, other: str | None, common: bool) -> str:
    """As `_set`. All elements are sorted together, so the time does not grow with the square of their number."""

    def tagged(text: str, tag: int) -> str:
        return f"list_transform({text}, lambda x_1, x_2: struct_pack(v := x_1, t := {tag}, i := x_2))"

    both = tagged(array, 1) if other is None else f"list_concat({tagged(other, 0)}, {tagged(array, 1)})"
    before = "x_5[x_4 - 1]"
    if common:
        wanted = f"x_3.t = 1 AND x_4 > 1 AND {before}.t = 0 AND {before}.v IS NOT DISTINCT FROM x_3.v"
    else:
        wanted = f"x_3.t = 1 AND (x_4 = 1 OR {before}.v IS DISTINCT FROM x_3.v)"
    found = f"list_filter(x_5, lambda x_3, x_4: {wanted})"
    placed = f"list_transform({found}, lambda x_3: struct_pack(i := x_3.i, v := x_3.v))"
    values = f"list_transform(list_sort({placed}), lambda x_3: x_3.v)"
    return f"list_transform([list_sort({both})], lambda x_5: {values})[1]"


def _any_null(args: Sequence[str], value: str) -> str:
    missing = " OR ".join(f"{arg} IS NULL" for arg in args)
    return f"CASE WHEN {missing} THEN NULL ELSE {value} END"


def _distinct(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    return _any_null(args, _set(args[0], None, result))


def _union(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    return _any_null(args, _set(f"list_concat({args[0]}, {args[1]})", None, result))


def _intersect(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    return _any_null(args, _set(args[0], args[1], result, common=True))


def _except(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    return _any_null(args, _set(args[0], args[1], result))


def _has_null(array: str) -> str:
    return f"len({kept(array, lambda x: f'{x} IS NULL')}) > 0"


def _overlap(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    a, b = args
    return (
        f"CASE WHEN {a} IS NULL OR {b} IS NULL THEN NULL WHEN list_has_any({a}, {b}) THEN TRUE "
        f"WHEN len({a}) > 0 AND len({b}) > 0 AND ({_has_null(a)} OR {_has_null(b)}) THEN NULL ELSE FALSE END"
    )


_comparable = first_problem(no_map_inside, no_fraction_inside)


def _sets() -> tuple[Overload, ...]:
    two = ("ARRAY", "ARRAY")
    return (
        Overload("array_distinct", ("ARRAY",), same(0), _distinct, check=_comparable),
        Overload("array_union", two, same(0), _union, check=_comparable),
        Overload("array_intersect", two, same(0), _intersect, check=_comparable),
        Overload("array_except", two, same(0), _except, check=_comparable),
        Overload("arrays_overlap", two, BOOLEAN, _overlap, check=_comparable),
    )


# --- elements -------------------------------------------------------------------------------------


def _contains(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    """As in SQL: NULL when the value is not found and the array has a NULL element."""
    array, value = args
    return (
        f"CASE WHEN {array} IS NULL OR {value} IS NULL THEN NULL WHEN list_contains({array}, {value}) THEN TRUE "
        f"WHEN {_has_null(array)} THEN NULL ELSE FALSE END"
    )


def _remove(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    array, value = args
    return let(value, lambda v: _any_null((array, v), kept(array, lambda x: f"{x} IS DISTINCT FROM {v}")))


def _slice(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    array, start, length = args
    first = f"(CASE WHEN {start} < 0 THEN len({array}) + {start} + 1 ELSE {start}::BIGINT END)"
    return (
        f"CASE WHEN {array} IS NULL OR {start} IS NULL OR {length} IS NULL THEN NULL "
        f"WHEN {start} = 0 THEN error('INVALID_PARAMETER_VALUE.START') "
        f"WHEN {length} < 0 THEN error('INVALID_PARAMETER_VALUE.LENGTH') "
        f"WHEN {first} < 1 THEN CAST([] AS {result.duckdb}) "
        f"ELSE list_slice({array}, {first}, {first} + {length}::BIGINT - 1) END"
    )


def _insert(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    """Positions beyond the array fill it with NULLs. -1 is after the last element."""
    array, place, value = args
    one, size = f"[{value}]", f"len({array})"
    back = f"(-({place}::BIGINT))"
    return (
        f"CASE WHEN {array} IS NULL OR {place} IS NULL THEN NULL "
        f"WHEN {place} = 0 THEN error('INVALID_INDEX_OF_ZERO') "
        f"WHEN {place} > {size} THEN list_concat(list_resize({array}, {place} - 1), {one}) "
        f"WHEN {place} > 0 THEN list_concat(list_slice({array}, 1, {place} - 1), {one}, "
        f"list_slice({array}, {place}, {size})) "
        f"WHEN {back} <= {size} + 1 THEN list_concat(list_slice({array}, 1, {size} - {back} + 1), {one}, "
        f"list_slice({array}, {size} - {back} + 2, {size})) "
        f"ELSE list_concat({one}, list_resize(CAST([] AS {result.duckdb}), {back} - {size} - 1), {array}) END"
    )


def _join(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    array, between = args[0], args[1]
    if len(args) == 3:
        array = let(args[2], lambda r: mapped(args[0], lambda x: f"coalesce({x}, {r})"))
    if between.startswith("'"):
        return _any_null(args, f"coalesce(array_to_string({array}, {between}), '')")
    # DuckDB takes only a constant delimiter, so it goes before each element, and the first one is cut off.
    joined = let(between, lambda b: f"array_to_string({mapped(array, lambda x: f'{b} || {x}')}, '')")
    return _any_null(args, f"coalesce(substr({joined}, length({between}) + 1), '')")


def _flatten(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    return f"CASE WHEN {_has_null(args[0])} THEN NULL ELSE flatten({args[0]}) END"


def _concat(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    return args[0] if len(args) == 1 else _any_null(args, f"list_concat({', '.join(args)})")


def _repeat(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    value, count = args
    if _ATOM.fullmatch(value):  # five times as fast
        made = mapped(f"range(greatest({count}, 0)::BIGINT)", lambda _: value)
        return f"CASE WHEN {count} IS NOT NULL THEN CAST({made} AS {result.duckdb}) END"
    made = f"list_resize(CAST([] AS {result.duckdb}), greatest({count}, 0), {value})"
    return f"CASE WHEN {count} IS NOT NULL THEN {made} END"


def _zip(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    return _any_null(args, f"CAST(list_zip({', '.join(args)}) AS {result.duckdb})")


def zipped(kinds: Sequence[DataType], names: Sequence[str]) -> DataType:
    """The type of `arrays_zip`."""
    fields = [Field(n, k.element) for n, k in zip(names, kinds, strict=True) if isinstance(k, Array)]
    return Array(StructType(tuple(fields)))


def _inner_array(kinds: Sequence[DataType]) -> DataType | None:
    return kinds[0].element if isinstance(kinds[0], Array) else None


def _of_arrays(args: Sequence[Expr]) -> str | None:
    kind = args[0].type
    nested = isinstance(kind, Array) and isinstance(kind.element, Array)
    return None if nested else f"{kind}, which is not an array of arrays"


_INDEX = (
    "CASE WHEN {0} IS NULL OR {1} IS NULL THEN NULL WHEN {1} < 0 OR {1} >= len({0}) THEN error('INVALID_ARRAY_INDEX') "
    "ELSE {0}[{1}::BIGINT + 1] END"
)
_OUTSIDE = "error('INVALID_ARRAY_INDEX_IN_ELEMENT_AT')"
_AT = (
    "CASE WHEN {0} IS NULL OR {1} IS NULL THEN NULL WHEN {1} = 0 THEN error('INVALID_INDEX_OF_ZERO') "
    "WHEN {1} > len({0}) OR -({1}::BIGINT) > len({0}) THEN "
)


def _elements() -> tuple[Overload, ...]:
    array = ("ARRAY",)
    return (
        Overload("element", ("ARRAY", "INT"), element, _INDEX, throws=True),
        # Spark cuts the index to 32 bits.
        Overload(
            "element",
            ("ARRAY", "BIGINT"),
            element,
            _INDEX.replace("{1}", "(({1} & 4294967295) - (({1} & 2147483648) * 2))"),
            throws=True,
        ),
        Overload("element_at", ("ARRAY", "INT"), element, _AT + _OUTSIDE + " ELSE {0}[{1}] END", throws=True),
        Overload("try_element_at", ("ARRAY", "INT"), element, _AT + "NULL ELSE {0}[{1}] END", throws=True),
        Overload(
            "get",
            ("ARRAY", "INT"),
            element,
            "CASE WHEN {0} IS NULL THEN NULL WHEN {1} >= 0 AND {1} < len({0}) THEN {0}[{1}::BIGINT + 1] END",
        ),
        Overload("size", array, INT, "CAST(len({0}) AS INTEGER)"),
        Overload("array_size", array, INT, "CAST(len({0}) AS INTEGER)"),
        Overload("array_contains", ("ARRAY", "ANY"), BOOLEAN, _contains, check=no_map_inside),
        Overload(
            "array_position",
            ("ARRAY", "ANY"),
            BIGINT,
            lambda a, k, r: _any_null(a, f"coalesce(list_position({a[0]}, {a[1]}), 0)::BIGINT"),
            check=no_map_inside,
        ),
        Overload("array_remove", ("ARRAY", "ANY"), same(0), _remove, check=no_map_inside),
        Overload("slice", ("ARRAY", "INT", "INT"), same(0), _slice, throws=True),
        Overload("array_compact", array, same(0), lambda a, k, r: kept(a[0], lambda x: f"{x} IS NOT NULL")),
        Overload("reverse", array, same(0), "list_reverse({0})"),
    )


def _makers() -> tuple[Overload, ...]:
    array = ("ARRAY",)
    return (
        Overload("array", (), Array(VOID), "[]"),
        Overload("array", ("ANY",), _array_of, _make, variadic=True),
        Overload(
            "array_append",
            ("ARRAY", "ANY"),
            same(0),
            "CASE WHEN {0} IS NOT NULL THEN list_append({0}, {1}) END",
        ),
        Overload(
            "array_prepend",
            ("ARRAY", "ANY"),
            same(0),
            "CASE WHEN {0} IS NOT NULL THEN list_prepend({1}, {0}) END",
        ),
        Overload("array_insert", ("ARRAY", "INT", "ANY"), same(0), _insert, throws=True),
        Overload(
            "array_repeat",
            ("ANY", "INT"),
            _array_of,
            _repeat,
        ),
        Overload("array_join", ("ARRAY", "STRING"), STRING, _join, check=_of_texts),
        Overload("array_join", ("ARRAY", "STRING", "STRING"), STRING, _join, check=_of_texts),
        Overload("flatten", array, _inner_array, _flatten, check=_of_arrays),
        Overload("concat", array, same(0), _concat, variadic=True),
        Overload(
            "arrays_zip", array, lambda kinds: zipped(kinds, [str(i) for i in range(len(kinds))]), _zip, variadic=True
        ),
        Overload("sort_array", array, same(0), _sort_array, check=no_map_inside),
        Overload("sort_array", ("ARRAY", "BOOLEAN"), same(0), _sort_array, constant=(1,), check=no_map_inside),
        Overload(
            "array_sort",
            array,
            same(0),
            lambda a, k, r: sorted_by(a[0], k[0], descending=False, nulls_first=False),
            check=no_map_inside,
        ),
        _extreme(descending=True),
        _extreme(descending=False),
    )


def _of_texts(args: Sequence[Expr]) -> str | None:
    kind = args[0].type
    return None if kind == Array(STRING) else f"{kind}, which is not an array of strings"


OVERLOADS: tuple[Overload, ...] = (*_elements(), *_makers(), *_sets())
