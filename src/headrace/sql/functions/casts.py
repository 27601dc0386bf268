"""CAST in DuckDB with the result of Spark's ANSI mode. Only casts in the table run on the shared host."""

from __future__ import annotations

import re
from collections.abc import Callable

from headrace.model.schema import DataType
from headrace.sql.functions.nested_casts import inner_casts, is_nested, render_nested
from headrace.sql.plan.types import type_class

_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_FLOATS = ("FLOAT", "DOUBLE")
_HOLE = "\0"
_BAD = "error('CAST_INVALID_INPUT')"

CastText = Callable[[str, DataType], str]


def _plain(text: str, target: DataType) -> str:
    return f"CAST({text} AS {target.duckdb})"


def _truncate(text: str, target: DataType) -> str:
    """Spark cuts off the fraction; DuckDB would round."""
    return f"CAST(trunc({text}) AS {target.duckdb})"


def _truncate_to_bigint(text: str, target: DataType) -> str:
    """As `_truncate`; 2^63 itself becomes the largest BIGINT, because Spark compares as DOUBLE."""
    return f"CASE WHEN {text} = 9223372036854775808 THEN 9223372036854775807 ELSE CAST(trunc({text}) AS BIGINT) END"


def _to_float(text: str, target: DataType) -> str:
    """Java narrows a DOUBLE that is too large to infinity; DuckDB would fail."""
    return (
        f"CASE WHEN isfinite({text}) AND abs({text}) >= 3.4028235677973366e38 "
        f"THEN CAST('inf' AS FLOAT) * CAST(sign({text}) AS FLOAT) ELSE CAST({text} AS FLOAT) END"
    )


def _whole_from_text(text: str, target: DataType) -> str:
    """Accepts only digits, after trimming. DuckDB would also accept 1e3, 1.5, 0x10 and 1_000."""
    trimmed = f"trim({text}, {_BLANK})"
    return (
        f"CASE WHEN {text} IS NULL THEN NULL WHEN regexp_full_match({trimmed}, '[+-]?[0-9]+') "
        f"THEN CAST({trimmed} AS {target.duckdb}) ELSE {_BAD} END"
    )


def _float_from_text(text: str, target: DataType) -> str:
    """Accepts Java's forms: decimal or exponent with an optional d or f, NaN, Infinity and inf."""
    trimmed = f"trim({text}, {_BLANK})"
    number = "[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?[dDfF]?"
    return (
        f"CASE WHEN {text} IS NULL THEN NULL "
        f"WHEN regexp_full_match({trimmed}, '{number}') "
        f"THEN CAST(CAST(rtrim({trimmed}, 'dDfF') AS DOUBLE) AS {target.duckdb}) "
        f"WHEN regexp_full_match(lower({trimmed}), '[+]?inf(inity)?') THEN 'inf'::{target.duckdb} "
        f"WHEN regexp_full_match(lower({trimmed}), '-inf(inity)?') THEN '-inf'::{target.duckdb} "
        f"WHEN lower({trimmed}) = 'nan' THEN 'nan'::{target.duckdb} ELSE {_BAD} END"
    )


def _boolean_from_text(text: str, target: DataType) -> str:
    word = f"lower(trim({text}, {_BLANK}))"
    return (
        f"CASE WHEN {text} IS NULL THEN NULL WHEN {word} IN ('t', 'true', 'y', 'yes', '1') THEN TRUE "
        f"WHEN {word} IN ('f', 'false', 'n', 'no', '0') THEN FALSE ELSE {_BAD} END"
    )


def _date_from_text(text: str, target: DataType) -> str:
    """Accepts yyyy, yyyy-m, yyyy-m-d, and the last followed by T or a blank and any text."""
    trimmed = f"trim({text}, {_BLANK})"
    pattern = "([0-9]{4})(-([0-9]{1,2})(-([0-9]{1,2})([T ].*)?)?)?"
    part = f"regexp_extract({trimmed}, '^{pattern}$', "
    return (
        f"CASE WHEN {text} IS NULL THEN NULL WHEN regexp_full_match({trimmed}, '{pattern}') THEN "
        f"make_date(CAST({part}1) AS BIGINT), CAST(coalesce(nullif({part}3), ''), '1') AS BIGINT), "
        f"CAST(coalesce(nullif({part}5), ''), '1') AS BIGINT)) ELSE {_BAD} END"
    )


def _instant(text: str) -> str:
    """The instant of a local time in the session time zone. When the clock goes back, an hour occurs twice: Spark takes
    the first, DuckDB the second."""
    later = f"CAST({text} AS TIMESTAMPTZ)"
    earlier = f"{later} - to_microseconds(3600000000)"
    return f"CASE WHEN CAST({earlier} AS TIMESTAMP) = {text} THEN {earlier} ELSE {later} END"


