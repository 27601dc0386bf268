"""Errors as RFC 9457 problem details: headrace's error codes, each with its HTTP status."""

from __future__ import annotations

from pydantic import BaseModel, Field

from headrace.errors import (
    AlreadyExists,
    BadRequest,
    ExternalError,
    HeadraceError,
    HubClosed,
    InUse,
    MethodNotAllowed,
    NoSuchAddress,
    NotReady,
    ReadOnlyToken,
    RequestTooLarge,
    ScriptErrors,
    StateInUse,
    StreamFailed,
    Unauthorized,
    UnknownPipeline,
    UnknownSink,
    UnknownStream,
    UserError,
    WrongHost,
    WrongOrigin,
)

MEDIA_TYPE = "application/problem+json"

_STATUS: dict[type[HeadraceError], int] = {
    BadRequest: 400,
    WrongHost: 400,
    WrongOrigin: 400,
    Unauthorized: 401,
    ReadOnlyToken: 403,
    NoSuchAddress: 404,
    MethodNotAllowed: 405,
    RequestTooLarge: 413,
}
_CONFLICTS = (AlreadyExists, InUse, StateInUse)
_UNAVAILABLE = (ExternalError, HubClosed, StreamFailed)
_NAMES = (UnknownStream, UnknownPipeline, UnknownSink)


class SqlPosition(BaseModel):
    """The position of the error in the SQL text. Lines and columns count from 1."""

    statement: int | None = None
    line: int
    column: int
    length: int


class Problem(BaseModel):
    """One error. `code` is stable and documented in docs/errors.md; `title` and `advice` are for people."""

    type: str = Field(description="about:blank, or a link to the documentation of the code")
    title: str
    status: int
    code: str
    detail: str = Field(description="the error as the command line prints it, with a caret under the SQL text")
    advice: str = ""
    place: SqlPosition | None = None
    errors: list[Problem] = Field(
        default_factory=list,
        description="one entry per statement of a script that has an error, or per object that is not ready",
    )


def status_of(error: HeadraceError) -> int:
    """The HTTP status of an error: 404 for a missing object, 409 for a conflict, 503 if a retry may help."""
    if type(error) in _STATUS:
        return _STATUS[type(error)]
    if isinstance(error, _NAMES) and error.span is None:
        return 404
    if isinstance(error, _CONFLICTS):
        return 409
    if isinstance(error, _UNAVAILABLE):
        return 503
    if isinstance(error, UserError):
        return 400
    return 500


def problem_of(error: HeadraceError) -> Problem:
    """`error` as JSON for a client. It holds nothing but the error's own text: no stack trace, no internal state."""
    place = None
    if error.span is not None:
        span = error.span
        place = SqlPosition(
            statement=span.statement, line=span.line, column=span.column, length=max(1, span.end - span.start)
        )
    inner = [problem_of(e) for e in error.errors] if isinstance(error, ScriptErrors | NotReady) else []
    return Problem(
        type="about:blank",
        title=error.message,
        status=status_of(error),
        code=error.code,
        detail=error.render(),
        advice=error.advice,
        place=place,
        errors=inner,
    )
