"""Functions on numbers. Results of the C math library may differ from Java's in the last digit."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.schema import BIGINT, BOOLEAN, DOUBLE, DataType, Decimal
from headrace.sql.functions.overload import Overload, literal_int, same
from headrace.sql.plan.expr import Expr, Literal

_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_D = ("DOUBLE",)
_NAN = "'nan'::DOUBLE"


def _unsigned(text: str) -> str:
    """Turns -0.0 into 0.0."""
    return f"CASE WHEN {text} = 0 THEN 0 ELSE {text} END"


def _whole_decimal(kinds: Sequence[DataType]) -> DataType | None:
    kind = kinds[0]
    assert isinstance(kind, Decimal)
    return kind if kind.scale == 0 else Decimal(min(38, kind.precision - kind.scale + 1), 0)


def _rounded(kinds: Sequence[DataType]) -> DataType | None:
    """The type of round(x) of a decimal: no digits after the point, one more before it."""
    kind = kinds[0]
    assert isinstance(kind, Decimal)
    return Decimal(kind.precision - kind.scale + 1, 0) if kind.precision - kind.scale < 38 else None


def far_from_tie(text: str, digits: str) -> str:
    """True if a DOUBLE is so small, and so far from the middle of two results, that its last digits do not matter."""
    scaled = f"({text} * {10 ** (literal_int(digits) or 0)}::DOUBLE)"
    return f"abs({scaled}) < 1e9 AND abs(abs({scaled} - trunc({scaled})) - 0.5) > 1e-6"


def nearest(text: str, digits: str) -> str:
    """A DOUBLE that is `far_from_tie`, rounded. The quotient of whole numbers is the DOUBLE nearest to the digits."""
    unit = f"{10 ** (literal_int(digits) or 0)}::DOUBLE"
    return f"(round({text} * {unit}) / {unit} + 0)"


def _round_to(text: str, digits: str) -> str:
    """round(x, n) of a DOUBLE: half up on the printed digits. Java and DuckDB print the same digits."""
    if (literal_int(digits) or 0) == 0:
        return _unsigned(f"round({text})")
    near, far = (
        f"CAST(CAST(round(CAST(CAST({text} AS VARCHAR) AS DECIMAL(38,{scale})), {digits}) AS VARCHAR) AS DOUBLE)"
        for scale in (24, 6)
    )
    return (
        f"CASE WHEN {far_from_tie(text, digits)} THEN {nearest(text, digits)} "
        f"WHEN NOT isfinite({text}) OR abs({text}) >= 9007199254740992 THEN {text} "  # has no fraction
        f"WHEN abs({text}) < 1e13 THEN {near} ELSE {far} END"
    )


def _check_digits(args: Sequence[Expr]) -> str | None:
    digits = args[1].value if isinstance(args[1], Literal) else None
    return None if isinstance(digits, int) and 0 <= digits <= 12 else "digits other than 0 to 12"


def _round_whole(text: str, digits: str, duck: str) -> str:
    """round(x, -n) of a whole number: half away from zero."""
    count = -(literal_int(digits) or 0)
    if count > 19:
        return f"CASE WHEN {text} IS NOT NULL THEN 0::{duck} END"
    unit = 10**count
    up = f"(abs({text}::HUGEINT) + {unit // 2}::HUGEINT) // {unit}::HUGEINT * {unit}::HUGEINT"
    return f"CAST(CASE WHEN {text} < 0 THEN -({up}) ELSE {up} END AS {duck})"


def _rounds_of_whole() -> list[Overload]:
    ducks = {"TINYINT": "TINYINT", "SMALLINT": "SMALLINT", "INT": "INTEGER", "BIGINT": "BIGINT"}

    def made(kind: str, duck: str) -> Overload:
        return Overload(
            "round",
            (kind, "INT"),
            same(0),
            lambda a, k, r: _round_whole(a[0], a[1], duck),
            throws=True,
            constant=(1,),
        )

    return [made(kind, duck) for kind, duck in ducks.items()]


def _to_decimal(function: str) -> Overload:
    name = {"CAST": "round"}.get(function, function)
    if name == "round":
        return Overload(name, ("DECIMAL",), _rounded, lambda a, k, r: f"CAST({a[0]} AS {r.duckdb})")
    return Overload(name, ("DECIMAL",), _whole_decimal, lambda a, k, r: f"CAST({function}({a[0]}) AS {r.duckdb})")


def _functions() -> list[Overload]:
    found: list[Overload] = []
    for name in ("floor", "ceil"):
        text = f"CASE WHEN isnan({{0}}) THEN 0 ELSE CAST({name}({{0}}) AS BIGINT) END"  # Java casts NaN to 0
        found.append(Overload(name, _D, BIGINT, text, throws=True))
        found.append(Overload(name, ("BIGINT",), BIGINT, "{0}"))
        found.append(_to_decimal(name))
    found += [
        Overload("round", _D, DOUBLE, _unsigned("round({0})")),
        _to_decimal("CAST"),
        Overload(
            "round",
            ("DOUBLE", "INT"),
            DOUBLE,
            lambda a, k, r: _round_to(a[0], a[1]),
            constant=(1,),
            check=_check_digits,
        ),
        *_rounds_of_whole(),
        Overload("sqrt", _D, DOUBLE, f"CASE WHEN {{0}} < 0 THEN {_NAN} ELSE sqrt({{0}}) END"),
        Overload("isnan", _D, BOOLEAN, "coalesce(isnan({0}), FALSE)"),
        Overload("isnan", ("FLOAT",), BOOLEAN, "coalesce(isnan({0}), FALSE)"),
        Overload("signum", _D, DOUBLE, "CASE WHEN isnan({0}) OR {0} = 0 THEN {0} ELSE CAST(sign({0}) AS DOUBLE) END"),
        Overload("nanvl", ("DOUBLE", "DOUBLE"), DOUBLE, "CASE WHEN isnan({0}) THEN {1} ELSE {0} END"),
        # Spark adds zero first, which removes the sign of -0.0.
        Overload("atan2", ("DOUBLE", "DOUBLE"), DOUBLE, f"atan2({_unsigned('{0}')}, {_unsigned('{1}')})"),
        # NaN in Java, 1 in C.
        Overload(
            "power",
            ("DOUBLE", "DOUBLE"),
            DOUBLE,
            "CASE WHEN {0} IS NOT NULL AND (isnan({1}) OR (abs({0}) = 1 AND isinf({1}))) "
            f"THEN {_NAN} ELSE pow({{0}}, {{1}}) END",
        ),
    ]
    for name in ("radians", "degrees", "exp", "atan", "cbrt"):
        found.append(Overload(name, _D, DOUBLE, f"{name}({{0}})"))
    for name in ("sin", "cos", "tan"):  # Java returns NaN where DuckDB fails.
        found.append(Overload(name, _D, DOUBLE, f"CASE WHEN isinf({{0}}) THEN {_NAN} ELSE {name}({{0}}) END"))
    for name in ("asin", "acos"):
        text = f"CASE WHEN {{0}} < -1 OR {{0}} > 1 THEN {_NAN} ELSE {name}({{0}}) END"
        found.append(Overload(name, _D, DOUBLE, text))
    for name in ("ln", "log10", "log2"):  # Spark returns NULL for zero and below.
        found.append(Overload(name, _D, DOUBLE, f"CASE WHEN {{0}} <= 0 THEN NULL ELSE {name}({{0}}) END"))
    for kind in (*_WHOLE, "DOUBLE", "DECIMAL", "STRING", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"):
        pair = (kind, kind)
        found.append(Overload("greatest", pair, same(0), lambda a, k, r: f"greatest({', '.join(a)})", variadic=True))
        found.append(Overload("least", pair, same(0), lambda a, k, r: f"least({', '.join(a)})", variadic=True))
    return found


OVERLOADS: tuple[Overload, ...] = tuple(_functions())
