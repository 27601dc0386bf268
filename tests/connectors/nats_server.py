"""A NATS server from the system's packages, on loopback, with JetStream."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import nats

from tests.connectors.servers import free_port, missing

USER, PASSWORD = "reader", "s3cret-nats"
T = TypeVar("T")


class NatsServer:
    """One server. Its streams are on disk, so a restart keeps them."""

    def __init__(self, directory: Path, *, login: bool = False) -> None:
        found = shutil.which("nats-server", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
        self._binary = found or missing("no NATS server: install the package nats-server")
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self._arguments = ["-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(directory)]
        self._login = {"user": USER, "password": PASSWORD} if login else {}
        if login:
            self._arguments += ["--user", USER, "--pass", PASSWORD]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [self._binary, *self._arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < deadline and self._process.poll() is None, "nats-server does not start"
                time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(10)
            self._process = None

    def run(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Run `work` with a connected client."""

        async def connected() -> T:
            client = await nats.connect(self.url, **self._login)
            try:
                return await work(client)
            finally:
                await client.close()

        return asyncio.run(connected())

    def stream(self, name: str, *subjects: str, **settings: Any) -> None:
        self.run(lambda client: client.jetstream().add_stream(name=name, subjects=list(subjects), **settings))

    def send(self, subject: str, payloads: Iterable[bytes | str], headers: dict[str, str] | None = None) -> None:
        """Publish to JetStream, and wait for the acknowledgements."""

        async def work(client: Any) -> None:
            stream = client.jetstream()
            for payload in payloads:
                data = payload.encode() if isinstance(payload, str) else payload
                await stream.publish(subject, data, headers=headers)

        self.run(work)

    def publish(self, subject: str, payloads: Iterable[str]) -> None:
        """Publish without JetStream."""

        async def work(client: Any) -> None:
            for payload in payloads:
                await client.publish(subject, payload.encode())
            await client.flush()

        self.run(work)

    def messages(self, stream: str) -> list[tuple[str, bytes]]:
        """All messages of a JetStream stream."""

        async def work(client: Any) -> list[tuple[str, bytes]]:
            manager = client.jsm()
            end = (await manager.stream_info(stream)).state.last_seq
            found = [await manager.get_msg(stream, i) for i in range(1, end + 1)]
            return [(m.subject, m.data) for m in found]

        return self.run(work)
