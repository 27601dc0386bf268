"""CAST in DuckDB with the result of Spark's ANSI mode. Only casts in the table run on the shared host."""

from __future__ import annotations

from collections.abc import Callable

from headrace.model.schema import DataType, Decimal
from headrace.sql.functions.instants import (
    DATE_TEXT,
    at_zone,
    date_text,
    in_zone,
    instant_of,
    moment_text,
    to_date,
    to_instant,
)
from headrace.sql.functions.nested_casts import inner_casts, is_nested, render_nested
from headrace.sql.functions.number_functions import far_from_tie
from headrace.sql.plan.types import as_decimal, type_class

_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_FLOATS = ("FLOAT", "DOUBLE")

_SECOND = 1_000_000
_MOMENT_TEXT = f"{DATE_TEXT}[ T]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{{1,6}})?"
_SHORT = 400  # characters of a text that is written several times: nested casts would grow exponentially
_LONG_DIGITS = 18  # Spark keeps decimals of so many digits in 64 bits

# Spark trims these characters before it reads a whole number or a BOOLEAN, and all but the last one for other numbers.
_CONTROL = "".join(f"\\x{code:02x}" for code in range(1, 33))
_BLANK = f"(chr(0) || E'{_CONTROL}\\x7f')"
_LOW = f"(chr(0) || E'{_CONTROL}')"


class _Way:
    """Writes one cast. With `attempt` (TRY_CAST) a bad value becomes NULL, else an error."""

    def __init__(self, source: DataType, target: DataType, attempt: bool) -> None:
        self.source, self.target, self.attempt = source, target, attempt

    @property
    def bad(self) -> str:
        return "NULL" if self.attempt else "error('CAST_INVALID_INPUT')"

    @property
    def flag(self) -> str:
        return "TRUE" if self.attempt else "FALSE"

    def to(self, text: str, kind: str | None = None) -> str:
        return f"{'TRY_CAST' if self.attempt else 'CAST'}({text} AS {kind or self.target.duckdb})"


CastText = Callable[[str, _Way], str]


def _plain(text: str, way: _Way) -> str:
    return way.to(text)


def _truncate(text: str, way: _Way) -> str:
    """Spark cuts off the fraction; DuckDB would round."""
    return way.to(f"trunc({text})")


def _whole_from_decimal(text: str, way: _Way) -> str:
    """Spark computes types below BIGINT by way of DOUBLE, from 19 digits on always. It makes 0.9999999999999999999 a
    1. DuckDB's own cast from a wide decimal to DOUBLE is not exact."""
    assert isinstance(way.source, Decimal)
    wide = way.source.scale and way.source.precision > _LONG_DIGITS and way.target.ddl != "BIGINT"
    return _truncate(f"CAST(CAST({text} AS VARCHAR) AS DOUBLE)" if wide else text, way)


def _truncate_to_bigint(text: str, way: _Way) -> str:
    """As `_truncate`; 2^63 itself becomes the largest BIGINT, because Spark compares as DOUBLE."""
    return f"CASE WHEN {text} = 9223372036854775808 THEN 9223372036854775807 ELSE {way.to(f'trunc({text})')} END"


def _to_float(text: str, way: _Way) -> str:
    """Java narrows a DOUBLE that is too large to infinity; DuckDB would fail."""
    return (
        f"CASE WHEN isfinite({text}) AND abs({text}) >= 3.4028235677973366e38 "
        f"THEN CAST('inf' AS FLOAT) * CAST(sign({text}) AS FLOAT) ELSE CAST({text} AS FLOAT) END"
    )


def _whole_from_text(text: str, way: _Way) -> str:
    """Accepts only digits, after trimming. DuckDB would also accept 1e3, 1.5, 0x10 and 1_000."""
    return _trimmed(
        text=text,
        blanks=_BLANK,
        fits=lambda x: f"regexp_full_match({x}, '[+-]?[0-9]+')",
        cast=way.to,
        otherwise=way.bad,
    )


def _trimmed(text: str, blanks: str, fits: Callable[[str], str], cast: Callable[[str], str], otherwise: str) -> str:
    """`cast` of a text that fits, or that fits after trimming. Trimming is slow, so other texts are tried first."""
    bare = f"trim({text}, {blanks})"
    return (
        f"CASE WHEN {fits(text)} THEN {cast(text)} WHEN {text} IS NULL THEN NULL "
        f"WHEN {fits(bare)} THEN {cast(bare)} ELSE {otherwise} END"
    )


