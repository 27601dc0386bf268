"""Spark's ANSI type rules: the common type of operands, and the result types of decimal arithmetic.

Two kinds of types exist only inside expressions: VOID (the type of NULL) and the interval types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.model.schema import (
    BIGINT,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    Array,
    DataType,
    Decimal,
    Field,
    Map,
    Struct,
)


@dataclass(frozen=True, slots=True)
class Hidden(DataType):
    """A type that no column has: VOID, INTERVAL MONTH or INTERVAL SECOND."""

    name: str

    @property
    def ddl(self) -> str:
        return self.name

    @property
    def arrow(self) -> pa.DataType:
        raise TypeError(f"{self.name} is not a column type")

    @property
    def duckdb(self) -> str:
        return "INTERVAL" if self.name != "VOID" else '"NULL"'


@dataclass(frozen=True, slots=True)
class Function(Hidden):
    """The type of a lambda: what it returns, and, where it is rendered, whether it may fail on some value."""

    result: DataType
    fails: bool


def function_type(result: DataType, fails: bool = False) -> Function:
    """The type of a lambda that returns `result`."""
    return Function("LAMBDA", result, fails)


@dataclass(frozen=True, slots=True)
class Interval(Hidden):
    """An interval of months or of microseconds. `unit` says how Spark writes it (DAY TO SECOND), '' if unknown; types
    that differ only in it are equal."""

    unit: str = field(default="", compare=False)


VOID = Hidden("VOID")
INTERVAL_MONTHS = Interval("INTERVAL MONTH")
INTERVAL_MICROS = Interval("INTERVAL SECOND")

INTEGRAL: tuple[DataType, ...] = (TINYINT, SMALLINT, INT, BIGINT)
FRACTIONAL: tuple[DataType, ...] = (FLOAT, DOUBLE)
_DIGITS: dict[DataType, int] = {TINYINT: 3, SMALLINT: 5, INT: 10, BIGINT: 20}
_TIMES: tuple[DataType, ...] = (DATE, TIMESTAMP_NTZ, TIMESTAMP)


def type_class(kind: DataType) -> str:
    """The name of a type in the verified list, without the parameters of decimals, arrays and so on."""
    if isinstance(kind, Decimal):
        return "DECIMAL"
    if isinstance(kind, Array):
        return "ARRAY"
    if isinstance(kind, Map):
        return "MAP"
    if isinstance(kind, Struct):
        return "STRUCT"
    return kind.ddl


def is_numeric(kind: DataType) -> bool:
    """True if `kind` is a number."""
    return kind in INTEGRAL or kind in FRACTIONAL or isinstance(kind, Decimal)


def as_decimal(kind: DataType) -> Decimal | None:
    """The decimal type that holds every value of an integral or decimal type."""
    if isinstance(kind, Decimal):
        return kind
    digits = _DIGITS.get(kind)
    return None if digits is None else Decimal(digits, 0)


def wider(left: DataType, right: DataType) -> DataType | None:
    """The common type of both, by Spark's ANSI rules. None if there is none."""
    if left == right:
        return left
    if left == VOID:
        return right
    if right == VOID:
        return left
    if is_numeric(left) and is_numeric(right):
        return _wider_number(left, right)
    if left in _TIMES and right in _TIMES:
        return _TIMES[max(_TIMES.index(left), _TIMES.index(right))]
    if STRING in (left, right):
        other = right if left == STRING else left
        return _beside_string(other)
    return _wider_nested(left, right, wider)


def tightest(left: DataType, right: DataType) -> DataType | None:
    """As `wider`, but a STRING goes only with a STRING: the common type of an array's elements and a value."""
    if STRING in (left, right) and left != right and VOID not in (left, right):
        return None
    if isinstance(left, Array | Map | Struct) and left != right and right != VOID:
        return _wider_nested(left, right, tightest)
    return wider(left, right)


def compared(left: DataType, right: DataType) -> DataType | None:
    """As `wider`, for the two sides of a comparison. Inside of arrays and structs Spark casts no STRING there, and no
    DECIMAL."""
    if not isinstance(left, Array | Map | Struct) or not isinstance(right, Array | Map | Struct):
        return wider(left, right)
    return None if mixes_decimals(left, right) else tightest(left, right)


