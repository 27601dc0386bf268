"""Random queries over the stream `s`, typed by construction, so that most of them bind."""

from __future__ import annotations

from hypothesis import strategies as st

_COLUMNS = {
    "INT": ["id"],
    "BIGINT": ["n"],
    "DOUBLE": ["temp", "pos.lat"],
    "DECIMAL": ["price"],
    "STRING": ["k"],
    "BOOLEAN": ["ok"],
    "DATE": ["day"],
    "TIMESTAMP": ["ts"],
}
_LITERALS = {
    "INT": ["0", "1", "3", "-2"],
    "BIGINT": ["0L", "7L", "10000000000"],
    "DOUBLE": ["0.5D", "1e3", "-2.5D"],
    "DECIMAL": ["1.5", "0.01", "2"],
    "STRING": ["'a'", "'b'", "''", "'it''s'"],
    "BOOLEAN": ["TRUE", "FALSE"],
    "DATE": ["DATE '2024-06-01'"],
    "TIMESTAMP": ["TIMESTAMP '2024-03-01 10:00:00'"],
}
_NUMBERS = ("INT", "BIGINT", "DOUBLE", "DECIMAL")
_KINDS = tuple(_COLUMNS)
_PLAIN = tuple(k for k in _KINDS if k != "BOOLEAN")
_NUMBER_FORMS = (
    "{a} + {b}", "{a} - {b}", "-({a})", "abs({a})", "coalesce({a}, {b})", "CASE WHEN {c} THEN {a} ELSE {b} END",
)  # fmt: skip
_STRING_FORMS = (
    "upper({a})", "concat({a}, {b})", "substring({a}, 1, 2)", "trim({a})", "nullif({a}, {b})", "{a} || 'x'",
)  # fmt: skip
_AGGREGATES = (
    "count", "sum", "min", "max", "avg", "stddev_samp", "count distinct", "count_star", "bool_or", "median",
    "sum distinct", "avg distinct", "bit_xor",
)  # fmt: skip
_OF_NUMBERS = ("sum", "avg", "stddev_samp", "median", "sum distinct", "avg distinct")
_WINDOWS = ("", "window(ts, '5 minutes')", "window(ts, '10 minutes', '4 minutes')", "session_window(ts, '20 seconds')")
_KEYS = ("k", "ok", "id % 3", "upper(k)", "year(ts)")


@st.composite
def expression(draw: st.DrawFn, kind: str, depth: int = 2) -> str:
    """An expression of about the given type."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        pool = _COLUMNS[kind] if draw(st.integers(0, 3)) else _LITERALS[kind]
        return draw(st.sampled_from(pool))
    inner = expression(kind, depth - 1)
    if kind == "BOOLEAN":
        return draw(condition(depth))
    if kind in _NUMBERS:
        form = draw(
            st.sampled_from(
                [
                    "{a} + {b}",
                    "{a} - {b}",
                    "-({a})",
                    "abs({a})",
                    "coalesce({a}, {b})",
                    "CASE WHEN {c} THEN {a} ELSE {b} END",
                ]
            )
        )
    elif kind == "STRING":
        form = draw(
            st.sampled_from(
                [
                    "upper({a})",
                    "concat({a}, {b})",
                    "substring({a}, 1, 2)",
                    "trim({a})",
                    "nullif({a}, {b})",
                    "{a} || 'x'",
                ]
            )
        )
    elif kind == "DATE":
        form = draw(st.sampled_from(["date_add({a}, 3)", "coalesce({a}, {b})", "last_day({a})"]))
    else:
        form = draw(st.sampled_from(["{a} + INTERVAL 90 MINUTES", "date_trunc('hour', {a})", "{a} - INTERVAL 1 DAY"]))
    return form.format(a=draw(inner), b=draw(inner), c=draw(condition(1)))


@st.composite
def condition(draw: st.DrawFn, depth: int = 2) -> str:
    """A boolean expression."""
    if depth > 1 and draw(st.booleans()):
        form = draw(st.sampled_from(["({a}) AND ({b})", "({a}) OR ({b})", "NOT ({a})"]))
        return form.format(a=draw(condition(depth - 1)), b=draw(condition(depth - 1)))
    kind = draw(st.sampled_from(_PLAIN))
    left, right = draw(expression(kind, depth - 1)), draw(expression(kind, depth - 1))
    forms = ["{a} = {b}", "{a} < {b}", "{a} >= {b}", "{a} <> {b}", "{a} <=> {b}", "{a} IS NULL", "{a} IN ({b}, {a})"]
    forms += ["{a} BETWEEN {b} AND {a}", "{a} LIKE 'a%'"] if kind == "STRING" else ["{a} BETWEEN {b} AND {a}"]
    return draw(st.sampled_from(forms)).format(a=left, b=right)


@st.composite
def aggregate(draw: st.DrawFn) -> str:
    """An aggregate call."""
    name = draw(st.sampled_from(_AGGREGATES))
    if name == "count_star":
        return "count(*)"
    if name == "bool_or":
        return f"bool_or({draw(condition(1))})"
    kinds = ("INT", "BIGINT") if name == "bit_xor" else _NUMBERS if name in _OF_NUMBERS else _PLAIN
    inner = draw(expression(draw(st.sampled_from(kinds)), 1))
    filtered = f" FILTER (WHERE {draw(condition(1))})" if draw(st.integers(0, 4)) == 0 else ""
    name, _, suffix = name.partition(" ")
    return f"{name}({'DISTINCT ' if suffix else ''}{inner}){filtered}"


@st.composite
def query(draw: st.DrawFn) -> str:
    """A query: a projection, a grouped aggregate or a windowed one, perhaps over a subquery."""
    where = f" WHERE {draw(condition())}" if draw(st.booleans()) else ""
    source = "s"
    if draw(st.integers(0, 3)) == 0:
        source = f"(SELECT * FROM s WHERE {draw(condition(1))}) q"
    if draw(st.integers(0, 2)) == 0:
        kinds = draw(st.lists(st.sampled_from(_KINDS), min_size=1, max_size=3))
        items = ", ".join(f"{draw(expression(kind))} AS c{i}" for i, kind in enumerate(kinds))
        return f"SELECT {items} FROM {source}{where}"
    calls = [f"{draw(aggregate())} AS a{i}" for i in range(draw(st.integers(1, 3)))]
    window = draw(st.sampled_from(_WINDOWS))
    keys = [
        draw(st.sampled_from(["k", "ok", "id % 3", "upper(k)", "year(ts)"])) for _ in range(draw(st.integers(0, 2)))
    ]
    keys = list(dict.fromkeys(keys))
    groups = [g for g in (window, *keys) if g]
    selected = [
        *([f"{window.partition('(')[0]}.{draw(st.sampled_from(['start', 'end']))} AS w"] if window else []),
        *(f"{key} AS k{i}" for i, key in enumerate(keys)),
        *calls,
    ]
    grouped = f" GROUP BY {', '.join(groups)}" if groups else ""
    having = f" HAVING count(*) > {draw(st.integers(0, 2))}" if draw(st.integers(0, 3)) == 0 else ""
    return f"SELECT {', '.join(selected)} FROM {source}{where}{grouped}{having}"
