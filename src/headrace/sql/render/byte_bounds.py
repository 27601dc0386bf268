"""Upper bounds of sizes in bytes, as SQL over the columns of a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.model.schema import BINARY, STRING, Array, DataType, Map, Struct

SHORT = 64.0  # bytes of a number, date or digest as text
# Below this bound the matches of a row are not counted: the bound is good enough.
WORTH_COUNTING = 65_536
# Characters of SQL that a bound may write several times. Nested calls would grow exponentially.
MOST_REPEATED = 1000


@dataclass(frozen=True, slots=True)
class Bytes:
    """An upper bound of a value's size: as SQL, and as multiples of column sizes plus a constant.

    `columns` is None when the bound depends on values.
    """

    sql: str
    columns: dict[str, float] | None = field(default_factory=dict)
    fixed: float = 0.0

    def times(self, factor: float) -> Bytes:
        columns = None if self.columns is None else {name: n * factor for name, n in self.columns.items()}
        return Bytes(f"({self.sql} * {factor!r}::DOUBLE)", columns, self.fixed * factor)


def constant(size: float) -> Bytes:
    """A size that is the same for every row."""
    return Bytes(f"{size!r}::DOUBLE", {}, size)


def counted(bound: Bytes, exact: str) -> Bytes:
    """`bound` for small rows, else the exact size, which takes longer to compute. Only that if `bound` is long."""
    sql = f"(CASE WHEN {bound.sql} <= {WORTH_COUNTING} THEN {bound.sql} ELSE {exact} END)"
    return Bytes(exact if len(bound.sql) > MOST_REPEATED else sql, bound.columns, bound.fixed)


def added(parts: Sequence[Bytes]) -> Bytes:
    """The sum of sizes."""
    columns: dict[str, float] | None = {}
    for part in parts:
        if part.columns is None or columns is None:
            columns = None
        else:
            for name, n in part.columns.items():
                columns[name] = columns.get(name, 0.0) + n
    text = " + ".join(part.sql for part in parts)
    return Bytes(f"({text})" if parts else "0::DOUBLE", columns, sum(part.fixed for part in parts))


def is_variable(kind: DataType) -> bool:
    """True if values of this type have different sizes."""
    return kind in (STRING, BINARY) or isinstance(kind, Array | Map | Struct)
