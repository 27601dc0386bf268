"""A parsed regular expression. Every character class is a set of code points."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.sql.functions.code_points import Ranges

MANY = 1 << 31  # the upper bound of a repetition without one


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of a set."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Anchor:
    """A position: `start`, `end`, `last_line` ($ and \\Z), `line_start`, `line_end`, `word` or `no_word`."""

    kind: str


@dataclass(frozen=True, slots=True)
class Group:
    """A group. `index` is its number, None without capture. `atomic` is (?>...)."""

    body: RegexNode
    index: int | None = None
    atomic: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """Look-ahead or look-behind."""

    body: RegexNode
    behind: bool
    negative: bool


@dataclass(frozen=True, slots=True)
class BackReference:
    """The text of an earlier group."""

    index: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """`mode` is '' (greedy), '?' (lazy) or '+' (possessive)."""

    body: RegexNode
    low: int
    high: int
    mode: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """Parts one after the other."""

    parts: tuple[RegexNode, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Alternatives; the first that matches wins."""

    options: tuple[RegexNode, ...]


RegexNode = Chars | Anchor | Group | Look | BackReference | Repeat | Sequence | Choice


@dataclass(frozen=True, slots=True)
class RegexPattern:
    """A parsed pattern. `names` are the numbers of the named groups."""

    root: RegexNode
    groups: int
    names: dict[str, int]
