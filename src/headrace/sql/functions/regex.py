"""Translates Java's regular expressions and LIKE patterns for DuckDB's RE2, where both match the same texts.

Common syntax is copied. `.` and `$` are translated, because Java knows more line ends than RE2. Syntax that RE2 lacks
(look-around, back references, possessive quantifiers, flags) is refused.
"""

from __future__ import annotations

import re

_LINE_ENDS = "\\n\\r\\x{85}\\x{2028}\\x{2029}"
_ANY = f"[^{_LINE_ENDS}]"
_END = f"(?:\\r\\n|[{_LINE_ENDS}])?$"
_SHARED_ESCAPES = "dDwWtnrf.\\+*?()[]{}|^$/-\"'"


def to_re2(pattern: str) -> str | None:
    """The RE2 pattern that matches the same texts as Java's `pattern`. None when there is none."""
    out: list[str] = []
    position, in_class = 0, False
    while position < len(pattern):
        char = pattern[position]
        following = pattern[position + 1] if position + 1 < len(pattern) else ""
        if char == "\\":
            if not following or following not in _SHARED_ESCAPES:
                return None
            out.append(char + following)
            position += 2
            continue
        if in_class:
            if char in "[&":
                return None  # Java allows nested and intersected classes
            in_class = char != "]"
            out.append(char)
        elif char == "[":
            in_class = True
            out.append(char)
            if following == "^":
                out.append("^")
                position += 1
            if pattern[position + 1 : position + 2] == "]":
                return None
        elif char == "(" and following == "?":
            if pattern[position : position + 3] != "(?:":
                return None
            out.append("(?:")
            position += 2
        elif char == "$":
            if position != len(pattern) - 1:
                return None
            out.append(_END)
        elif char in "*+?}" and following == "+":
            return None
        else:
            out.append(_ANY if char == "." else char)
        position += 1
    return None if in_class else "".join(out)


def groups_of(pattern: str) -> int | None:
    """The number of groups of a Java pattern. None when the engines may extract different texts: for patterns that
    `to_re2` refuses, for `$` (its translation includes the line end), and for patterns that match the empty text."""
    translated = to_re2(pattern)
    if translated is None or translated.endswith(_END):
        return None
    try:
        compiled = re.compile(re.sub(r"\\x\{(\w+)\}", lambda m: chr(int(m[1], 16)), translated))
    except (re.error, OverflowError):
        return None
    return None if compiled.match("") else compiled.groups


def like_is_valid(pattern: str) -> bool:
    """True if Spark accepts a LIKE pattern: a backslash may escape only %, _ and itself."""
    position = 0
    while position < len(pattern):
        if pattern[position] == "\\":
            if pattern[position + 1 : position + 2] not in ("%", "_", "\\"):
                return False
            position += 1
        position += 1
    return True
