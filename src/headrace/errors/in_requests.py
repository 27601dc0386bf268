"""Errors of requests to a hub over HTTP."""

from __future__ import annotations

from headrace.errors.error_tree import ExternalError, HeadraceError, UserError


class BadRequest(UserError):
    code = "BAD_REQUEST"


class NoSuchAddress(UserError):
    code = "NO_SUCH_ADDRESS"


class MethodNotAllowed(UserError):
    code = "METHOD_NOT_ALLOWED"


class WrongHost(UserError):
    code = "WRONG_HOST"


class WrongOrigin(UserError):
    code = "WRONG_ORIGIN"


class Unauthorized(UserError):
    code = "UNAUTHORIZED"


class ReadOnlyToken(UserError):
    code = "READ_ONLY_TOKEN"


class TokenRequired(UserError):
    code = "TOKEN_REQUIRED"


class RequestTooLarge(UserError):
    code = "REQUEST_TOO_LARGE"


class TooManyRequests(ExternalError):
    code = "TOO_MANY_REQUESTS"
    retry_helps = True


class NotReady(ExternalError):
    """A stream or a pipeline that should run does not run yet. `errors` has one error for each of them."""

    code = "NOT_READY"
    retry_helps = True

    @property
    def errors(self) -> tuple[HeadraceError, ...]:
        found = self.params.get("errors", ())
        assert isinstance(found, tuple)
        return found

    def render(self) -> str:
        return "\n".join([super().render(), *(e.render() for e in self.errors)])
