"""Conditional functions and errors on demand. `bind` turns IF, IFNULL and NVL into CASE or coalesce."""

from __future__ import annotations

from headrace.sql.functions.overload import Overload, same
from headrace.sql.plan.types import VOID

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
    Overload("raise_error", ("STRING",), VOID, "error(coalesce({0}, ''))", throws=True),
    Overload(
        "assert_true", ("BOOLEAN",), VOID, "CASE WHEN {0} THEN NULL ELSE error('the assertion failed') END", throws=True
    ),
    Overload(
        "assert_true",
        ("BOOLEAN", "STRING"),
        VOID,
        "CASE WHEN {0} THEN NULL ELSE error(coalesce({1}, '')) END",
        throws=True,
    ),
)
