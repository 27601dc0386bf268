"""How to reach a NATS server, and its errors as coded errors.

The client library is asyncio. `NatsLink` runs it in a thread of its own, so that planner, tasks and sinks can ask and
wait. The library is imported when a client is made, because it is an extra: `pip install 'headrace[nats]'`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar
from urllib.parse import urlsplit

from headrace.base.options import option, text
from headrace.errors import (
    BadOption,
    BrokerDenied,
    BrokerFailed,
    BrokerUnreachable,
    HeadraceError,
    MissingPackage,
    UnknownTopic,
)

CONNECT_SECONDS = 5
ANSWER_SECONDS = 10.0
_SCHEMES = ("nats", "tls")
T = TypeVar("T")


def nats_url(value: str) -> str:
    """`nats://host:4222`, or `tls://`; several are separated by commas."""
    for one in value.split(","):
        parts = urlsplit(one.strip())
        if parts.scheme not in _SCHEMES or not parts.hostname or parts.username or parts.password:
            raise ValueError("addresses such as nats://localhost:4222 or tls://host, without a user")
    return value


@dataclass(frozen=True)  # without slots: settings inherit it beside other options
class NatsOptions:
    """Options of everything that connects to a NATS server."""

    url: str = option(
        nats_url, required=True, help="the servers, as nats://host:4222 or tls://host:4222, separated by commas"
    )
    user: str | None = option(text, help="the user")
    password: str | None = option(text, help="the password; stored apart and never shown", secret=True)
    token: str | None = option(text, help="a token instead of user and password; stored apart", secret=True)
    credentials: str | None = option(text, help="a .creds file instead of user and password")
    ca_file: str | None = option(text, help="with tls: a PEM file with the authority; the system's if absent")


def library() -> ModuleType:
    """The client library. Raises MissingPackage."""
    try:
        import nats
        import nats.errors
        import nats.js.errors
    except ImportError as problem:
        raise MissingPackage(
            f"NATS needs the package nats-py: {problem}",
            advice="Install it where headrace runs, and on all workers of a cluster: pip install 'headrace[nats]'.",
            package="nats-py",
        ) from None
    return nats


@dataclass(frozen=True, slots=True)
class NatsConnection:
    """Where the servers are and how to log in. It can be pickled."""

    url: str
    user: str | None = None
    password: str | None = None
    token: str | None = None
    credentials: str | None = None
    ca_file: str | None = None

    @staticmethod
    def of(settings: Any) -> NatsConnection:
        """The connection that `NatsOptions` describe."""
        names = ("url", "user", "password", "token", "credentials", "ca_file")
        return NatsConnection(*(getattr(settings, name) for name in names))

    async def connect(self, **settings: Any) -> Any:
        """A connected client. Raises coded errors."""
        lib = library()
        given: dict[str, Any] = {"user": self.user, "password": self.password, "token": self.token}
        given["user_credentials"] = self.credentials
        if self.ca_file or "tls:" in self.url:
            try:
                given["tls"] = ssl.create_default_context(cafile=self.ca_file)
            except (OSError, ssl.SSLError) as problem:
                raise BadOption(
                    f"{self.ca_file} cannot be used: {problem}", advice="It is a PEM file.", option="ca_file"
                ) from None

        noted: list[Exception] = []

        async def quiet(problem: Exception) -> None:
            noted.append(problem)

        settings = {"error_cb": quiet, "max_reconnect_attempts": -1, "reconnect_time_wait": 0.5, **settings}
        client = lib.aio.client.Client()
        chosen = {k: v for k, v in given.items() if v is not None} | settings
        connecting = client.connect(
            [one.strip() for one in self.url.split(",")], name="headrace", connect_timeout=CONNECT_SECONDS, **chosen
        )
        try:
            await asyncio.wait_for(connecting, 2 * CONNECT_SECONDS)
        except Exception as problem:  # the client raises what its sockets raise, too
            with contextlib.suppress(Exception):  # it leaves its socket open
                await asyncio.wait_for(client.close(), 2)
            raise self.coded(next((p for p in noted if "uthorization" in str(p)), problem), "connect") from None
        return client

    def coded(self, problem: BaseException, what: str) -> HeadraceError:
        """The coded error for an error of the client."""
        if isinstance(problem, HeadraceError):
            return problem
        lib, said = library(), str(problem) or type(problem).__name__
        message = f"cannot {what} at {self.url}: {said}"
        if isinstance(problem, ssl.SSLCertVerificationError):
            return BrokerDenied(message, advice="Set ca_file to the certificate of the authority.", servers=self.url)
        if isinstance(problem, lib.errors.AuthorizationError) or "uthorization" in said or "ermissions" in said:
            return BrokerDenied(
                message, advice="Check user, password, token and the permissions of this user.", servers=self.url
            )
        if isinstance(problem, lib.js.errors.NotFoundError):
            return UnknownTopic(message, advice="Create the JetStream stream, or correct its name.", servers=self.url)
        away = OSError | asyncio.TimeoutError | lib.errors.NoServersError | lib.errors.ConnectionClosedError
        if isinstance(problem, away | lib.errors.TimeoutError):
            return BrokerUnreachable(
                message,
                advice="Check that the server runs, and url. A running stream tries again by itself.",
                servers=self.url,
            )
        if isinstance(problem, lib.js.errors.ServiceUnavailableError | lib.errors.NoRespondersError):
            return BrokerFailed(
                message, advice="Start the server with JetStream (nats-server -js), or name another.", servers=self.url
            )
        return BrokerFailed(message, advice="A running stream tries again by itself.", servers=self.url)


class NatsLink:
    """A client in a thread of its own. `ask` may be called from one thread. It connects when it is first used."""

    def __init__(self, connection: NatsConnection) -> None:
        self.connection = connection
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._client: Any = None

    def ask(self, what: str, question: Callable[[Any], Awaitable[T]], seconds: float = ANSWER_SECONDS) -> T:
        """The result of `question(client)`. Raises coded errors; `what` completes "cannot ..."."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_serve, args=(self._loop,), name="headrace-nats", daemon=True)
            self._thread.start()

        async def asked() -> T:
            if self._client is None or self._client.is_closed:
                # A client that is lost is replaced here: one that reconnects would hide why it cannot.
                self._client = await self.connection.connect(allow_reconnect=False)
            return await asyncio.wait_for(question(self._client), seconds)

        work: Coroutine[Any, Any, T] = asked()
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds + 3 * CONNECT_SECONDS)
        except Exception as problem:
            raise self.connection.coded(problem, what) from None

    def close(self) -> None:
        """Disconnect, and end the thread."""
        loop, self._loop = self._loop, None
        client, self._client = self._client, None
        if loop is None:
            return

        async def end() -> None:
            try:
                if client is not None:
                    await asyncio.wait_for(client.close(), 2)
            finally:
                loop.stop()

        asyncio.run_coroutine_threadsafe(end(), loop)
        if self._thread is not None:
            self._thread.join(5)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()
