"""to_number and try_to_number: the format is a literal, so it becomes a regular expression, which RE2 runs.

A format is `[S | MI] [$] digits [. digits] [S | MI | PR]`. A run of digits that begins with 0 stands for exactly as
many digits before the point, one that begins with 9 for at most as many. Groups of digits that the text does not have
are missing on the left. The text may have white space between digits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.model.schema import DataType, Decimal
from headrace.sql.functions.overload import Overload

_FORMAT = re.compile(
    r"(?P<sign>MI|S)?(?P<currency>\$)?(?P<before>[09]+(?:[,G][09]+)*)(?P<point>[.D])?(?P<after>[09]+)?(?P<tail>MI|S|PR)?"
)
_SIGNS = {"S": "[+-]?", "MI": "-?"}
# Character.isWhitespace of Java.
_BLANK = r"[\t-\r\x{1c}-\x{20}\x{1680}\x{2000}-\x{2006}\x{2008}-\x{200a}\x{2028}\x{2029}\x{205f}\x{3000}]*"


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """A format: the type of its numbers, and the regular expression of their texts."""

    type: Decimal
    expression: str


def number_format(text: str) -> NumberFormat | None:
    """The format, or None if the shared host does not read it or Spark refuses it."""
    found = _FORMAT.fullmatch(text.upper())
    if found is None or (found["sign"] and found["tail"]) or (found["after"] and not found["point"]):
        return None
    groups, after = re.split("[,G]", found["before"]), found["after"] or ""
    digits = sum(map(len, groups)) + len(after)
    if digits > 38:
        return None
    kept = [",".join(map(_digits, groups[i:])) for i in range(len(groups)) if _may_miss(groups[:i])]
    number = f"(?:{'|'.join(kept)})"
    if found["point"]:
        number += f"(?:[.]{_some(len(after)) if after else ''})?"
    number = ("[$]" if found["currency"] else "") + number
    if found["tail"] == "PR":
        number = f"(?:<{number}>|{number})"
    expression = _SIGNS.get(found["sign"], "") + number + _SIGNS.get(found["tail"], "")
    return NumberFormat(Decimal(digits, len(after)), expression)


def _may_miss(groups: Sequence[str]) -> bool:
    return not any(group.startswith("0") for group in groups)


def _digits(group: str) -> str:
    return _some(len(group), exactly=group.startswith("0"))


def _some(count: int, exactly: bool = False) -> str:
    """Digits with white space between and around them."""
    return f"{_BLANK}(?:[0-9]{_BLANK}){{{count if exactly else f'0,{count}'}}}"


def _read(args: Sequence[str], result: DataType, otherwise: str) -> str:
    text, form = args[0], number_format(args[1][1:-1].replace("''", "'"))
    assert form is not None
    fits = f"regexp_full_match({text}, '{form.expression}') AND regexp_matches({text}, '[0-9]')"
    digits = f"regexp_replace({text}, '[^0-9.]', '', 'g')"
    negative = f"CASE WHEN regexp_matches({text}, '[<-]') THEN '-' ELSE '' END"
    number = f"CAST({negative} || '0' || {digits} AS {result.duckdb})"
    return f"CASE WHEN {text} IS NULL THEN NULL WHEN {fits} THEN {number} ELSE {otherwise} END"


# `bind` replaces the result type by that of the format.
OVERLOADS: tuple[Overload, ...] = (
    Overload(
        "to_number",
        ("STRING", "STRING"),
        Decimal(38, 0),
        lambda a, k, r: _read(a, r, "error('INVALID_FORMAT.MISMATCH_INPUT')"),
        constant=(1,),
        throws=True,
    ),
    Overload("try_to_number", ("STRING", "STRING"), Decimal(38, 0), lambda a, k, r: _read(a, r, "NULL"), constant=(1,)),
)