def _float_from_text(text: str, way: _Way) -> str:
    """Accepts Java's forms: decimal, exponent or hexadecimal with an optional d or f, NaN, Infinity and inf."""
    kind = way.target.duckdb
    number = "[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?[dDfF]?"
    bare = f"trim({text}, {_LOW})"
    word = f"lower({bare})"
    other = (
        f"CASE WHEN regexp_full_match({word}, '[+]?inf(inity)?') THEN 'inf'::{kind} "
        f"WHEN regexp_full_match({word}, '-inf(inity)?') THEN '-inf'::{kind} "
        f"WHEN regexp_full_match({word}, '[+-]?nan') THEN 'nan'::{kind} "
        f"ELSE CAST(hr_hex_number({bare}, {way.flag}) AS {kind}) END"
    )
    rare = _trimmed(
        text=text,
        blanks=_LOW,
        fits=lambda x: f"regexp_full_match({x}, '{number}')",
        cast=lambda x: f"CAST(rtrim({x}, 'dDfF') AS {kind})",
        otherwise=other,
    )
    return f"CASE WHEN regexp_full_match({text}, '[+-]?[0-9]+([.][0-9]*)?') THEN CAST({text} AS {kind}) ELSE {rare} END"


def _boolean_from_text(text: str, way: _Way) -> str:
    """By patterns that allow blanks. Lists of the words cost DuckDB more than all the rest: 0.3 instead of 45 million
    rows a second, also where no row came to them (2026-11-18, a busy core)."""
    yes, no = (
        f"regexp_full_match({text}, '[\\x{{0}}-\\x{{20}}\\x{{7f}}]*(?:{words})[\\x{{0}}-\\x{{20}}\\x{{7f}}]*')"
        for words in (_either("t", "true", "y", "yes", "1"), _either("f", "false", "n", "no", "0"))
    )
    return (
        f"CASE WHEN {text} = 'true' THEN TRUE WHEN {text} = 'false' THEN FALSE WHEN {text} IS NULL THEN NULL "
        f"WHEN {yes} THEN TRUE WHEN {no} THEN FALSE ELSE {way.bad} END"
    )


def _either(*words: str) -> str:
    """A pattern of these words in any case. RE2's own would also take letters beyond ASCII."""
    return "|".join("".join(f"[{c}{c.upper()}]" if c.isalpha() else c for c in word) for word in words)


def _decimal_from_text(text: str, way: _Way) -> str:
    """DuckDB fails on large negative exponents, so numbers with a long exponent pass through DOUBLE."""
    number = "[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)"
    bare = f"trim({text}, {_LOW})"
    long = (
        f"CASE WHEN regexp_full_match({bare}, '{number}[eE][+-]?[0-9]+') "
        f"THEN {_digits(f'CAST({bare} AS DOUBLE)', way)} ELSE {way.bad} END"
    )
    short = number + "([eE][+-]?[0-9]{1,2})?"
    return _trimmed(
        text=text, blanks=_LOW, fits=lambda x: f"regexp_full_match({x}, '{short}')", cast=way.to, otherwise=long
    )


def _digits(text: str, way: _Way) -> str:
    """A DOUBLE as DECIMAL, by its shortest digits. Numbers too small for any digit would fail in DuckDB."""
    digits = way.to(f"CAST({text} AS VARCHAR)")
    assert isinstance(way.target, Decimal)
    scale, short = way.target.scale, ""
    if 1 <= scale <= 6:  # few digits need no text
        whole = f"CAST(round({text} * {10**scale}::DOUBLE) AS DECIMAL(10,0))"
        made = way.to(f"{whole} * CAST('{10**-scale:.{scale}f}' AS DECIMAL({scale},{scale}))")
        short = f" WHEN {far_from_tie(text, str(scale))} THEN {made}"
    return f"CASE WHEN abs({text}) < 1e-39 THEN CAST(0 AS {way.target.duckdb}){short} ELSE {digits} END"


def _decimal_from_float(text: str, way: _Way) -> str:
    """NaN and the infinities become NULL, even in ANSI mode."""
    wide = f"CAST({text} AS DOUBLE)" if type_class(way.source) == "FLOAT" else text
    return f"CASE WHEN isfinite({wide}) THEN {_digits(wide, way)} END"


def _decimal_text(text: str, way: _Way) -> str:
    """With a digit before the point. DuckDB leaves it out when the type has none."""
    assert isinstance(way.source, Decimal)
    plain = f"CAST({text} AS VARCHAR)"
    return f"replace('0' || {plain}, '0-', '-0')" if way.source.precision == way.source.scale else plain


def _float_text(text: str, way: _Way) -> str:
    """Java's spelling: an exponent below 0.001 and from 10 million on."""
    kernel = "hr_float_text" if type_class(way.source) == "FLOAT" else "hr_double_text"
    return (
        f"CASE WHEN {text} = 0 OR (abs({text}) >= 0.001 AND abs({text}) < 10000000) THEN CAST({text} AS VARCHAR) "
        f"WHEN isfinite({text}) THEN {kernel}({text}) WHEN isnan({text}) THEN 'NaN' "
        f"WHEN {text} IS NULL THEN NULL WHEN {text} > 0 THEN 'Infinity' ELSE '-Infinity' END"
    )


