"""A Mosquitto broker from the system's packages, on loopback, and a client of another make to talk to it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.connectors.servers import free_port, missing

USER, PASSWORD = "sensor", "s3cret-mqtt"


def _binary() -> str:
    found = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    return found or missing("no Mosquitto broker: install the package mosquitto")


class Mosquitto:
    """One broker. It keeps sessions on disk, so a restart that is no kill loses nothing."""

    def __init__(self, directory: Path, *, login: bool = False, tls: tuple[Path, Path] | None = None) -> None:
        self.port = free_port()
        self.directory = directory
        self._login = login
        self._binary = _binary()
        lines = [
            f"listener {self.port} 127.0.0.1", "persistence true", f"persistence_location {directory}/",
            "max_queued_messages 100000", "log_dest none",
        ]  # fmt: skip
        if login:
            passwords = directory / "passwords"
            subprocess.run(
                ["mosquitto_passwd", "-b", "-c", str(passwords), USER, PASSWORD], check=True, capture_output=True
            )
            lines += ["allow_anonymous false", f"password_file {passwords}"]
        else:
            lines.append("allow_anonymous true")
        if tls:
            lines += [f"certfile {tls[0]}", f"keyfile {tls[1]}"]
        if os.geteuid() == 0:
            lines.append("user root")
        self._config = directory / "mosquitto.conf"
        self._config.write_text("\n".join(lines) + "\n")
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"{'mqtts' if tls else 'mqtt'}://localhost:{self.port}"
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [self._binary, "-c", str(self._config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < deadline and self._process.poll() is None, "Mosquitto does not start"
                time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(10)
            self._process = None

    def client(self, version: MQTTProtocolVersion = MQTTProtocolVersion.MQTTv311) -> Any:
        """A connected client that publishes in the background."""
        made = paho.Client(CallbackAPIVersion.VERSION2, protocol=version)
        made.max_queued_messages_set(0)
        if self._login:
            made.username_pw_set(USER, PASSWORD)
        made.connect("127.0.0.1", self.port)
        made.loop_start()
        return made

    def send(self, topic: str, payloads: Iterable[bytes | str], qos: int = 2, retain: bool = False) -> None:
        """Publish, and return when the broker has everything."""
        client = self.client()
        try:
            for sent in [client.publish(topic, payload, qos, retain) for payload in payloads]:
                sent.wait_for_publish(20)
                assert sent.is_published()
        finally:
            client.disconnect()
            client.loop_stop()
