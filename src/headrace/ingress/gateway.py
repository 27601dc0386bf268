"""The gateway: one process that reads thousands of connections and writes the journals of all pushed streams of a hub.

`python -m headrace.ingress.gateway` gets orders from the hub over its standard input, and answers over its standard
output (`headrace.ingress.gateway_messages`). Orders run concurrently. A long one reports progress every second, so that
the hub does not time out. Opening an open stream returns its addresses. When the input ends, the hub has ended: the
gateway then flushes its journals and exits. It runs on uvloop if that is installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from headrace.errors import AddressInUse, HeadraceError, JournalUnwritable
from headrace.ingress import delimiting, shredder
from headrace.ingress.gateway_messages import GatewayAnswer, GatewayOrder, message_line
from headrace.ingress.http import HttpConnection
from headrace.ingress.journal import Journal
from headrace.ingress.mark import note_begun, require_journal
from headrace.ingress.mqtt_session import MqttSession, session_of
from headrace.ingress.nats_subscriber import NatsSubscriber
from headrace.ingress.settings import (
    Address,
    GatewaySettings,
    HttpSettings,
    MqttSettings,
    NatsCoreSettings,
    TcpSettings,
)
from headrace.ingress.site import Route, Site
from headrace.ingress.stream_ingress import StreamIngress
from headrace.ingress.tcp import TcpPeer, stay_connected
from headrace.model.codec import load
from headrace.model.definitions import StreamDef

BACKLOG = 4096  # connections waiting to be accepted
OPENERS = 4  # journals opened at the same time
PROGRESS_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class HttpServer:
    """The server of one HTTP address."""

    site: Site
    server: asyncio.Server


class OpenStream:
    """An open stream, and the servers and tasks that close with it."""

    def __init__(self, ingress: StreamIngress) -> None:
        self.ingress = ingress
        self.servers: list[asyncio.Server] = []
        self.clients: list[asyncio.Task[None]] = []
        self.http: HttpServer | None = None
        self.session: MqttSession | NatsSubscriber | None = None  # with a broker
        self.addresses: list[str] = []

    def metrics(self) -> dict[str, Any]:
        """The facts that DESCRIBE STREAM shows."""
        found = self.ingress.metrics()
        if self.http is not None:
            found["classes"] = {**found["classes"], "http_address": self.http.site.metrics()}
        if self.session is not None:
            found["problem"] = found["problem"] or self.session.problem
        return found


class Gateway:
    """The gateway; see the module. Runs in the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.streams: dict[str, OpenStream] = {}
        self.https: dict[Address, HttpServer] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(
            asyncio.Lock
        )  # a stream is opened or closed, not both
        self._openers = ThreadPoolExecutor(OPENERS, "headrace-open")

    async def open(self, stream: StreamDef, directory: Path, settings: GatewaySettings) -> list[str]:
        """Start taking bytes for a stream. Returns its addresses. Other streams continue while its journal is
        opened."""
        async with self._turns[stream.name.lower()]:
            found = self.streams.get(stream.name.lower())
            return found.addresses if found is not None else await self._open(stream, directory, settings)

    async def _open(self, stream: StreamDef, directory: Path, settings: GatewaySettings) -> list[str]:
        segment_bytes = max(1 << 20, min(64 << 20, settings.max_journal_bytes // 8))
        try:
            journal = await self.loop.run_in_executor(self._openers, _open_journal, directory, segment_bytes)
        except OSError as problem:
            raise _unwritable(stream.name, problem) from None
        found = OpenStream(StreamIngress(stream, journal, settings, self.loop))
        self.streams[stream.name.lower()] = found
        try:
            if isinstance(settings, HttpSettings):
                await self._serve_http(found, stream.name.lower(), settings)
            elif isinstance(settings, MqttSettings | NatsCoreSettings):
                found.session = (
                    session_of(found.ingress, settings, directory.parent)
                    if isinstance(settings, MqttSettings)
                    else NatsSubscriber(found.ingress, settings)
                )
                found.clients.append(self.loop.create_task(found.session.stay_connected()))
            else:
                await self._serve_tcp(found, settings)
        except BaseException:
            await self._close(stream.name)
            raise
        return found.addresses

    async def _serve_tcp(self, found: OpenStream, settings: TcpSettings) -> None:
        ingress, idle = found.ingress, settings.idle_timeout / 1e6
        if settings.listen:
            host, port = settings.listen
            server = await self._listen(lambda: TcpPeer(ingress, "tcp", idle, settings.acks), host, port)
            found.servers.append(server)
            found.addresses += [f"tcp://{_shown(s.getsockname())}" for s in server.sockets]
        for host, port in settings.connect or ():
            found.clients.append(self.loop.create_task(stay_connected(ingress, host, port, idle)))

    async def _serve_http(self, found: OpenStream, name: str, settings: HttpSettings) -> None:
        host, port = settings.listen
        route = Route(
            ingress=found.ingress,
            token=settings.token,
            max_request_bytes=settings.max_request_bytes,
            request_timeout=settings.request_timeout / 1e6,
            idle_timeout=settings.idle_timeout / 1e6,
        )
        shared = self.https.get((host, port))
        if shared is None:
            site = Site(self.loop)
            shared = HttpServer(site, await self._listen(lambda: HttpConnection(site), host, port))
            names = [s.getsockname()[:2] for s in shared.server.sockets] + ([(host, port)] if port else [])
            self.https.update(dict.fromkeys(names, shared))
        shared.site.add(name, route)
        found.http = shared
        found.addresses.append(f"http://{_shown(shared.server.sockets[0].getsockname())}/ingest/{quote(name)}")

    async def _listen(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> asyncio.Server:
        try:
            return await self.loop.create_server(factory, host, port, backlog=BACKLOG)
        except OSError as problem:
            raise AddressInUse(
                f"cannot listen on {host}:{port}: {problem.strerror or problem}",
                advice="Another program may use the port, or the host is not an address of this machine.",
                host=host,
                port=port,
            ) from None

    async def close(self, name: str) -> None:
        """Stop taking bytes for a stream. Received bytes are in its journal."""
        async with self._turns[name.lower()]:
            await self._close(name)

    async def _close(self, name: str) -> None:
        found = self.streams.pop(name.lower(), None)
        if found is None:
            return
        for server in found.servers:
            server.close()
        for client in found.clients:
            client.cancel()
        await asyncio.gather(*found.clients, return_exceptions=True)  # they may acknowledge what they have received
        if found.http is not None:
            found.http.site.remove(name.lower())
            if not found.http.site.routes:
                found.http.server.close()
                self.https = {key: server for key, server in self.https.items() if server is not found.http}
                found.http.site.close()
        for connection in list(found.ingress.peers):
            connection.abort()
        await asyncio.sleep(0)  # lets the loop call `connection_lost`
        await found.ingress.close()

    async def do(self, order: GatewayOrder) -> GatewayAnswer:
        """Execute an order of the hub."""
        if order.do == "open":
            return GatewayAnswer(order.id, addresses=tuple(await self.open(*order.opened())))
        if order.do == "close":
            await self.close(order.name)
            return GatewayAnswer(order.id)
        found = self.streams.get(order.name.lower())
        if order.do == "sync":
            if found is not None:
                try:
                    await found.ingress.flusher.sync()
                except OSError as problem:
                    raise _unwritable(order.name, problem) from None
            return GatewayAnswer(order.id)
        return GatewayAnswer(order.id, metrics=found.metrics() if found else None)


def _open_journal(directory: Path, segment_bytes: int) -> Journal:
    """Open a journal and compile the kernels. Runs outside the event loop, because both may take seconds. Raises
    JournalDamaged if the journal was removed; a new one must not hide that."""
    shredder.warm()
    delimiting.warm()
    require_journal(directory)
    journal = Journal(directory, segment_bytes)
    try:
        note_begun(directory)
    except BaseException:
        with contextlib.suppress(OSError):
            journal.close()
        raise
    return journal


def _unwritable(stream: str, problem: OSError) -> JournalUnwritable:
    return JournalUnwritable(
        f"the journal of stream {stream} cannot be written: {problem.strerror or problem}",
        advice="Free space on the disk of the state directory, or check that disk. The stream then resumes by itself.",
        stream=stream,
    )


def _shown(address: Any) -> str:
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"{host}:{address[1]}"


async def serve() -> None:
    """Execute orders from the standard input until it ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 26)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    gateway = Gateway(loop)
    orders: set[asyncio.Task[None]] = set()
    try:
        while line := await reader.readline():
            task = loop.create_task(_carry_out(gateway, load(GatewayOrder, line)))
            orders.add(task)
            task.add_done_callback(orders.discard)
    finally:
        for task in orders:
            task.cancel()
        await asyncio.gather(*orders, return_exceptions=True)
        for name in list(gateway.streams):
            await gateway.close(name)


async def _carry_out(gateway: Gateway, order: GatewayOrder) -> None:
    """Execute an order and respond. Reports progress every second."""
    work = asyncio.ensure_future(gateway.do(order))
    try:
        while not (await asyncio.wait([work], timeout=PROGRESS_SECONDS))[0]:
            _say(GatewayAnswer(order.id, progress=f"{order.do} is running"))
        answer = work.result()
    except HeadraceError as problem:
        answer = GatewayAnswer(order.id, error=(problem.code, problem.message, problem.advice))
    except OSError as problem:
        answer = GatewayAnswer(order.id, error=("EXTERNAL_ERROR", str(problem), ""))
    except asyncio.CancelledError:
        work.cancel()
        raise
    _say(answer)


def _say(answer: GatewayAnswer) -> None:
    print(message_line(answer), end="", flush=True)


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop if it is installed."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main)


def raise_file_limit() -> None:
    """Raise the limit of open files to the maximum, because every connection is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> None:
    raise_file_limit()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the hub handles Ctrl-C and then closes our input
    gc.freeze()  # objects of loaded modules never become garbage
    run(serve())


if __name__ == "__main__":
    main()
