"""try_add and its family: NULL where the operator would raise. `bind` gives both operands the operator's types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.model.schema import DATE, DOUBLE, DataType, Decimal
from headrace.sql.functions.overload import Overload, same
from headrace.sql.plan.types import decimal_result

# The operator of each function.
TRIED = {"try_add": "+", "try_subtract": "-", "try_multiply": "*", "try_divide": "/", "try_mod": "%"}
_WHOLE = {"TINYINT": "TINYINT", "SMALLINT": "SMALLINT", "INT": "INTEGER", "BIGINT": "BIGINT"}


def of_decimals(operators: Mapping[str, Sequence[Overload]]) -> list[Overload]:
    """The functions of decimals, by the overloads of all operators: where the exact result fits 38 digits, so that
    nothing but a zero can fail."""
    return [
        _tried(name, operator, inner)
        for name, operator in TRIED.items()
        for inner in operators.get(operator, ())
        if inner.params == ("DECIMAL", "DECIMAL")
    ]


def _tried(name: str, operator: str, inner: Overload) -> Overload:
    def result(kinds: Sequence[DataType]) -> DataType | None:
        left, right = kinds
        assert isinstance(left, Decimal) and isinstance(right, Decimal)
        return inner.result_type(kinds) if decimal_result(operator, left, right)[0] <= 38 else None

    def sql(args: Sequence[str], kinds: Sequence[DataType], kind: DataType) -> str:
        text = inner.render(args, kinds, kind)
        return f"CASE WHEN {args[1]} <> 0 THEN {text} END" if operator in "/%" else text

    return Overload(name, inner.params, result, sql, slow_for=inner.slow_for if operator in "/%" else None)


def _functions() -> list[Overload]:
    found: list[Overload] = []
    for name, operator in TRIED.items():
        for kind in ("FLOAT", "DOUBLE"):
            if operator in "+-*":
                found.append(Overload(name, (kind, kind), same(0), f"({{0}} {operator} {{1}})"))
            elif kind == "DOUBLE":
                found.append(
                    Overload(name, (kind, kind), DOUBLE, f"CASE WHEN {{1}} <> 0 THEN {{0}} {operator} {{1}} END")
                )
        for kind, duck in _WHOLE.items():
            wide = f"{{0}}::HUGEINT {operator} {{1}}"
            if operator == "%":
                found.append(
                    Overload(name, (kind, kind), same(0), f"CASE WHEN {{1}} <> 0 THEN CAST({wide} AS {duck}) END")
                )
            elif operator != "/":
                found.append(Overload(name, (kind, kind), same(0), f"TRY_CAST({wide} AS {duck})"))
    found += [
        Overload(name, ("DATE", "INT"), DATE, f"({{0}} {operator} {{1}})", throws=True)
        for name, operator in TRIED.items()
        if operator in "+-"
    ]
    return found


OVERLOADS: tuple[Overload, ...] = tuple(_functions())