def _seconds(text: str) -> str:
    """Whole seconds of an instant, rounded down."""
    return f"((epoch_us({text}) - (epoch_us({text}) % {_SECOND} + {_SECOND}) % {_SECOND}) // {_SECOND})"


def _decimal_from_moment(text: str, way: _Way) -> str:
    """Decimals of up to 18 digits are 64 bits wide: 17 times as fast as 128 bits. Only years beyond 33658 need more."""

    def seconds(digits: int) -> str:
        return way.to(f"(CAST(epoch_us({text}) AS DECIMAL({digits},0)) * CAST('0.000001' AS DECIMAL(6,6)))")

    return f"CASE WHEN abs(epoch_us({text})) < {10**18} THEN {seconds(18)} ELSE {seconds(19)} END"


def _moment_from_whole(text: str, way: _Way) -> str:
    """Seconds. Beyond the range of a timestamp Spark takes the last one; here it is an error."""
    return f"make_timestamptz({way.to(f'CAST({text} AS HUGEINT) * {_SECOND}', 'BIGINT')})"


def _moment_from_float(text: str, way: _Way) -> str:
    wide = f"CAST({text} AS DOUBLE)"
    micros = way.to(f"trunc({wide} * {_SECOND})", "BIGINT")
    return (
        f"CASE WHEN {wide} IS NULL THEN NULL WHEN isfinite({wide}) THEN make_timestamptz({micros}) ELSE {way.bad} END"
    )


def _moment_from_decimal(text: str, way: _Way) -> str:
    """Seconds. Like in Spark, microseconds beyond 64 bits wrap around."""
    assert isinstance(way.source, Decimal)
    shift = 6 - way.source.scale
    wraps = way.source.precision - way.source.scale > 12
    digits = f"CAST(replace(CAST({text} AS VARCHAR), '.', '') AS HUGEINT)"
    if shift < 0:
        micros = f"{digits} // {10**-shift}"
    else:
        micros = f"({digits} % {2**64}) * {10**shift}" if wraps else f"{digits} * {10**shift}"
    if wraps:
        micros = f"(({micros}) % {2**64} + {3 * 2**63}) % {2**64} - {2**63}"
    return f"make_timestamptz(CAST({micros} AS BIGINT))"


def _date_from_text(text: str, way: _Way) -> str:
    other = to_date(f"hr_date({text}, {way.flag})")
    if len(text) > _SHORT:
        return other
    return f"CASE WHEN {_fits(text, DATE_TEXT, 'DATE')} THEN TRY_CAST({text} AS DATE) ELSE {other} END"


def _moment_from_text(text: str, way: _Way) -> str:
    read, other = f"TRY_CAST({text} AS TIMESTAMP)", to_instant(f"hr_timestamp({text}, {at_zone()}, {way.flag})")
    if len(text) > _SHORT:
        return other
    return (
        f"CASE WHEN {_fits(text, _MOMENT_TEXT, 'TIMESTAMP')} THEN {instant_of(read)} "
        f"WHEN {_fits(text, _MOMENT_TEXT + 'Z', 'TIMESTAMP')} THEN {to_instant(f'epoch_us({read})')} ELSE {other} END"
    )


def _reading_from_text(text: str, way: _Way) -> str:
    """A zone in the text is ignored."""
    read, other = f"TRY_CAST({text} AS TIMESTAMP)", f"make_timestamp(hr_timestamp_ntz({text}, {way.flag}))"
    if len(text) > _SHORT:
        return other
    return f"CASE WHEN {_fits(text, _MOMENT_TEXT + 'Z?', 'TIMESTAMP')} THEN {read} ELSE {other} END"


def _fits(text: str, pattern: str, kind: str) -> str:
    """True for a common spelling of a time that exists, which DuckDB reads as Spark does."""
    return f"regexp_full_match({text}, '{pattern}') AND TRY_CAST({text} AS {kind}) IS NOT NULL"


