"""Writes Java's regular expressions for RE2 (DuckDB) or for Python's `re`, so that they match the same texts.

`headrace.sql.functions.regex_parser` reads them. `to_re2` writes patterns that RE2 can run. `to_python` writes the
others: look-around, back references, possessive quantifiers. What neither can do is refused by its name.
"""

from __future__ import annotations

import re

from headrace.sql.functions.code_points import LAST, LINE_ENDS, Ranges, complement
from headrace.sql.functions.regex_parser import PatternRefused
from headrace.sql.functions.regex_tree import (
    MANY,
    Anchor,
    BackReference,
    Chars,
    Choice,
    Group,
    Look,
    RegexNode,
    RegexPattern,
    Repeat,
    Sequence,
)

_RE2_CHAR, _PYTHON_CHAR = "\\x{%X}", "\\U%08X"


def children(node: RegexNode) -> tuple[RegexNode, ...]:
    """The direct parts of a node."""
    if isinstance(node, Sequence):
        return node.parts
    if isinstance(node, Choice):
        return node.options
    return (node.body,) if isinstance(node, Group | Look | Repeat) else ()


def nullable(node: RegexNode) -> bool:
    """True if the node may match the empty text."""
    if isinstance(node, Chars):
        return False
    if isinstance(node, Group):
        return nullable(node.body)
    if isinstance(node, Repeat):
        return node.low == 0 or nullable(node.body)
    if isinstance(node, Sequence):
        return all(map(nullable, node.parts))
    return any(map(nullable, node.options)) if isinstance(node, Choice) else True


def has_line_anchor(node: RegexNode) -> bool:
    """True if the node looks for line ends around a position."""
    own = isinstance(node, Anchor) and "line" in node.kind
    return own or any(map(has_line_anchor, children(node)))


def loops_on_nothing(node: RegexNode) -> bool:
    """True if a repeated part may match the empty text: engines then disagree about groups."""
    own = isinstance(node, Repeat) and node.high > 1 and nullable(node.body)
    return own or any(map(loops_on_nothing, children(node)))


def to_re2(pattern: RegexPattern, whole_match: bool) -> str | None:
    """The RE2 pattern that matches at the same places. None if RE2 lacks a construct. `whole_match` is true when the
    text of the match counts, not only whether there is one: a final $ would then include the line end."""
    root = pattern.root
    tail = ""
    if isinstance(root, Anchor) and root.kind == "last_line":
        root = Sequence((root,))
    if isinstance(root, Sequence) and root.parts and root.parts[-1] == Anchor("last_line") and not whole_match:
        root = Sequence(root.parts[:-1])
        tail = "(?:\\r\\n|" + _write_set(LINE_ENDS, _RE2_CHAR) + ")?\\z"
    if loops_on_nothing(root):
        return None
    written = _write_re2(root)
    return None if written is None else written + tail


def _write_re2(node: RegexNode) -> str | None:
    if isinstance(node, Chars):
        return _write_set(node.ranges, _RE2_CHAR)
    if isinstance(node, Anchor):
        return {"start": "\\A", "end": "\\z", "word": "\\b", "no_word": "\\B"}.get(node.kind)
    if isinstance(node, Look | BackReference) or (isinstance(node, Group) and node.atomic):
        return None
    if isinstance(node, Repeat):
        if node.mode == "+" or (node.high > 1000 and node.high != MANY) or node.low > 1000:
            return None
        body = _write_re2(node.body)
        return None if body is None else _single(node.body, body) + _quantifier(node)
    parts = [_write_re2(child) for child in children(node)]
    if None in parts:
        return None
    return _join(node, [p for p in parts if p is not None])


def to_python(pattern: RegexPattern) -> str:
    """The pattern for Python's `re`, without flags. Raises PatternRefused."""
    written = _write_python(pattern.root)
    try:
        re.compile(written)
    except (re.error, OverflowError, RecursionError) as problem:
        if "look-behind" in str(problem):
            raise PatternRefused("a look-behind of variable length") from None
        raise PatternRefused(f"a pattern that cannot run ({problem})") from None
    return written


_LINE = "\\n\\r\\x85\\u2028\\u2029"
_PYTHON_ANCHORS = {
    "start": "\\A",
    "end": "\\Z",
    # Before a final line end, but not inside \r\n.
    "last_line": "(?:(?=\\r\\n\\Z|[\\r\\x85\\u2028\\u2029]\\Z)|(?<!\\r)(?=\\n\\Z)|\\Z)",
    "line_start": f"(?:(?:\\A|(?<=[{_LINE}])(?<!\\r(?=\\n)))(?!\\Z))",
    "line_end": f"(?:(?<!\\r)(?=\\n)|(?=[{_LINE[2:]}])|\\Z)",
    "word": "(?:(?<=[0-9A-Za-z_])(?![0-9A-Za-z_])|(?<![0-9A-Za-z_])(?=[0-9A-Za-z_]))",
    "no_word": "(?:(?<=[0-9A-Za-z_])(?=[0-9A-Za-z_])|(?<![0-9A-Za-z_])(?![0-9A-Za-z_]))",
}


