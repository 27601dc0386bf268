"""Types, fields, schemas, and the view of a schema that a pipeline needs.

A column *is* its index in the stream's declared schema, everywhere. A `View` says which columns a
pipeline needs; ALL, SOME and NONE are three different values. docs/design/2026-11-16-founding.md says why columns are
indexes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, reduce

import pyarrow as pa

from headrace.errors import UnknownType


@dataclass(frozen=True, slots=True)
class DataType:
    """A Spark SQL type. `ddl` is its canonical spelling. Equality is structural."""

    @property
    def ddl(self) -> str:
        raise NotImplementedError

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of a decoded column."""
        raise NotImplementedError

    @property
    def duckdb(self) -> str:
        """The DuckDB spelling of the same type."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.ddl


# name -> (arrow, duckdb). TIMESTAMP is an instant; TIMESTAMP_NTZ is a wall-clock reading.
_SCALARS: dict[str, tuple[pa.DataType, str]] = {
    "BOOLEAN": (pa.bool_(), "BOOLEAN"),
    "TINYINT": (pa.int8(), "TINYINT"),
    "SMALLINT": (pa.int16(), "SMALLINT"),
    "INT": (pa.int32(), "INTEGER"),
    "BIGINT": (pa.int64(), "BIGINT"),
    "FLOAT": (pa.float32(), "FLOAT"),
    "DOUBLE": (pa.float64(), "DOUBLE"),
    "STRING": (pa.string(), "VARCHAR"),
    "BINARY": (pa.binary(), "BLOB"),
    "DATE": (pa.date32(), "DATE"),
    "TIMESTAMP": (pa.timestamp("us", "UTC"), "TIMESTAMPTZ"),
    "TIMESTAMP_NTZ": (pa.timestamp("us"), "TIMESTAMP"),
}
_ALIASES = {
    "BOOL": "BOOLEAN", "BYTE": "TINYINT", "SHORT": "SMALLINT", "INTEGER": "INT", "LONG": "BIGINT",
    "REAL": "FLOAT", "TEXT": "STRING", "TIMESTAMP_LTZ": "TIMESTAMP",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scalar(DataType):
    """A type without parameters, by its Spark name."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in _SCALARS:
            raise UnknownType(f"there is no type {self.name}", name=self.name)

    @property
    def ddl(self) -> str:
        return self.name

    @property
    def arrow(self) -> pa.DataType:
        return _SCALARS[self.name][0]

    @property
    def duckdb(self) -> str:
        return _SCALARS[self.name][1]


@dataclass(frozen=True, slots=True)
class Decimal(DataType):
    """DECIMAL(precision, scale), at most 38 digits."""

    precision: int = 10
    scale: int = 0

    def __post_init__(self) -> None:
        if not (1 <= self.precision <= 38 and 0 <= self.scale <= self.precision):
            raise UnknownType(
                f"DECIMAL({self.precision},{self.scale}) is out of range",
                advice="Precision is 1 to 38 and scale at most the precision.",
                name=self.ddl,
            )

    @property
    def ddl(self) -> str:
        return f"DECIMAL({self.precision},{self.scale})"

    @property
    def arrow(self) -> pa.DataType:
        return pa.decimal128(self.precision, self.scale)

    @property
    def duckdb(self) -> str:
        return self.ddl


@dataclass(frozen=True, slots=True)
class Struct(DataType):
    """STRUCT<name: TYPE, ...>."""

    fields: tuple[Field, ...]

    @property
    def ddl(self) -> str:
        return "STRUCT<" + ", ".join(f"{_quote(f.name)}: {f.type.ddl}" for f in self.fields) + ">"

    @property
    def arrow(self) -> pa.DataType:
        return pa.struct([pa.field(f.name, f.type.arrow) for f in self.fields])

    @property
    def duckdb(self) -> str:
        inner = ", ".join(f"{duck_name(f.name)} {f.type.duckdb}" for f in self.fields)
        return f"STRUCT({inner})"


@dataclass(frozen=True, slots=True)
class Array(DataType):
    """ARRAY<TYPE>."""

    element: DataType

    @property
    def ddl(self) -> str:
        return f"ARRAY<{self.element.ddl}>"

    @property
    def arrow(self) -> pa.DataType:
        return pa.list_(self.element.arrow)

    @property
    def duckdb(self) -> str:
        return f"{self.element.duckdb}[]"


