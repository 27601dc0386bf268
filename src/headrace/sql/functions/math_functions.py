"""Less common functions on numbers: hyperbolic functions, logarithms, remainders, rounding to even, number systems."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.schema import BIGINT, DOUBLE, STRING, DataType, Decimal
from headrace.sql.functions.number_functions import far_from_tie, nearest
from headrace.sql.functions.overload import Overload, literal_int, same
from headrace.sql.plan.expr import Expr, Literal

_D = ("DOUBLE",)
_NAN = "'nan'::DOUBLE"
_WHOLE = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}


def _plain() -> list[Overload]:
    """Functions that DuckDB or a kernel computes, and Java's values where DuckDB fails or rounds otherwise."""
    infinite = f"CASE WHEN isinf({{0}}) THEN {_NAN} ELSE 1 / %s({{0}}) END"
    forms = {
        "sinh": "sinh({0})",
        "cosh": "cosh({0})",
        "tanh": "tanh({0})",
        "cot": infinite % "tan",
        "sec": infinite % "cos",
        "csc": infinite % "sin",
        "expm1": "hr_expm1({0})",
        "log1p": "CASE WHEN {0} <= -1 THEN NULL ELSE hr_log1p({0}) END",
        "rint": "CASE WHEN isfinite({0}) THEN round_even({0}, 0) ELSE {0} END",
        "log": "CASE WHEN {0} <= 0 THEN NULL ELSE ln({0}) END",
        "asinh": "CASE WHEN {0} = '-inf'::DOUBLE OR {0} = 0 THEN {0} ELSE asinh({0}) END",
        "acosh": f"CASE WHEN {{0}} < 1 THEN {_NAN} ELSE acosh({{0}}) END",
        "atanh": f"CASE WHEN abs({{0}}) > 1 THEN {_NAN} ELSE 0.5 * (hr_log1p({{0}}) - hr_log1p(-{{0}})) END",
    }
    found = [Overload(name, _D, DOUBLE, sql) for name, sql in forms.items()]
    two = ("DOUBLE", "DOUBLE")
    found.append(Overload("hypot", two, DOUBLE, "hr_hypot({0}, {1})"))
    found.append(Overload("log", two, DOUBLE, "CASE WHEN {0} <= 0 OR {1} <= 0 THEN NULL ELSE ln({1}) / ln({0}) END"))
    found.append(Overload("e", (), DOUBLE, "'2.718281828459045'::DOUBLE"))
    found.append(Overload("pi", (), DOUBLE, "'3.141592653589793'::DOUBLE"))
    return found


def _pmod(kind: str) -> Overload:
    """The remainder with the sign of the divisor. Java's sum of the remainder and the divisor wraps around."""
    if kind in ("FLOAT", "DOUBLE"):
        guard = "CASE WHEN {1} = 0 AND {0} IS NOT NULL THEN error('REMAINDER_BY_ZERO') "
        sql = guard + "WHEN {0} % {1} < 0 THEN ({0} % {1} + {1}) % {1} ELSE {0} % {1} END"
        return Overload("pmod", (kind, kind), same(0), sql, throws=True)
    rest, wide = "({0}::HUGEINT % {1})", "({0}::HUGEINT % {1} + {1})"
    low, bits = -(2 ** (_WHOLE[kind] - 1)), _WHOLE[kind]
    summed = f"CASE WHEN {wide} < {low}::HUGEINT THEN {wide} + {2**bits}::HUGEINT ELSE {wide} END"
    if bits < 32:
        summed = wide
    duck = {"INT": "INTEGER"}.get(kind, kind)
    sql = f"CAST(CASE WHEN {rest} < 0 THEN ({summed}) % {{1}} ELSE {rest} END AS {duck})"
    return Overload("pmod", (kind, kind), same(0), sql, throws=True)


