"""Formats a script: keywords in capitals, one clause per line, comments kept, every token as it was written.

Works on tokens, so it formats whatever can be tokenized, and cannot change the meaning of a script: `formatted`
compares the tokens before and after. Text in quotes and comments is copied. Formatting a formatted script changes
nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.errors import InternalError, SyntaxProblem
from headrace.sql.parse.dialect import comment_end, tokenize

LINE = 100  # characters; a longer line is broken at the next place where that is allowed
_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*)
      | (?P<text>[rR]'[^']*'|[rR]"[^"]*"|[xXnN]?'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`)
      | (?P<word>[^\W\d]\w*|\d[\w.]*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)
      | (?P<sign><=>|<=|>=|<>|!=|==|\|\||::|->|=>|[^\s\w])
      | (?P<space>\s+)""",
    re.VERBOSE | re.DOTALL,
)


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_KEYWORDS = _set(
    """ALL ALTER AND ANTI ANY AS ASC BETWEEN BY CASCADE CASE CAST CLOSE CREATE CROSS CURRENT DESC DESCRIBE DISTINCT DROP
    ELSE EMIT END ESCAPE EXCEPT EXISTS EXPLAIN FALSE FILTER FIRST FOR FROM FULL GRACEFUL GROUP HAVING IF ILIKE IN INNER
    INTERSECT INTERVAL INTO IS JOIN JSON KEEP LAST LATERAL LEFT LIKE LIMIT NATURAL NOT NOW NULL NULLS OFFSET ON OR
    ORDER OUTER OVER PARTITION PIPELINE PIPELINES REPLACE RIGHT RLIKE SAVEPOINT SELECT SEMI SHOW SINK SINKS START
    STOP STREAM STREAMS TABLE THEN TRUE UNION USING VALUES VERBOSE VIEW VIEWS WATERMARK WHEN WHERE WINDOWS WITH"""
)
# Words that are keywords only before or after certain others; elsewhere they are names of columns or functions.
_TYPES = _set(
    """ARRAY BIGINT BINARY BOOLEAN DATE DECIMAL DOUBLE FLOAT INT MAP SMALLINT STRING STRUCT TIMESTAMP TIMESTAMP_NTZ
    TINYINT"""
)
# These begin a line of a query.
_CLAUSES = _set("SELECT FROM WHERE GROUP HAVING ORDER LIMIT UNION EXCEPT INTERSECT EMIT")
# A parenthesis after these is not a call.
_NO_CALLS = _set(
    """ALL AND AS BY ELSE EXISTS FILTER FROM IN NOT ON OR OVER SELECT THEN UNION USING VALUES WHEN WHERE WITH"""
)
_UNITS = _set("SECOND SECONDS MINUTE MINUTES HOUR HOURS DAY DAYS WEEK WEEKS MONTH MONTHS YEAR YEARS")
# Before a comma or a closing parenthesis, other words are names.
_LAST = _set("NULL TRUE FALSE END ASC DESC WINDOWS NOW CLOSE")
_LEADS = _set("NULLS DROP CREATE REPLACE SHOW DESCRIBE DESC START STOP EXPLAIN ALTER")
_LED = _set("FIRST LAST START END NOW KEEP JSON STREAM SINK PIPELINE TABLE VIEW")
_TIGHT_BEFORE = frozenset({",", ";", ")", ".", "]", "::", ":"})
_TIGHT_AFTER = frozenset({"(", ".", "[", "::"})


@dataclass(frozen=True, slots=True)
class _Piece:
    kind: str
    text: str
    lines_before: int  # line breaks in the source between this and the piece before it

    @property
    def upper(self) -> str:
        return self.text.upper() if self.kind == "word" else self.text


def formatted(text: str) -> str:
    """The script in its usual layout. Comments and everything in quotes are kept as they are.

    >>> print(formatted("create sink o with(type='memory');select a,b from s where a>1 -- big"), end="")
    CREATE SINK o WITH (type = 'memory');
    <BLANKLINE>
    SELECT a, b
    FROM s
    WHERE a > 1 -- big
    """
    pieces = _pieces(text)
    made = _Layout(pieces).text()
    if [p.upper for p in _pieces(made)] != [p.upper for p in pieces] or _tokens(made) != _tokens(text):
        raise InternalError("formatting would change the script", advice="Please report the script.")
    return made


def _tokens(text: str) -> list[tuple[str, str]] | None:
    """The tokens as the parser sees them. None if it cannot."""
    try:
        return [(token.kind, token.upper or token.text) for token in tokenize(text)]
    except SyntaxProblem:
        return None


