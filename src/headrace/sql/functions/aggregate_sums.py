"""Counts, sums and averages.

Sums of whole numbers are exact (DECIMAL(38,0)), and checked against BIGINT at the end. So are sums of decimals: those
of more than 28 digits are kept as two sums, of the digits above and below 10^19. Spark checks for overflow after every
row, so only we can sum values whose intermediate sums do not fit. Sums of DOUBLE are compensated (`fsum`). A plain sum
beside it is right for NaN and infinities.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.schema import BIGINT, DOUBLE, Array, DataType, Decimal, Field, Struct
from headrace.sql.functions.aggregate_states import (
    NUMBERS,
    AggregateFunction,
    Constants,
    PartialState,
    SplitAggregate,
    Splitter,
    one_zero,
    orderable,
    present,
)
from headrace.sql.plan.types import INTEGRAL

_EXACT = Decimal(38, 0)
_HALF = 10**19  # sums of more than 28 digits are divided here
_LONG = 28  # digits up to which the sum of ten billion values fits 38 digits

# The compensation of fsum turns infinities into NaN. The plain sum keeps them.
_FLOAT_SUM = "CASE WHEN isfinite({0}) THEN {0} ELSE {1} END"


def distinct_state(text: str, kind: DataType, among: str) -> PartialState:
    """The set of values for which `among` holds. It is sorted, so that a re-run writes the same bytes to the state."""
    return PartialState(
        Array(kind),
        f"list_sort(list(DISTINCT {text}) FILTER (WHERE {among}))",
        "list_sort(list_distinct(flatten(list({p}) FILTER (WHERE {p} IS NOT NULL))))",
    )


def _count(args: Sequence[str], kinds: Sequence[DataType], result: DataType, constants: Constants) -> SplitAggregate:
    return SplitAggregate((_counted(args[0]),), "{0}")


def _count_distinct(
    args: Sequence[str], kinds: Sequence[DataType], result: DataType, constants: Constants
) -> SplitAggregate:
    texts = [one_zero(text, kind) for text, kind in zip(args, kinds, strict=True)]
    if len(texts) == 1:
        state = distinct_state(texts[0], kinds[0], present(args[0]))
    else:
        packed = ", ".join(f"f{i} := {text}" for i, text in enumerate(texts))
        kind = Struct(tuple(Field(f"f{i}", kind) for i, kind in enumerate(kinds)))
        state = distinct_state(f"struct_pack({packed})", kind, present(*args))
    return SplitAggregate((state,), "CAST(coalesce(len({0}), 0) AS BIGINT)")


def _counted(text: str) -> PartialState:
    return PartialState(BIGINT, f"count({text})", "sum({p})")


def _sum(attempt: bool) -> Splitter:
    def split(args: Sequence[str], kinds: Sequence[DataType], result: DataType, constants: Constants) -> SplitAggregate:
        return SplitAggregate(_sum_states(args[0], kinds[0]), _total(kinds[0], result, attempt))

    return split


def _sum_distinct(
    args: Sequence[str], kinds: Sequence[DataType], result: DataType, constants: Constants
) -> SplitAggregate:
    state = distinct_state(one_zero(args[0], kinds[0]), kinds[0], present(args[0]))
    return SplitAggregate((state,), _total(kinds[0], result, False).format(*_sums_of_list(kinds[0])))


def _avg(attempt: bool) -> Splitter:
    def split(args: Sequence[str], kinds: Sequence[DataType], result: DataType, constants: Constants) -> SplitAggregate:
        states = _sum_states(args[0], kinds[0])
        names = [f"{{{i}}}" for i in range(len(states) + 1)]
        return SplitAggregate((*states, _counted(args[0])), _mean(kinds[0], result, attempt).format(*names))

    return split


def _avg_distinct(
    args: Sequence[str], kinds: Sequence[DataType], result: DataType, constants: Constants
) -> SplitAggregate:
    state = distinct_state(one_zero(args[0], kinds[0]), kinds[0], present(args[0]))
    sums = [*_sums_of_list(kinds[0]), "len({0})"]
    return SplitAggregate((state,), _mean(kinds[0], result, False).format(*sums))


def _sum_states(text: str, kind: DataType) -> tuple[PartialState, ...]:
    if kind in INTEGRAL:
        # DuckDB sums whole numbers in 128 bits, so only the sum is cast to the state's type, not every row.
        return (PartialState(_EXACT, f"sum({text})", "sum({p})"),)
    if isinstance(kind, Decimal):
        if kind.precision <= _LONG:
            return (PartialState(Decimal(38, kind.scale), f"sum({text})", "sum({p})"),)
        digits = _digits(text)
        return tuple(PartialState(_EXACT, f"sum({digits} {part} {_HALF}::HUGEINT)", "sum({p})") for part in ("//", "%"))
    x = text if kind == DOUBLE else f"CAST({text} AS DOUBLE)"
    return PartialState(DOUBLE, f"fsum({x})", "fsum({p})"), PartialState(DOUBLE, f"sum({x})", "sum({p})")


def _sums_of_list(kind: DataType) -> list[str]:
    """The SQL of the states of `_sum_states`, over the values of the list {0}."""
    if isinstance(kind, Decimal) and kind.precision > _LONG:
        return [
            f"list_aggregate(list_transform({{0}}, lambda x: {_digits('x')} {part} {_HALF}::HUGEINT), 'sum')"
            for part in ("//", "%")
        ]
    if kind in INTEGRAL or isinstance(kind, Decimal):
        return ["list_aggregate({0}, 'sum')"]
    doubles = "CAST({0} AS DOUBLE[])"
    return [f"list_aggregate({doubles}, 'fsum')", f"list_aggregate({doubles}, 'sum')"]


def _total(kind: DataType, result: DataType, attempt: bool) -> str:
    """The sum, over the states. An overflow is an error, or NULL for an `attempt`."""
    if isinstance(kind, Decimal) and kind.precision > _LONG:
        assert isinstance(result, Decimal)
        value = _with("d", _long_digits(attempt), _from_digits("d", result))
    elif kind in INTEGRAL or isinstance(kind, Decimal):
        value = f"{'TRY_CAST' if attempt else 'CAST'}({{0}} AS {result.duckdb})"
    else:
        value = _FLOAT_SUM
    return value


def _mean(kind: DataType, result: DataType, attempt: bool) -> str:
    """The average, over the states and the count that follows them."""
    if kind in INTEGRAL:
        return "CASE WHEN {1} > 0 THEN CAST({0} AS DOUBLE) / {1} END"
    if not isinstance(kind, Decimal):
        return f"CASE WHEN {{2}} > 0 THEN ({_FLOAT_SUM}) / {{2}} END"
    assert isinstance(result, Decimal)
    long = kind.precision > _LONG
    n = "CAST({2} AS HUGEINT)" if long else "CAST({1} AS HUGEINT)"
    digits = _long_digits(attempt) if long else _digits("{0}")
    # Quotient and remainder apart: the digits of the sum with the added ones of the result may not fit 128 bits.
    more = result.scale - kind.scale
    limit = 10 ** (result.precision - more)
    rounded = f"((2 * abs(d % {n}) * {10**more} + {n}) // (2 * {n}))"
    exact = f"(d // {n} * {10**more} + CASE WHEN d < 0 THEN -{rounded} ELSE {rounded} END)"
    checked = _unless(f"abs(d // {n}) >= {limit}::HUGEINT", exact, attempt)
    in_range = _unless(f"abs(d) >= {10**result.precision}::HUGEINT", "d", attempt)
    value = _with("d", _with("d", _with("d", digits, checked), in_range), _from_digits("d", result))
    return f"CASE WHEN {n} > 0 THEN {value} END"


def _long_digits(attempt: bool) -> str:
    """The digits of a sum kept in two states, as HUGEINT; at most 38."""
    whole = f"CAST({{0}} AS HUGEINT) * {_HALF}::HUGEINT + CAST({{1}} AS HUGEINT)"
    # The lower sum has far less than 10^37, so the upper one alone tells when the product would not fit 128 bits.
    checked = _unless(f"abs({{0}}) >= {_HALF + _HALF // 2}::HUGEINT", whole, attempt)
    return _with("d", checked, _unless(f"abs(d) >= {10**38}::HUGEINT", "d", attempt))


def _unless(overflow: str, value: str, attempt: bool) -> str:
    failed = "NULL" if attempt else "error('ARITHMETIC_OVERFLOW')"
    return f"CASE WHEN {overflow} THEN {failed} ELSE {value} END"


def _digits(text: str) -> str:
    """A decimal without its point, as HUGEINT: 1.25 becomes 125. Through text, because DuckDB cannot multiply decimals
    of 38 digits."""
    return f"CAST(replace(CAST({text} AS VARCHAR), '.', '') AS HUGEINT)"


def _from_digits(digits: str, kind: Decimal) -> str:
    """The inverse of `_digits`: puts the point back."""
    if kind.scale == 0:
        return f"CAST({digits} AS {kind.duckdb})"
    text = f"CAST(abs({digits}) AS VARCHAR)"
    padded = f"(repeat('0', {kind.scale} - length({text})) || {text})"
    sign = f"CASE WHEN {digits} < 0 THEN '-' ELSE '' END"
    return f"CAST({sign} || left({padded}, -{kind.scale}) || '.' || right({padded}, {kind.scale}) AS {kind.duckdb})"


def _with(name: str, value: str, body: str) -> str:
    """`body` with `name` for `value`, which is computed once."""
    return f"list_transform([{value}], lambda {name}: {body})[1]"


def _sum_type(kinds: Sequence[DataType]) -> DataType | None:
    kind = kinds[0]
    if isinstance(kind, Decimal):
        return Decimal(min(38, kind.precision + 10), kind.scale)
    return BIGINT if kind in INTEGRAL else DOUBLE


def _avg_type(kinds: Sequence[DataType]) -> DataType | None:
    kind = kinds[0]
    if isinstance(kind, Decimal):
        return Decimal(min(38, kind.precision + 4), min(38, kind.scale + 4))
    return DOUBLE


def _distinct_type(kinds: Sequence[DataType]) -> DataType | None:
    return BIGINT if all(map(orderable, kinds)) else None


def sum_functions() -> list[AggregateFunction]:
    """count, sum and avg, with DISTINCT and with try_."""
    found = [
        AggregateFunction("count", ("ANY",), BIGINT, _count),
        AggregateFunction("count distinct", ("ANY",), _distinct_type, _count_distinct),
        SEVERAL_DISTINCT,
    ]
    for kind in NUMBERS:
        found += [
            AggregateFunction("sum", (kind,), _sum_type, _sum(attempt=False)),
            AggregateFunction("try_sum", (kind,), _sum_type, _sum(attempt=True)),
            AggregateFunction("sum distinct", (kind,), _sum_type, _sum_distinct),
            AggregateFunction("avg", (kind,), _avg_type, AVERAGE),
            AggregateFunction("try_avg", (kind,), _avg_type, _avg(attempt=True)),
            AggregateFunction("avg distinct", (kind,), _avg_type, _avg_distinct),
        ]
    return found


# count(DISTINCT a, b, ...): rows in which one of them is NULL do not count
SEVERAL_DISTINCT = AggregateFunction("count distinct", ("ANY", "ANY..."), _distinct_type, _count_distinct)
AVERAGE = _avg(attempt=False)
