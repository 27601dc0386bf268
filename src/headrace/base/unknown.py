"""Errors for names that do not exist: "there is no stream 'sensor'. Did you mean 'sensors'?"

Every such error is made by `unknown`, so all of them suggest a name in the same way and carry the same parameters.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TypeVar

from headrace.errors import HeadraceError, Span

E = TypeVar("E", bound=HeadraceError)

# A longer list fills the screen and helps less than `SHOW STREAMS` does.
_MOST_LISTED = 12


def unknown(
    error: type[E],
    what: str,
    name: str,
    known: Iterable[str],
    *,
    of: str = "",
    like: str = "",
    advice: str = "",
    param: str = "name",
    span: Span | None = None,
    **params: object,
) -> E:
    """The error for a `what` (as in "stream") that is called `name` and does not exist.

    It suggests the closest of the `known` names. When none is close it gives `advice`, or lists the names. `of` is
    the thing that lacks the name, as in "stream 's'". `like` replaces `name` in the comparison (one part of a dotted
    name). The error keeps `name` among its parameters under the key `param`.
    """
    names = list(known)
    hint = closest(like or name, names)
    message = f"{of} has no {what} '{name}'" if of else f"there is no {what} '{name}'"
    suggestion = f"Did you mean '{hint}'?" if hint else advice or f"{what.capitalize()}s: {_listed(names)}."
    return error(message, advice=suggestion, span=span, **{param: name, **params}, did_you_mean=hint)


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name most similar to `name`, as it is declared. None when no name is similar. Ignores case."""
    declared = {k.lower(): k for k in known}
    found = difflib.get_close_matches(name.lower(), declared, n=1, cutoff=0.6)
    return declared[found[0]] if found else None


def _listed(names: list[str]) -> str:
    if not names:
        return "none"
    return ", ".join(names[:_MOST_LISTED]) + (", ..." if len(names) > _MOST_LISTED else "")