def _table() -> dict[tuple[str, str], CastText]:
    table: dict[tuple[str, str], CastText] = {}
    for i, source in enumerate(_WHOLE):
        for j, target in enumerate(_WHOLE):
            if i != j:
                table[source, target] = _plain
        for target in (*_FLOATS, "DECIMAL", "STRING"):
            table[source, target] = _plain
        table[source, "BOOLEAN"] = lambda text, way: f"({text} <> 0)"
        table[source, "TIMESTAMP"] = _moment_from_whole
        table["BOOLEAN", source] = _plain
        table["DECIMAL", source] = _whole_from_decimal
        table["STRING", source] = _whole_from_text
        table["TIMESTAMP", source] = lambda text, way: way.to(_seconds(text))
        for fraction in _FLOATS:
            table[fraction, source] = _truncate_to_bigint if source == "BIGINT" else _truncate
    for fraction in _FLOATS:
        table["BOOLEAN", fraction] = lambda text, way: f"CAST(CAST({text} AS INTEGER) AS {way.target.duckdb})"
        table[fraction, "BOOLEAN"] = lambda text, way: f"({text} <> 0)"
        table["DECIMAL", fraction] = lambda text, way: f"CAST(CAST({text} AS VARCHAR) AS {way.target.duckdb})"
        table["STRING", fraction] = _float_from_text
        table["TIMESTAMP", fraction] = lambda text, way: (
            f"CAST(CAST(epoch_us({text}) AS DOUBLE) / {_SECOND} AS {way.target.duckdb})"
        )
        table[fraction, "TIMESTAMP"] = _moment_from_float
        table[fraction, "DECIMAL"] = _decimal_from_float
        table[fraction, "STRING"] = _float_text
    table["FLOAT", "DOUBLE"] = _plain
    table["DOUBLE", "FLOAT"] = _to_float
    table["DECIMAL", "DECIMAL"] = _plain
    table["DECIMAL", "STRING"] = _decimal_text
    table["DECIMAL", "BOOLEAN"] = lambda text, way: f"({text} <> 0)"
    table["DECIMAL", "TIMESTAMP"] = _moment_from_decimal
    table["BOOLEAN", "STRING"] = _plain
    table["BOOLEAN", "DECIMAL"] = lambda text, way: way.to(f"CAST({text} AS INTEGER)")
    table["STRING", "BOOLEAN"] = _boolean_from_text
    table["STRING", "DECIMAL"] = _decimal_from_text
    table["STRING", "DATE"] = _date_from_text
    table["STRING", "TIMESTAMP"] = _moment_from_text
    table["STRING", "TIMESTAMP_NTZ"] = _reading_from_text
    table["STRING", "BINARY"] = lambda text, way: f"encode({text})"
    # Spark keeps bytes that are no UTF-8 in a string. DuckDB cannot, and fails.
    table["BINARY", "STRING"] = lambda text, way: f"decode({text})"
    table["DATE", "STRING"] = lambda text, way: date_text(text)
    table["TIMESTAMP_NTZ", "STRING"] = lambda text, way: moment_text(text)
    table["TIMESTAMP", "STRING"] = lambda text, way: moment_text(in_zone(text))
    table["TIMESTAMP", "DATE"] = lambda text, way: f"CAST({in_zone(text)} AS DATE)"
    table["TIMESTAMP_NTZ", "DATE"] = _plain
    table["DATE", "TIMESTAMP_NTZ"] = _plain
    table["DATE", "TIMESTAMP"] = lambda text, way: instant_of(way.to(text, "TIMESTAMP"))
    table["TIMESTAMP", "TIMESTAMP_NTZ"] = lambda text, way: in_zone(text)
    table["TIMESTAMP_NTZ", "TIMESTAMP"] = lambda text, way: instant_of(text)
    table["TIMESTAMP", "DECIMAL"] = _decimal_from_moment
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
        return f"CAST({text} AS {target.duckdb})"
    if is_nested(source):
        return render_nested(text=text, source=source, target=target, attempt=attempt, scalar=render_cast)
    write = CASTS.get((type_class(source), type_class(target)))
    return None if write is None else write(text, _Way(source, target, attempt))


def cast_throws(source: DataType, target: DataType) -> bool:
    """True if a cast may fail on some value."""
    if is_nested(source):
        return any(cast_throws(a, b) for a, b in inner_casts(source, target) or ())
    a, b = type_class(source), type_class(target)
    if isinstance(target, Decimal) and (held := as_decimal(source)) is not None:
        return held.precision - held.scale > target.precision - target.scale - (held.scale > target.scale)
    if b == "STRING":
        return a == "BINARY"
    if a == "BOOLEAN":
        return b == "DECIMAL"
    if a == "VOID" or a == b != "DECIMAL":
        return False
    if a in _WHOLE:
        return b in ("DECIMAL", "TIMESTAMP") or (b in _WHOLE and _WHOLE.index(b) < _WHOLE.index(a))
    return not (b in ("BOOLEAN", *_FLOATS) and a != "STRING")


def cast_is_strict(source: DataType, target: DataType) -> bool:
    """True if a cast without TRY is NULL only for NULL. NaN as DECIMAL is NULL."""
    return not is_nested(source) and not (type_class(source) in _FLOATS and type_class(target) == "DECIMAL")
