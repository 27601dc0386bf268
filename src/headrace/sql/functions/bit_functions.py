"""Functions on the bits of whole numbers, and on the bitmaps of `bitmap_construct_agg`."""

from __future__ import annotations

from headrace.model.schema import BIGINT, INT, TINYINT
from headrace.sql.functions.overload import Overload, same

_WIDTHS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_BITMAP = 32_768  # bits of a bitmap


def _get(name: str, kind: str) -> Overload:
    """One bit, the lowest is 0. Spark raises for a place outside the type."""
    outside = f"{{0}} IS NOT NULL AND ({{1}} < 0 OR {{1}} >= {_WIDTHS[kind]})"
    bit = "CAST((CAST({0} AS BIGINT) >> CAST({1} AS BIGINT)) & 1 AS TINYINT)"
    sql = f"CASE WHEN {outside} THEN error('INVALID_PARAMETER_VALUE.BIT_POSITION_RANGE') ELSE {bit} END"
    return Overload(name, (kind, "INT"), TINYINT, sql, throws=True)


def _counts() -> list[Overload]:
    """Spark counts the bits of the BIGINT, so -1 of any type has 64."""
    found = [Overload("bit_count", (kind,), INT, "CAST(bit_count(CAST({0} AS BIGINT)) AS INTEGER)") for kind in _WIDTHS]
    return [*found, Overload("bit_count", ("BOOLEAN",), INT, "CAST({0} AS INTEGER)")]


def _shifts() -> list[Overload]:
    names = {"shiftleft": "left", "shiftright": "right", "shiftrightunsigned": "unsigned"}
    kinds = {"INT": "int", "BIGINT": "long"}
    return [
        Overload(name, (kind, "INT"), same(0), f"hr_shift_{way}_{width}({{0}}, {{1}})")
        for name, way in names.items()
        for kind, width in kinds.items()
    ]


# Positions count from 1 in Spark: 1 is bit 0 of bucket 1, and so is 0 bit 0 of bucket 0.
_POSITION = f"CASE WHEN {{0}} > 0 THEN ({{0}} - 1) % {_BITMAP} ELSE CAST(-({{0}}::HUGEINT) % {_BITMAP} AS BIGINT) END"
_BUCKET = f"CASE WHEN {{0}} > 0 THEN 1 + ({{0}} - 1) // {_BITMAP} ELSE CAST({{0}}::HUGEINT // {_BITMAP} AS BIGINT) END"

OVERLOADS: tuple[Overload, ...] = (
    *_counts(),
    *(_get(name, kind) for name in ("bit_get", "getbit") for kind in _WIDTHS),
    *_shifts(),
    Overload("bitmap_bit_position", ("BIGINT",), BIGINT, _POSITION),
    Overload("bitmap_bucket_number", ("BIGINT",), BIGINT, _BUCKET),
    Overload(
        "bitmap_count",
        ("BINARY",),
        BIGINT,
        "CASE WHEN octet_length({0}) = 0 THEN 0 ELSE CAST(bit_count(CAST({0} AS BIT)) AS BIGINT) END",
    ),
)
