"""Serves a hub on a Unix socket in its state directory, and optionally on TCP.

Until the first connection the server is one sleeping thread. The first connection imports and starts the web framework,
because most hubs in scripts and notebooks never get one.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import select
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import AddressInUse, TokenRequired
from headrace.service.guard import AccessPolicy
from headrace.state.state_dir import SOCKET_NAME

if TYPE_CHECKING:
    import uvicorn

    from headrace.hub.hub import Hub

STOP_SECONDS = 5.0
SAMPLING_THREADS = 8


class HubServer:
    """The server of one hub. Call `close` from any thread to stop it and remove the socket."""

    def __init__(
        self,
        hub: Hub,
        directory: Path,
        access: AccessPolicy | None = None,
        bind: tuple[str, int] | None = None,
        startup: str = "",
    ):
        """Listen on the Unix socket in `directory`, and on the TCP address `bind` if it is given. Raises AddressInUse,
        and TokenRequired if `bind` is not a loopback address and `access` has no token. `startup` is what the owner
        still has to do: the hub is not ready until the owner sets it to an empty text."""
        self._hub, self._access = hub, access or AccessPolicy()
        self.startup = startup
        if bind is not None and self._access.token is None and not _is_loopback(bind[0]):
            raise TokenRequired(
                f"serving on {bind[0]} needs a token",
                advice="Set HEADRACE_TOKEN or give --token-file, or serve on 127.0.0.1.",
                address=bind[0],
            )
        self._directory = directory
        self._unix = _unix_listener(directory)
        self._tcp = None
        try:
            if bind is not None:
                self._tcp = _tcp_listener(*bind)
        except BaseException:
            self._remove_socket()
            raise
        self._wake_read, self._wake_write = os.pipe()
        self._server: uvicorn.Server | None = None
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="headrace-service", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str | None:
        """The URL of the TCP address, or None without one."""
        if self._tcp is None:
            return None
        host, port = self._tcp.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def close(self) -> None:
        """Stop serving. Running requests get `STOP_SECONDS` to finish."""
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
            if self._server is not None:
                self._server.should_exit = True
        os.write(self._wake_write, b"x")
        self._thread.join(STOP_SECONDS + 2)
        self._remove_socket()
        for end in (self._wake_read, self._wake_write):
            os.close(end)

    def _remove_socket(self) -> None:
        self._unix.close()
        if self._tcp is not None:
            self._tcp.close()
        with contextlib.suppress(OSError):
            (self._directory / SOCKET_NAME).unlink()

    def _run(self) -> None:
        listeners = [self._unix, *([self._tcp] if self._tcp is not None else [])]
        select.select([self._wake_read, *(s.fileno() for s in listeners)], [], [])
        if self._closing.is_set():
            return
        import uvicorn

        from headrace.service.api import make_app
        from headrace.service.guard import Guard

        config = uvicorn.Config(
            Guard(make_app(self._hub, lambda: self.startup), self._access, self._connections),
            log_config=None,
            access_log=False,
            log_level="critical",  # the API logs failed requests itself
            lifespan="off",
            timeout_keep_alive=30,
            timeout_graceful_shutdown=int(STOP_SECONDS),
            h11_max_incomplete_event_size=64 << 10,
            proxy_headers=False,
            server_header=False,
            ws="none",
        )
        with self._lock:
            if self._closing.is_set():
                return
            self._server = uvicorn.Server(config)
        asyncio.run(self._serve(self._server, listeners))

    def _connections(self) -> int:
        """The number of open connections. The guard refuses requests above the limit: uvicorn's own limit answers with
        a text that has no code."""
        return 0 if self._server is None else len(self._server.server_state.connections)

    async def _serve(self, server: uvicorn.Server, listeners: list[socket.socket]) -> None:
        from anyio.to_thread import current_default_thread_limiter

        # One thread for every request that may run at once: requests that wait for an epoch must not block others.
        current_default_thread_limiter().total_tokens = self._access.max_requests + SAMPLING_THREADS
        await server.serve(sockets=listeners)


class SocketPath:
    """A path of a hub's socket that fits into a socket address, which holds at most 107 bytes. For a longer path,
    `path` goes through a descriptor of the directory, which stays open until `close`."""

    def __init__(self, directory: Path) -> None:
        self._descriptor: int | None = None
        self.path = str(directory.absolute() / SOCKET_NAME)
        if len(os.fsencode(self.path)) > 100:
            self._descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self.path = f"/proc/self/fd/{self._descriptor}/{SOCKET_NAME}"

    def close(self) -> None:
        """Close the descriptor. `path` is invalid afterwards."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _unix_listener(directory: Path) -> socket.socket:
    with contextlib.suppress(FileNotFoundError):  # left by a killed owner; this process holds the directory's lock
        (directory / SOCKET_NAME).unlink()
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    os.fchmod(found.fileno(), 0o600)  # before bind: the file never has a wider mode
    with contextlib.closing(SocketPath(directory)) as address:
        found.bind(address.path)
    os.chmod(directory / SOCKET_NAME, 0o600)
    found.listen(64)
    return found


def _tcp_listener(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(128)
    except OSError as problem:
        raise AddressInUse(
            f"cannot listen on {host}:{port}: {problem.strerror or problem}",
            advice="Name another port with --port, or stop the process that uses this one.",
            address=f"{host}:{port}",
        ) from None
    return found


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
