"""Ranges of SQL text, and how an error shows them."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Matches the value of an option that may hold a secret. An error shows the line of the SQL, and may end up in a log.
_SECRET = re.compile(
    r"(\b\w*(?:token|password|passphrase|secret|access_key|key\.pem|oauthbearer\.config|"
    r"header\.`?[\w.-]{0,64}(?:auth|cookie|key))[\w.-]{0,64}[`'\"]?\s*=\s*r?(?P<quote>['\"]))"
    r"(?P<value>(?:(?!(?P=quote))[^\\]|\\.|(?P=quote){2})*)",
    re.IGNORECASE | re.DOTALL,
)
# Matches the password in an address, before its host or after a name.
_USER_INFO = re.compile(r"(://[^\s:/@']*:)(?P<value>[^\s@']+)(?=@)")
_PARAMETER = re.compile(r"(\b\w*password\w*=)(?P<value>[^\s&;']+)", re.IGNORECASE)

# Characters of a source line that an error shows. Lines of a script seldom have more.
WIDEST = 160
ELLIPSIS = "\u2026"


def without_secrets(text: str) -> str:
    """`text` with stars for tokens and passwords that it shows. Its length stays the same."""
    for secret in (_SECRET, _USER_INFO, _PARAMETER):
        text = secret.sub(lambda m: m[1] + "*" * len(m["value"]), text)
    return text


@dataclass(frozen=True, slots=True)
class Span:
    """A range of SQL text: character offsets [start, end) into `text`. `statement` counts from 1."""

    text: str
    start: int
    end: int
    statement: int | None = None

    @property
    def line(self) -> int:
        """Line number of the start, from 1."""
        return self.text.count("\n", 0, self.start) + 1

    @property
    def column(self) -> int:
        """Column number of the start, from 1."""
        return self.start - (self.text.rfind("\n", 0, self.start) + 1) + 1

    def caret(self) -> str:
        """The source line with a caret line under it. Of a line longer than WIDEST it shows the part around the caret,
        with an ellipsis where it is cut."""
        begin = self.text.rfind("\n", 0, self.start) + 1
        stop = self.text.find("\n", begin)
        # A secret may be on another line than the name of its option.
        source = without_secrets(self.text)[begin : stop if stop >= 0 else len(self.text)]
        left, source = _around(source, self.start - begin)
        begin += left
        width = max(1, min(self.end, begin + len(source)) - self.start)
        number = str(self.line)
        pad = " " * (len(number) + 3 + self.start - begin)
        return f"{number} | {source}\n{pad}{'^' * width}"


def _around(line: str, place: int) -> tuple[int, str]:
    """Where the shown part of `line` begins, and that part. An ellipsis takes the place of a character: so the part
    shown of a part is this part again."""
    left = max(0, min(place - WIDEST // 2, len(line) - WIDEST))
    part = line[left : left + WIDEST]
    if left + WIDEST < len(line):
        part = part[:-1] + ELLIPSIS
    return left, ELLIPSIS + part[1:] if left else part
