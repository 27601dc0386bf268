"""Load for the ingress benchmarks, and the plain sinks that they are compared with. Each is a process of its own.

- `python -m bench.senders PORT CONNECTIONS SECONDS`: writes JSON lines into many TCP connections as fast as they take
  it, in pieces that never end on a record. Prints how many bytes and records were sent.
- `python -m bench.senders http PORT CONNECTIONS SECONDS`: HTTP clients that each send a request of ten records and wait
  for its answer. Prints how many requests were answered 204.
- `python -m bench.senders sink`: reads TCP and forgets. `python -m bench.senders http-sink FILE`: httptools on asyncio;
  appends each body to a file and answers 204.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import sys
import time
from typing import cast

import httptools
import uvloop

PIECE = 8191


def text(count: int = 20_000) -> bytes:
    """Records of about 120 bytes whose event times advance a millisecond each."""
    return b"".join(
        b'{"device":"device-%04d","ts":"2026-01-01T00:%02d:%02d.%03dZ","temp":%d.%d,"hum":%d,"status":"ok","seq":%d}\n'
        % (i * 7 % 500, i // 60000, i // 1000 % 60, i % 1000, i % 30, i % 10, i % 100, i)
        for i in range(count)
    )


def send(port: int, connections: int, seconds: float) -> tuple[int, int]:
    """(bytes, records) sent."""
    data = text()
    view = memoryview(data)
    poll = select.epoll()
    clients: dict[int, socket.socket] = {}
    places: dict[int, int] = {}
    for i in range(connections):
        client = socket.create_connection(("127.0.0.1", port))
        client.setblocking(False)
        clients[client.fileno()] = client
        start = len(data) * i // connections
        places[client.fileno()] = data.find(b"\n", start) + 1
        poll.register(client.fileno(), select.EPOLLOUT)
    begins = dict(places)
    sent = dict.fromkeys(clients, 0)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for fd, _ in poll.poll(0.1):
            at = places[fd] % len(data)
            stop = min(len(data), at + PIECE)
            if data[stop - 1] == 10 and stop - at > 1:
                stop -= 1
            done = _some(clients[fd], view[at:stop])
            places[fd] = at + done
            sent[fd] += done
    records = 0
    for fd, client in clients.items():  # finish the record that was begun
        at = places[fd] % len(data)
        stop = data.find(b"\n", at) + 1 if at and data[at - 1] != 10 else at
        client.setblocking(True)
        client.sendall(view[at:stop])
        sent[fd] += stop - at
        records += _records(data, begins[fd], sent[fd])
        client.shutdown(socket.SHUT_WR)
    for client in clients.values():
        while client.recv(4096):
            pass
        client.close()
    return sum(sent.values()), records


def ask(port: int, connections: int, seconds: float) -> int:
    """Requests that were answered 204 in time. Each connection has one request under way."""
    body = text(10)
    request = b"POST /ingest/s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
    request += b"User-Agent: bench\r\nAccept: */*\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
    poll = select.epoll()
    for client in clients:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.sendall(request)
        poll.register(client.fileno(), select.EPOLLIN)
    by_number = {client.fileno(): client for client in clients}
    answered = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for fd, _ in poll.poll(0.1):
            answer = by_number[fd].recv(4096)
            if not answer.startswith(b"HTTP/1.1 204") or not answer.endswith(b"\r\n\r\n"):
                raise SystemExit(f"an answer that is not 204: {answer!r}")
            answered += 1
            by_number[fd].sendall(request)
    for client in clients:
        client.close()
    return answered


def _some(client: socket.socket, piece: memoryview) -> int:
    try:
        return client.send(piece)
    except BlockingIOError:
        return 0


def _records(data: bytes, begin: int, size: int) -> int:
    """How many records end in `size` bytes of the endlessly repeated data, from `begin` on."""
    whole = data.count(b"\n")
    turns, rest = divmod(size, len(data))
    end = begin + rest
    count = data.count(b"\n", begin, min(end, len(data)))
    return turns * whole + count + (data.count(b"\n", 0, end - len(data)) if end > len(data) else 0)


class _Reader(asyncio.BufferedProtocol):
    """Reads and forgets."""

    room = memoryview(bytearray(64 << 10))
    total = 0

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.room

    def buffer_updated(self, nbytes: int) -> None:
        _Reader.total += nbytes


class _Appender(asyncio.Protocol):
    """Appends bodies to a file and answers: nothing is checked, counted or bounded."""

    file = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpRequestParser(self)
        self._parts: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        os.write(_Appender.file, b"".join(self._parts))
        self._parts.clear()
        self._transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")


async def _sink(kind: type[asyncio.BaseProtocol]) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(kind, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    if sys.argv[1] == "sink":
        uvloop.run(_sink(_Reader))
    elif sys.argv[1] == "http-sink":
        _Appender.file = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        uvloop.run(_sink(_Appender))
    elif sys.argv[1] == "http":
        print(ask(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
    else:
        print(*send(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
