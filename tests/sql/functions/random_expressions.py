"""Random expressions over all entries of the list: cases of entries, with expressions in place of their columns.

The text of a case says how an entry is written, and its kinds say which types it takes. So a new entry takes part as
soon as it has a case. An expression is a case whose columns are replaced by other expressions of the same type.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.model.schema import parse_type
from tests.sql.functions.cases import ULPS, Case, scalar_cases
from tests.sql.functions.edges import values_of
from tests.sql.functions.harness import plan_expressions

ROWS = 24
# Instants and readings around the changes between summer and winter time of every zone that is compared.
ZONES = ("America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "UTC")
# Entries whose last digits may differ stand only at the top, where a difference of some digits is allowed.
_ROUNDED = re.compile(r"\b(" + "|".join(ULPS) + r")\b", re.IGNORECASE)
# Java 17 writes other digits of some numbers, and bytes that are no UTF-8 stay in Spark's strings: only edge values.
_OWN_DIGITS = (
    "cast(FLOAT -> STRING)", "cast(DOUBLE -> STRING)", "cast(FLOAT -> DECIMAL)", "cast(DOUBLE -> DECIMAL)",
    "cast(BINARY -> STRING)",
)  # fmt: skip
_TOKEN = re.compile(r"'(?:[^'\\]|\\.|'')*'|[.]?\b[a-f]\b(?!\s*->)|\((?:k|s|x|y|i|, )+\) ->")


@dataclass(frozen=True)
class Expression:
    """An expression over the columns, the entry at its top, and the last digits that may differ."""

    text: str
    key: str
    ulps: int


def plain(kind: str) -> str:
    """A kind of edge values as a type."""
    return kind.removeprefix("SMALL ").strip()


def is_limited(kind: str) -> bool:
    """True if only the edge values of this kind make sense, not any value of the type."""
    return kind.startswith("SMALL ")


class Columns:
    """One column for each kind of edge values, named by its position."""

    def __init__(self, kinds: list[str]) -> None:
        self.kinds = kinds
        self.names = {kind: f"c_{i}" for i, kind in enumerate(kinds)}

    def rows(self, seed: int) -> pa.Table:
        """Rows that hold the edge values of every kind, in random combinations."""
        chance = random.Random(seed)
        arrays = []
        for kind in self.kinds:
            values = values_of(kind)
            chosen = [values[i % len(values)] for i in chance.sample(range(max(ROWS, len(values))), ROWS)]
            chosen[0] = next(v for v in values if v is not None)
            chosen[1] = None
            arrays.append(pa.array(chosen, parse_type(plain(kind)).arrow))
        return pa.table(dict(zip(self.names.values(), arrays, strict=True)))


class Generator:
    """Makes random expressions. The same seed makes the same ones."""

    def __init__(self) -> None:
        cases = [case for case in scalar_cases() if _usable(case)]
        self.columns = Columns(sorted({kind for case in cases for kind in case.kinds}))
        results: dict[str, dict[str, list[Case]]] = defaultdict(lambda: defaultdict(list))
        self.roots: dict[str, list[Case]] = defaultdict(list)
        for case in cases:
            (planned,) = plan_expressions(case.kinds, [case.text])
            if isinstance(planned, HeadraceError):
                continue
            self.roots[case.key].append(case)
            if not _ROUNDED.search(case.text) and case.key not in _OWN_DIGITS:
                results[planned[0].ddl][case.key].append(case)
        self.results = {kind: {key: tuple(some) for key, some in keys.items()} for kind, keys in results.items()}
        self.keys = sorted(self.roots)

    def some(self, count: int, seed: int) -> list[Expression]:
        """`count` expressions, 3 to 5 deep."""
        chance = random.Random(seed)
        found = []
        for _ in range(count):
            key = chance.choice(self.keys)
            case = chance.choice(self.roots[key])
            text = self._filled(case, 0 if key in _OWN_DIGITS else chance.randint(2, 4), chance)
            found.append(Expression(text, key, case.ulps))
        return found

    def _filled(self, case: Case, depth: int, chance: random.Random) -> str:
        # One argument goes to the full depth, the others end earlier, so that expressions stay short.
        deepest = chance.randrange(len(case.kinds)) if case.kinds else 0
        made = [
            self._of(kind, depth if i == deepest else min(depth, chance.randint(0, 2)), chance)
            for i, kind in enumerate(case.kinds)
        ]
        return replaced(case.text, made)

    def _of(self, kind: str, depth: int, chance: random.Random) -> str:
        entries = self._entries(kind, chance)
        if depth <= 0 or not entries or (is_limited(kind) and ("DOUBLE" in kind or chance.random() < 0.7)):
            return self._leaf(kind, chance)
        key = chance.choice(sorted(entries))
        case = chance.choice(entries[key])
        inner = self._filled(case, depth - 1, chance)
        if is_limited(kind) and plain(kind) in ("INT", "BIGINT", "TINYINT", "SMALLINT"):
            return f"({inner} % 40)"
        return f"({inner})" if re.fullmatch(r"[\w.]+", inner) is None and inner[0] != "(" else inner

    def _entries(self, kind: str, chance: random.Random) -> dict[str, tuple[Case, ...]]:
        entries = self.results.get(plain(kind), {})
        if plain(kind).startswith("DECIMAL"):  # any decimal
            kinds = sorted(k for k in self.results if k.startswith("DECIMAL"))
            entries = self.results[chance.choice(kinds)]
        return entries

    def _leaf(self, kind: str, chance: random.Random) -> str:
        draw = chance.random()
        if draw < 0.04:
            return "NULL" if draw < 0.02 else f"CAST(NULL AS {plain(kind)})"
        if draw < 0.25:
            text = literal(plain(kind), chance.choice(values_of(kind)))
            if text is not None:
                return text
        return self.columns.names[kind]


def _usable(case: Case) -> bool:
    """True if the case takes part. Those of times and intervals have a second case under another entry."""
    if case.key.startswith(("time plus interval", "time minus time")):
        return False
    return "current_" not in case.text and "localtimestamp" not in case.text and "now()" not in case.text


def replaced(text: str, made: list[str]) -> str:
    """The text of a case with other expressions in place of its columns."""

    def new(match: re.Match[str]) -> str:
        word = match[0]
        place = "abcdef".find(word) if len(word) == 1 else -1
        return made[place] if 0 <= place < len(made) else word

    return _TOKEN.sub(new, text)


def literal(kind: str, value: Any) -> str | None:
    """A value as a literal of Spark SQL. None for types without literals here."""
    if value is None:
        return f"CAST(NULL AS {kind})"
    if kind == "STRING":
        text = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t")
        return f"'{text}'" if len(text) < 100 else None
    if kind in ("TINYINT", "SMALLINT", "INT", "BIGINT"):
        suffix = {"TINYINT": "Y", "SMALLINT": "S", "INT": "", "BIGINT": "L"}[kind]
        return f"{value}{suffix}" if value >= 0 else f"CAST('{value}' AS {kind})"
    if kind in ("FLOAT", "DOUBLE"):
        return f"CAST('{value!r}' AS {kind})"
    if kind.startswith("DECIMAL"):
        return f"CAST('{value}' AS {kind})"
    if kind == "BOOLEAN":
        return str(value).lower()
    if kind == "DATE":
        return f"DATE '{value.isoformat()}'"
    return None
