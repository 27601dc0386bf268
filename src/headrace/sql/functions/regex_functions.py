"""Functions with regular expressions. The pattern is a literal with Java's meaning.

RE2 runs the patterns that it can (`headrace.sql.functions.regex`). A slow kernel runs the others, and also those that
may match the empty text where Java and RE2 go on differently after such a match.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import duckdb

from headrace.model.schema import BOOLEAN, INT, STRING, Array, DataType
from headrace.sql.functions.evaluate import evaluate
from headrace.sql.functions.overload import ArgumentCheck, Overload, literal_int
from headrace.sql.functions.regex import (
    has_line_anchor,
    loops_on_nothing,
    nullable,
    parse_replacement,
    python_replacement,
    re2_replacement,
    to_python,
    to_re2,
)
from headrace.sql.functions.regex_parser import PatternRefused, parse
from headrace.sql.functions.regex_tree import RegexPattern
from headrace.sql.plan.expr import Expr, Literal

_S = "STRING"
_STRINGS = Array(STRING)

Writer = Callable[[Sequence[str]], str]


def quoted(text: str) -> str:
    """A DuckDB string literal."""
    return "'" + text.replace("'", "''") + "'"


def unquoted(sql: str) -> str | None:
    """The text of a DuckDB string literal. None for NULL."""
    return sql[1:-1].replace("''", "'") if sql.startswith("'") else None


@lru_cache(maxsize=256)
def _runs(pattern: str) -> bool:
    """True if RE2 accepts the pattern. It refuses patterns that would need too much memory."""
    try:
        evaluate(f"regexp_matches('', {quoted(pattern)})", "UTC")
    except duckdb.Error:
        return False
    return True


def re2(pattern: RegexPattern, whole_match: bool) -> str | None:
    """The pattern as an SQL literal for RE2, or None if RE2 cannot run it."""
    text = to_re2(pattern, whole_match)
    return quoted(text) if text is not None and _runs(text) else None


def _value(args: Sequence[Expr], position: int) -> object:
    argument = args[position]
    return argument.value if isinstance(argument, Literal) else None


def _check_pattern(args: Sequence[Expr]) -> str | None:
    pattern = _value(args, 1)
    if pattern is None:
        return None
    try:
        parsed = parse(str(pattern))
        to_python(parsed)
    except PatternRefused as problem:
        return f"{problem} in the pattern"
    fast = to_re2(parsed, whole_match=False)
    return None if fast is None or _runs(fast) else "a pattern that needs too much memory"


def _check_replace(args: Sequence[Expr]) -> str | None:
    refused = _check_pattern(args)
    if refused is not None or _value(args, 1) is None or _value(args, 2) is None:
        return refused
    position = _value(args, 3) if len(args) > 3 else 1
    if isinstance(position, int) and position < 1:
        return "a position below 1"
    if position != 1 and has_line_anchor(parse(str(_value(args, 1))).root):
        return "a position and a pattern that looks for line ends"
    try:
        parse_replacement(str(_value(args, 2)), parse(str(_value(args, 1))))
    except PatternRefused as problem:
        return str(problem)
    return None


def _check_group(args: Sequence[Expr]) -> str | None:
    refused = _check_pattern(args)
    if refused is not None or _value(args, 1) is None:
        return refused
    pattern = parse(str(_value(args, 1)))
    group = _value(args, 2) if len(args) > 2 else 1
    if isinstance(group, int) and not 0 <= group <= pattern.groups:
        return f"group {group}, which the pattern does not have"
    if group != 0 and loops_on_nothing(pattern.root):
        return "a group of a pattern that repeats the empty text"
    return None


def _rlike(args: Sequence[str]) -> str:
    text = unquoted(args[1])
    if text is None:
        return "CAST(NULL AS BOOLEAN)"
    fast = re2(parse(text), whole_match=False)
    return (
        f"regexp_matches({args[0]}, {fast})"
        if fast is not None
        else f"hr_regex_matches({args[0]}, {quoted(to_python(parse(text)))})"
    )


def _replace(args: Sequence[str]) -> str:
    text, new = unquoted(args[1]), unquoted(args[2])
    position = literal_int(args[3]) if len(args) > 3 else 1
    if text is None or new is None or position is None:
        return "CAST(NULL AS VARCHAR)"
    pattern = parse(text)
    parts = parse_replacement(new, pattern)
    fast, template = re2(pattern, whole_match=True), re2_replacement(parts)
    if fast is not None and template is not None and position == 1 and not nullable(pattern.root):
        return f"regexp_replace({args[0]}, {fast}, {quoted(template)}, 'g')"
    slow = (quoted(to_python(pattern)), quoted(python_replacement(parts)))
    return f"hr_regex_replace({args[0]}, {slow[0]}, {slow[1]}, {position})"


def _extract(args: Sequence[str], function: str, repeated: bool) -> str:
    text = unquoted(args[1])
    group = literal_int(args[2]) if len(args) > 2 else 1
    if text is None or group is None:
        return f"CAST(NULL AS VARCHAR{'[]' if repeated else ''})"
    pattern = parse(text)
    fast = re2(pattern, whole_match=group == 0 or repeated)
    if fast is not None and group < 10 and not (repeated and nullable(pattern.root)):
        found = f"{function}({args[0]}, {fast}, {group})"
        # For a group that did not take part, RE2 returns NULL and Spark the empty text.
        return f"list_transform({found}, lambda x: coalesce(x, ''))" if repeated and group else found
    return f"hr_{function.replace('regexp', 'regex')}({args[0]}, {quoted(to_python(pattern))}, {group})"


def _count(args: Sequence[str]) -> str:
    text = unquoted(args[1])
    if text is None:
        return "CAST(NULL AS INTEGER)"
    pattern = parse(text)
    fast = re2(pattern, whole_match=True)
    if fast is not None and not nullable(pattern.root):
        return f"CAST(len(regexp_extract_all({args[0]}, {fast})) AS INTEGER)"
    return f"hr_regex_count({args[0]}, {quoted(to_python(pattern))})"


def _position(args: Sequence[str]) -> str:
    text = unquoted(args[1])
    if text is None or (len(args) > 2 and literal_int(args[2]) is None):
        return "CAST(NULL AS INTEGER)"
    return f"hr_regex_position({args[0]}, {quoted(to_python(parse(text)))})"


def _substring(args: Sequence[str]) -> str:
    return f"nullif({_extract([*args, '0'], 'regexp_extract', repeated=False)}, '')"


def _split(args: Sequence[str]) -> str:
    text = unquoted(args[1])
    limit = literal_int(args[2]) if len(args) > 2 else -1
    if text is None or limit is None:
        return "CAST(NULL AS VARCHAR[])"
    if not text:  # every character is a part
        whole = f"string_split({args[0]}, '')"
        if limit > 0:
            cut = f"list_append({whole}[:{limit - 1}], substring({args[0]}, {limit}))"
            return f"CASE WHEN length({args[0]}) > {limit} THEN {cut} ELSE {whole} END"
        return whole
    pattern = parse(text)
    fast = re2(pattern, whole_match=True)
    if fast is not None and not nullable(pattern.root) and limit <= 0:
        return f"string_split_regex({args[0]}, {fast})"
    return f"hr_regex_split({args[0]}, {quoted(to_python(pattern))}, {limit})"


def _overload(name: str, params: tuple[str, ...], result: DataType, sql: Writer, check: ArgumentCheck) -> Overload:
    constant = tuple(range(1, len(params)))
    return Overload(name, params, result, lambda a, k, r: sql(a), constant=constant, check=check, slow=True)


def _first(args: Sequence[str]) -> str:
    return _extract(args, "regexp_extract", repeated=False)


def _all(args: Sequence[str]) -> str:
    return _extract(args, "regexp_extract_all", repeated=True)


_TWO, _THREE = (_S, _S), (_S, _S, "INT")

OVERLOADS: tuple[Overload, ...] = (
    _overload("rlike", _TWO, BOOLEAN, _rlike, _check_pattern),
    _overload("regexp_count", _TWO, INT, _count, _check_pattern),
    _overload("regexp_substr", _TWO, STRING, _substring, _check_pattern),
    _overload("regexp_instr", _TWO, INT, _position, _check_pattern),
    _overload("regexp_instr", _THREE, INT, _position, _check_pattern),
    _overload("regexp_extract", _TWO, STRING, _first, _check_group),
    _overload("regexp_extract", _THREE, STRING, _first, _check_group),
    _overload("regexp_extract_all", _TWO, _STRINGS, _all, _check_group),
    _overload("regexp_extract_all", _THREE, _STRINGS, _all, _check_group),
    _overload("regexp_replace", (_S, _S, _S), STRING, _replace, _check_replace),
    _overload("regexp_replace", (_S, _S, _S, "INT"), STRING, _replace, _check_replace),
    _overload("split", _TWO, _STRINGS, _split, _check_pattern),
    _overload("split", _THREE, _STRINGS, _split, _check_pattern),
)
