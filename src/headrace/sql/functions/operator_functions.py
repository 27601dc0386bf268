"""Operators: arithmetic, comparison, logic, bits. Both operands already have the type that Spark gives them.

Arithmetic overflow is an error in both engines. Division by zero is an error only in Spark, so it is raised here. Like
in Spark, a NULL operand is checked first.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.schema import BIGINT, BOOLEAN, DATE, DOUBLE, STRING, TIMESTAMP, TIMESTAMP_NTZ, DataType
from headrace.sql.functions import decimal_functions
from headrace.sql.functions.instants import add_months
from headrace.sql.functions.overload import Overload, same

_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE")
_WHOLE = _NUMBERS[:4]
_COMPARABLE = (*_NUMBERS, "DECIMAL", "STRING", "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ")
_DUCK = {"TINYINT": "TINYINT", "SMALLINT": "SMALLINT", "INT": "INTEGER", "BIGINT": "BIGINT"}
_ZERO = "error('DIVIDE_BY_ZERO')"


def _arithmetic() -> list[Overload]:
    # As functions: DuckDB's optimizer knows the operators, and turns i + 1 > 0 into i > -1, which does not overflow.
    found = [
        Overload(operator, (kind, kind), same(0), f"{function}({{0}}, {{1}})", throws=kind in _WHOLE)
        for operator, function in (("+", "add"), ("-", "subtract"), ("*", "multiply"))
        for kind in _NUMBERS
    ]
    found += decimal_functions.OVERLOADS
    guard = f"CASE WHEN {{1}} = 0 AND {{0}} IS NOT NULL THEN {_ZERO} ELSE "
    found.append(
        Overload("/", ("DOUBLE", "DOUBLE"), DOUBLE, guard + "{0} / {1} END", throws=True, by_literal="({0} / {1})")
    )
    found.append(Overload("%", ("DOUBLE", "DOUBLE"), DOUBLE, guard + "{0} % {1} END", throws=True))
    for kind in _WHOLE:
        # In HUGEINT: DuckDB fails on the smallest number % -1. It also fails on % 0, as it should.
        modulo = f"CAST({{0}}::HUGEINT % {{1}} AS {_DUCK[kind]})"
        found.append(Overload("%", (kind, kind), same(0), modulo, throws=True, by_literal="({0} % {1})"))
        found.append(Overload("negative", (kind,), same(0), "subtract({0})", throws=True))
        found.append(Overload("abs", (kind,), same(0), "abs({0})", throws=True))
    # DIV always returns BIGINT in Spark, and fails on the one quotient that does not fit.
    found.append(Overload("div", ("BIGINT", "BIGINT"), BIGINT, "CAST({0}::HUGEINT // {1} AS BIGINT)", throws=True))
    for kind in ("FLOAT", "DOUBLE"):
        found.append(Overload("negative", (kind,), same(0), "(-{0})"))
        found.append(Overload("abs", (kind,), same(0), "abs({0})"))
    for kind in (*_NUMBERS, "DECIMAL"):
        found.append(Overload("positive", (kind,), same(0), "{0}"))
    return found


def _comparisons() -> list[Overload]:
    found: list[Overload] = []
    for operator in ("=", "!=", "<", "<=", ">", ">="):
        text = "<>" if operator == "!=" else operator
        found += [Overload(operator, (kind, kind), BOOLEAN, f"({{0}} {text} {{1}})") for kind in _COMPARABLE]
    found += [Overload("<=>", (kind, kind), BOOLEAN, "({0} IS NOT DISTINCT FROM {1})") for kind in _COMPARABLE]
    found += [
        Overload("in", (kind, kind), BOOLEAN, lambda a, k, r: f"({a[0]} IN ({', '.join(a[1:])}))", variadic=True)
        for kind in _COMPARABLE
    ]
    for kind in (*_COMPARABLE, "BINARY", "ARRAY", "MAP", "STRUCT"):
        found.append(Overload("isnull", (kind,), BOOLEAN, "({0} IS NULL)"))
        found.append(Overload("isnotnull", (kind,), BOOLEAN, "({0} IS NOT NULL)"))
    return found


def _logic() -> list[Overload]:
    # `render` writes AND and OR: it keeps a failing right side away from rows that the left side decides.
    return [
        Overload("and", ("BOOLEAN", "BOOLEAN"), BOOLEAN, "({0} AND {1})"),
        Overload("or", ("BOOLEAN", "BOOLEAN"), BOOLEAN, "({0} OR {1})"),
        Overload("not", ("BOOLEAN",), BOOLEAN, "(NOT {0})"),
    ]


def _bits() -> list[Overload]:
    found: list[Overload] = []
    for kind in _WHOLE:
        found.append(Overload("&", (kind, kind), same(0), "({0} & {1})"))
        found.append(Overload("|", (kind, kind), same(0), "({0} | {1})"))
        found.append(Overload("^", (kind, kind), same(0), "xor({0}, {1})"))
        found.append(Overload("~", (kind,), same(0), "(~{0})"))
    return found


def _plus_months(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    return add_months(args[0], args[1].removeprefix("to_months(").removesuffix(")"))


def _times() -> list[Overload]:
    """Times plus intervals. `bind` turns subtraction into adding the negative. It adds days separately: Spark adds them
    first, as calendar days in the session time zone."""
    found: list[Overload] = []
    for kind, result in (("TIMESTAMP", TIMESTAMP), ("TIMESTAMP_NTZ", TIMESTAMP_NTZ)):
        found.append(Overload("+", (kind, "INTERVAL SECOND"), result, "({0} + {1})", throws=True))
        found.append(Overload("+", (kind, "INTERVAL MONTH"), result, "({0} + {1})", throws=True))
    found.append(Overload("+", ("DATE", "INTERVAL MONTH"), DATE, _plus_months, throws=True))
    for operator in ("+", "-"):
        found.append(Overload(operator, ("DATE", "INT"), DATE, f"({{0}} {operator} {{1}})", throws=True))
    found.append(Overload("||", ("STRING", "STRING"), STRING, "({0} || {1})"))
    return found


OVERLOADS: tuple[Overload, ...] = (*_arithmetic(), *_comparisons(), *_logic(), *_bits(), *_times())