def _to_even(text: str, digits: int) -> str:
    """bround(x, n) of a DOUBLE: half to even on the printed digits, which are the same in Java and DuckDB."""

    def rounded(scale: int) -> str:
        exact = f"CAST(CAST({text} AS VARCHAR) AS DECIMAL(38,{scale}))"
        up = f"round({exact}, {digits})"
        unit = f"CAST('{10**-digits:.{digits}f}' AS DECIMAL(38,{scale}))"
        half = f"CAST('{10**-digits / 2:.{digits + 1}f}' AS DECIMAL(38,{scale}))"
        odd = f"CAST(abs({up}) * {10**digits}::DECIMAL({digits + 1},0) AS HUGEINT) % 2 = 1"
        chosen = f"CASE WHEN abs({up} - {exact}) = {half} AND {odd} THEN {up} - sign({text}) * {unit} ELSE {up} END"
        return f"CAST(CAST({chosen} AS VARCHAR) AS DOUBLE)"

    if not digits:
        return f"CASE WHEN isfinite({text}) THEN round_even({text}, 0) + 0 ELSE {text} END"
    return (
        f"CASE WHEN {far_from_tie(text, str(digits))} THEN {nearest(text, str(digits))} "
        f"WHEN NOT isfinite({text}) OR abs({text}) >= 9007199254740992 THEN {text} "
        f"WHEN abs({text}) < 1e12 THEN {rounded(24 - digits)} ELSE {rounded(6)} END"
    )


def _check_digits(args: Sequence[Expr]) -> str | None:
    digits = args[1].value if isinstance(args[1], Literal) else None
    return None if isinstance(digits, int) and 0 <= digits <= 5 else "digits other than 0 to 5"


def _even_decimal(kinds: Sequence[DataType]) -> DataType | None:
    kind = kinds[0]
    assert isinstance(kind, Decimal)
    return Decimal(kind.precision - kind.scale + 1, 0) if kind.precision - kind.scale < 38 else None


def _brounds() -> list[Overload]:
    even = "CAST(round_even({0}, 0) AS {1})"
    found = [
        Overload("bround", _D, DOUBLE, lambda a, k, r: _to_even(a[0], 0)),
        Overload(
            "bround",
            ("DOUBLE", "INT"),
            DOUBLE,
            lambda a, k, r: _to_even(a[0], literal_int(a[1]) or 0),
            constant=(1,),
            check=_check_digits,
        ),
        Overload("bround", ("DECIMAL",), _even_decimal, lambda a, k, r: even.format(a[0], r.duckdb)),
    ]
    return found + [Overload("bround", (kind,), same(0), "{0}") for kind in _WHOLE]


def _width_bucket(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    value, low, high, count = args
    up = f"CAST(trunc({count} * ({value} - {low}) / ({high} - {low})) AS BIGINT) + 1"
    down = f"CAST(trunc({count} * ({low} - {value}) / ({low} - {high})) AS BIGINT) + 1"
    unknown = (
        f"{count} <= 0 OR {count} = 9223372036854775807 OR isnan({value}) OR {low} = {high} "
        f"OR NOT isfinite({low}) OR NOT isfinite({high})"
    )
    missing = " OR ".join(f"{a} IS NULL" for a in args)
    return (
        f"CASE WHEN {missing} OR {unknown} THEN NULL "
        f"WHEN {low} < {high} THEN CASE WHEN {value} < {low} THEN 0 WHEN {value} >= {high} THEN {count} + 1 "
        f"ELSE {up} END "
        f"ELSE CASE WHEN {value} > {low} THEN 0 WHEN {value} <= {high} THEN {count} + 1 ELSE {down} END END"
    )


OVERLOADS: tuple[Overload, ...] = (
    *_plain(),
    *_brounds(),
    *(_pmod(kind) for kind in (*_WHOLE, "FLOAT", "DOUBLE")),
    Overload("bin", ("BIGINT",), STRING, "bin({0})"),
    Overload("conv", ("STRING", "INT", "INT"), STRING, "hr_conv({0}, {1}, {2})", throws=True),
    Overload(
        "factorial",
        ("INT",),
        BIGINT,
        "CASE WHEN {0} >= 0 AND {0} <= 20 THEN CAST(factorial({0}) AS BIGINT) END",
    ),
    Overload("width_bucket", ("DOUBLE", "DOUBLE", "DOUBLE", "BIGINT"), BIGINT, _width_bucket),
)
