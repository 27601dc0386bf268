"""Comparisons and conditions on arrays, maps and structs, and `typeof`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.model.schema import BOOLEAN, STRING, Array, DataType, Map, Struct
from headrace.sql.functions.array_functions import sorted_by
from headrace.sql.functions.nesting import no_map_inside, sort_key
from headrace.sql.functions.overload import Overload, same

_COMPARED = ("ARRAY", "STRUCT")


def _ordered(operator: str) -> Callable[[Sequence[str], Sequence[DataType], DataType], str]:
    """Inside nested values, DuckDB sorts NULL after all other values and Spark before them."""
    return lambda a, k, r: f"({sort_key(a[0], k[0])} {operator} {sort_key(a[1], k[1])})"


def _extreme(descending: bool) -> Callable[[Sequence[str], Sequence[DataType], DataType], str]:
    def sql(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
        array = f"[{', '.join(args)}]"
        return f"{sorted_by(array, Array(result), descending=descending, nulls_first=False)}[1]"

    return sql


def spark_name(kind: DataType) -> str:
    """The type as Spark prints it."""
    if isinstance(kind, Array):
        return f"array<{spark_name(kind.element)}>"
    if isinstance(kind, Map):
        return f"map<{spark_name(kind.key)},{spark_name(kind.value)}>"
    if isinstance(kind, Struct):
        return f"struct<{','.join(f'{f.name}:{spark_name(f.type)}' for f in kind.fields)}>"
    return kind.ddl.lower()


def _type_name(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    return "'" + spark_name(kinds[0]).replace("'", "''") + "'"


def _overloads() -> tuple[Overload, ...]:
    found: list[Overload] = []
    for kind in _COMPARED:
        two = (kind, kind)
        found += [Overload(op, two, BOOLEAN, f"({{0}} {sql} {{1}})", check=no_map_inside)
                  for op, sql in (("=", "="), ("!=", "<>"), ("<=>", "IS NOT DISTINCT FROM"))]  # fmt: skip
        found += [Overload(op, two, BOOLEAN, _ordered(op), check=no_map_inside) for op in ("<", "<=", ">", ">=")]
        found.append(
            Overload(
                "in",
                two,
                BOOLEAN,
                lambda a, k, r: f"({a[0]} IN ({', '.join(a[1:])}))",
                variadic=True,
                check=no_map_inside,
            )
        )
        found.append(Overload("nullif", two, same(0), "nullif({0}, {1})", check=no_map_inside))
        found.append(Overload("greatest", two, same(0), _extreme(True), variadic=True, check=no_map_inside))
        found.append(Overload("least", two, same(0), _extreme(False), variadic=True, check=no_map_inside))
    for kind in (*_COMPARED, "MAP"):
        found.append(Overload("coalesce", (kind,), same(0), lambda a, k, r: f"coalesce({', '.join(a)})", variadic=True))
    found.append(Overload("typeof", ("ANY",), STRING, _type_name))
    return tuple(found)


OVERLOADS: tuple[Overload, ...] = _overloads()
