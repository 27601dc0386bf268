"""GROUPING SETS, ROLLUP and CUBE: one row for each grouping set, and then one aggregate.

A generator makes a row of each row for every grouping set, with the number of the set. A key that is not in a set is
NULL in its rows. The number is a key, too, so that groups of different sets stay apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.errors import NotGrouped, Span, WrongArguments
from headrace.model.schema import BIGINT, BOOLEAN, INT, TINYINT, Array
from headrace.sql.bind.groups import AboveAggregate
from headrace.sql.parse.syntax import TextRange
from headrace.sql.plan.expr import Call, CaseWhen, ColumnRef, Expr, Literal
from headrace.sql.plan.logical import Aggregate, Generate, Named, Plan

SET_NUMBER = "grouping set"


@dataclass(frozen=True, slots=True)
class GroupingCall(Expr):
    """grouping(key) or grouping_id(). Binding replaces it when the keys are known."""

    name: str
    args: tuple[Expr, ...]


def bind_grouping(name: str, args: Sequence[Expr], at: TextRange, span: Callable[[TextRange], Span]) -> Expr:
    """The call of `grouping` or `grouping_id`."""
    if name == "grouping" and len(args) != 1:
        raise WrongArguments("grouping takes one key of GROUP BY", advice="Write grouping(key).", span=span(at))
    return GroupingCall(TINYINT if name == "grouping" else BIGINT, name, tuple(args), at=at)


def with_set_numbers(plan: Plan, count: int, at: TextRange) -> Generate:
    """Makes `count` rows of each row, with the numbers of the grouping sets as the last column."""
    numbers = Call(Array(INT), "array", tuple(Literal(INT, i, at=at) for i in range(count)), at=at)
    return Generate(plan, (Named(SET_NUMBER, numbers),), False, at)


def keys_of_sets(keys: Sequence[Named], sets: Sequence[frozenset[int]], number: Expr) -> list[Named]:
    """The keys of the aggregate: each NULL in the sets that it is not in, and the number of the set."""
    made = []
    for i, key in enumerate(keys):
        absent = _absent(i, sets)
        made.append(key if not absent else Named(key.name, _choose(number, absent, None, key.expr)))
    return [*made, Named(SET_NUMBER, number)]


def _absent(key: int, sets: Sequence[frozenset[int]]) -> list[int]:
    return [place for place, one in enumerate(sets) if key not in one]


def _choose(number: Expr, places: list[int], then: int | None, otherwise: Expr) -> Expr:
    """`then` in the sets at `places`, else `otherwise`."""
    listed = Call(BOOLEAN, "in", (number, *(Literal(INT, place) for place in places)), at=otherwise.at)
    kind = otherwise.type
    return CaseWhen(kind, ((listed, Literal(kind, then, at=otherwise.at)),), otherwise, at=otherwise.at)


class AboveSets(AboveAggregate):
    """Rewrites expressions over the rows of an aggregate with grouping sets. `written` are the keys as the user wrote
    them, which mean those of the aggregate."""

    def __init__(
        self,
        aggregate: Aggregate,
        span: Callable[[TextRange], Span],
        written: Sequence[Expr],
        sets: Sequence[frozenset[int]],
    ) -> None:
        super().__init__(aggregate, span)
        self.keys = {key: i for i, key in reversed(list(enumerate(written)))}
        self.sets = sets
        self.number = ColumnRef(INT, len(written), SET_NUMBER)

    def _replace(self, expr: Expr) -> Expr | None:
        if isinstance(expr, GroupingCall):
            return self._grouping(expr)
        return super()._replace(expr)

    def _grouping(self, call: GroupingCall) -> Expr:
        places = [self.keys.get(arg) for arg in call.args]
        if None in places:
            arg = call.args[places.index(None)]
            raise NotGrouped(
                f"the argument of {call.name} is not a key of GROUP BY",
                advice="Use a key of GROUP BY, as it is written there.",
                span=self.span(arg.at),
                name=call.name,
            )
        if call.name == "grouping":
            assert places[0] is not None
            absent = _absent(places[0], self.sets)
            zero = Literal(TINYINT, 0, at=call.at)
            return _choose(self.number, absent, 1, zero) if absent else zero
        width = self.number.index
        if call.args and places != list(range(width)):
            raise WrongArguments(
                "the arguments of grouping_id must be all keys of GROUP BY, in their order",
                advice="Write grouping_id().",
                span=self.span(call.at),
            )
        ids: dict[int, list[int]] = {}
        for place, one in enumerate(self.sets):
            ids.setdefault(sum(1 << (width - 1 - key) for key in range(width) if key not in one), []).append(place)
        found: Expr = Literal(BIGINT, 0, at=call.at)
        for value, places_of in ids.items():
            if value:
                found = _choose(self.number, places_of, value, found)
        return found