@dataclass(frozen=True, slots=True)
class Map(DataType):
    """MAP<KEY, VALUE>."""

    key: DataType
    value: DataType

    @property
    def ddl(self) -> str:
        return f"MAP<{self.key.ddl}, {self.value.ddl}>"

    @property
    def arrow(self) -> pa.DataType:
        return pa.map_(self.key.arrow, self.value.arrow)

    @property
    def duckdb(self) -> str:
        return f"MAP({self.key.duckdb}, {self.value.duckdb})"


BOOLEAN, TINYINT, SMALLINT, INT, BIGINT = map(Scalar, ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT"))
FLOAT, DOUBLE, STRING, BINARY = map(Scalar, ("FLOAT", "DOUBLE", "STRING", "BINARY"))
DATE, TIMESTAMP, TIMESTAMP_NTZ = map(Scalar, ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"))


def duck_name(name: str) -> str:
    """`name` quoted for DuckDB."""
    return '"' + name.replace('"', '""') + '"'


def _quote(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else "`" + name.replace("`", "``") + "`"


TEXTS_WITH_LENGTH = ("VARCHAR", "CHAR", "CHARACTER")
MAX_DEPTH = 100  # of nested types; a deeper type is a mistake and would exhaust Python's stack
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|\w+|[<>(),:])")


def parse_type(ddl: str) -> DataType:
    """The type that `ddl` spells, in Spark's syntax. Raises UnknownType.

    >>> parse_type("array<struct<a: int, b: decimal(10,2)>>").ddl
    'ARRAY<STRUCT<a: INT, b: DECIMAL(10,2)>>'
    """
    parser = _TypeParser(ddl, _tokens(ddl))
    parsed = parser.type()
    if parser.peek:
        raise _not_a_type(ddl)
    return parsed


def _tokens(ddl: str) -> Iterator[str]:
    at, end = 0, len(ddl.rstrip())
    while at < end:
        match = _TOKEN.match(ddl, at, end)
        if match is None:
            raise _not_a_type(ddl)
        yield match[1]
        at = match.end()


def _not_a_type(ddl: str) -> UnknownType:
    return UnknownType(f"{ddl!r} is not a type", name=ddl)


class _TypeParser:
    """Recursive descent over the tokens of one type."""

    def __init__(self, ddl: str, tokens: Iterator[str]) -> None:
        self.ddl, self.tokens, self.depth = ddl, tokens, 0
        self.peek = next(tokens, "")

    def take(self, expected: str | None = None) -> str:
        token = self.peek
        if not token or (expected is not None and token != expected):
            raise _not_a_type(self.ddl)
        self.peek = next(self.tokens, "")
        return token

    def type(self) -> DataType:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _not_a_type(self.ddl)
        parsed = self.one_type()
        self.depth -= 1
        return parsed

    def one_type(self) -> DataType:
        name = self.take().upper()
        if name in ("DECIMAL", "DEC", "NUMERIC"):
            return self.decimal()
        if name == "ARRAY":
            self.take("<")
            element = self.type()
            self.take(">")
            return Array(element)
        if name == "MAP":
            self.take("<")
            key = self.type()
            self.take(",")
            value = self.type()
            self.take(">")
            return Map(key, value)
        if name == "STRUCT":
            return self.struct()
        if name in TEXTS_WITH_LENGTH and self.peek == "(":
            return self.text_with_length()
        return Scalar(_ALIASES.get(name, name))

    def decimal(self) -> DataType:
        if self.peek != "(":
            return Decimal()
        self.take("(")
        precision, scale = self.number(), 0
        if self.peek == ",":
            self.take(",")
            scale = self.number()
        self.take(")")
        return Decimal(precision, scale)

    def text_with_length(self) -> DataType:
        """VARCHAR(n) and CHAR(n) are STRING, as in Spark's casts. The length is checked, and not used."""
        self.take("(")
        length = self.number()
        self.take(")")
        if length < 1:
            raise UnknownType("the length of a CHAR or VARCHAR is at least 1", name=self.ddl)
        return STRING

    def number(self) -> int:
        token = self.take()
        if not re.fullmatch(r"[0-9]{1,9}", token):
            raise _not_a_type(self.ddl)
        return int(token)

    def struct(self) -> DataType:
        self.take("<")
        fields: list[Field] = []
        while self.peek != ">":
            if fields:
                self.take(",")
            name = self.take()
            if name.startswith("`"):
                name = name[1:-1].replace("``", "`")
            if self.peek == ":":
                self.take(":")
            fields.append(Field(name, self.type()))
        self.take(">")
        return Struct(tuple(fields))


@dataclass(frozen=True, slots=True)
class Field:
    """A named, typed column. Every column may hold NULL, as in a Spark stream."""

    name: str
    type: DataType


@dataclass(frozen=True, slots=True)
class Schema:
    """The ordered columns of a stream or of a pipeline's output."""

    fields: tuple[Field, ...]

    def __len__(self) -> int:
        return len(self.fields)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __getitem__(self, index: int) -> Field:
        return self.fields[index]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    def index(self, name: str) -> int | None:
        """The position of `name`, compared without case (Spark's default); None if absent."""
        lowered = name.lower()
        for i, f in enumerate(self.fields):
            if f.name.lower() == lowered:
                return i
        return None

    @property
    def arrow(self) -> pa.Schema:
        return pa.schema([pa.field(f.name, f.type.arrow) for f in self.fields])

    @property
    def ddl(self) -> str:
        return ", ".join(f"{_quote(f.name)} {f.type.ddl}" for f in self.fields)


# Fields of STRUCT columns have indexes from here on: a pipeline that reads `pos.lat` needs only that field.
NESTED = 1_000_000


@dataclass(frozen=True, slots=True)
class NestedField:
    """A field inside the STRUCT column `column`: the names on the way to it, and its type."""

    column: int
    path: tuple[str, ...]
    type: DataType


@lru_cache(maxsize=256)
def nested_fields(schema: Schema) -> tuple[NestedField, ...]:
    """All fields of the STRUCT columns of `schema`, including those inside other fields. Field k has the index
    NESTED + k, which depends only on the schema."""
    return tuple(
        NestedField(i, path, kind) for i, column in enumerate(schema) for path, kind in _paths(column.type, ())
    )


def _paths(kind: DataType, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], DataType]]:
    if isinstance(kind, Struct):
        for inner in kind.fields:
            yield (*above, inner.name), inner.type
            yield from _paths(inner.type, (*above, inner.name))


