"""What an aggregate is on the shared host: partial states, how they are merged, and the result of the merged states.

Every merge is associative and may be repeated, so the result does not depend on how rows are divided among tasks and
epochs. `aggregate_functions` has the list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headrace.model.schema import BOOLEAN, Array, DataType, Field, Map, Struct
from headrace.sql.plan.types import FRACTIONAL, Hidden, type_class

# The literal parameters of a call, such as the fractions of `percentile` or the separator of `listagg`.
Constants = tuple[Any, ...]

FLAT = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "STRING", "DATE", "TIMESTAMP",
    "TIMESTAMP_NTZ", "BINARY",
)  # fmt: skip
NUMBERS = FLAT[1:8]


@dataclass(frozen=True, slots=True)
class PartialState:
    """One partial state. `sql` computes it from rows. `merge` has `{p}` in place of the state's column."""

    type: DataType
    sql: str
    merge: str


@dataclass(frozen=True, slots=True)
class SplitAggregate:
    """An aggregate as states. `result` is a template over the merged states {0}, {1}, ... Its value has at most
    `growth` times the bytes of the states."""

    states: tuple[PartialState, ...]
    result: str
    growth: float = 1.0


Splitter = Callable[[Sequence[str], Sequence[DataType], DataType, Constants], SplitAggregate]


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate on given argument types, as type classes or ANY.

    An aggregate with a `time` also gets the event time as its last argument. 'needed' means that the stream must have
    one. With 'if any' the argument is NULL when the stream has none.
    """

    name: str
    params: tuple[str, ...]
    result: DataType | Callable[[Sequence[DataType]], DataType | None]
    split: Splitter
    time: Literal["unused", "needed", "if any"] = "unused"

    @property
    def key(self) -> str:
        """The entry in the verified list."""
        return f"{self.name}({', '.join(self.params) or '*'})"

    def accepts(self, kinds: Sequence[DataType]) -> bool:
        """True if it takes arguments of these types."""
        return len(kinds) == len(self.params) and all(
            param == type_class(kind) or (param == "ANY" and not isinstance(kind, Hidden))
            for param, kind in zip(self.params, kinds, strict=True)
        )

    def result_type(self, kinds: Sequence[DataType]) -> DataType | None:
        """The type of the result. None when the argument types are out of range."""
        return self.result if isinstance(self.result, DataType) else self.result(kinds)

    def states(
        self, args: Sequence[str], kinds: Sequence[DataType], result: DataType, constants: Constants = ()
    ) -> SplitAggregate:
        """The states over the SQL of the arguments, and of the event time if it takes one. An argument is NULL on rows
        that FILTER excludes."""
        return self.split(args, kinds, result, constants)


def present(*texts: str) -> str:
    """The SQL condition that no argument is NULL."""
    return " AND ".join(f"{text} IS NOT NULL" for text in texts)


def literal(text: str) -> str:
    """A string literal for a template: quoted, and with its braces doubled."""
    return "'" + text.replace("'", "''").replace("{", "{{").replace("}", "}}") + "'"


def one_zero(text: str, kind: DataType) -> str:
    """`text` without negative zero: in Spark -0.0 and 0.0 are one distinct value."""
    return f"({text} + 0)" if kind in FRACTIONAL else text


def zero_sign(text: str, kind: DataType) -> tuple[str, tuple[Field, ...]]:
    """A last field for structs that are compared, `z`: it puts -0.0 before 0.0, which DuckDB takes as equal. Without it
    the row that wins would depend on the order in which states are merged."""
    if kind not in FRACTIONAL:
        return "", ()
    return f", z := NOT signbit({text})", (Field("z", BOOLEAN),)


def ordering(text: str, kind: DataType, depth: int = 0) -> tuple[str, DataType]:
    """A value that DuckDB orders as Spark orders `text`. Inside arrays and structs NULL comes first in Spark, and last
    in DuckDB."""
    if isinstance(kind, Array):
        name = f"e{depth}"
        inner, element = _inside(name, kind.element, depth + 1)
        return f"list_transform({text}, lambda {name}: {inner})", Array(element)
    if isinstance(kind, Struct):
        parts = [_inside(f'({text})."{f.name.replace(chr(34), chr(34) * 2)}"', f.type, depth) for f in kind.fields]
        packed = ", ".join(f"f{i} := {part}" for i, (part, _) in enumerate(parts))
        made = Struct(tuple(Field(f"f{i}", inner) for i, (_, inner) in enumerate(parts)))
        return f"CASE WHEN {text} IS NOT NULL THEN struct_pack({packed}) END", made
    return text, kind


def _inside(text: str, kind: DataType, depth: int) -> tuple[str, DataType]:
    inner, made = ordering(text, kind, depth)
    packed = f"struct_pack(p := {text} IS NOT NULL, o := {inner})"
    return packed, Struct((Field("p", BOOLEAN), Field("o", made)))


def orderable(kind: DataType) -> bool:
    """True if Spark can order and compare values of this type: it contains no map."""
    if isinstance(kind, Array):
        return orderable(kind.element)
    if isinstance(kind, Struct):
        return all(orderable(f.type) for f in kind.fields)
    return not isinstance(kind, Map)
