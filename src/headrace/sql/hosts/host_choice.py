"""Which host runs a query, and why."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import (
    AmbiguousColumn,
    BadLiteral,
    SqlError,
    TypeMismatch,
    UnknownColumn,
    UnknownFunction,
    UnknownStream,
    UnknownType,
    UnsupportedOnShared,
    WrongArguments,
)
from headrace.model.program import Host

_SUFFIX = " cannot run on the shared host"
_SHOWN = 60
# Errors about names and types that a session can resolve although the shared host cannot: functions, variables and
# tables of the session, and conversions that only Spark has.
RESOLVABLE = (UnknownFunction, UnknownColumn, UnknownStream, UnknownType, TypeMismatch, WrongArguments, BadLiteral,
              AmbiguousColumn)  # fmt: skip


@dataclass(frozen=True, slots=True)
class HostChoice:
    """The host of a query. `expression` is the text that decided it, if one did."""

    host: Host
    reason: str
    expression: str = ""


SHARED = HostChoice("shared", "one stream, and every expression is on the verified list")


def is_resolvable(problem: SqlError) -> bool:
    """True if Spark may plan the query in spite of `problem`. A comparison that Spark would plan, and that then fails
    on every row, stays refused."""
    return isinstance(problem, RESOLVABLE) and not problem.params.get("fails_always", False)


def moved(problem: SqlError) -> HostChoice:
    """The choice of the epoch host because the shared host refused the query with `problem`."""
    what = problem.message.removesuffix(_SUFFIX)
    if isinstance(problem, UnsupportedOnShared):
        reason = f"{what} needs Spark"
    elif isinstance(problem, UnknownFunction):
        reason = f"{what}; Spark's session has it"
    else:
        reason = f"only Spark resolves it: {what}"
    return HostChoice("epoch", reason, _expression(problem))


def dedicated_because(problem: SqlError) -> HostChoice:
    """The choice of the dedicated host because the epoch host refused the query with `problem`."""
    return HostChoice("dedicated", problem.message, _expression(problem))


def _expression(problem: SqlError) -> str:
    """The text that a problem points at, in one line."""
    if problem.span is None:
        return ""
    text = " ".join(problem.span.text[problem.span.start : problem.span.end].split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def forced(host: Host) -> HostChoice:
    """The choice that the option `host` makes."""
    return HostChoice(host, f"the option host = '{host}'")
