"""Load for the ingress benchmarks: a process that writes JSON lines into many TCP connections, as fast as they take it.

`python -m bench.senders PORT CONNECTIONS SECONDS [RECORDS]`: pieces never end on a record. Prints how many bytes and
records were sent, and ends every connection on a record's end. Also the sink that only reads, for comparison.
"""

from __future__ import annotations

import asyncio
import select
import socket
import sys
import time

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


async def _sink() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Reader, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    if sys.argv[1] == "sink":
        uvloop.run(_sink())
    else:
        print(*send(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
