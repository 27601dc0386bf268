"""The grammar of GROUP BY: keys, ALL, and the forms that mean several grouping sets: ROLLUP, CUBE, GROUPING SETS."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, product

from headrace.sql.parse.cursor import Cursor
from headrace.sql.parse.expression_parser import parse_expression
from headrace.sql.parse.syntax import Node

GroupingSet = tuple[Node, ...]
# Ring 0 makes one row of each row for every set.
MAX_SETS = 4096


@dataclass(frozen=True, slots=True)
class Grouped:
    """A GROUP BY clause. `keys` are all keys in the order of the text. `sets` is None without grouping sets."""

    keys: tuple[Node, ...]
    sets: tuple[GroupingSet, ...] | None = None
    all: bool = False


def parse_group_by(cursor: Cursor) -> Grouped:
    """Parses what follows GROUP BY."""
    if cursor.at("ALL") and cursor.peek().upper not in ("(", ".", ",", "["):
        cursor.advance()
        return Grouped((), all=True)
    start = cursor.token.start
    parts = [_part(cursor)]
    while cursor.accept(","):
        parts.append(_part(cursor))
    listed = [key for part in parts for one in part for key in one]
    if cursor.at("GROUPING", "SETS", "("):  # Hive: the keys, then the sets
        parts = [_sets(cursor)]
    elif cursor.accept("WITH", "ROLLUP"):
        parts = [_rollup([tuple(chain.from_iterable(p)) for p in parts])]
    elif cursor.accept("WITH", "CUBE"):
        parts = [_cube([tuple(chain.from_iterable(p)) for p in parts], cursor, start)]
    keys = tuple(dict.fromkeys([*listed, *(key for part in parts for one in part for key in one)]))
    if all(len(part) == 1 for part in parts) and all(len(part[0]) == 1 for part in parts):
        return Grouped(keys)
    _limit(parts, cursor, start)
    return Grouped(keys, tuple(tuple(chain.from_iterable(sets)) for sets in product(*parts)))


def _part(cursor: Cursor) -> list[GroupingSet]:
    """One element of GROUP BY, as the sets that it means. An expression is one set with itself."""
    start = cursor.token.start
    if cursor.at("GROUPING", "SETS", "("):
        return _sets(cursor)
    if cursor.token.kind == "word" and cursor.token.upper in ("ROLLUP", "CUBE") and cursor.peek().upper == "(":
        word = cursor.advance().upper
        cursor.advance()
        units = [_unit(cursor)]
        while cursor.accept(","):
            units.append(_unit(cursor))
        cursor.expect(")", f"after the keys of {word}")
        return _rollup(units) if word == "ROLLUP" else _cube(units, cursor, start)
    return [(parse_expression(cursor),)]


def _sets(cursor: Cursor) -> list[GroupingSet]:
    for _ in range(3):
        cursor.advance()
    found: list[GroupingSet] = []
    while not found or cursor.accept(","):
        nested = cursor.at("GROUPING", "SETS", "(") or (
            cursor.token.upper in ("ROLLUP", "CUBE") and cursor.peek().upper == "("
        )
        found += _part(cursor) if nested else [_unit(cursor)]
    cursor.expect(")", "after the grouping sets")
    return found


def _unit(cursor: Cursor) -> GroupingSet:
    """A key, or several in parentheses."""
    if not cursor.at("("):
        return (parse_expression(cursor),)
    place = cursor.position
    cursor.advance()
    if cursor.accept(")"):
        return ()
    keys = [parse_expression(cursor)]
    while cursor.accept(","):
        keys.append(parse_expression(cursor))
    cursor.expect(")", "after the keys")
    if len(keys) == 1 and cursor.token.upper not in (",", ")"):  # the parenthesis was the start of an expression
        cursor.position, cursor.token = place, cursor.tokens[place]
        return (parse_expression(cursor),)
    return tuple(keys)


def _rollup(units: list[GroupingSet]) -> list[GroupingSet]:
    return [tuple(chain.from_iterable(units[:length])) for length in range(len(units), -1, -1)]


def _cube(units: list[GroupingSet], cursor: Cursor, start: int) -> list[GroupingSet]:
    """All combinations. In the order of Spark: the first key is the last to go."""
    if 2 ** len(units) > MAX_SETS:
        _refuse(2 ** len(units), cursor, start)
    kept = product((True, False), repeat=len(units))
    return [tuple(chain.from_iterable(u for u, keep in zip(units, flags, strict=True) if keep)) for flags in kept]


def _limit(parts: list[list[GroupingSet]], cursor: Cursor, start: int) -> None:
    count = 1
    for part in parts:
        count *= len(part)
    if count > MAX_SETS:
        _refuse(count, cursor, start)


def _refuse(count: int, cursor: Cursor, start: int) -> None:
    what = f"GROUP BY with {count} grouping sets"
    cursor.refuse(what, f"Use at most {MAX_SETS} of them.", (start, cursor.previous_end))
