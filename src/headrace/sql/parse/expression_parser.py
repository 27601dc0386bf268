"""The grammar of expressions: one method per level of precedence, from OR down to literals."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NoReturn

from headrace.sql.parse.call_parser import CallParser
from headrace.sql.parse.cursor import RESERVED, Cursor, backquotes
from headrace.sql.parse.data_types import parse_cast
from headrace.sql.parse.interval_literals import parse_interval_literal
from headrace.sql.parse.syntax import Apply, Case, Constant, Dot, Name, Node, Subscript

_COMPARISONS = {"=": "=", "==": "=", "<>": "!=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "<=>": "<=>"}
_SHIFTS = {"<<": "shiftleft", ">>": "shiftright", ">>>": "shiftrightunsigned"}
_PREFIXED = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ")
# Words that begin a clause, and are columns where an expression must stand.
_COLUMN_WORDS = frozenset(
    ["GROUP", "ORDER", "LIMIT", "OFFSET", "SORT", "CLUSTER", "DISTRIBUTE", "END", "LEFT", "RIGHT", "FULL", "CROSS",
     "INNER", "JOIN", "ON", "USING", "EMIT", "INTO", "WITH", "OVER", "PIVOT", "UNPIVOT", "QUALIFY", "NATURAL", "ANTI",
     "SEMI", "LATERAL", "TABLESAMPLE", "UNION", "INTERSECT", "MINUS"]
)  # fmt: skip
_HEX_DIGITS = re.compile(r"[0-9a-fA-F]*")
# A reserved word in front of these is a column where an expression must stand. CASE and NOT may have a sign after them.
_AFTER_COLUMN = (",", ".", ")", "]", "FROM", "AS", "=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>", "/", "%", "||")
_SIGNS = ("+", "-", "*")
_PREFIXES = ("CASE", "NOT", "SELECT")
# These words follow an operand, and are an alias or a mistake in front of _AFTER_ALIAS.
_OPERATORS = ("AND", "OR", "BETWEEN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "DIV")
_AFTER_ALIAS = (",", "FROM", "AS")
# Each level takes a dozen Python calls, and Python allows a thousand.
_MAX_DEPTH = 50


def parse_expression(cursor: Cursor) -> Node:
    """Parses the expression at the cursor, and moves the cursor past it."""
    return _Expressions(cursor).disjunction()


class _Expressions:
    """A recursive descent parser. Each method parses its level and everything that binds tighter."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.calls = CallParser(cursor, self)
        self.depth = 0

    def disjunction(self) -> Node:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            self.cursor.fail(f"the expression is nested more than {_MAX_DEPTH} levels deep", certain=True)
        left = self.conjunction()
        while self.cursor.accept("OR"):
            left = self._binary("or", left, self.conjunction())
        self.depth -= 1
        return left

    def conjunction(self) -> Node:
        left = self.negation()
        while self.cursor.accept("AND"):
            left = self._binary("and", left, self.negation())
        return left

    def negation(self) -> Node:
        start = self.cursor.token.start
        negations = 0
        while (self.cursor.at("NOT") or self.cursor.at("!")) and not self._names_a_column():
            self.cursor.advance()
            negations += 1
        node = self.predicate()
        for _ in range(negations):
            node = Apply((start, node.at[1]), "not", (node,), operator=True)
        return node

    def predicate(self) -> Node:
        left, ended = self.bit_or(), False
        while True:
            token = self.cursor.token
            comparison = self._comparison()
            if comparison is not None:
                if ended:  # Spark would compare the last operand of LIKE or BETWEEN, and refuses it after the others
                    self.cursor.fail(
                        "a comparison cannot follow IS, IN, BETWEEN or LIKE",
                        advice="Put parentheses around the first condition.",
                    )
                for _ in range(2 if token.upper == "!" else 1):
                    self.cursor.advance()
                left = self._binary(comparison, left, self.bit_or())
            elif token.upper in ("IS", "IN") and self.cursor.reserved_before(*_AFTER_ALIAS):
                return left
            elif token.upper == "IS":
                left, ended = self._is(left), True
            elif token.upper in ("IN", "BETWEEN", "LIKE", "RLIKE", "REGEXP", "ILIKE") or (
                token.upper == "NOT"
                and self.cursor.peek().upper in ("IN", "BETWEEN", "LIKE", "RLIKE", "REGEXP", "ILIKE")
            ):
                left, ended = self._word_predicate(left), True
            else:
                return left

    def _comparison(self) -> str | None:
        """The comparison at the cursor. `!>` and `!<` are two tokens that touch each other."""
        token, following = self.cursor.token, self.cursor.peek()
        if token.upper == "!" and following.start == token.end:
            return {">": "<=", "<": ">="}.get(following.upper)
        return _COMPARISONS.get(token.upper)

    def _is(self, left: Node) -> Node:
        cursor = self.cursor
        cursor.advance()
        negated = cursor.accept("NOT")
        if cursor.accept("NULL"):
            node: Node = Apply((left.at[0], cursor.previous_end), "isnull", (left,), operator=True)
            return Apply(node.at, "not", (node,), operator=True, written="is not null") if negated else node
        elif cursor.at("TRUE") or cursor.at("FALSE"):
            word = cursor.advance()
            constant = Constant((word.start, word.end), "boolean", word.upper)
            node = Apply((left.at[0], cursor.previous_end), "<=>", (left, constant), operator=True)
        elif cursor.accept("DISTINCT", "FROM"):
            right = self.bit_or()
            equal = self._binary("<=>", left, right)
            return equal if negated else Apply(equal.at, "not", (equal,), operator=True)
        else:
            cursor.fail("expected NULL, TRUE, FALSE or DISTINCT FROM after IS")
        return Apply(node.at, "not", (node,), operator=True) if negated else node

    def _word_predicate(self, left: Node) -> Node:
        cursor = self.cursor
        negated = cursor.accept("NOT")
        word = cursor.advance().upper
        node: Node
        if word == "IN":
            cursor.expect("(", "after IN")
            if cursor.at("SELECT"):
                cursor.refuse("a subquery in IN", "List the values, or filter in the subquery of FROM.", self._here())
            values = [self.disjunction()]
            while cursor.accept(","):
                values.append(self.disjunction())
            cursor.expect(")", "after the values of IN")
            node = Apply((left.at[0], cursor.previous_end), "in", (left, *values), operator=True)
        elif word == "BETWEEN":
            low = self.bit_or()
            cursor.expect("AND", "between the bounds of BETWEEN")
            high = self.bit_or()
            node = self._binary("and", self._binary(">=", left, low), self._binary("<=", left, high))
            node = replace(node, written="between")
        elif word in ("LIKE", "ILIKE"):
            if cursor.token.upper in ("ANY", "ALL", "SOME") and cursor.peek().upper == "(":
                return self._like_several(left, word.lower(), negated)
            pattern = self.bit_or()
            node = self._binary(word.lower(), left, pattern)
            if cursor.accept("ESCAPE"):
                escape = self.primary()
                node = Apply((left.at[0], escape.at[1]), word.lower(), (left, pattern, escape), operator=True)
        else:
            node = self._binary("rlike", left, self.bit_or())
        return Apply(node.at, "not", (node,), operator=True) if negated else node

    def _like_several(self, left: Node, name: str, negated: bool) -> Node:
        """LIKE ANY (...) and LIKE ALL (...): several LIKEs joined by OR or AND."""
        cursor = self.cursor
        joined = "and" if cursor.advance().upper == "ALL" else "or"
        cursor.expect("(", "before the patterns")
        patterns = [self.disjunction()]
        while cursor.accept(","):
            patterns.append(self.disjunction())
        cursor.expect(")", "after the patterns")
        nodes: list[Node] = [self._binary(name, left, pattern) for pattern in patterns]
        if negated:
            nodes = [Apply(node.at, "not", (node,), operator=True) for node in nodes]
        found = nodes[0]
        for node in nodes[1:]:
            found = self._binary(joined, found, node)
        if not isinstance(found, Apply) or any(not isinstance(p, Constant) or p.kind == "null" for p in patterns):
            return found
        return replace(found, written=f"{'not' if negated else ''}like{'all' if joined == 'and' else 'any'}")

    def bit_or(self) -> Node:
        left = self.bit_xor()
        while self.cursor.accept("|"):
            left = self._binary("|", left, self.bit_xor())
        return left

    def bit_xor(self) -> Node:
        left = self.bit_and()
        while self.cursor.accept("^"):
            left = self._binary("^", left, self.bit_and())
        return left

    def bit_and(self) -> Node:
        left = self.shift()
        while self.cursor.accept("&"):
            left = self._binary("&", left, self.shift())
        return left

    def shift(self) -> Node:
        left = self.sum()
        while (operator := self._shift_operator()) is not None:
            for _ in operator:
                self.cursor.advance()
            left = replace(self._binary(_SHIFTS[operator], left, self.sum()), written=operator)
        return left

    def _shift_operator(self) -> str | None:
        """The longest shift operator at the cursor. Its signs are tokens of their own that touch each other."""
        first, second, third = (self.cursor.peek(i) for i in range(3))
        if first.upper not in ("<", ">") or second.upper != first.upper or second.start != first.end:
            return None
        return ">>>" if first.upper == third.upper == ">" and third.start == second.end else first.upper * 2

    def sum(self) -> Node:
        left = self.product()
        while self.cursor.token.upper in ("+", "-", "||"):
            operator = self.cursor.advance().upper
            left = self._binary(operator, left, self.product())
        return left

    def product(self) -> Node:
        left = self.unary()
        while self.cursor.token.upper in ("*", "/", "%", "DIV"):
            operator = self.cursor.advance().upper
            left = self._binary(operator.lower(), left, self.unary())
        return left

    def unary(self) -> Node:
        token = self.cursor.token
        if token.kind == "symbol" and token.upper in ("-", "+", "~"):
            self.cursor.advance()
            following = self.cursor.token
            if token.upper == "-" and following.kind == "number":
                self.cursor.advance()
                return self.postfix(Constant((token.start, following.end), "number", "-" + following.text))
            inner = self.unary()
            name = {"-": "negative", "+": "positive", "~": "~"}[token.upper]
            return Apply((token.start, inner.at[1]), name, (inner,), operator=True)
        return self.postfix(self.primary())

    def postfix(self, node: Node) -> Node:
        """Field accesses, subscripts and `::` casts after a primary expression."""
        cursor = self.cursor
        while True:
            if cursor.accept("."):
                node = Dot((node.at[0], cursor.token.end), node, self._field())
            elif cursor.accept("["):
                index = self.disjunction()
                cursor.expect("]", "after the index")
                node = Subscript((node.at[0], cursor.previous_end), node, index)
            elif cursor.accept("::"):
                node = parse_cast(cursor, node.at[0], node)
            else:
                return node

    def _field(self) -> str:
        token = self.cursor.token
        if token.kind not in ("word", "quoted"):
            self.cursor.fail("expected a field name after the dot")
        return self.cursor.advance().text

    def primary(self) -> Node:
        cursor = self.cursor
        token = cursor.token
        if token.kind == "number":
            cursor.advance()
            return Constant((token.start, token.end), "number", token.text)
        if token.kind == "string":
            return self._string()
        if token.kind == "hex":
            cursor.advance()
            return Constant((token.start, token.end), "binary", token.text)
        if token.kind == "quoted":
            return self._name()
        if token.upper == "(":
            return self._parenthesis()
        if token.kind == "word":
            return self._word()
        self._no_expression()

    def _no_expression(self) -> NoReturn:
        """Fails. CASE and NOT may have been taken for keywords where they are meant as columns."""
        before, token = self.cursor.tokens[self.cursor.position - 1], self.cursor.token
        advice = backquotes(token)
        operator = before.upper in _OPERATORS and token.upper in _AFTER_ALIAS
        if before.kind == "word" and (before.upper in ("CASE", "NOT") or operator):
            advice = backquotes(before)
        elif before.upper == "," and advice:
            advice = f"Remove the comma before it. {advice}"
        self.cursor.fail("expected an expression", advice=advice, certain=True)

    def _string(self) -> Node:
        """One or more adjacent string literals. Spark concatenates them."""
        cursor = self.cursor
        first = cursor.advance()
        body = first.text
        while cursor.token.kind == "string":
            body += self._doubled_quote() + cursor.token.text
            cursor.advance()
        return Constant((first.start, cursor.previous_end), "string", body)

    def _doubled_quote(self) -> str:
        """The quote between two strings that are one: sqlglot splits them there. A raw string has no doubled quotes."""
        cursor = self.cursor
        before, end = cursor.tokens[cursor.position - 1], cursor.previous_end
        touching = cursor.token.start == end and cursor.text[end - 1] == cursor.text[end]
        return cursor.text[end] if touching and cursor.text[before.start] not in "rR" else ""

    def _parenthesis(self) -> Node:
        cursor = self.cursor
        opened = cursor.advance()
        if cursor.at("*"):
            cursor.refuse("* in parentheses", "Write it without them.", self._here())
        if cursor.at("SELECT") or cursor.at("WITH"):
            cursor.refuse("a subquery in an expression", "Move it to FROM.", self._here())
        node = self.disjunction()
        if cursor.at(","):
            cursor.refuse("a row value", "Use struct(...).", (opened.start, cursor.token.end))
        cursor.expect(")", "to close the parenthesis")
        return node

    def _word(self) -> Node:
        cursor = self.cursor
        token = cursor.token
        following = cursor.peek()
        word = token.upper
        place = (token.start, token.end)
        if following.upper == "(" and word not in ("AND", "OR", "NOT", "IN", "CASE", "WHEN", "THEN", "ELSE"):
            if word in ("CAST", "TRY_CAST"):
                return self.calls.cast()
            if word == "EXTRACT":
                return self.calls.extract()
            if word == "EXISTS" and cursor.peek(2).upper in ("SELECT", "WITH"):
                cursor.refuse("EXISTS", "Filter in the subquery of FROM.", place)
            if word in ("TRIM", "POSITION", "OVERLAY", "SUBSTRING", "SUBSTR"):
                return self.calls.worded_function(word)
            return self.calls.function()
        if word in ("TRUE", "FALSE"):
            cursor.advance()
            return Constant(place, "boolean", word)
        if word == "NULL":
            cursor.advance()
            return Constant(place, "null", "")
        if word in _PREFIXED and following.kind == "string":
            cursor.advance()
            body = self._string()
            assert isinstance(body, Constant)
            kind = {"DATE": "date", "TIMESTAMP_NTZ": "timestamp_ntz"}.get(word, "timestamp")
            return Constant((token.start, body.at[1]), kind, body.text)  # type: ignore[arg-type]
        if word == "X" and following.kind == "string":  # X '1F', and X"1F"
            return self._binary_literal()
        if word == "INTERVAL" and (following.kind in ("string", "number") or following.upper == "-"):
            return parse_interval_literal(cursor)
        if word == "CASE" and not self._names_a_column():
            return self._case()
        if word in RESERVED and not self._names_a_column():
            self._no_expression()
        return self._name()

    def _binary_literal(self) -> Node:
        start = self.cursor.advance().start
        digits = self._string()
        assert isinstance(digits, Constant)
        if not _HEX_DIGITS.fullmatch(digits.text):
            self.cursor.fail("X takes the digits 0 to 9 and A to F", certain=True)
        return Constant((start, digits.at[1]), "binary", digits.text)

    def _names_a_column(self) -> bool:
        """True if a reserved word is a column here, as in Spark: `SELECT end, order FROM s`."""
        word, following = self.cursor.token.upper, self.cursor.peek().upper
        if self.cursor.reserved_before(*_AFTER_COLUMN, *(() if word in _PREFIXES else _SIGNS)):
            return True
        clause = following in _COLUMN_WORDS and self.cursor.peek(2).upper not in ("BY", "ALL")
        return word in _COLUMN_WORDS and following != "BY" and not clause

    def _name(self) -> Node:
        cursor = self.cursor
        start = cursor.token.start
        parts = [cursor.advance().text]
        while cursor.at(".") and cursor.peek().kind in ("word", "quoted"):
            cursor.advance()
            parts.append(cursor.advance().text)
        return Name((start, cursor.previous_end), tuple(parts))

    def _case(self) -> Node:
        cursor = self.cursor
        opened = cursor.advance()
        operand = None if cursor.at("WHEN") else self.disjunction()
        branches: list[tuple[Node, Node]] = []
        while cursor.accept("WHEN"):
            condition = self.disjunction()
            if operand is not None:
                condition = Apply(condition.at, "=", (operand, condition), operator=True)
            cursor.expect("THEN", "after WHEN's condition")
            branches.append((condition, self.disjunction()))
        if not branches:
            cursor.fail("expected WHEN after CASE", advice=backquotes(opened))
        otherwise = self.disjunction() if cursor.accept("ELSE") else None
        cursor.expect("END", "to close CASE")
        return Case((opened.start, cursor.previous_end), tuple(branches), otherwise)

    def _binary(self, name: str, left: Node, right: Node) -> Apply:
        return Apply((left.at[0], right.at[1]), name, (left, right), operator=True)

    def _here(self) -> tuple[int, int]:
        return (self.cursor.token.start, self.cursor.token.end)
