"""The root of all errors and its branches, which say who has to act."""

from __future__ import annotations

import re
from typing import ClassVar

from headrace.errors.span import Span

# Where users import errors from. Tracebacks name this module, whichever one defines the class of the error:
# `headrace.spark.causes` finds errors in the tracebacks of tasks by it.
PUBLIC = "headrace.errors"

# Words that only headrace has: an error that uses one explains it.
_OUR_WORDS = {
    "shared host": "The shared host computes pipelines in the tasks that read their stream; see docs/hosts.md.",
    "epoch host": "The epoch host runs a pipeline's query in Spark, once per epoch; see docs/hosts.md.",
    "dedicated host": "The dedicated host runs a pipeline's query as a Spark streaming query; see docs/hosts.md.",
    "lane": "A lane is one part of a pipeline's groups, with their state; see docs/glossary.md.",
    "Ring 0": "Ring 0 is the part of a pipeline without state; see docs/glossary.md.",
    "Ring 1": "Ring 1 is the part of a pipeline with state; see docs/glossary.md.",
}


class HeadraceError(Exception):
    """Base of all errors. Programs read `code` and `params`; people read `message` and `advice`.

    >>> try:
    ...     hub.sql("CREATE PIPELINE p INTO kept AS SELECT tmp FROM sensors")
    ... except headrace.errors.HeadraceError as problem:
    ...     print(problem.code, "-", problem.advice)
    UNKNOWN_COLUMN - Did you mean 'temp'?
    """

    code: ClassVar[str] = "HEADRACE_ERROR"
    retry_helps: ClassVar[bool] = False

    def __init__(self, message: str, *, advice: str = "", span: Span | None = None, **params: object) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice
        self.span = span
        self.params = params

    def __init_subclass__(cls) -> None:
        if cls.__module__.startswith(f"{PUBLIC}."):
            cls.__module__ = PUBLIC

    def __str__(self) -> str:
        return self.render()

    def render(self) -> str:
        """The error as a user reads it: code, message, position, advice.

        >>> try:
        ...     hub.sql("CREATE PIPELINE p INTO kept AS SELECT tmp FROM sensors")
        ... except headrace.errors.HeadraceError as problem:
        ...     print(problem.render())
        [UNKNOWN_COLUMN] 'sensors' has no column 'tmp'
          at statement 1, line 1, column 39
          1 | CREATE PIPELINE p INTO kept AS SELECT tmp FROM sensors
                                                    ^^^
          Did you mean 'temp'?
        """
        lines = [f"[{self.code}] {self.message}"]
        if self.span is not None:
            where = f"line {self.span.line}, column {self.span.column}"
            if self.span.statement is not None:
                where = f"statement {self.span.statement}, {where}"
            lines += [f"  at {where}", *("  " + line for line in self.span.caret().split("\n"))]
        if self.advice:
            lines.append(f"  {self.advice}")
        said = f"{self.message} {self.advice}"
        lines += [f"  ({meaning})" for word, meaning in _OUR_WORDS.items() if re.search(rf"\b{word}", said)]
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.advice, self.span, self.params))


def _rebuild(
    kind: type[HeadraceError], message: str, advice: str, span: Span | None, params: dict[str, object]
) -> HeadraceError:
    return kind(message, advice=advice, span=span, **params)


class UserError(HeadraceError):
    code = "USER_ERROR"


class SqlError(UserError):
    code = "SQL_ERROR"


class DataError(HeadraceError):
    code = "DATA_ERROR"


class ExternalError(HeadraceError):
    code = "EXTERNAL_ERROR"


class InternalError(HeadraceError):
    code = "INTERNAL_ERROR"


def kind_of(text: str) -> type[HeadraceError] | None:
    """The class of the error that `text` starts with, as `render` writes it. None if it is not an error of headrace."""
    if not text.startswith("["):  # every commit asks for every pipeline, and hardly any has failed
        return None
    code = text[1:].split("]", 1)[0]
    kinds: list[type[HeadraceError]] = [HeadraceError]
    for kind in kinds:
        if kind.code == code:
            return kind
        kinds += kind.__subclasses__()
    return None


def may_pass(text: str) -> bool:
    """True unless the error with this text has a code that says a retry cannot help."""
    kind = kind_of(text)
    return kind is None or kind.retry_helps or kind is InternalError  # Spark has an INTERNAL_ERROR of its own
