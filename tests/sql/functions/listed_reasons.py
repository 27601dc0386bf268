"""The differences from Spark that docs/functions.md lists, and how a difference is recognized as one of them.

A reason holds only for the rows in which it is seen: the part that it is about is evaluated by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np

from headrace.errors import HeadraceError
from tests.sql.functions.harness import FAILED, NO_TEXT, Duck, Outcome, Spark, same
from tests.sql.functions.spark_answers import RememberingSpark

_OPENING, _CLOSING = "([", ")]"
_COLUMN = re.compile(r"\bc_[0-9]+\b")


_NUMBER = re.compile(r"-?[0-9]+\.[0-9]+(?:E-?[0-9]+)?")
_GROUPED = re.compile(r"-?[0-9]{1,3}(?:,[0-9]{3})+(?:\.0*)?")  # of format_number
# Whether Spark keeps the sign of a zero in a key, and the order of zeros, depends on how it runs the expression.
_KEEPS_ZEROS = re.compile(r"\b(map|sort_array)\(", re.IGNORECASE)


class ListedReasons:
    """Explains differences over one frame. `plan` returns our type and SQL of a text, or the refusal."""

    def __init__(self, spark: Spark | RememberingSpark, duck: Duck, plan: Callable[[str], Any]) -> None:
        self._spark, self._duck, self._plan = spark, duck, plan

    def explain(self, text: str, ours: Outcome, theirs: Outcome) -> bool:
        """True if a listed reason explains every row that differs."""
        if ours.type != theirs.type:
            return False
        pairs = enumerate(zip(ours.values, theirs.values, strict=True))
        different = {i for i, (a, b) in pairs if not same(ours.type, a, b)}
        rest = different - {i for i in self._evaluated_first(text) if theirs.values[i] == FAILED}
        rest -= {i for i in rest if theirs.values[i] == NO_TEXT and ours.values[i] == FAILED}
        rest -= {i for i in rest if is_other_digits(ours.values[i], theirs.values[i])}
        rest -= {i for i in self._pushed_into_branches(text) if theirs.values[i] == FAILED}
        rest -= self._not_text(text, {i for i in rest if ours.values[i] == FAILED})
        if _KEEPS_ZEROS.search(text):
            rest -= {i for i in rest if same("", *(without_sign(side.values[i]) for side in (ours, theirs)))}
        rest -= self._computed_nulls(text, rest, ours, theirs)
        if rest:
            rest -= self._spelled(text)
        if any(is_always(FAILED, self._values(part)) for part in constant_parts(text)):
            return True  # Spark fails while it plans, and evaluates it in no row then
        return not rest or rest <= self._null_index(text)

    def _computed_nulls(self, text: str, rows: set[int], ours: Outcome, theirs: Outcome) -> set[int]:
        """The rows that fail here, and have Spark's value if the constants that are computed, and are NULL, are
        written as NULL: Spark evaluates no operand beside them."""
        if not any(ours.values[i] == FAILED for i in rows):
            return set()
        for part in constant_parts(text):
            planned = self._plan(part)
            if not isinstance(planned, HeadraceError) and is_always(None, self._duck.evaluate(*planned).values):
                text = text.replace(part, f"CAST(NULL AS {planned[0]})")
        written = self._values(text)
        return {i for i in rows if written and same(ours.type, written[i], theirs.values[i])}

    def _evaluated_first(self, text: str) -> set[int]:
        """The rows in which the first operand of a nullif, nullifzero or BETWEEN fails. Spark evaluates it first."""
        return {
            i for operand in evaluated_first(text) for i, value in enumerate(self._values(operand)) if value == FAILED
        }

    def _not_text(self, text: str, rows: set[int]) -> set[int]:
        """The rows that fail here because bytes that are no UTF-8 become a STRING."""
        planned = self._plan(text) if rows else None
        if planned is None or isinstance(planned, HeadraceError):
            return set()
        kind, sql = planned
        return {i for i in rows if "could not convert blob to UTF8" in self._duck.failure(kind, sql, i)}

    def _spelled(self, text: str) -> set[int]:
        """The rows in which the JSON of a part has other digits of a FLOAT or DOUBLE."""
        found: set[int] = set()
        for part in json_texts(text):
            theirs = self._spark.evaluate([part])[0]
            if not isinstance(theirs, str):
                pairs = enumerate(zip(self._values(part), theirs.values, strict=False))
                found |= {i for i, (a, b) in pairs if a != b and is_other_digits(a, b)}
        return found

    def _pushed_into_branches(self, text: str) -> set[int]:
        """The rows in which the dividend of a try_mod or try_divide by a constant fails. Spark moves the constant into
        the branches of a nullif or CASE there, and evaluates their condition first."""
        found: set[int] = set()
        for match in re.finditer(r"\btry_(?:mod|divide)\(", text):
            dividend, divisor = arguments(text, match.end())
            if not _COLUMN.search(divisor):
                found |= {i for i, value in enumerate(self._values(dividend)) if value == FAILED}
        return found

    def _null_index(self, text: str) -> set[int]:
        """The rows in which an element is taken at an index that is NULL, where Spark believes that the element is
        never NULL: Spark takes any value for it, or fails."""
        return {
            i
            for element, index in elements(text)
            if not self._spark.may_be_null(element)
            for i, value in enumerate(self._values(index))
            if value is None
        }

    def _values(self, text: str) -> list[Any]:
        planned = self._plan(text)
        if isinstance(planned, HeadraceError):
            return []
        return self._duck.evaluate(*planned).values


def is_always(wanted: Any, values: list[Any]) -> bool:
    """True if there are values, and all of them are `wanted`."""
    return bool(values) and all(not isinstance(v, list | dict) and v == wanted for v in values)


def is_other_digits(ours: Any, theirs: Any) -> bool:
    """True if two texts differ only in the digits of a FLOAT or DOUBLE: the fewest here, more of them on Java 17.

    >>> is_other_digits('{"a":4.1634412E18}', '{"a":4.16344124E18}'), is_other_digits("1.0E23", "9.999999999999999E22")
    (True, True)
    >>> is_other_digits("4,611,686,018,212,640,000.00", "4,611,686,018,212,639,700.00")
    True
    >>> is_other_digits("1.5E18", "1.5000001E18"), is_other_digits("1.50E18", "1.5E18"), is_other_digits("1.0", 1.0)
    (False, False, False)
    """
    if not (isinstance(ours, str) and isinstance(theirs, str)):
        return False
    if _GROUPED.fullmatch(ours) and _GROUPED.fullmatch(theirs):
        a, b = (Decimal(text.replace(",", "")) for text in (ours, theirs))
        return _is_shortest(f"{a:.1f}", f"{b:.1f}", np.float64)
    if _NUMBER.sub("", ours) != _NUMBER.sub("", theirs):
        return False
    pairs = zip(_NUMBER.findall(ours), _NUMBER.findall(theirs), strict=True)
    return all(a == b or any(_is_shortest(a, b, kind) for kind in (np.float32, np.float64)) for a, b in pairs)


def _is_shortest(ours: str, theirs: str, kind: Any) -> bool:
    """True if both are the same number of a type, and ours has as many digits as needed."""
    found = kind(ours)
    fewest = np.format_float_scientific(found, unique=True, trim="-")
    return bool(found == kind(theirs)) and Decimal(ours) == Decimal(fewest) and len(ours) <= len(theirs)


def without_sign(value: Any) -> Any:
    """A value with 0.0 for -0.0, also inside of it.

    >>> without_sign([(-0.0, 1)])
    [(0.0, 1)]
    """
    if isinstance(value, list | tuple):
        return type(value)(without_sign(v) for v in value)
    if isinstance(value, dict):
        return {k: without_sign(v) for k, v in value.items()}
    return 0.0 if isinstance(value, float) and value == 0 else value


def evaluated_first(text: str) -> list[str]:
    """The first operands of nullif, nullifzero, regexp_substr and BETWEEN in an expression.

    >>> evaluated_first("1 + nullif(a(1, 2), b) > 2"), evaluated_first("f(1, x + 1 BETWEEN 2 AND 3)")
    (['a(1, 2)'], [' x + 1'])
    """
    found = [arguments(text, match.end())[0] for match in re.finditer(r"\b(?:nullif(?:zero)?|regexp_substr)\(", text)]
    return found + [_before(text, match.start()) for match in re.finditer(r" (?:NOT )?BETWEEN ", text)]


def json_texts(text: str) -> list[str]:
    """The calls that make JSON in an expression.

    >>> json_texts("left((to_json(struct(c_1))), 30)")
    ['to_json(struct(c_1))']
    """
    found = re.finditer(r"\bto_json\(", text)
    return [match[0] + ",".join(arguments(text, match.end())) + ")" for match in found]


def constant_parts(text: str) -> list[str]:
    """The calls and parentheses without a column in an expression, the longest first.

    >>> constant_parts("f(c_1, (1 + nullif(0, 0))) IN (c_2, CAST(NULL AS INT))")
    ['(1 + nullif(0, 0))', 'CAST(NULL AS INT)', 'nullif(0, 0)']
    """
    found = set()
    for match in re.finditer(r"(?:\b[a-z_0-9]+)?\(", text, re.IGNORECASE):
        inside = text[match.end() - 1 : match.end() + len(",".join(arguments(text, match.end()))) + 1]
        if not _COLUMN.search(inside):
            found.add(text[match.start() : match.end() - 1] + inside)
    return sorted(found, key=lambda part: (-len(part), part))


def elements(text: str) -> Iterator[tuple[str, str]]:
    """The elements of arrays in an expression, and the index of each.

    >>> list(elements("f((array(1))[g(2)] + a[1], element_at(b, 3))"))
    [('(array(1))[g(2)]', 'g(2)'), ('a[1]', '1'), ('element_at(b, 3)', ' 3')]
    """
    for match in re.finditer(r"[\w)\]]\[", text):
        index = arguments(text, match.end())[0]
        yield f"{_operand_before(text, match.end() - 1)}[{index}]", index
    for match in re.finditer(r"\b(?:try_)?element_at\(", text):
        given = arguments(text, match.end())
        yield f"{match[0]}{','.join(given)})", given[-1]


def arguments(text: str, start: int) -> list[str]:
    """The texts between commas from `start` to the parenthesis or bracket that closes."""
    found, depth, quoted, begin = [], 0, False, start
    for i in range(start, len(text)):
        if text[i] == "'" and text[i - 1] != "\\":
            quoted = not quoted
        if quoted:
            continue
        if not depth and text[i] in ",)]":
            found.append(text[begin:i])
            begin = i + 1
            if text[i] != ",":
                return found
        depth += (text[i] in _OPENING) - (text[i] in _CLOSING)
    return [*found, text[begin:]]


def _operand_before(text: str, end: int) -> str:
    """The operand that ends at `end`: a name, a call, or something in parentheses."""
    start = end
    while start and text[start - 1] in _CLOSING:
        depth = 1
        while start and depth:
            start -= 1
            depth += (text[start - 1] in _CLOSING) - (text[start - 1] in _OPENING)
        start -= 1
    while start and (text[start - 1].isalnum() or text[start - 1] == "_"):
        start -= 1
    return text[start:end]


def _before(text: str, end: int) -> str:
    """The operand that ends at `end`, back to the parenthesis or comma around it."""
    depth = 0
    for i in range(end - 1, -1, -1):
        depth += (text[i] in _CLOSING) - (text[i] in _OPENING)
        if depth < 0 or (text[i] == "," and not depth):
            return text[i + 1 : end]
    return text[:end]
