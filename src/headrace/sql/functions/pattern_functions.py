"""Functions that read and write times by a pattern, which must be a literal."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from headrace.exec.kernels.pattern_reading import reader
from headrace.exec.kernels.patterns import BadPattern, check_written
from headrace.model.schema import BIGINT, DATE, STRING, TIMESTAMP, TIMESTAMP_NTZ, DataType
from headrace.sql.functions.moments import at_zone, in_zone, to_instant
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
    if "Z" in reader(pattern).fields:
        raise BadPattern("a letter for the time zone")


def _read(flag: str) -> str:
    return f"hr_parse({{0}}, {{1}}, {at_zone()}, {flag})"


def _readers() -> list[Overload]:
    found: list[Overload] = []

    def add(name: str, result: DataType, text: str, check: Callable[[str], object] = reader) -> None:
        found.append(
            Overload(
                name,
                ("STRING", "STRING"),
                result,
                text,
                constant=(1,),
                check=_checked(check, 1),
                throws="try" not in name,
            )
        )

    for prefix, flag in (("", "FALSE"), ("try_", "TRUE")):
        add(f"{prefix}to_timestamp", TIMESTAMP, to_instant(_read(flag)))
        add(f"{prefix}to_date", DATE, f"CAST({in_zone(to_instant(_read(flag)))} AS DATE)")
    add("to_timestamp_ltz", TIMESTAMP, to_instant(_read("FALSE")))
    add("to_timestamp_ntz", TIMESTAMP_NTZ, "make_timestamp(hr_parse_ntz({0}, {1}, FALSE))", _local_only)
    for name in ("unix_timestamp", "to_unix_timestamp"):
        text = f"({_read('FALSE')} // 1000000)"
        add(name, BIGINT, text)
        found.append(Overload(name, ("STRING",), BIGINT, text.replace("{1}", _PLAIN), throws=True))
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
