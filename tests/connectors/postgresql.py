"""A PostgreSQL server for tests and benchmarks, from the system's packages, on a loopback port."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.connectors.servers import free_port

PASSWORD = "the-pass'word of/the tests"


class ServerMissing(Exception):
    """Why there can be no server on this machine."""


def _program(name: str) -> str:
    newest = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda p: int(p.parts[4]), reverse=True)
    found = shutil.which(name) or (str(newest[0]) if newest else None)
    if found is None:
        raise ServerMissing(f"{name} is not installed (Debian: apt-get install postgresql)")
    return found


class PostgresServer:
    """A server with its own data directory. It refuses to run as root: then it runs as another user."""

    def __init__(self) -> None:
        self._initdb, self._postgres = _program("initdb"), _program("postgres")
        self._user = self._other_user() if os.geteuid() == 0 else None
        self.port = free_port()
        self._home = Path(tempfile.mkdtemp(prefix="headrace-postgres-"))
        self._data = self._home / "data"
        self._process: subprocess.Popen[bytes] | None = None
        secret = self._home / "password"
        secret.write_text(PASSWORD)
        if self._user is not None:
            for path in (self._home, secret):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)
        made = subprocess.run(
            [self._initdb, "-D", self._data, "-U", "tester", "-A", "scram-sha-256", f"--pwfile={secret}", "--no-sync",
             "--no-instructions", "-E", "UTF8", "--locale=C"],
            capture_output=True, **self._as_user(),
        )  # fmt: skip
        if made.returncode:
            raise ServerMissing(f"initdb failed: {made.stderr.decode()[:300]}")
        self.start()

    @staticmethod
    def _other_user() -> pwd.struct_passwd:
        for name in ("postgres", "nobody"):
            try:
                return pwd.getpwnam(name)
            except KeyError:
                continue
        raise ServerMissing("PostgreSQL does not run as root, and there is no other user to run it as")

    def _as_user(self) -> dict[str, Any]:
        who = {} if self._user is None else {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}
        return {"cwd": self._home, **who}

    @property
    def url(self) -> str:
        return f"postgresql://tester@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        self._process = subprocess.Popen(
            [self._postgres, "-D", str(self._data), "-p", str(self.port), "-c", "listen_addresses=127.0.0.1",
             "-c", f"unix_socket_directories={self._home}", "-c", "fsync=off"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **self._as_user(),
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while not self._answers():
            assert self._process.poll() is None and time.monotonic() < deadline, "the server does not start"
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            self.sql("SELECT 1")
        except Exception:  # it is not ready yet
            return False
        return True

    def connect(self) -> Any:
        from adbc_driver_postgresql import dbapi

        from headrace.sinks.postgres_target import with_password

        return dbapi.connect(with_password(self.url, PASSWORD), autocommit=True)

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Run one statement as the owner of everything."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(text)
            return cursor.fetchall() if cursor.description else []

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server. SIGINT is its fast shutdown."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(30)
            self._process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._home, ignore_errors=True)
