"""Functions on vectors, which are ARRAY<FLOAT>. A NULL in a vector makes the result NULL."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.model.schema import FLOAT, Array, DataType
from headrace.sql.functions.nesting import kept, let, mapped
from headrace.sql.functions.overload import Overload, same
from headrace.sql.plan.expr import Expr, Literal

_VECTOR = Array(FLOAT)


def _incomplete(vector: str) -> str:
    return f"len({kept(vector, lambda x: f'{x} IS NULL')}) > 0"


def _of_two(name: str, value: Callable[[str, str], str]) -> Overload:
    """Of two vectors of the same length, computed in DOUBLE."""

    def sql(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
        def body(a: str, b: str) -> str:
            wide = value(f"CAST({a} AS DOUBLE[])", f"CAST({b} AS DOUBLE[])")
            return (
                f"CASE WHEN {a} IS NULL OR {b} IS NULL THEN NULL "
                f"WHEN len({a}) <> len({b}) THEN error('VECTOR_DIMENSION_MISMATCH') "
                f"WHEN {_incomplete(a)} OR {_incomplete(b)} THEN NULL ELSE CAST({wide} AS FLOAT) END"
            )

        return let(args[0], lambda a: let(args[1], lambda b: body(a, b)))

    return Overload(name, ("ARRAY", "ARRAY"), FLOAT, sql, throws=True, check=_of_floats)


def _of_floats(args: Sequence[Expr]) -> str | None:
    wrong = next((a.type for a in args[:2] if isinstance(a.type, Array) and a.type != _VECTOR), None)
    return None if wrong is None else f"{wrong}, which is not ARRAY<FLOAT>"


def _inner(a: str, b: str) -> str:
    return f"CASE WHEN len({a}) = 0 THEN 0 ELSE list_inner_product({a}, {b}) END"


def _distance(a: str, b: str) -> str:
    return f"CASE WHEN len({a}) = 0 THEN 0 ELSE list_distance({a}, {b}) END"


def _cosine(a: str, b: str) -> str:
    lengths = f"sqrt({_inner(a, a)}) * sqrt({_inner(b, b)})"
    return f"CASE WHEN {lengths} <> 0 THEN ({_inner(a, b)}) / ({lengths}) END"


def _norm(vector: str, degree: float) -> str:
    wide = f"CAST({vector} AS DOUBLE[])"
    sizes = mapped(wide, lambda x: f"abs({x})")
    if degree == 1:
        return f"coalesce(list_sum({sizes}), 0)"
    return f"sqrt({_inner(wide, wide)})" if degree == 2 else f"coalesce(list_max({sizes}), 0)"


def _degree(args: Sequence[str]) -> float:
    text = args[1].partition("::")[0].strip("'()") if len(args) > 1 else "2"
    return float(text)


def _check_degree(args: Sequence[Expr]) -> str | None:
    if len(args) > 1 and not (isinstance(args[1], Literal) and args[1].value in (1.0, 2.0)):
        return "another degree than 1 and 2"
    return _of_floats(args[:1])


def _norms() -> list[Overload]:
    def norm(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
        return let(
            args[0], lambda a: f"CASE WHEN NOT {_incomplete(a)} THEN CAST({_norm(a, _degree(args))} AS FLOAT) END"
        )

    def unit(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
        def body(a: str) -> str:
            size = _norm(a, _degree(args))
            scaled = let(size, lambda n: mapped(a, lambda x: f"CAST({x} / {n} AS FLOAT)"))
            return f"CASE WHEN {_incomplete(a)} THEN NULL WHEN len({a}) = 0 OR {size} <> 0 THEN {scaled} END"

        return let(args[0], body)

    found: list[Overload] = []
    for params in (("ARRAY",), ("ARRAY", "FLOAT")):
        at = (1,) if len(params) > 1 else ()
        found.append(Overload("vector_norm", params, FLOAT, norm, constant=at, check=_check_degree, exact=at))
        found.append(Overload("vector_normalize", params, same(0), unit, constant=at, check=_check_degree, exact=at))
    return found


OVERLOADS: tuple[Overload, ...] = (
    _of_two("vector_inner_product", _inner),
    _of_two("vector_l2_distance", _distance),
    _of_two("vector_cosine_similarity", _cosine),
    *_norms(),
)