# Spark trims these characters before it parses a number.
_BLANK = "chr(32) || chr(9) || chr(10) || chr(11) || chr(12) || chr(13)"


def _table() -> dict[tuple[str, str], CastText]:
    table: dict[tuple[str, str], CastText] = {}
    for i, source in enumerate(_WHOLE):
        for j, target in enumerate(_WHOLE):
            if i != j:
                table[source, target] = _plain
        for target in (*_FLOATS, "DECIMAL", "STRING"):
            table[source, target] = _plain
        table[source, "BOOLEAN"] = lambda text, target: f"({text} <> 0)"
        table["BOOLEAN", source] = _plain
        table["DECIMAL", source] = _truncate
        table["STRING", source] = _whole_from_text
        for fraction in _FLOATS:
            table[fraction, source] = _truncate_to_bigint if source == "BIGINT" else _truncate
    for fraction in _FLOATS:
        table["BOOLEAN", fraction] = lambda text, target: f"CAST(CAST({text} AS INTEGER) AS {target.duckdb})"
        table[fraction, "BOOLEAN"] = lambda text, target: f"({text} <> 0)"
        table["DECIMAL", fraction] = lambda text, target: f"CAST(CAST({text} AS VARCHAR) AS {target.duckdb})"
        table["STRING", fraction] = _float_from_text
    table["FLOAT", "DOUBLE"] = _plain
    table["DOUBLE", "FLOAT"] = _to_float
    table["DECIMAL", "DECIMAL"] = _plain
    table["DECIMAL", "STRING"] = _plain
    table["DECIMAL", "BOOLEAN"] = lambda text, target: f"({text} <> 0)"
    table["BOOLEAN", "STRING"] = _plain
    table["STRING", "BOOLEAN"] = _boolean_from_text
    table["STRING", "DATE"] = _date_from_text
    table["STRING", "BINARY"] = lambda text, target: f"encode({text})"
    table["DATE", "STRING"] = _plain
    table["TIMESTAMP_NTZ", "STRING"] = _plain
    table["TIMESTAMP", "STRING"] = lambda text, target: f"CAST(CAST({text} AS TIMESTAMP) AS VARCHAR)"
    for moment in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        table[moment, "DATE"] = _plain
    table["DATE", "TIMESTAMP_NTZ"] = _plain
    table["DATE", "TIMESTAMP"] = lambda text, target: _instant(f"CAST({text} AS TIMESTAMP)")
    table["TIMESTAMP", "TIMESTAMP_NTZ"] = _plain
    table["TIMESTAMP_NTZ", "TIMESTAMP"] = lambda text, target: _instant(text)
    table["TIMESTAMP", "BIGINT"] = lambda text, target: (
        f"((epoch_us({text}) - (epoch_us({text}) % 1000000 + 1000000) % 1000000) // 1000000)"
    )
    table["TIMESTAMP", "DOUBLE"] = lambda text, target: f"(CAST(epoch_us({text}) AS DOUBLE) / 1000000)"
    return table


CASTS: dict[tuple[str, str], CastText] = _table()


def cast_key(source: DataType, target: DataType) -> str:
    """The entry of a cast in the verified list."""
    return f"cast({type_class(source)} -> {type_class(target)})"


def render_cast(text: str, source: DataType, target: DataType, attempt: bool) -> str | None:
    """The DuckDB SQL of a cast. None when the pair is not in the table."""
    if source == target:
        return text
    if source.ddl == "VOID":
        return f"CAST(NULL AS {target.duckdb})"
    if is_nested(source):
        return render_nested(text, source, target, attempt, render_cast)
    write = CASTS.get((type_class(source), type_class(target)))
    if write is None:
        return None
    if not attempt:
        return write(text, target)
    # TRY(...) does not catch error(), so the failing parts are replaced by NULL, except those inside `text`.
    quiet = write(_HOLE, target).replace(_BAD, "NULL").replace("CAST(", "TRY_CAST(")
    quiet = re.sub(r"make_date\(.*\)(?= ELSE NULL END)", lambda m: f"TRY({m[0]})", quiet)
    return quiet.replace(_HOLE, text)


def cast_throws(source: DataType, target: DataType) -> bool:
    """True if a cast may fail on some value."""
    if is_nested(source):
        return any(cast_throws(a, b) for a, b in inner_casts(source, target) or ())
    a, b = type_class(source), type_class(target)
    if b == "STRING" or a in ("BOOLEAN", "VOID") or a == b != "DECIMAL":
        return False
    if a in _WHOLE:
        return b == "DECIMAL" or (b in _WHOLE and _WHOLE.index(b) < _WHOLE.index(a))
    return not (b in ("BOOLEAN", *_FLOATS) and a != "STRING")
