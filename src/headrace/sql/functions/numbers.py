"""Functions on numbers."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.schema import BIGINT, BOOLEAN, DOUBLE, DataType, Decimal
from headrace.sql.functions.base import Overload, same

_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT")


def _whole_decimal(kinds: Sequence[DataType]) -> DataType | None:
    kind = kinds[0]
    assert isinstance(kind, Decimal)
    return Decimal(min(38, kind.precision - kind.scale + 1), 0)


def _functions() -> list[Overload]:
    found = [
        Overload("floor", ("DOUBLE",), BIGINT, "CAST(floor({0}) AS BIGINT)", throws=True),
        Overload("ceil", ("DOUBLE",), BIGINT, "CAST(ceil({0}) AS BIGINT)", throws=True),
        Overload("floor", ("BIGINT",), BIGINT, "{0}"),
        Overload("ceil", ("BIGINT",), BIGINT, "{0}"),
        Overload("floor", ("DECIMAL",), _whole_decimal, lambda a, k, r: f"CAST(floor({a[0]}) AS {r.duckdb})"),
        Overload("ceil", ("DECIMAL",), _whole_decimal, lambda a, k, r: f"CAST(ceil({a[0]}) AS {r.duckdb})"),
        Overload("sqrt", ("DOUBLE",), DOUBLE, "CASE WHEN {0} < 0 THEN 'nan'::DOUBLE ELSE sqrt({0}) END"),
        Overload("isnan", ("DOUBLE",), BOOLEAN, "coalesce(isnan({0}), FALSE)"),
        Overload("isnan", ("FLOAT",), BOOLEAN, "coalesce(isnan({0}), FALSE)"),
        Overload(
            "signum", ("DOUBLE",), DOUBLE, "CASE WHEN isnan({0}) OR {0} = 0 THEN {0} ELSE CAST(sign({0}) AS DOUBLE) END"
        ),
        Overload("radians", ("DOUBLE",), DOUBLE, "radians({0})"),
        Overload("degrees", ("DOUBLE",), DOUBLE, "degrees({0})"),
        Overload("nanvl", ("DOUBLE", "DOUBLE"), DOUBLE, "CASE WHEN isnan({0}) THEN {1} ELSE {0} END"),
    ]
    for kind in (*_WHOLE, "FLOAT", "DOUBLE", "DECIMAL", "STRING", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"):
        pair = (kind, kind)
        found.append(Overload("greatest", pair, same(0), lambda a, k, r: f"greatest({', '.join(a)})", variadic=True))
        found.append(Overload("least", pair, same(0), lambda a, k, r: f"least({', '.join(a)})", variadic=True))
    return found


OVERLOADS: tuple[Overload, ...] = tuple(_functions())