def field_at(schema: Schema, index: int) -> Field:
    """The column at `index`, or the field of a STRUCT column, with a name like `pos.lat`."""
    if index < NESTED:
        return schema[index]
    found = nested_fields(schema)[index - NESTED]
    return Field(".".join((schema[found.column].name, *found.path)), found.type)


def root_of(schema: Schema, index: int) -> int:
    """The index of the column that `field_at(schema, index)` is, or is a field of."""
    return index if index < NESTED else nested_fields(schema)[index - NESTED].column


@dataclass(frozen=True, slots=True)
class View:
    """The columns a pipeline needs, by full-schema index: `View.all()`, `View.some(...)` or `View.none()`.

    `columns` is None for ALL. A view never changes what an index means. Indexes from NESTED on are fields of STRUCT
    columns.
    """

    columns: frozenset[int] | None

    @staticmethod
    def all() -> View:
        return View(None)

    @staticmethod
    def none() -> View:
        return View(frozenset())

    @staticmethod
    def some(columns: Iterable[int]) -> View:
        return View(frozenset(columns))

    def __or__(self, other: View) -> View:
        if self.columns is None or other.columns is None:
            return View(None)
        return View(self.columns | other.columns)

    def covers(self, other: View, width: int) -> bool:
        """True if this view has every column of `other`. The schema has `width` columns."""
        return set(other.indexes(width)) <= set(self.indexes(width))

    def indexes(self, width: int) -> tuple[int, ...]:
        """The indexes of the view in order. The schema has `width` columns."""
        return tuple(range(width)) if self.columns is None else tuple(sorted(self.columns))

    @property
    def kind(self) -> str:
        """`ALL`, `SOME` or `NONE`."""
        if self.columns is None:
            return "ALL"
        return "SOME" if self.columns else "NONE"

    @staticmethod
    def union(views: Iterable[View]) -> View:
        """The union of all `views`. NONE if there are none."""
        return reduce(View.__or__, views, View.none())
