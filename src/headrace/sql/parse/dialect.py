"""The one module that knows sqlglot: Spark SQL text to tokens, and the question "is this Spark SQL at all?".

The grammar of headrace statements is our own (`cursor`, `expressions`, `queries`, `script`): it needs the exact place
of every expression for carets, and windows in GROUP BY, which sqlglot does not parse. What Spark's lexical rules are
(quotes, escapes, numbers, comments) and whether an unfamiliar query is Spark SQL at all is sqlglot's word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Literal

from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
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
    """Spark's lexical rules; after SHOW and EXPLAIN come words, where sqlglot takes the rest as one text."""

    COMMANDS: ClassVar[set[TokenType]] = set()


@cache
def _spark() -> Spark:
    return Spark()


def tokenize(text: str) -> list[Token]:
    """The tokens of `text`, without comments, ending with one of kind `end`. Raises SyntaxProblem."""
    try:
        raw = _Tokenizer(dialect=_spark()).tokenize(text)
    except TokenError:
        raise SyntaxProblem(
            "this text cannot be read: a quote, a backquote or a comment is not closed",
            advice="Close it, or double a quote that belongs to the text.",
            span=_unclosed(text),
        ) from None
    tokens: list[Token] = []
    for token in raw:
        start, end = token.start, token.end + 1
        if tokens and start < tokens[-1].end:
            continue  # sqlglot spells the suffix of 10L as `10 :: L`, all at the same place
        kind = _KINDS.get(token.token_type)
        if kind is None:
            body = text[start:end]
            kind = "word" if body[0].isalnum() or body[0] == "_" else "symbol"
            for piece in _PIECES.finditer(body):  # `GROUP BY` is one token of sqlglot's
                word = piece[0]
                tokens.append(Token(kind, word, start + piece.start(), start + piece.end(), word.upper()))
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


def statement_ends(text: str) -> int:
    """Where the last complete statement of `text` ends, after its semicolon; 0 when none is complete. A semicolon in a
    text or a comment ends nothing."""
    try:
        tokens = tokenize(text)
    except SyntaxProblem:  # a quote that later lines may close
        return 0
    return max((t.end for t in tokens if t.upper == ";"), default=0)


def spark_accepts(query: str) -> bool:
    """Whether sqlglot reads `query` as Spark SQL: tells unsupported from misspelt."""
    try:
        parsed = _spark().parse(query)
    except (ParseError, TokenError):
        return False
    return len(parsed) == 1 and parsed[0] is not None


def knows_function(name: str) -> bool:
    """Whether sqlglot knows `name` as a function of Spark: tells unsupported from misspelt."""
    return name.upper() in Spark.Parser.FUNCTIONS or name.upper() in Spark.Parser.FUNCTION_PARSERS


def _unclosed(text: str) -> Span:
    """The place of the quote that is never closed."""
    position, length = 0, len(text)
    while position < length:
        two, one = text[position : position + 2], text[position]
        if two == "--":
            position = (text.find("\n", position) + 1) or length
        elif two == "/*":
            close = text.find("*/", position + 2)
            if close < 0:
                return Span(text, position, position + 2)
            position = close + 2
        elif one in "'\"`":
            close = position + 1
            while close < length and text[close] != one:
                close += 2 if text[close] == "\\" and one != "`" else 1
            if close >= length:
                return Span(text, position, position + 1)
            position = close + 1
        else:
            position += 1
    return Span(text, max(0, length - 1), length)
