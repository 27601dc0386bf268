"""Functions on binary values, and between them and strings. DuckDB cuts no BLOB, so parts are cut from its hex form."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.exec.kernels.binaries import CHARSETS
from headrace.model.schema import BINARY, BOOLEAN, INT, STRING
from headrace.sql.functions.nesting import let
from headrace.sql.functions.overload import Overload, literal_int
from headrace.sql.functions.regex_functions import unquoted
from headrace.sql.plan.expr import Expr, Literal

_S, _B = "STRING", "BINARY"
_ALL = "2147483647"
# Lines of 76 characters, with \r\n between them.
_LINE_END = "chr(13) || chr(10)"
_BROKEN = f"rtrim(regexp_replace(base64({{0}}), '(.{{{{76}}}})', '\\1' || {_LINE_END}, 'g'), {_LINE_END})"

BASE64 = f"CASE WHEN octet_length({{0}}) <= 57 THEN base64({{0}}) ELSE {_BROKEN} END"  # 57 bytes fill a line


def _part(data: str, start: str, length: str) -> str:
    """Spark's substring of bytes. A negative start counts from the end. A start of zero is the first byte."""
    first = (
        f"(CASE WHEN {start} > 0 THEN {start} - 1::BIGINT WHEN {start} < 0 "
        f"THEN octet_length({data}) + {start} ELSE 0 END)"
    )
    until = f"least({first} + {length}, {_ALL})"
    clipped = f"greatest({first}, 0)"
    return (
        f"CASE WHEN {data} IS NULL OR {start} IS NULL OR {length} IS NULL THEN NULL "
        f"WHEN {until} <= {clipped} THEN ''::BLOB "
        f"ELSE unhex(substring(hex({data}), 2 * {clipped} + 1, 2 * ({until} - {clipped}))) END"
    )


def _charset(argument: Expr) -> str | None:
    value = argument.value if isinstance(argument, Literal) else None
    return value if isinstance(value, str) else None


def _check_encode(args: Sequence[Expr]) -> str | None:
    name = _charset(args[1])
    return None if name is None or name.upper() in CHARSETS else "this charset"


def _check_decode(args: Sequence[Expr]) -> str | None:
    name = _charset(args[1])
    # A mark of the byte order makes UTF-16 and UTF-32 ambiguous.
    return None if name is None or name.upper() in CHARSETS[:-2] else "this charset"


def _encode(args: Sequence[str]) -> str:
    charset = unquoted(args[1])
    if charset is None:
        return "CAST(NULL AS BLOB)"
    return f"encode({args[0]})" if charset.upper() == "UTF-8" else f"hr_encode({args[0]}, {args[1]})"


def _check_format(args: Sequence[Expr]) -> str | None:
    form = _charset(args[1])
    return None if form is None or form.lower() in ("hex", "utf-8", "utf8") else "this format"


def _to_binary(args: Sequence[str], bad: str) -> str:
    form = "hex" if len(args) == 1 else unquoted(args[1])
    if form is None:
        return "CAST(NULL AS BLOB)"
    if form.lower() != "hex":
        return f"encode({args[0]})"
    return let(args[0], lambda text: f"CASE WHEN {text} IS NOT NULL THEN coalesce({_from_hex(text)}, {bad}) END")


def _from_hex(text: str) -> str:
    """The bytes of a column or variable, NULL if it is not in hex. A pattern before it would take twice as long. Of
    another expression TRY would also hide the errors."""
    return f"TRY(unhex({text}))"


def _binaries(name: str, bad: str, throws: bool) -> list[Overload]:
    return [
        Overload(name, (_S,), BINARY, lambda a, k, r: _to_binary(a, bad), throws=throws),
        Overload(
            name,
            (_S, _S),
            BINARY,
            lambda a, k, r: _to_binary(a, bad),
            throws=throws,
            constant=(1,),
            check=_check_format,
        ),
    ]


def _left(data: str, count: str) -> str:
    known = literal_int(count)
    if known is not None:
        return f"unhex(left(hex({data}), {2 * max(0, known)}))"
    return f"unhex(left(hex({data}), CASE WHEN {count} < 0 THEN 0 ELSE 2 * {count}::BIGINT END))"


OVERLOADS: tuple[Overload, ...] = (
    Overload("length", (_B,), INT, "CAST(octet_length({0}) AS INTEGER)"),
    Overload("octet_length", (_B,), INT, "CAST(octet_length({0}) AS INTEGER)"),
    Overload("bit_length", (_B,), INT, "CAST(octet_length({0}) * 8 AS INTEGER)"),
    Overload("concat", (_B,), BINARY, lambda a, k, r: "(" + " || ".join(a) + ")", variadic=True),
    Overload("reverse", (_B,), BINARY, "hr_reverse_bytes({0})"),
    Overload("left", (_B, "INT"), BINARY, lambda a, k, r: _left(a[0], a[1])),
    Overload("substring", (_B, "INT", "INT"), BINARY, lambda a, k, r: _part(*a)),
    Overload("substring", (_B, "INT"), BINARY, lambda a, k, r: _part(a[0], a[1], _ALL)),
    Overload("startswith", (_B, _B), BOOLEAN, "starts_with(hex({0}), hex({1}))"),
    Overload("endswith", (_B, _B), BOOLEAN, "ends_with(hex({0}), hex({1}))"),
    Overload("contains", (_B, _B), BOOLEAN, "hr_contains({0}, {1})"),
    Overload("hex", ("BIGINT",), STRING, "hex({0})"),
    Overload("hex", (_S,), STRING, "hex({0})"),
    Overload("hex", (_B,), STRING, "hex({0})"),
    Overload("unhex", (_S,), BINARY, lambda a, k, r: let(a[0], _from_hex)),
    Overload("base64", (_S,), STRING, BASE64.replace("{0}", "encode({0})"), exact=(0,)),
    Overload("base64", (_B,), STRING, BASE64, exact=(0,)),
    Overload("unbase64", (_S,), BINARY, "hr_from_base64({0})", throws=True),
    Overload(
        "encode",
        (_S, _S),
        BINARY,
        lambda a, k, r: _encode(a),
        throws=True,
        constant=(1,),
        check=_check_encode,
        slow=True,
    ),
    Overload(
        "decode",
        (_B, _S),
        STRING,
        lambda a, k, r: f"hr_decode({a[0]}, {a[1]})",
        throws=True,
        constant=(1,),
        check=_check_decode,
        slow=True,
        exact=(0,),
    ),
    *_binaries("to_binary", "error('CONVERSION_INVALID_INPUT')", throws=True),
    *_binaries("try_to_binary", "NULL", throws=False),
)
