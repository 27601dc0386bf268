"""The only module that uses sqlglot: splits Spark SQL text into tokens, and checks if a text is Spark SQL at all.

The grammar is our own (`cursor`, `expression_parser`, `queries`, `script`): it needs the exact position of every
expression for carets, and windows in GROUP BY, which sqlglot does not parse. sqlglot provides Spark's lexical rules
(quotes, escapes, numbers, comments), and decides if a query that we cannot parse is valid Spark SQL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Literal

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from headrace.errors import Span, SyntaxProblem

Kind = Literal["word", "quoted", "string", "number", "hex", "symbol", "end"]

_KINDS: dict[TokenType, Kind] = {
    TokenType.IDENTIFIER: "quoted",
    TokenType.STRING: "string",
    TokenType.RAW_STRING: "string",
    TokenType.NUMBER: "number",
    TokenType.HEX_STRING: "hex",
}


_PIECES = re.compile(r"\S+")
_WRONG_DIGITS = re.compile(r"\b[xX]'[^']*[^0-9a-fA-F'][^']*'")
_COMMENT_EDGE = re.compile(r"/\*|\*/")
# How a query of Spark begins. FROM and WITH begin INSERTs too.
_QUERY_WORDS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "(", "MAP", "REDUCE")
_WRITES = (exp.Insert, exp.MultitableInserts, exp.Update, exp.Delete, exp.Merge)


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of SQL text at [start, end). `upper` is the upper-case text of a word or the text of a symbol, else ''.

    A number keeps its type suffix in `text` (`10L`, `1.5BD`); quotes and escapes are already removed.
    """

    kind: Kind
    text: str
    start: int
    end: int
    upper: str = ""


class _Tokenizer(Spark.Tokenizer):
    """Spark's lexical rules, except that the text after SHOW and EXPLAIN is split into words, too."""

    COMMANDS: ClassVar[set[TokenType]] = set()


@cache
def _spark() -> Spark:
    return Spark()


def tokenize(text: str) -> list[Token]:
    """The tokens of `text`, without comments. The last has the kind `end`. Raises SyntaxProblem."""
    if text.startswith("\ufeff"):  # the byte order mark of some editors
        text = " " + text[1:]
    try:
        raw = _Tokenizer(dialect=_spark()).tokenize(text)
    except TokenError:
        raise _no_tokens(text) from None
    tokens: list[Token] = []
    for token in raw:
        start, end = token.start, token.end + 1
        if tokens and start < tokens[-1].end:
            continue  # sqlglot returns 10L as `10 :: L`, all at one position
        kind = _KINDS.get(token.token_type)
        if kind is None or (kind == "hex" and text[start] == "0"):  # Spark takes 0x1F as the name of a column
            body = text[start:end]
            kind = "word" if body[0].isalnum() or body[0] == "_" else "symbol"
            for piece in _PIECES.finditer(body):  # sqlglot returns `GROUP BY` as one token
                word = piece[0]
                tokens.append(
                    Token(
                        kind=kind, text=word, start=start + piece.start(), end=start + piece.end(), upper=word.upper()
                    )
                )
        elif kind == "number":
            if token.text[0] != "." and tokens and tokens[-1].upper == "." and tokens[-1].end == start:
                before = tokens[-2] if len(tokens) > 1 else None
                if before is None or before.end != tokens[-1].start or before.kind == "symbol":
                    start = tokens.pop().start  # `.5`
            tokens.append(Token(kind, text[start:end], start, end))
        else:
            tokens.append(Token(kind, token.text, start, end))
    tokens.append(Token("end", "", len(text), len(text)))
    return tokens


def _no_tokens(text: str) -> SyntaxProblem:
    """Why a text has no tokens."""
    unclosed = _unclosed(text)
    digits = _WRONG_DIGITS.search(text) if unclosed is None else None
    if digits is not None:
        return SyntaxProblem(
            "X takes the digits 0 to 9 and A to F",
            advice="Write the bytes in pairs of digits, like X'1F'.",
            span=Span(text, digits.start(), digits.end()),
        )
    return SyntaxProblem(
        "a quote, a backquote or a comment is not closed",
        advice="Close it. Double a quote that is part of a string.",
        span=unclosed or Span(text, max(0, len(text) - 1), len(text)),
    )


def statement_ends(text: str) -> int:
    """The position after the semicolon of the last complete statement; 0 when none is complete. Semicolons inside
    strings and comments do not count."""
    try:
        tokens = tokenize(text)
    except SyntaxProblem:  # a later line may close the quote
        return 0
    return max((t.end for t in tokens if t.upper == ";"), default=0)


def spark_accepts(query: str) -> bool:
    """True if sqlglot parses `query` as a query of Spark SQL. Then it is unsupported, not misspelt. False for
    statements that write or declare something: no host runs them."""
    try:
        if tokenize(query)[0].upper not in _QUERY_WORDS:
            return False
        parsed = _spark().parse(query)
    except Exception:  # ParseError, TokenError, and whatever its parser of single functions raises
        return False
    return len(parsed) == 1 and parsed[0] is not None and not isinstance(parsed[0], _WRITES)


def comment_end(text: str, start: int) -> int:
    """The position after the comment that opens with `/*` at `start`. Comments nest. -1 if it is not closed.

    >>> comment_end("/* a /* b */ c */ d", 0), comment_end("/* a /* b */", 0)
    (17, -1)
    """
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return -1


def _unclosed(text: str) -> Span | None:
    """The position of the quote that is not closed, or None."""
    position, length = 0, len(text)
    while position < length:
        two, one = text[position : position + 2], text[position]
        if two == "--":
            position = (text.find("\n", position) + 1) or length
        elif two == "/*":
            close = comment_end(text, position)
            if close < 0:
                return Span(text, position, position + 2)
            position = close
        elif one in "'\"`":
            close = position + 1
            while close < length and text[close] != one:
                close += 2 if text[close] == "\\" and one != "`" else 1
            if close >= length:
                return Span(text, position, position + 1)
            position = close + 1
        else:
            position += 1
    return None
