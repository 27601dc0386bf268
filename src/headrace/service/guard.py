"""Checks that every request passes before it reaches the API: Host, Origin, token, size and number of requests.

A web page of another site can send requests to a hub on loopback. Two checks keep it out: the `Host` header must name
an address that the hub serves (against DNS rebinding), and an `Origin` header must be the hub's own. Only the owner of
the state directory can open the Unix socket, so requests there need neither check.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from headrace.errors import (
    BadRequest,
    HeadraceError,
    ReadOnlyToken,
    RequestTooLarge,
    TooManyRequests,
    Unauthorized,
    WrongHost,
    WrongOrigin,
)
from headrace.service.problems import MEDIA_TYPE, problem_of

AsgiScope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[AsgiScope, Receive, Send], Awaitable[None]]

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# These routes only read. They use POST because SQL text does not fit into a URL.
_READ_ONLY_POSTS = frozenset({"/api/v1/validate", "/api/v1/explain"})
# A busy process is up, so no limit applies to this path.
_ALIVE_PATH = "/health"
# The page holds no data; it asks the user for the token.
_OPEN_PATHS = frozenset({_ALIVE_PATH, "/", "/page.css", "/page.js"})


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Access over TCP. Without a `token`, every client that passes the Host check may do everything."""

    hosts: tuple[str, ...] = ()
    token: str | None = None
    read_only_token: str | None = None
    max_body_bytes: int = 4 << 20
    # Requests that may run at once. Statements may wait for epochs, so they have a lower limit: requests that only read
    # always find room.
    max_requests: int = 64
    max_statements: int = 32
    max_readers: int = 128
    # Open connections. More than readers and requests together, because browsers keep idle ones open.
    max_connections: int = 256


class Guard:
    """ASGI middleware that applies an `AccessPolicy`. Limits apply to all requests, other checks only over TCP."""

    def __init__(self, app: App, access: AccessPolicy, connections: Callable[[], int]) -> None:
        """`connections` returns the number of open connections, with that of the current request."""
        self._app, self._access, self._connections = app, access, connections
        self._active = {"requests": 0, "statements": 0, "readers": 0}

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = self._refusal(scope)
        kind = "readers" if _is_stream(scope) else "requests" if _reads(scope) else "statements"
        if refused is None and scope["path"] != _ALIVE_PATH:
            refused = self._over_limit(kind)
        if refused is not None:
            await _answer(send, refused)
            return
        self._active[kind] += 1
        try:
            await self._with_limited_body(scope, receive, send)
        finally:
            self._active[kind] -= 1

    def _over_limit(self, kind: str) -> HeadraceError | None:
        if self._connections() > self._access.max_connections:
            return _too_many(self._access.max_connections, "connections")
        limit: int = getattr(self._access, f"max_{kind}")
        others = self._active["statements"] if kind == "requests" else 0
        if self._active[kind] + others < limit:
            return None
        return _too_many(limit, "readers of live status" if kind == "readers" else kind)

    def _refusal(self, scope: AsgiScope) -> HeadraceError | None:
        headers = _headers(scope)
        if headers is None:
            return BadRequest("a header that may occur once was sent twice")
        length = headers.get("content-length", "0")
        if not length.isdigit():
            return BadRequest("Content-Length is not a number")
        if int(length) > self._access.max_body_bytes:
            return self._too_large()
        if is_unix(scope):
            return None
        host = headers.get("host", "")
        if not self._serves(host):
            return WrongHost(
                f"this hub does not serve the host {host!r}",
                advice="Use the address that headrace serve prints, or allow the name with --allow-host.",
            )
        origin = headers.get("origin")
        if origin is not None and _netloc(origin) != host.lower():
            return WrongOrigin("requests from pages of other sites are refused")
        return self._unauthorised(scope, headers)

    def _serves(self, host: str) -> bool:
        name = _host_name(host)
        if name.lower() in {h.lower() for h in self._access.hosts}:
            return True
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return name.lower() == "localhost"

    def _unauthorised(self, scope: AsgiScope, headers: dict[str, str]) -> HeadraceError | None:
        access = self._access
        if (access.token is None and access.read_only_token is None) or scope["path"] in _OPEN_PATHS:
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        sent = given.strip().encode() if scheme.lower() == "bearer" else b""
        if access.token is not None and hmac.compare_digest(sent, access.token.encode()):
            return None
        if access.read_only_token is not None and hmac.compare_digest(sent, access.read_only_token.encode()):
            if _reads(scope):
                return None
            return ReadOnlyToken("this token may only read", advice="Use the full token.")
        return Unauthorized("a valid token is required", advice="Send it as `Authorization: Bearer TOKEN`.")

    async def _with_limited_body(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Run the app. If the body grows beyond the limit, answer 413 instead."""
        seen = 0
        answered = refused = False

        async def limited() -> Message:
            nonlocal seen, refused
            message = await receive()
            if message["type"] == "http.request":
                seen += len(message.get("body", b""))
                if seen > self._access.max_body_bytes:
                    refused = True
                    raise _TooLarge
            return message

        async def noticing(message: Message) -> None:
            nonlocal answered
            if refused and not answered:  # drop the framework's own answer to a body that it cannot read
                return
            answered = answered or message["type"] == "http.response.start"
            await send(message)

        with contextlib.suppress(_TooLarge):
            await self._app(scope, limited, noticing)
        if refused and not answered:
            await _answer(send, self._too_large())

    def _too_large(self) -> HeadraceError:
        return RequestTooLarge(
            f"the request is larger than {self._access.max_body_bytes} bytes", advice="Send a long script in parts."
        )


class _TooLarge(Exception):
    pass


def _too_many(limit: int, what: str) -> HeadraceError:
    return TooManyRequests(f"the hub serves at most {limit} {what} at once", advice="Try again in a second.")


def is_unix(scope: AsgiScope) -> bool:
    """True for a request on the Unix socket, where uvicorn reports no server port."""
    server = scope.get("server")
    return server is not None and server[1] is None


def _reads(scope: AsgiScope) -> bool:
    return scope["method"] in _SAFE_METHODS or scope["path"] in _READ_ONLY_POSTS


def _is_stream(scope: AsgiScope) -> bool:
    return bool(scope["path"] == "/api/v1/events")


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:  # not a URL
        return None


def _host_name(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def _headers(scope: AsgiScope) -> dict[str, str] | None:
    """The headers by lower-case name; None if a header that this module checks occurs twice."""
    found: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name = raw_name.decode("latin-1").lower()
        if name in found and name in ("host", "origin", "authorization", "content-length"):
            return None
        found[name] = raw_value.decode("latin-1")
    return found


async def _answer(send: Send, error: HeadraceError) -> None:
    problem = problem_of(error)
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"connection", b"close")]
    if problem.status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="headrace"'))
    if problem.status == 503:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": problem.model_dump_json().encode()})
