"""An S3 server from a package (moto), on loopback, behind a relay that a test can cut. It checks credentials."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from headrace.stores.object_store import ObjectStore
from headrace.stores.store_options import StoreAccess
from tests.connectors.servers import free_port, missing

BUCKET = "lake"
_ALL: dict[str, Any] = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}


class Relay:
    """Forwards connections to a port, unless it is cut: then open connections end, and new ones are refused."""

    def __init__(self, to: int) -> None:
        self.port, self._to = free_port(), to
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self.restore()

    def restore(self) -> None:
        listener = socket.create_server(("127.0.0.1", self.port))
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def cut(self) -> None:
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        for one in list(self._open):
            self._end(one)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._to))
            self._open |= {near, far}
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(a, b), daemon=True).start()

    def _pump(self, a: socket.socket, b: socket.socket) -> None:
        try:
            while data := a.recv(1 << 16):
                b.sendall(data)
        except OSError:
            pass
        for one in (a, b):
            self._end(one)

    def _end(self, one: socket.socket) -> None:
        self._open.discard(one)
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


class S3Server:
    """One server with one bucket and one user, whose permissions can be taken away and given back."""

    def __init__(self, log: Path) -> None:
        try:
            import boto3
            import moto.server  # noqa: F401
        except ImportError as problem:
            missing(f"no S3 server: {problem}")
        self._port = free_port()
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)], stdout=out, stderr=out
            )
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
                break
            except OSError:
                assert time.monotonic() < deadline and self._process.poll() is None, log.read_text()
                time.sleep(0.05)
        self.relay = Relay(self._port)
        self.endpoint = f"http://127.0.0.1:{self.relay.port}"
        where: dict[str, Any] = {
            "endpoint_url": f"http://127.0.0.1:{self._port}", "region_name": "us-east-1",
            "aws_access_key_id": "root", "aws_secret_access_key": "root",
        }  # fmt: skip
        boto3.client("s3", **where).create_bucket(Bucket=BUCKET)
        iam = boto3.client("iam", **where)
        iam.create_user(UserName="headrace")
        iam.put_user_policy(UserName="headrace", PolicyName="all", PolicyDocument=json.dumps(_ALL))
        made = iam.create_access_key(UserName="headrace")["AccessKey"]
        self.access_key, self.secret_key = str(made["AccessKeyId"]), str(made["SecretAccessKey"])
        self._iam = iam
        self._check_after(0)

    @property
    def options(self) -> str:
        """The options of a stream or sink."""
        return (
            f"endpoint = '{self.endpoint}', region = 'us-east-1', access_key = '{self.access_key}', "
            f"secret_key = '{self.secret_key}'"
        )

    def store(self, path: str) -> ObjectStore:
        """A directory of the bucket, for tests to look into."""
        url = f"s3://{BUCKET}/{path}"
        return ObjectStore(StoreAccess(url, self.endpoint, "us-east-1", self.access_key, self.secret_key))

    def revoke(self) -> None:
        """Take away the user's permissions."""
        self._change(lambda: self._iam.delete_user_policy(UserName="headrace", PolicyName="all"))

    def permit(self) -> None:
        """Give them back."""
        text = json.dumps(_ALL)
        self._change(lambda: self._iam.put_user_policy(UserName="headrace", PolicyName="all", PolicyDocument=text))

    def _change(self, act: Any) -> None:
        self._check_after(1_000_000)
        act()
        self._check_after(0)

    def _check_after(self, requests: int) -> None:
        """Let the server check credentials after this many requests."""
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/moto-api/reset-auth",
            data=str(requests).encode(),
            headers={"Content-Type": "text/plain"},
        )
        urllib.request.urlopen(asked, timeout=10).close()

    def stop(self) -> None:
        self.relay.cut()
        self._process.kill()
        self._process.wait(10)
