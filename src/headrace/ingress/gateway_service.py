"""Runs the gateway process for the hub: starts it with the first pushed stream, stops it with the last, and restarts it
when it dies. Thread-safe."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace import errors
from headrace.base.durable import private_opener
from headrace.ingress.gateway_messages import GatewayAnswer, GatewayOrder, message_line
from headrace.ingress.settings import GatewaySettings, HttpSettings, TcpSettings
from headrace.model.codec import load
from headrace.model.definitions import StreamDef

ANSWER_SECONDS = 60.0  # without a response or progress; importing the kernels takes long on a busy machine
RESTART_SECONDS = 1.0
_Answers = queue.Queue[GatewayAnswer | None]  # None: the process has ended


class GatewayService:
    """The gateway of a hub; see the module. The process writes its errors to `log`. `reveal` returns the value of a
    secret. Opening a stream may take long, and does not delay the others."""

    def __init__(self, log: Path, reveal: Callable[[str], str] = str) -> None:
        self._log, self.reveal = log, reveal
        self._lock = threading.RLock()  # protects the fields below; never held while waiting for a response
        self._turns: defaultdict[str, threading.Lock] = defaultdict(
            threading.Lock
        )  # serializes open and close of a stream
        self._process: subprocess.Popen[bytes] | None = None
        self._waiting: dict[
            int, tuple[object, _Answers]
        ] = {}  # by order id: the process, and the queue of its responses
        self._orders: dict[str, GatewayOrder] = {}  # the orders that opened streams, for a restart
        self._addresses: dict[str, list[str]] = {}
        self._lost: dict[str, str] = {}  # streams that a new process has not reopened yet, and why
        self._id = 0
        self._restarts = 0

    def open(self, stream: StreamDef, directory: Path, settings: GatewaySettings) -> list[str]:
        """Start taking bytes for a stream. Returns its addresses. Raises the errors of the gateway. Waits as long as
        the gateway reports progress."""
        name = stream.name.lower()
        with self._turns[name]:
            if name not in self._orders:
                addresses = list(self._ask(GatewayOrder.to_open(stream, directory, settings)).addresses)
                with self._lock:
                    self._orders[name] = GatewayOrder.to_open(stream, directory, _with_port(settings, addresses))
                    self._addresses[name] = addresses
            return self._addresses[name]

    def close(self, name: str) -> None:
        """Stop taking bytes for a stream. Stops the process after the last one."""
        with self._turns[name.lower()]:
            with self._lock:
                if self._orders.pop(name.lower(), None) is None:
                    return
                self._addresses.pop(name.lower(), None)
                self._lost.pop(name.lower(), None)
                last = not self._orders
            if last:
                self.stop()
            else:
                with contextlib.suppress(errors.HeadraceError):  # the stream takes no more bytes; the log has the error
                    self._ask(GatewayOrder("close", name))

    def takes(self, name: str) -> bool:
        """True if a stream is open."""
        return name.lower() in self._orders

    def addresses(self, name: str) -> list[str]:
        """The addresses of a stream."""
        return self._addresses.get(name.lower(), [])

    def problem(self, name: str) -> str:
        """Why a restarted gateway has not reopened a stream yet. Empty if it has. Never waits."""
        return self._lost.get(name.lower(), "")

    def metrics(self, name: str) -> dict[str, Any] | None:
        """The metrics of a stream, or None if it is not open. If the gateway does not respond, or was restarted and has
        not reopened the stream yet, its state is closed and `problem` says why. `gateway_restarts` counts the restarts
        since the hub was opened, and `gateway_pid` is the process."""
        if name.lower() not in self._orders:
            return None
        problem = ""
        try:
            found = self._ask_about(GatewayOrder("metrics", name)).metrics
        except errors.GatewayFailed as failure:
            found, problem = None, f"{failure.code}: {failure.message}"
        if found is None and name.lower() in self._orders:
            found = {"state": "closed", "problem": problem or self._lost.get(name.lower(), "")}
        process = self._process
        pid = None if process is None else process.pid
        return None if found is None else {**found, "gateway_restarts": self._restarts, "gateway_pid": pid}

    def sync(self, name: str) -> None:
        """Sync everything that the gateway has taken for a stream."""
        if name.lower() in self._orders:
            self._ask_about(GatewayOrder("sync", name))

    def stop(self) -> None:
        """Stop the process. It flushes its journals first."""
        with self._lock:
            process, self._process = self._process, None
            self._orders.clear()
            self._lost.clear()
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _ask(self, order: GatewayOrder) -> GatewayAnswer:
        """Send an order to the process. Starts the process if necessary."""
        self._ensure_running()
        return self._exchange(order)

    def _ask_about(self, order: GatewayOrder) -> GatewayAnswer:
        """Send an order about an open stream. Reopens the stream first if the process is new, also if the one before
        died just now: then the order is sent again, because both orders about open streams may be."""
        self._ensure_running()
        self._reopen(order.name.lower())
        asked = self._process
        try:
            return self._exchange(order)
        except errors.GatewayFailed:
            if asked is None or asked.poll() is None:
                raise
        self._ensure_running()
        self._reopen(order.name.lower())
        return self._exchange(order)

    def _ensure_running(self) -> None:
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._start()

    def _exchange(self, order: GatewayOrder) -> GatewayAnswer:
        """Send an order and wait for its response. Every progress report extends the wait."""
        answers: _Answers = queue.Queue()
        with self._lock:
            process = self._process
            self._id += 1
            number = self._id
            self._waiting[number] = (process, answers)
        try:
            if process is None or process.stdin is None or process.poll() is not None:
                raise OSError("it ended")
            with self._lock:
                process.stdin.write(message_line(replace(order, id=number)).encode())
                process.stdin.flush()
            while (answer := answers.get(timeout=ANSWER_SECONDS)) is not None and answer.progress:
                pass
            if answer is None:
                raise OSError("it ended")
        except (OSError, ValueError, queue.Empty) as problem:
            raise errors.GatewayFailed(
                f"the gateway does not respond: {problem or 'timeout'}", advice=f"See {self._log}."
            ) from None
        finally:
            with self._lock:
                del self._waiting[number]
        if answer.error:
            raise _error(*answer.error)
        return answer

    def _start(self) -> None:
        """Start a process. It takes over the streams and addresses of the one before."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # unread orders are lost with the old process
                self._process.stdin.close()
        try:
            with open(self._log, "ab", opener=private_opener) as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "headrace.ingress.gateway"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    umask=0o077,  # it writes only journals
                )
        except OSError as problem:
            raise errors.GatewayFailed(f"the gateway cannot be started: {problem}") from None
        watch = threading.Thread(target=self._listen, args=(self._process,), name="headrace-gateway", daemon=True)
        watch.start()
        if self._orders:
            self._restarts += 1
            self._lost = dict.fromkeys(self._orders, "the gateway was restarted and is opening the journal")
            for name in self._orders:  # a journal that takes long must not delay the others
                given = (name, self._process)
                threading.Thread(target=self._keep_reopening, args=given, name="headrace-reopen", daemon=True).start()

    def _keep_reopening(self, name: str, process: subprocess.Popen[bytes]) -> None:
        """Reopen a stream in a new process until it has it or is replaced."""
        while True:
            self._reopen(name)
            if name not in self._lost or self._process is not process or process.poll() is not None:
                return
            time.sleep(RESTART_SECONDS)

    def _reopen(self, name: str) -> None:
        """Reopen a stream if the process does not have it. A failure is retried, and `metrics` shows it."""
        with self._turns[name]:
            order = self._orders.get(name)
            if order is None or name not in self._lost:
                return
            try:
                addresses = list(self._exchange(order).addresses)
            except errors.HeadraceError as problem:
                with self._lock:
                    if name in self._lost:
                        self._lost[name] = f"{problem.code}: {problem.message}"
                return
            with self._lock:
                self._addresses[name] = addresses
                self._lost.pop(name, None)

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                answer = load(GatewayAnswer, line)
                with self._lock:
                    _, waiting = self._waiting.get(answer.id, (None, None))
                if waiting is not None:  # otherwise the caller has given up
                    waiting.put(answer)
        process.wait()
        with self._lock:
            for asked, waiting in self._waiting.values():
                if asked is process:
                    waiting.put(None)
        self._revive(process)

    def _revive(self, process: subprocess.Popen[bytes]) -> None:
        """Start a new process after one died unexpectedly."""
        while True:
            time.sleep(RESTART_SECONDS)
            with self._lock:
                if not self._orders or self._process is not process:
                    return
                with contextlib.suppress(errors.GatewayFailed):
                    self._start()
                    return


def _with_port(settings: GatewaySettings, addresses: list[str]) -> GatewaySettings:
    """The settings that reopen the stream on the same port, if the system picked one."""
    if not isinstance(settings, TcpSettings | HttpSettings) or not addresses:
        return settings
    if not settings.listen or settings.listen[1]:
        return settings
    host, _, port = addresses[0].split("://")[1].split("/")[0].rpartition(":")
    return replace(settings, listen=(host.strip("[]"), int(port)))


def _error(code: str, message: str, advice: str) -> errors.HeadraceError:
    """The error that the gateway reported."""
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.HeadraceError) and kind.code == code:
            return kind(message, advice=advice)
    return errors.GatewayFailed(message, advice=advice)
