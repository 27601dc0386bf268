"""Functions on strings. Positions and lengths count characters (code points), as in Spark."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.schema import BOOLEAN, INT, STRING
from headrace.sql.functions.overload import Overload, literal_int
from headrace.sql.functions.regex import like_is_valid
from headrace.sql.plan.expr import Expr, Literal

_S = "STRING"


def _count(number: str) -> str:
    """A count. A negative one becomes zero, NULL stays NULL."""
    if literal_int(number) is not None:
        return str(max(0, literal_int(number) or 0))
    return f"(CASE WHEN {number} < 0 THEN 0 ELSE {number} END)"


def _substring(text: str, start: str, length: str) -> str:
    """Spark's substring. A negative start counts from the end. A start of zero is the first character."""
    first_literal, length_literal = literal_int(start), literal_int(length)
    if first_literal is not None and length_literal is not None and first_literal >= 0 and length_literal >= 0:
        return f"substring({text}, {max(1, first_literal)}, {length_literal})"
    first = (
        f"(CASE WHEN {start} > 0 THEN {start} - 1::BIGINT WHEN {start} < 0 THEN length({text}) + {start} ELSE 0 END)"
    )
    until = f"least({first} + {length}, 2147483647)"
    clipped = _count(first)
    return (
        f"CASE WHEN {text} IS NULL OR {start} IS NULL OR {length} IS NULL THEN NULL "
        f"WHEN {until} <= {clipped} THEN '' ELSE substring({text}, {clipped} + 1, {until} - {clipped}) END"
    )


def _pad(function: str, text: str, width: str, fill: str) -> str:
    """Padding with an empty text only truncates."""
    return (
        f"CASE WHEN {fill} = '' THEN left({text}, {_count(width)}) ELSE {function}({text}, {_count(width)}, {fill}) END"
    )


def _literal(argument: Expr) -> str | None:
    value = argument.value if isinstance(argument, Literal) else None
    return value if isinstance(value, str) else None


def _check_like(args: Sequence[Expr]) -> str | None:
    pattern = _literal(args[1])
    return None if pattern is not None and like_is_valid(pattern) else "this pattern"


OVERLOADS: tuple[Overload, ...] = (
    # The upper case of ß has two letters, and DuckDB does not know it.
    Overload("upper", (_S,), STRING, "upper(replace({0}, 'ß', 'SS'))"),
    Overload("lower", (_S,), STRING, "lower({0})"),
    Overload("length", (_S,), INT, "CAST(length({0}) AS INTEGER)"),
    Overload("octet_length", (_S,), INT, "CAST(strlen({0}) AS INTEGER)"),
    Overload("bit_length", (_S,), INT, "CAST(bit_length({0}) AS INTEGER)"),
    Overload("trim", (_S,), STRING, "trim({0}, ' ')"),
    Overload("ltrim", (_S,), STRING, "ltrim({0}, ' ')"),
    Overload("rtrim", (_S,), STRING, "rtrim({0}, ' ')"),
    Overload("reverse", (_S,), STRING, "hr_reverse({0})"),
    Overload("concat", (_S,), STRING, lambda a, k, r: "(" + " || ".join(a) + ")", variadic=True),
    Overload("concat_ws", (_S, _S), STRING, lambda a, k, r: f"concat_ws({', '.join(a)})", variadic=True),
    Overload("replace", (_S, _S, _S), STRING, "CASE WHEN {1} = '' THEN {0} ELSE replace({0}, {1}, {2}) END"),
    Overload("translate", (_S, _S, _S), STRING, "translate({0}, {1}, {2})"),
    Overload("startswith", (_S, _S), BOOLEAN, "starts_with({0}, {1})"),
    Overload("endswith", (_S, _S), BOOLEAN, "ends_with({0}, {1})"),
    Overload("contains", (_S, _S), BOOLEAN, "contains({0}, {1})"),
    Overload("instr", (_S, _S), INT, "CAST(strpos({0}, {1}) AS INTEGER)"),
    Overload("locate", (_S, _S), INT, "CAST(strpos({1}, {0}) AS INTEGER)"),
    # They may exceed the size limit, so they must not run on rows that a condition excludes.
    Overload("repeat", (_S, "INT"), STRING, lambda a, k, r: f"repeat({a[0]}, {_count(a[1])})", throws=True),
    Overload("left", (_S, "INT"), STRING, lambda a, k, r: f"left({a[0]}, {_count(a[1])})"),
    Overload("right", (_S, "INT"), STRING, lambda a, k, r: f"right({a[0]}, {_count(a[1])})"),
    Overload("substring", (_S, "INT", "INT"), STRING, lambda a, k, r: _substring(a[0], a[1], a[2])),
    Overload("substring", (_S, "INT"), STRING, lambda a, k, r: _substring(a[0], a[1], "2147483647")),
    Overload("lpad", (_S, "INT", _S), STRING, lambda a, k, r: _pad("lpad", *a), throws=True),
    Overload("rpad", (_S, "INT", _S), STRING, lambda a, k, r: _pad("rpad", *a), throws=True),
    Overload("like", (_S, _S), BOOLEAN, "({0} LIKE {1} ESCAPE '\\')", constant=(1,), check=_check_like),
    Overload("ilike", (_S, _S), BOOLEAN, "({0} ILIKE {1} ESCAPE '\\')", constant=(1,), check=_check_like),
    Overload("ascii", (_S,), INT, "CASE WHEN {0} = '' THEN 0 ELSE CAST(unicode({0}) AS INTEGER) END"),
    Overload("md5", (_S,), STRING, "md5({0})"),
    Overload("sha2", (_S, "INT"), STRING, "CASE WHEN {1} IN (0, 256) THEN sha256({0}) END", constant=(1,)),
)
