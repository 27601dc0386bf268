"""Conditional functions: coalesce and nullif. `bind` turns IF, IFNULL and NVL into CASE or coalesce."""

from __future__ import annotations

from headrace.sql.functions.overload import Overload, same

_KINDS = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "STRING", "BINARY", "DATE",
    "TIMESTAMP", "TIMESTAMP_NTZ",
)  # fmt: skip

OVERLOADS: tuple[Overload, ...] = (
    *(
        Overload("coalesce", (kind,), same(0), lambda a, k, r: f"coalesce({', '.join(a)})", variadic=True)
        for kind in _KINDS
    ),
    *(Overload("nullif", (kind, kind), same(0), "nullif({0}, {1})") for kind in _KINDS if kind != "BINARY"),
)
