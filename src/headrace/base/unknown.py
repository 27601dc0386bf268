"""Errors for names that do not exist: "there is no stream 'sensor'. Did you mean 'sensors'?"

Every such error is made by `unknown`, so all of them suggest a name in the same way and carry the same parameters. The
parser's advice for a misspelt keyword is from `keyword_advice`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import TypeVar

from headrace.errors import HeadraceError, Span

E = TypeVar("E", bound=HeadraceError)

# A longer list fills the screen and helps less than `SHOW STREAMS` does.
_MOST_LISTED = 12
# How similar a suggested name is, from 0 to 1: two letters of six may differ.
_NEAR = 0.6


def unknown(
    error: type[E],
    what: str,
    name: str,
    known: Iterable[str],
    *,
    of: str = "",
    like: str = "",
    cutoff: float = _NEAR,
    advice: str = "",
    param: str = "name",
    span: Span | None = None,
    **params: object,
) -> E:
    """The error for a `what` (as in "stream") that is called `name` and does not exist.

    It suggests the closest of the `known` names. When none is close it gives `advice`, or lists the names. `of` is
    the thing that lacks the name, as in "stream 's'". `like` replaces `name` in the comparison (one part of a dotted
    name), and `cutoff` is how similar a name must be. The error keeps `name` among its parameters under the key
    `param`.
    """
    names = list(known)
    hint = closest(like or name, names, cutoff=cutoff)
    message = f"{of} has no {what} '{name}'" if of else f"there is no {what} '{name}'"
    suggestion = f"Did you mean '{hint}'?" if hint else advice or f"{what.capitalize()}s: {_listed(names)}."
    return error(message, advice=suggestion, span=span, **{param: name, **params}, did_you_mean=hint)


def closest(name: str, known: Iterable[str], *, cutoff: float = _NEAR) -> str | None:
    """The known name most similar to `name`, as it is declared. None when no name is similar. Ignores case."""
    return next(iter(similar(name, known, most=1, cutoff=cutoff)), None)


def similar(name: str, known: Iterable[str], *, most: int, cutoff: float = _NEAR) -> list[str]:
    """At most `most` known names like `name`, as they are declared, the most similar first. Ignores case."""
    declared = {k.lower(): k for k in known}
    return [declared[k] for k in difflib.get_close_matches(name.lower(), declared, n=most, cutoff=cutoff)]


def keyword_advice(word: str, keywords: Sequence[str], otherwise: str) -> str:
    """The advice for `word` where one of some keywords is expected: the closest one if any, then `otherwise`.

    Keywords have no quotes, because no user declared them.
    """
    hint = closest(word, keywords)
    return f"Did you mean {hint}? {otherwise}" if hint and hint != word.upper() else otherwise


def _listed(names: list[str]) -> str:
    if not names:
        return "none"
    return ", ".join(names[:_MOST_LISTED]) + (", ..." if len(names) > _MOST_LISTED else "")
