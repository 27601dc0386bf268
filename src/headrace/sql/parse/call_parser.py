"""The grammar of function calls: arguments, lambdas, the clauses after a call, and functions with words in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from headrace.errors import SyntaxProblem
from headrace.sql.parse.cursor import Cursor
from headrace.sql.parse.data_types import parse_cast
from headrace.sql.parse.stars import parse_star, star_follows
from headrace.sql.parse.syntax import Aliased, Apply, Constant, LambdaFunction, Name, Node, OrderKey, Ranking

# Functions that take a bare unit as the first of three arguments.
_STEPS = {
    "timestampadd": "timestampadd", "dateadd": "timestampadd", "date_add": "timestampadd",
    "timestampdiff": "timestampdiff", "datediff": "timestampdiff", "date_diff": "timestampdiff",
}  # fmt: skip
_STEP_UNITS = (
    "microsecond", "millisecond", "second", "minute", "hour", "day", "dayofyear", "week", "month", "quarter", "year",
)  # fmt: skip
_NULLS_INSIDE = ("first", "last", "any_value")  # IGNORE NULLS may stand after their argument
_OUTSIDE = "Write it behind them: first(x) FILTER (WHERE ...) IGNORE NULLS."
_RANKINGS = ("row_number", "rank", "dense_rank")


class Levels(Protocol):
    """The levels of precedence that an argument may begin with."""

    def disjunction(self) -> Node:
        """Any expression."""

    def bit_or(self) -> Node:
        """An expression that is not a predicate."""


class CallParser:
    """Parses the call at the cursor. `levels` parses the expressions inside it."""

    def __init__(self, cursor: Cursor, levels: Levels) -> None:
        self.cursor, self.levels = cursor, levels

    def function(self) -> Node:
        """A call with its clauses: DISTINCT, IGNORE NULLS, WITHIN GROUP, FILTER and OVER."""
        cursor = self.cursor
        token = cursor.advance()
        cursor.advance()
        distinct = cursor.accept("DISTINCT")
        if not distinct:
            cursor.accept("ALL")
        name = token.text.lower()
        args: list[Node] = []
        star = False
        if cursor.at("*") and cursor.peek().upper == ")":
            cursor.advance()
            star = True
        elif not cursor.at(")"):
            args.append(self._argument(name))
            while cursor.accept(","):
                args.append(self._argument(name))
        ignored_inside = name in _NULLS_INSIDE and cursor.accept("IGNORE", "NULLS")
        cursor.expect(")", f"after the arguments of {token.text}")
        order = self._within_group()
        where: Node | None = None
        if cursor.at("FILTER") and cursor.peek().upper == "(":
            if ignored_inside:
                cursor.fail("IGNORE NULLS inside of the parentheses takes no FILTER", advice=_OUTSIDE, certain=True)
            cursor.advance()
            cursor.advance()
            cursor.expect("WHERE", "in FILTER")
            where = self.levels.disjunction()
            cursor.expect(")", "after FILTER's condition")
        ignore_nulls = ignored_inside or self._ignores_nulls()
        if cursor.at("OVER") and not cursor.reserved_before(",", "FROM", "AS"):  # there it is an alias
            if name in _RANKINGS and not (args or star or distinct or where):
                return self._ranking(token.start, name)
            advice = (
                "Only row_number(), rank() and dense_rank() over the groups of a window have OVER; see docs/sql.md."
            )
            cursor.refuse("an OVER window", advice, (token.start, cursor.token.end))
        if name in _STEPS and len(args) == 3 and isinstance(args[0], Constant) and args[0].kind == "string":
            raise SyntaxProblem(
                f"the unit of {token.text} has no quotes",
                advice=f"Write {token.text}({args[0].text.upper()}, ...).",
                span=cursor.span(args[0].at),
                certain=True,
            )
        if name in _STEPS and len(args) == 3 and isinstance(args[0], Name) and args[0].parts[0].lower() in _STEP_UNITS:
            name, args[0] = _STEPS[name], Constant(args[0].at, "string", args[0].parts[0])
        elif name in _STEPS and len(args) == 3 and isinstance(args[0], Name) and len(args[0].parts) == 1:
            raise SyntaxProblem(
                f"{args[0].parts[0]} is not a unit of {token.text}",
                advice=f"Units: {', '.join(_STEP_UNITS).upper()}.",
                span=cursor.span(args[0].at),
                certain=True,
            )
        return Apply(
            at=(token.start, cursor.previous_end),
            name=name,
            args=tuple(args),
            distinct=distinct,
            star=star,
            where=where,
            order=order,
            ignore_nulls=ignore_nulls,
        )

    def _ranking(self, start: int, name: str) -> Node:
        """OVER ([PARTITION BY expressions] ORDER BY keys) after the call of a ranking function."""
        cursor = self.cursor
        cursor.advance()
        cursor.expect("(", "after OVER")
        partition: list[Node] = []
        if cursor.accept("PARTITION"):
            cursor.expect("BY", "after PARTITION")
            while not partition or cursor.accept(","):
                partition.append(self.levels.disjunction())
        order: list[OrderKey] = []
        if cursor.accept("ORDER"):
            cursor.expect("BY", "after ORDER")
            while not order or cursor.accept(","):
                order.append(self._order_key())
        cursor.expect(")", "after the keys of OVER")
        return Ranking((start, cursor.previous_end), name, tuple(partition), tuple(order))

    def _order_key(self) -> OrderKey:
        cursor = self.cursor
        value = self.levels.disjunction()
        descending = cursor.accept("DESC")
        if not descending:
            cursor.accept("ASC")
        nulls_first = not descending
        if cursor.accept("NULLS"):
            nulls_first = cursor.one_of("FIRST or LAST after NULLS", "FIRST", "LAST") == "FIRST"
        return OrderKey((value.at[0], cursor.previous_end), value, descending, nulls_first)

    def _ignores_nulls(self) -> bool:
        if self.cursor.accept("RESPECT", "NULLS"):
            return False
        return self.cursor.accept("IGNORE", "NULLS")

    def _within_group(self) -> tuple[tuple[Node, bool], ...]:
        """The keys of WITHIN GROUP (ORDER BY key [ASC | DESC], ...), each with whether it is descending."""
        cursor = self.cursor
        if not cursor.accept("WITHIN", "GROUP"):
            return ()
        cursor.expect("(", "after WITHIN GROUP")
        cursor.expect("ORDER", "in WITHIN GROUP")
        cursor.expect("BY", "after ORDER")
        keys: list[tuple[Node, bool]] = []
        while not keys or cursor.accept(","):
            key = self.levels.disjunction()
            descending = cursor.accept("DESC")
            if not descending:
                cursor.accept("ASC")
            if cursor.at("NULLS"):
                cursor.refuse(
                    "NULLS FIRST or LAST",
                    "NULL comes first, or last with DESC.",
                    (cursor.token.start, cursor.token.end),
                )
            keys.append((key, descending))
        cursor.expect(")", "after the keys of WITHIN GROUP")
        return tuple(keys)

    def worded_function(self, word: str) -> Node:
        """Functions with words between their arguments: trim(BOTH x FROM y), position(x IN y), overlay(x PLACING y FROM
        n FOR n) and substring(x FROM n FOR n). Also their forms with commas."""
        cursor = self.cursor
        start = cursor.token.start
        side = cursor.peek(2).upper if word == "TRIM" else ""
        if side in ("BOTH", "LEADING", "TRAILING") and cursor.peek(3).upper not in (",", ")"):
            for _ in range(3):
                cursor.advance()
            name = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}[side]
            args = [] if cursor.at("FROM") else [self.levels.disjunction()]
            cursor.expect("FROM", "in TRIM")
            return self._worded(start, name, [*args, self.levels.disjunction()], side if args else "")
        if cursor.peek(2).upper in (")", "*", "DISTINCT", "ALL"):
            return self.function()
        if word == "TRIM" and cursor.peek(2).upper == "FROM" and cursor.peek(3).upper not in (",", ")"):
            for _ in range(3):
                cursor.advance()
            return self._worded(start, "trim", [self.levels.disjunction()])
        name = cursor.advance().text.lower()
        cursor.advance()
        args = [self.levels.bit_or()]  # not a predicate, which would take the IN of POSITION
        if word == "TRIM" and cursor.accept("FROM"):
            return self._worded(start, name, [*args, self.levels.disjunction()], "BOTH")
        if word == "POSITION" and cursor.accept("IN"):
            return self._worded(start, name, [*args, self.levels.disjunction()], "locate")
        if word == "OVERLAY" and cursor.accept("PLACING"):
            args.append(self.levels.disjunction())
            cursor.expect("FROM", "in OVERLAY")
            return self._worded(start, name, self._from_for([*args, self.levels.disjunction()]))
        if word in ("SUBSTRING", "SUBSTR") and cursor.accept("FROM"):
            return self._worded(start, "substring", self._from_for([*args, self.levels.disjunction()]))
        while cursor.accept(","):
            args.append(self._argument())
        return self._worded(start, name, args)

    def _from_for(self, args: list[Node]) -> list[Node]:
        return [*args, self.levels.disjunction()] if self.cursor.accept("FOR") else args

    def _worded(self, start: int, name: str, args: list[Node], written: str = "") -> Node:
        self.cursor.expect(")", f"after the arguments of {name}")
        return Apply((start, self.cursor.previous_end), name, tuple(args), written=written)

    def _argument(self, function: str = "") -> Node:
        cursor = self.cursor
        params = self._lambda_params()
        if params:
            start = cursor.token.start
            while not cursor.accept("->"):
                cursor.advance()
            body = self.levels.disjunction()
            return LambdaFunction((start, body.at[1]), params, body)
        if star_follows(cursor):
            return parse_star(cursor)
        node = self.levels.disjunction()
        if cursor.at("=>"):
            cursor.fail("named arguments are not supported; pass arguments by position")
        unmarked = function == "struct" and cursor.token.kind in ("word", "quoted")  # STRUCT(1 a)
        if cursor.accept("AS") or unmarked:
            name = cursor.name("a name after AS")
            return Aliased((node.at[0], cursor.previous_end), node, name)
        return node

    def _lambda_params(self) -> tuple[str, ...]:
        """The parameters, if a lambda is next: `x ->` or `(x, y) ->`. Else nothing."""
        cursor = self.cursor
        if cursor.token.kind in ("word", "quoted"):
            return (cursor.token.text,) if cursor.peek().upper == "->" else ()
        found: list[str] = []
        place = 1
        while cursor.token.upper == "(" and cursor.peek(place).kind in ("word", "quoted"):
            found.append(cursor.peek(place).text)
            if cursor.peek(place + 1).upper == ")":
                if cursor.peek(place + 2).upper == "->" and len(found) == 1:
                    cursor.fail(
                        "one parameter of a lambda has no parentheses", advice=f"Write {found[0]} -> ...", certain=True
                    )
                return tuple(found) if cursor.peek(place + 2).upper == "->" else ()
            if cursor.peek(place + 1).upper != ",":
                return ()
            place += 2
        return ()

    def cast(self) -> Node:
        """CAST(value AS type) and TRY_CAST."""
        cursor = self.cursor
        word = cursor.advance()
        cursor.advance()
        inner = self.levels.disjunction()
        cursor.expect("AS", "in CAST")
        made = parse_cast(cursor, word.start, inner, word.upper == "TRY_CAST")
        cursor.expect(")", "after the type of CAST")
        return replace(made, at=(word.start, cursor.previous_end))

    def extract(self) -> Node:
        """EXTRACT(part FROM value)."""
        cursor = self.cursor
        word = cursor.advance()
        cursor.advance()
        if cursor.token.kind == "string":
            cursor.fail(
                "the part has no quotes", advice=f"Write EXTRACT({cursor.token.text.upper()} FROM ...).", certain=True
            )
        part = cursor.advance()
        cursor.expect("FROM", "in EXTRACT")
        inner = self.levels.disjunction()
        cursor.expect(")", "after EXTRACT")
        field = Constant((part.start, part.end), "string", part.text)
        return Apply((word.start, cursor.previous_end), "date_part", (field, inner), written="extract")
