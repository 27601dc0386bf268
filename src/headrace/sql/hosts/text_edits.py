"""Replaces parts of a SQL text, and finds positions of the new text in the old one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Edit = tuple[int, int, str]
"""Replace [start, end) by a text."""


@dataclass(frozen=True, slots=True)
class EditedText:
    """A text after edits that do not overlap."""

    text: str
    edits: tuple[Edit, ...]

    def original(self, position: int) -> int:
        """The position in the text before the edits. Inside a replacement it is the start of what was replaced."""
        shift = 0
        for start, end, new in self.edits:
            if position < start + shift:
                break
            if position < start + shift + len(new):
                return start
            shift += len(new) - (end - start)
        return position - shift


def edited(text: str, edits: Iterable[Edit]) -> EditedText:
    """The text after the edits.

    >>> edited("a + b", [(4, 5, "cc"), (0, 1, "x")]).text
    'x + cc'
    """
    ordered = tuple(sorted(edits))
    parts, at = [], 0
    for start, end, new in ordered:
        parts += [text[at:start], new]
        at = end
    return EditedText("".join([*parts, text[at:]]), ordered)
