"""A position in a list of tokens, and the ways to advance it."""

from __future__ import annotations

from typing import NoReturn

from headrace.base.unknown import keyword_advice
from headrace.errors import Span, SyntaxProblem, UnsupportedOnShared
from headrace.sql.parse.dialect import Token
from headrace.sql.parse.syntax import TextRange

# Words that end an expression or a table. They are names only where nothing else can stand.
RESERVED = frozenset(
    [
        "SELECT",
        "FROM",
        "WHERE",
        "GROUP",
        "HAVING",
        "ORDER",
        "LIMIT",
        "UNION",
        "INTERSECT",
        "EXCEPT",
        "MINUS",
        "JOIN",
        "INNER",
        "LEFT",
        "RIGHT",
        "FULL",
        "CROSS",
        "ON",
        "USING",
        "AS",
        "AND",
        "OR",
        "NOT",
        "IN",
        "IS",
        "BETWEEN",
        "LIKE",
        "RLIKE",
        "ILIKE",
        "CASE",
        "WHEN",
        "THEN",
        "ELSE",
        "END",
        "EMIT",
        "WITH",
        "INTO",
        "DISTINCT",
        "DIV",
        "CLUSTER",
        "DISTRIBUTE",
        "SORT",
        "LATERAL",
        "PIVOT",
        "UNPIVOT",
        "QUALIFY",
        "NATURAL",
        "ANTI",
        "SEMI",
        "TABLESAMPLE",
        "OVER",
        "OFFSET",
    ]
)

# The first words of statements, and those that are hardly ever the name of something.
_NO_NAMES = ("CREATE", "ALTER", "DROP", "SELECT")
FIRST_WORDS = (
    "CREATE",
    "ALTER",
    "DROP",
    "SHOW",
    "DESCRIBE",
    "DESC",
    "START",
    "STOP",
    "SAVEPOINT",
    "EXPLAIN",
    "SELECT",
    "WITH",
)


def backquotes(token: Token) -> str:
    """The advice for a reserved word that is meant as a name. Empty for other tokens."""
    if token.kind != "word" or token.upper not in RESERVED:
        return ""
    return f"{token.upper} is a reserved word. As a name, it needs backquotes: `{token.text.lower()}`."


class Cursor:
    """Reads tokens from left to right. Errors point at the unexpected token."""

    def __init__(self, text: str, tokens: list[Token], statement: int) -> None:
        self.text, self.tokens, self.statement = text, tokens, statement
        self.position = 0
        self.token = tokens[0]

    def advance(self) -> Token:
        """Returns the current token and moves to the next."""
        token = self.token
        if token.kind != "end":
            self.position += 1
            self.token = self.tokens[self.position]
        return token

    def move_to(self, position: int) -> None:
        """Moves to a token by its index."""
        self.position, self.token = position, self.tokens[position]

    def peek(self, distance: int = 1) -> Token:
        """The token `distance` after the current one."""
        return self.tokens[min(self.position + distance, len(self.tokens) - 1)]

    @property
    def previous_end(self) -> int:
        """The end of the last token that was taken."""
        return self.tokens[self.position - 1].end if self.position else self.token.start

    def at(self, *words: str) -> bool:
        """True if the next tokens are these words or symbols."""
        if self.token.upper != words[0]:
            return False
        return len(words) == 1 or all(self.peek(i).upper == word for i, word in enumerate(words))

    def accept(self, *words: str) -> bool:
        """Takes these words or symbols if they are next. Returns True if so."""
        if not self.at(*words):
            return False
        for _ in words:
            self.advance()
        return True

    def expect(self, word: str, context: str) -> Token:
        """Takes `word`, or raises SyntaxProblem. `context` is for the message, as in "after the columns"."""
        if self.token.upper != word:
            self.fail(f"expected {word} {context}")
        return self.advance()

    @property
    def at_name(self) -> bool:
        """True for an identifier that is no reserved word."""
        token = self.token
        return token.kind == "quoted" or (token.kind == "word" and token.upper not in RESERVED)

    def reserved_before(self, *following: str) -> bool:
        """True for a reserved word in front of one of these words or symbols. "" is the end of the text."""
        token, after = self.token, self.peek()
        if token.kind != "word" or token.upper not in RESERVED:
            return False
        return "" in following if after.kind == "end" else after.upper != "" and after.upper in following

    def name(self, what: str) -> str:
        """Takes an identifier. Errors use `what` as its description."""
        if self.at_name:
            return self.advance().text
        self.fail(f"expected {what}", advice=backquotes(self.token))

    def word(self, what: str) -> str:
        """Takes an identifier where no other word is allowed, even one that is reserved elsewhere."""
        if self.token.kind in ("word", "quoted"):
            return self.advance().text
        self.fail(f"expected {what}")

    def one_of(self, what: str, *words: str) -> str:
        """Takes one of `words`, and returns it in upper case."""
        if self.token.upper in words:
            return self.advance().upper
        word = self.token.text if self.token.kind == "word" else ""
        self.fail(f"expected {what}", advice=keyword_advice(word, words, "One of: " + ", ".join(words) + "."))

    def statement_begins(self) -> int | None:
        """The index of the current token if a statement seems to begin there, or of the token before it, which may have
        been taken for an alias. None if it begins at neither."""
        return next((place for place in (self.position, self.position - 1) if self.seems_first(place)), None)

    def seems_first(self, place: int) -> bool:
        """True for the first word of a statement at the beginning of a line, and anywhere if it cannot be a name."""
        token = self.tokens[place]
        if place < 1 or token.kind != "word" or token.upper not in FIRST_WORDS:
            return False
        if token.upper == "WITH" and self.tokens[place + 1].upper == "(":  # options
            return False
        return token.upper in _NO_NAMES or "\n" in self.text[self.tokens[place - 1].end : token.start]

    def span(self, place: TextRange) -> Span:
        """A range of the text as a span."""
        return Span(self.text, place[0], place[1], self.statement)

    def fail(self, problem: str, *, advice: str = "", certain: bool = False) -> NoReturn:
        """Raises SyntaxProblem at the current token. `certain` marks mistakes in every SQL dialect."""
        token = self.token
        found = "the end of the statement" if token.kind == "end" else f"'{token.text}'"
        end = token.end if token.kind != "end" else token.start + 1
        raise SyntaxProblem(
            f"{problem}, found {found}", advice=advice, span=self.span((token.start, end)), certain=certain
        )

    def refuse(self, what: str, advice: str, place: TextRange) -> NoReturn:
        """Raises UnsupportedOnShared: valid Spark SQL that the shared host cannot run."""
        raise UnsupportedOnShared(f"{what} cannot run on the shared host", advice=advice, span=self.span(place))
