"""Asks whether a master answers, before Spark does. Spark itself tries a standalone master for a minute, and its error
names no address. The question needs no JVM and loads nothing, so the command line asks it before everything else."""

from __future__ import annotations

import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.errors import SparkNotStarted

# A standalone cluster may have several masters. All of them together may take this long.
LIMIT_SECONDS = 8.0
_STANDALONE = re.compile(r"spark://(.+)")
_KUBERNETES = re.compile(r"k8s://(?:(https?)://)?([^/]+)")


def addresses(master: str) -> list[tuple[str, int]]:
    """The hosts and ports that `master` names. Empty if it names none, like local[*] and yarn.

    >>> addresses("spark://a:7077,b:7078"), addresses("k8s://https://c"), addresses("local[2]")
    ([('a', 7077), ('b', 7078)], [('c', 443)], [])
    """
    if found := _STANDALONE.fullmatch(master):
        return [_split(part, 7077) for part in found[1].split(",")]
    if found := _KUBERNETES.match(master):
        return [_split(found[2], 80 if found[1] == "http" else 443)]
    return []


def _split(text: str, port: int) -> tuple[str, int]:
    host, colon, number = text.strip().rpartition(":")
    return (host.strip("[]"), int(number)) if colon and number.isdigit() else (text.strip(), port)


def require_reachable(master: str, limit: float = LIMIT_SECONDS) -> None:
    """Return when one address of `master` answers. Raises SparkNotStarted with all of them otherwise."""
    wanted, standalone = addresses(master), _STANDALONE.fullmatch(master) is not None
    deadline = time.monotonic() + limit
    problems: list[str] = []
    for i, (host, port) in enumerate(wanted):
        left = max(1.0, (deadline - time.monotonic()) / (len(wanted) - i))
        try:
            with socket.create_connection((host, port), timeout=left) as connection:
                answer = _answer(connection, left) if standalone else None
            if not standalone or _ANSWER.match(answer or b""):
                return
            if answer is not None:  # a master that wants TLS closes the connection
                with socket.create_connection((host, port), timeout=left) as connection:
                    if _speaks_tls(connection):
                        return
            problems.append(f"{host}:{port}: it takes connections, but does not answer as a Spark master")
        except OSError as problem:
            why = "no answer" if isinstance(problem, TimeoutError) else problem.strerror or str(problem)
            problems.append(f"{host}:{port}: {why}")
    if problems:
        raise unreachable(master, "; ".join(problems))


# A StreamRequest of Spark's network protocol: the length of the frame, the type of the message, and the name of a
# stream. Every RPC server of Spark answers at once that there is no such file, and logs nothing.
_NAME = b"/files/headrace"
_QUESTION = struct.pack(">qBi", 8 + 1 + 4 + len(_NAME), 6, len(_NAME)) + _NAME


# How an answer begins: its length, and the type of a message. Lengths are below 16 MB, types are small numbers.
_ANSWER = re.compile(rb"\x00{5}...[\x00-\x1f]", re.DOTALL)


def _answer(connection: socket.socket, limit: float) -> bytes | None:
    """The first bytes that the other side answers. Empty if it closes the connection, None if it stays silent."""
    deadline, said = time.monotonic() + limit, b""
    try:
        connection.sendall(_QUESTION)
        while len(said) < 9:
            connection.settimeout(max(0.1, deadline - time.monotonic()))
            part = connection.recv(9 - len(said))
            if not part:
                break
            said += part
    except TimeoutError:
        return said or None
    except ConnectionError:
        pass
    return said


def _speaks_tls(connection: socket.socket) -> bool:
    """True if the other side speaks TLS (spark.ssl.rpc.enabled). Spark then finds out whether it is a master."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent that anyone may not see
    try:
        with context.wrap_socket(connection):
            return True
    except ssl.SSLError as problem:
        # It refused the connection with a TLS alert, for example because it wants a certificate.
        return "ALERT" in (problem.reason or "")
    except ConnectionError:
        return False


def unreachable(master: str, why: str) -> SparkNotStarted:
    """The error for a master that does not answer."""
    return SparkNotStarted(
        f"the Spark master {master} cannot be reached ({why})",
        advice="Start the master, or correct the address in --master. Is a firewall between this machine and it?",
        master=master,
    )


class RegistrationWatch:
    """Ends a start whose master takes connections but does not answer as a Spark master. `timed_out` if it did so."""

    def __init__(self, log: Path, give_up: Callable[[], None], limit: float) -> None:
        self._log, self._give_up, self._limit = log, give_up, limit
        self._over = threading.Event()
        self.timed_out = False

    def watch(self) -> None:
        """Follow Spark's log until `stop`. The limit counts from the first question to the master, not from the start
        of the JVM, which may download packages. If the JVM was slow to start, half of the limit applies."""
        began, slow = time.monotonic(), False
        asked: float | None = None
        while not self._over.wait(0.25):
            said = ""
            with suppress(OSError):
                said = self._log.read_text(encoding="utf-8", errors="replace")
            if _ANSWERED in said:
                return
            if asked is None and _ASKING in said:
                asked = time.monotonic()
                slow = asked - began > self._limit
            if asked is not None and time.monotonic() - asked > self._limit / (2 if slow else 1):
                self.timed_out = True
                self._give_up()
                return

    def stop(self) -> None:
        self._over.set()


# What Spark's client of a standalone master logs. It asks three times, for 20 s each.
_ASKING, _ANSWERED = "Connecting to master", "Connected to Spark cluster"
# A master answers in milliseconds. With a JVM that takes 10 s to start, the error comes after 14 s.
REGISTRATION_SECONDS = 8.0


@contextmanager
def registration_limited(
    master: str, log: Path | None, give_up: Callable[[], None], limit: float = REGISTRATION_SECONDS
) -> Iterator[RegistrationWatch]:
    """Call `give_up` from another thread if a standalone master does not register the application in time. `log` is
    Spark's log, as this start writes it; without it Spark's own limit of a minute holds."""
    watch = RegistrationWatch(log or Path(), give_up, limit)
    if log is not None and _STANDALONE.fullmatch(master):
        threading.Thread(target=watch.watch, name="headrace-registration", daemon=True).start()
    try:
        yield watch
    finally:
        watch.stop()