def mixes_decimals(left: DataType, right: DataType) -> bool:
    """True if a decimal stands against another type."""
    if isinstance(left, Array) and isinstance(right, Array):
        return mixes_decimals(left.element, right.element)
    if isinstance(left, Struct) and isinstance(right, Struct):
        return any(mixes_decimals(a.type, b.type) for a, b in zip(left.fields, right.fields, strict=False))
    return left != right and VOID not in (left, right) and (isinstance(left, Decimal) or isinstance(right, Decimal))


def _wider_nested(
    left: DataType, right: DataType, common: Callable[[DataType, DataType], DataType | None]
) -> DataType | None:
    """The common type of two arrays, two maps, or two structs with the same names."""
    if isinstance(left, Array) and isinstance(right, Array):
        element = common(left.element, right.element)
        return None if element is None else Array(element)
    if isinstance(left, Map) and isinstance(right, Map):
        key, value = common(left.key, right.key), common(left.value, right.value)
        return None if key is None or value is None else Map(key, value)
    if isinstance(left, Struct) and isinstance(right, Struct) and len(left.fields) == len(right.fields):
        fields: list[Field] = []
        for a, b in zip(left.fields, right.fields, strict=True):
            kind = common(a.type, b.type)
            if kind is None or a.name != b.name:
                return None
            fields.append(Field(a.name, kind))
        return Struct(tuple(fields))
    return None


def has_hidden(kind: DataType) -> bool:
    """True if `kind` is a type that no column has, or contains one."""
    if isinstance(kind, Array):
        return has_hidden(kind.element)
    if isinstance(kind, Map):
        return has_hidden(kind.key) or has_hidden(kind.value)
    if isinstance(kind, Struct):
        return any(has_hidden(f.type) for f in kind.fields)
    return isinstance(kind, Hidden)


def _wider_number(left: DataType, right: DataType) -> DataType | None:
    if left in INTEGRAL and right in INTEGRAL:
        return INTEGRAL[max(INTEGRAL.index(left), INTEGRAL.index(right))]
    if left in FRACTIONAL or right in FRACTIONAL:
        # With ANSI, Spark does not widen whole numbers to FLOAT: they would lose digits.
        return DOUBLE
    a, b = as_decimal(left), as_decimal(right)
    assert a is not None and b is not None
    scale = max(a.scale, b.scale)
    whole = max(a.precision - a.scale, b.precision - b.scale)
    # Beyond 38 digits, Spark keeps those before the point.
    return Decimal(min(38, whole + scale), min(scale, max(0, 38 - whole)))


def _beside_string(other: DataType) -> DataType | None:
    if other in INTEGRAL:
        return BIGINT
    if other in FRACTIONAL or isinstance(other, Decimal):
        return DOUBLE
    if other in _TIMES or other.ddl in ("BOOLEAN", "BINARY"):
        return other
    return None


def widens(source: DataType, target: DataType) -> bool:
    """True if Spark implicitly casts `source` to `target` for an argument of type `target`."""
    if source in (target, VOID):
        return True
    if is_numeric(source) and is_numeric(target):
        if isinstance(target, Decimal):
            held = as_decimal(source)
            return held is not None and _fits(held, target)
        if isinstance(source, Decimal):
            return target in FRACTIONAL
        return _wider_number(source, target) == target or (source in INTEGRAL and target == FLOAT)
    return source == DATE and target in (TIMESTAMP, TIMESTAMP_NTZ)


def _fits(inner: Decimal, outer: Decimal) -> bool:
    return inner.scale <= outer.scale and inner.precision - inner.scale <= outer.precision - outer.scale


def decimal_result(operator: str, a: Decimal, b: Decimal) -> tuple[int, int]:
    """Precision and scale of `a operator b` before Spark limits them to 38 digits."""
    scale = max(a.scale, b.scale)
    if operator in ("+", "-"):
        return max(a.precision - a.scale, b.precision - b.scale) + scale + 1, scale
    if operator == "*":
        return a.precision + b.precision + 1, a.scale + b.scale
    if operator == "/":
        scale = max(6, a.scale + b.precision + 1)
        return a.precision - a.scale + b.scale + scale, scale
    if operator == "%":
        return min(a.precision - a.scale, b.precision - b.scale) + scale, scale
    raise ValueError(operator)


def decimal_type(operator: str, a: Decimal, b: Decimal) -> Decimal:
    """The type of `a operator b`. Beyond 38 digits, Spark gives up digits after the point, but keeps six of them."""
    precision, scale = decimal_result(operator, a, b)
    if precision <= 38:
        return Decimal(precision, scale)
    return Decimal(38, max(38 - (precision - scale), min(scale, 6)))
