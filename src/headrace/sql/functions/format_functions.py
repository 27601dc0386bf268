"""`format_string`: the literal format becomes a concatenation of its parts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headrace.model.schema import BOOLEAN, DOUBLE, FLOAT, STRING, DataType, Decimal
from headrace.sql.functions.overload import Overload
from headrace.sql.functions.regex_functions import quoted, unquoted
from headrace.sql.plan.expr import Expr, Literal
from headrace.sql.plan.types import INTEGRAL, VOID

_SPEC = re.compile(r"%(?:([0-9]+)\$)?([-#+ 0,(<]*)([0-9]+)?(?:\.([0-9]+))?([a-zA-Z%])")
_FLAGS = {"s": "-", "d": "-0+ ,", "x": "-0", "X": "-0", "f": "-0+ ,"}
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32}
_WIDEST = 64
_BEYOND = "[^\\x{10000}-\\x{10FFFF}]"


class FormatRefused(ValueError):
    """A format that cannot run. The message names the part."""


def format_parts(form: str, kinds: Sequence[DataType]) -> list[str | tuple[int, re.Match[str]]]:
    """The texts of a format, and its specifiers with the numbers of their arguments. Raises FormatRefused."""
    found: list[str | tuple[int, re.Match[str]]] = []
    at, following = 0, 0
    while at < len(form):
        percent = form.find("%", at)
        if percent < 0:
            found.append(form[at:])
            break
        found.append(form[at:percent])
        spec = _SPEC.match(form, percent)
        if spec is None:
            raise FormatRefused("a % that begins no format specifier")
        at = spec.end()
        if spec[0] in ("%n", "%%"):
            found.append("\n" if spec[0] == "%n" else "%")
            continue
        if spec[1] is None:
            index, following = following, following + 1
        else:
            index = int(spec[1]) - 1
        if not 0 <= index < len(kinds):
            raise FormatRefused(f"no argument for {spec[0]}")
        _check_spec(spec, kinds[index])
        found.append((index, spec))
    return found


def _check_spec(spec: re.Match[str], kind: DataType) -> None:
    flags, width, precision, letter = spec[2], spec[3], spec[4], spec[5]
    if letter not in _FLAGS or set(flags) - set(_FLAGS[letter]) or len(set(flags)) < len(flags):
        raise FormatRefused(f"the specifier {spec[0]}")
    if (("-" in flags or "0" in flags) and width is None) or {"-", "0"} <= set(flags) or {"+", " "} <= set(flags):
        raise FormatRefused(f"the flags of {spec[0]}")
    if (precision is not None and (letter != "f" or int(precision) > _WIDEST)) or int(width or 0) > _WIDEST:
        raise FormatRefused(f"the size of {spec[0]}")
    short = isinstance(kind, Decimal) and kind.scale <= 6 and kind.precision > kind.scale
    takes = {
        "s": kind in (STRING, BOOLEAN, *INTEGRAL) or short,
        "f": kind in (FLOAT, DOUBLE),
    }.get(letter, kind in INTEGRAL)
    if not takes and kind != VOID:
        raise FormatRefused(f"{kind} for {spec[0]}")


def _written(spec: re.Match[str], text: str, kind: DataType) -> str:
    flags, width, letter = spec[2], int(spec[3] or 0), spec[5]
    # Java cuts even this word to the precision.
    null = "'NULL'" if letter == "X" else f"'{'null'[: None if spec[4] is None else int(spec[4])]}'"
    if kind == VOID:
        return _justified(null, flags, width)
    if letter == "s":
        value = f"coalesce({text if kind == STRING else f'CAST({text} AS VARCHAR)'}, 'null')"
        return _justified(value, flags, width, wide=kind == STRING)
    if letter in "xX":
        bits = _BITS.get(kind.ddl)
        number = f"CAST({text} AS BIGINT)"
        whole = number if bits is None else f"CASE WHEN {text} < 0 THEN {number} + {1 << bits} ELSE {number} END"
        plain, sign, finite = f"hex({whole})" if letter == "X" else f"lower(hex({whole}))", "''", "TRUE"
    elif letter == "d":
        size = f"abs(CAST({text} AS HUGEINT))"
        plain = f"format('{{:,}}', {size})" if "," in flags else f"CAST({size} AS VARCHAR)"
        sign, finite = _sign(f"{text} < 0", flags), "TRUE"
    else:
        digits = 6 if spec[4] is None else int(spec[4])
        number = f"hr_fixed(CAST({text} AS DOUBLE), {digits}, {int(',' in flags)})"
        plain, finite = f"ltrim({number}, '-')", f"isfinite({text})"
        negative = f"starts_with({number}, '-')"
        sign = f"CASE WHEN isnan({text}) THEN '' ELSE {_sign(negative, flags)} END"
    filled = f"lpad({plain}, greatest({width} - length({sign}), length({plain}))::INTEGER, '0')"
    value = f"{sign} || " + (f"CASE WHEN {finite} THEN {filled} ELSE {plain} END" if "0" in flags else plain)
    return _justified(f"coalesce({value}, {null})", flags, width)


def _sign(negative: str, flags: str) -> str:
    other = "+" if "+" in flags else " " if " " in flags else ""
    return f"CASE WHEN {negative} THEN '-' ELSE '{other}' END"


def _justified(text: str, flags: str, width: int, wide: bool = False) -> str:
    """Padded with blanks. Java counts UTF-16 units: characters beyond U+FFFF are two."""
    if not width:
        return text
    units = f"length({text})" + (f" + length(regexp_replace({text}, '{_BEYOND}', '', 'g'))" if wide else "")
    blanks = f"repeat(' ', greatest(0, {width} - ({units})))"
    return f"({text} || {blanks})" if "-" in flags else f"({blanks} || {text})"


def _check(args: Sequence[Expr]) -> str | None:
    form = args[0].value if isinstance(args[0], Literal) else None
    if form is None:
        return None
    try:
        format_parts(form, [a.type for a in args[1:]])
    except FormatRefused as problem:
        return str(problem)
    return None


def _format(args: Sequence[str], kinds: Sequence[DataType]) -> str:
    form = unquoted(args[0])
    if form is None:
        return "CAST(NULL AS VARCHAR)"
    texts = [
        quoted(part) if isinstance(part, str) else f"({_written(part[1], args[part[0] + 1], kinds[part[0] + 1])})"
        for part in format_parts(form, kinds[1:])
    ]
    return "(" + " || ".join(texts or ["''"]) + ")"


OVERLOADS: tuple[Overload, ...] = (
    Overload(
        "format_string",
        ("STRING", "ANY"),
        STRING,
        lambda a, k, r: _format(a, k),
        variadic=True,
        constant=(0,),
        check=_check,
        slow=True,
    ),
)