def _pieces(text: str) -> list[_Piece]:
    found: list[_Piece] = []
    breaks = position = 0
    while match := _TOKEN.match(text, position):
        kind, position = str(match.lastgroup), match.end()
        if kind == "space":
            breaks += match[0].count("\n")
            continue
        if match[0] == "/*":
            close = comment_end(text, match.start())
            position = len(text) if close < 0 else close
        piece = text[match.start() : position]
        found.append(_Piece(kind, piece.rstrip() if kind == "comment" else piece, breaks))
        breaks = 0
    return found


class _Layout:
    """Writes pieces into lines. One pass, with the depth of parentheses and what each of them holds."""

    def __init__(self, pieces: list[_Piece]) -> None:
        self._pieces = pieces
        self._lines: list[str] = []
        self._line = ""
        self._stack: list[str] = []  # an open parenthesis each: 'columns', 'options', 'query' or 'call'
        self._unary = False  # the last sign is that of a number: -1
        self._words: list[str] = []  # the words of the statement so far

    def text(self) -> str:
        for i, piece in enumerate(self._pieces):
            before = self._pieces[i - 1] if i else None
            after = self._pieces[i + 1] if i + 1 < len(self._pieces) else None
            self._put(piece, before, after)
        self._flush()
        return "\n".join(self._lines).rstrip("\n") + "\n" if self._lines else ""

    def _put(self, piece: _Piece, before: _Piece | None, after: _Piece | None) -> None:
        if piece.kind == "comment":
            self._comment(piece, before)
            return
        word = piece.upper
        if not self._words and before is not None and self._lines and self._lines[-1]:
            self._between(piece, before)
        shown = word if self._is_keyword(piece, before, after) else piece.text
        clause = word in _CLAUSES and piece.kind == "word" and self._breaks_before(word, before)
        behind_comment = before is not None and before.kind == "comment" and before.text.startswith("--")
        if clause or behind_comment:
            self._break()
        if before is not None and self._line.strip() and self._spaced(piece, before):
            if (
                len(self._line) + 1 + len(shown) > LINE
                and before.text in (",", ")")
                and piece.text not in _TIGHT_BEFORE
            ):
                self._break(more=True)
            else:
                self._line += " "
        self._line += shown
        if piece.kind == "word":
            self._words.append(word)
        self._after(piece, before, after)

    def _between(self, piece: _Piece, before: _Piece) -> None:
        """An empty line between statements; after a comment only where the source has one."""
        if before.text == ";" or (before.kind == "comment" and piece.lines_before > 1):
            self._flush()
            self._lines.append("")

    def _after(self, piece: _Piece, before: _Piece | None, after: _Piece | None) -> None:
        if piece.text == "(":
            self._stack.append(self._held(before, after))
            if self._stack[-1] in ("columns", "query"):
                self._break()
        elif piece.text == ")" and self._stack:
            self._stack.pop()
        elif piece.text == "," and self._stack[-1:] == ["columns"] and (after is None or after.kind != "comment"):
            if after is not None and after.lines_before:  # columns that were side by side stay so
                self._break()
        elif piece.text == ";":
            self._words, self._stack = [], []
            if after is None or after.kind != "comment" or after.lines_before:
                self._flush()
        elif piece.upper == "AS" and self._before_query(after):
            self._break()
        if after is not None and after.text == ")" and self._stack[-1:] in (["columns"], ["query"]):
            self._flush()
            self._line = self._indent()[2:]

    def _held(self, before: _Piece | None, after: _Piece | None) -> str:
        if after is not None and after.upper in ("SELECT", "WITH") and after.kind == "word":
            return "query"
        if before is not None and (before.upper == "WITH" or self._alters("SET")):
            return "options"
        if self._before_columns():
            return "columns"
        return "call"

    def _is_keyword(self, piece: _Piece, before: _Piece | None, after: _Piece | None) -> bool:
        if piece.kind != "word" or (before is not None and before.text == "."):
            return False
        if after is not None and after.text in (".", "="):
            return False
        word = piece.upper
        if "options" in self._stack:
            return False
        if word in _UNITS:
            return "INTERVAL" in self._words[-2:]
        if before is not None and before.upper == "AS" and word not in ("SELECT", "WITH"):
            return False
        if word in ("SPARK", "READER") and "INTO" in self._words:
            other = after if word == "SPARK" else before
            return other is not None and {word, other.upper} == {"SPARK", "READER"}
        if after is not None and after.text in (",", ")") and word not in (_LAST | _TYPES):
            return False
        if word in _TYPES:
            return self._stack[-1:] == ["columns"] and before is not None and before.text not in ("(", ",")
        call = after is not None and after.text == "("
        if call and word in ("LEFT", "RIGHT", "IF", "REPLACE", "FIRST", "LAST", "ANY", "CURRENT"):
            return word == "IF" and before is not None and before.upper in ("STREAM", "SINK", "PIPELINE", "VIEW")
        if word in _LED:
            led = before is not None and before.upper in _LEADS
            ends_case = word == "END" and "CASE" in self._words
            return led or ends_case or not self._words or (word in ("NOW", "KEEP") and "STOP" in self._words[:1])
        return word in _KEYWORDS or (word == "SET" and self._alters())

    def _alters(self, *last: str) -> bool:
        """True after ALTER PIPELINE name, and the words in `last`."""
        words = self._words
        return words[:2] == ["ALTER", "PIPELINE"] and words[3:] == [*last]

    def _breaks_before(self, word: str, before: _Piece | None) -> bool:
        """Clauses begin a line, except inside calls: `FILTER (WHERE ...)`, `trim(BOTH FROM x)`."""
        if not self._line.strip() or self._words[:1] == ["SHOW"]:
            return False
        if word in ("EMIT", "LIMIT", "ORDER", "GROUP", "HAVING", "WHERE", "FROM") and self._stack[-1:] == ["call"]:
            return False
        if self._stack[-1:] in (["options"], ["columns"]):
            return False
        if before is None:
            return False
        return before.text != "(" and before.upper not in ("EXPLAIN", "JSON", "VERBOSE", "DISTINCT")

    def _spaced(self, piece: _Piece, before: _Piece) -> bool:
        if before.text in _TIGHT_AFTER or piece.text in _TIGHT_BEFORE:
            return False
        if piece.text == "(":
            return not (before.kind == "word" and not self._takes_space(before))
        if piece.text == "[" or before.text == ":":
            return before.text == ":"
        if "<" in (piece.text, before.text) or ">" in (piece.text, before.text):
            return self._stack[-1:] != ["columns"]  # ARRAY<INT>
        unary = before.text in ("-", "+") and self._unary
        if piece.text in ("-", "+"):
            self._unary = (before.kind == "sign" and before.text not in (")", "]")) or before.upper in _KEYWORDS
        return not unary

    def _takes_space(self, before: _Piece) -> bool:
        """True if a parenthesis after this word is not a call: `IN (`, `WITH (`, `CREATE STREAM name (`."""
        return before.upper in _NO_CALLS or self._before_columns() or self._alters("SET")

    def _before_query(self, after: _Piece | None) -> bool:
        """True after CREATE PIPELINE ... AS, CREATE VIEW ... AS and ALTER PIPELINE ... AS."""
        words = self._words
        begun = words[:1] in (["CREATE"], ["ALTER"]) and {"PIPELINE", "VIEW"} & {*words} and not self._stack
        return bool(begun) and after is not None and after.upper in ("SELECT", "WITH")

    def _before_columns(self) -> bool:
        words = self._words
        return words[:1] == ["CREATE"] and "STREAM" in words[:4] and not self._stack and "WITH" not in words

    def _comment(self, piece: _Piece, before: _Piece | None) -> None:
        if before is not None and piece.lines_before == 0:  # it belongs to the line before it
            target = self._line if self._line.strip() else ""
            if target:
                self._line += f" {piece.text}"
            elif self._lines:
                self._lines[-1] += f" {piece.text}"
            else:
                self._line += piece.text
        else:
            self._flush()
            apart = piece.lines_before > 1 or (before is not None and before.text == ";")
            if apart and self._lines and self._lines[-1]:
                self._lines.append("")
            self._line = self._indent() + piece.text
        if piece.text.startswith("--") or piece.lines_before:
            self._flush()
            self._line = ""

    def _indent(self) -> str:
        depth = len(self._stack)
        if self._words[:1] == ["CREATE"] and {"PIPELINE", "VIEW"} & {*self._words[:4]} and "AS" in self._words:
            depth += 1
        return "  " * depth

    def _break(self, more: bool = False) -> None:
        self._flush()
        self._line = self._indent() + ("  " if more and self._stack[-1:] != ["columns"] else "")

    def _flush(self) -> None:
        if self._line.strip():
            self._lines.append(self._line.rstrip())
        self._line = ""
