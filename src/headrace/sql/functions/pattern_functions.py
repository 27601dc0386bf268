"""Functions that read and write times by a pattern, which must be a literal."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from headrace.exec.kernels.date_patterns import BadPattern, check_written
from headrace.exec.kernels.pattern_reading import reader
from headrace.model.schema import BIGINT, DATE, STRING, TIMESTAMP, TIMESTAMP_NTZ, DataType
from headrace.sql.functions.instants import DATE_TEXT, at_zone, in_zone, to_instant
from headrace.sql.functions.overload import Overload
from headrace.sql.plan.expr import Expr, Literal

# The letters that DuckDB writes alike.
_LETTERS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_PLAIN = "'yyyy-MM-dd HH:mm:ss'"


def _strftime(pattern: str) -> str | None:
    """The same pattern for DuckDB's strftime, which is faster. None if it has other letters."""
    found = [_LETTERS.get(p) if p.isalpha() else p for p in re.findall(r"[A-Za-z]+|[^A-Za-z]+", pattern)]
    known = [f for f in found if f is not None]
    return None if len(known) < len(found) or set(pattern) & set("'%[]#{}") else "".join(known)


def written(text: str, quoted: str) -> str:
    """An instant as text."""
    fast = _strftime(quoted[1:-1].replace("''", "'"))
    slow = f"hr_date_format(epoch_us({text}), {quoted}, {at_zone()})"
    if fast is None:
        return slow
    local = in_zone(text)
    years = f"{local} BETWEEN TIMESTAMP '0001-01-01' AND TIMESTAMP '9999-12-31 23:59:59.999999'"
    return f"CASE WHEN {years} THEN strftime({local}, '{fast}') ELSE {slow} END"


def _checked(check: Callable[[str], object], position: int) -> Callable[[Sequence[Expr]], str | None]:
    def refused(args: Sequence[Expr]) -> str | None:
        argument = args[position]
        pattern = argument.value if isinstance(argument, Literal) else None
        if not isinstance(pattern, str):
            return "a pattern that is NULL"
        try:
            check(pattern)
        except BadPattern as problem:
            return f"{problem} in the pattern"
        return None

    return refused


def _local_only(pattern: str) -> None:
    if reader(pattern).fields.keys() & {"Z", "V"}:
        raise BadPattern("a letter for the time zone")


# Texts of common patterns that DuckDB reads alike. Others, and wrong dates, go to the kernel.
_COMMON = {
    "'yyyy-MM-dd'": DATE_TEXT,
    "'yyyy-MM-dd HH:mm:ss'": f"{DATE_TEXT} ([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]",
}


def _read(text: str, quoted: str, flag: str) -> str:
    """The instant of a text, in microseconds."""
    slow = f"hr_parse({text}, {quoted}, {at_zone()}, {flag})"
    if quoted not in _COMMON:
        return slow
    fast = f"hr_moment(epoch_us({_common(text)}))"
    return f"CASE WHEN {_fits(text, quoted)} THEN {fast} ELSE {slow} END"


def _read_local(text: str, quoted: str) -> str:
    """The wall-clock reading of a text."""
    slow = f"make_timestamp(hr_parse_ntz({text}, {quoted}, FALSE))"
    return f"CASE WHEN {_fits(text, quoted)} THEN {_common(text)} ELSE {slow} END" if quoted in _COMMON else slow


def _common(text: str) -> str:
    return f"TRY_CAST({text} AS TIMESTAMP)"


def _fits(text: str, quoted: str) -> str:
    return f"regexp_full_match({text}, '{_COMMON[quoted]}') AND {_common(text)} IS NOT NULL"


def _reading(form: Callable[[str], str], flag: str) -> Callable[[Sequence[str], Sequence[DataType], DataType], str]:
    return lambda a, k, r: form(_read(a[0], a[1], flag))


def _readers() -> list[Overload]:
    found: list[Overload] = []

    def add(name: str, result: DataType, form: Callable[[str], str]) -> None:
        found.append(
            Overload(
                name,
                ("STRING", "STRING"),
                result,
                _reading(form, "TRUE" if "try" in name else "FALSE"),
                constant=(1,),
                check=_checked(reader, 1),
                throws="try" not in name,
            )
        )

    for prefix in ("", "try_"):
        add(f"{prefix}to_timestamp", TIMESTAMP, to_instant)
        add(f"{prefix}to_date", DATE, lambda micros: f"CAST({in_zone(to_instant(micros))} AS DATE)")
    add("to_timestamp_ltz", TIMESTAMP, to_instant)
    found.append(
        Overload(
            "to_timestamp_ntz",
            ("STRING", "STRING"),
            TIMESTAMP_NTZ,
            lambda a, k, r: _read_local(a[0], a[1]),
            constant=(1,),
            check=_checked(_local_only, 1),
            throws=True,
        )
    )
    for name in ("unix_timestamp", "to_unix_timestamp"):
        add(name, BIGINT, lambda micros: f"({micros} // 1000000)")
        plain = _read("{0}", _PLAIN, "FALSE").replace("{3}", "{{3}}").replace("{2}", "{{2}}")
        found.append(Overload(name, ("STRING",), BIGINT, f"({plain} // 1000000)", throws=True))
    return found


OVERLOADS: tuple[Overload, ...] = (
    *_readers(),
    Overload(
        "date_format",
        ("TIMESTAMP", "STRING"),
        STRING,
        lambda a, k, r: written(a[0], a[1]),
        constant=(1,),
        check=_checked(check_written, 1),
    ),
    Overload(
        "from_unixtime",
        ("BIGINT", "STRING"),
        STRING,
        lambda a, k, r: written(f"make_timestamptz({a[0]} * 1000000)", a[1]),
        constant=(1,),
        check=_checked(check_written, 1),
        throws=True,
    ),
    Overload(
        "from_unixtime",
        ("BIGINT",),
        STRING,
        lambda a, k, r: written(f"make_timestamptz({a[0]} * 1000000)", _PLAIN),
        throws=True,
    ),
)