def _write_python(node: RegexNode) -> str:
    if isinstance(node, Chars):
        return _write_set(node.ranges, _PYTHON_CHAR)
    if isinstance(node, Anchor):
        return _PYTHON_ANCHORS[node.kind]
    if isinstance(node, BackReference):
        return f"(?:\\{node.index})"
    if isinstance(node, Look):
        sign = ("<" if node.behind else "") + ("!" if node.negative else "=")
        return f"(?{sign}{_write_python(node.body)})"
    if isinstance(node, Repeat):
        return _single(node.body, _write_python(node.body)) + _quantifier(node)
    return _join(node, [_write_python(child) for child in children(node)])


def _join(node: RegexNode, parts: list[str]) -> str:
    if isinstance(node, Group):
        return ("(?>" if node.atomic else "(" if node.index is not None else "(?:") + parts[0] + ")"
    if isinstance(node, Choice):
        return "(?:" + "|".join(parts) + ")"
    return "".join(parts)


def _single(node: RegexNode, text: str) -> str:
    return text if isinstance(node, Chars | Group | Choice | BackReference) else f"(?:{text})"


def _quantifier(node: Repeat) -> str:
    short = {(0, MANY): "*", (1, MANY): "+", (0, 1): "?"}.get((node.low, node.high))
    if short is None:
        high = "" if node.high == MANY else str(node.high)
        short = f"{{{node.low}}}" if node.low == node.high else f"{{{node.low},{high}}}"
    return short + node.mode


def _write_set(ranges: Ranges, form: str) -> str:
    if not ranges:
        return "[^" + form % 0 + "-" + form % LAST + "]"
    if ranges == ((0, LAST),):
        return "[" + form % 0 + "-" + form % LAST + "]"
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _write_char(ranges[0][0], form)
    negative = ranges[0][0] == 0 and ranges[-1][1] == LAST
    shown = complement(ranges) if negative else ranges
    inner = "".join(
        _write_char(low, form) + ("" if low == high else "-" + _write_char(high, form)) for low, high in shown
    )
    return ("[^" if negative else "[") + inner + "]"


def _write_char(point: int, form: str) -> str:
    char = chr(point)
    if char.isascii() and (char.isalnum() or char in " _,;:=@<>%!\"'/"):
        return char
    if char.isascii() and char.isprintable():
        return "\\" + char
    return char if point > 0xFF and char.isprintable() else form % point


# --- replacements and LIKE ----------------------------------------------------------------------

Replacement = tuple[str | int, ...]


def parse_replacement(text: str, pattern: RegexPattern) -> Replacement:
    """Reads the replacement of `regexp_replace`: texts, and numbers of groups. Raises PatternRefused."""
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        if text[at] == "\\":
            if at + 1 == len(text):
                raise PatternRefused("a backslash at the end of the replacement")
            parts.append(text[at + 1])
            at += 2
        elif text[at] == "$":
            if text[at + 1 : at + 2] not in tuple("0123456789"):  # Spark replaces ${name} before it parses the SQL
                raise PatternRefused("a $ without a number in the replacement")
            number = int(text[at + 1])
            at += 2
            while text[at : at + 1].isdigit() and number * 10 + int(text[at]) <= pattern.groups:
                number = number * 10 + int(text[at])
                at += 1
            if number > pattern.groups:
                raise PatternRefused(f"group {number} in the replacement, which the pattern does not have")
            parts.append(number)
        else:
            parts.append(text[at])
            at += 1
    return tuple(parts)


def re2_replacement(parts: Replacement) -> str | None:
    """The replacement for RE2. None when a group has more than one digit."""
    if any(isinstance(p, int) and p > 9 for p in parts):
        return None
    return "".join(f"\\{p}" if isinstance(p, int) else "\\\\" if p == "\\" else p for p in parts)


def python_replacement(parts: Replacement) -> str:
    """The replacement as a template of Python's `re`."""
    return "".join(f"\\g<{p}>" if isinstance(p, int) else "\\\\" if p == "\\" else p for p in parts)


def like_is_valid(pattern: str, escape: str = "\\") -> bool:
    """True if Spark accepts a LIKE pattern: the escape character may stand only before %, _ and itself."""
    position = 0
    while position < len(pattern):
        if pattern[position] == escape:
            if pattern[position + 1 : position + 2] not in ("%", "_", escape):
                return False
            position += 1
        position += 1
    return True
