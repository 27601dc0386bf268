"""The hub's handle on its gateway process: starts it with the first pushed stream, ends it with the last, and starts it
again when it dies. Any thread may call."""

from __future__ import annotations

import contextlib
import json
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
from headrace.ingress.settings import GatewaySettings
from headrace.model.codec import dump
from headrace.model.program import StreamDef

ANSWER_SECONDS = 60.0  # without a sign of life; importing the kernels on a busy machine takes some
RESTART_SECONDS = 1.0
_ENDED: dict[str, Any] = {}
_Answers = queue.Queue[dict[str, Any]]


class GatewayService:
    """See the module. `log` is where the process writes what goes wrong; `reveal` gives the value of a secret. Opening
    a stream may take long: the others are not kept waiting."""

    def __init__(self, log: Path, reveal: Callable[[str], str] = str) -> None:
        self._log, self.reveal = log, reveal
        self._lock = threading.RLock()  # for what is below; never held while an answer is waited for
        self._turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)  # one opens or closes a stream
        self._process: subprocess.Popen[bytes] | None = None
        self._waiting: dict[int, tuple[object, _Answers]] = {}  # who waits for which answer, from which process
        self._orders: dict[str, dict[str, Any]] = {}  # what to open again
        self._addresses: dict[str, list[str]] = {}
        self._lost: dict[str, str] = {}  # what a new process has not opened yet, and why
        self._id = 0
        self.restarts = 0

    def open(self, stream: StreamDef, directory: Path, settings: GatewaySettings) -> list[str]:
        """Take bytes for a stream; the addresses. Raises what the gateway says. Waits as long as the gateway says that
        it is at work."""
        name = stream.name.lower()
        with self._turns[name]:
            if name not in self._orders:
                addresses: list[str] = self._ask(_open_order(stream, directory, settings))["addresses"]
                with self._lock:
                    self._orders[name] = _open_order(stream, directory, _with_port(settings, addresses))
                    self._addresses[name] = addresses
            return self._addresses[name]

    def close(self, name: str) -> None:
        """Stop taking bytes for a stream; ends the process with the last one."""
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
                with contextlib.suppress(errors.HeadraceError):  # it takes no bytes any more; its log says what failed
                    self._ask({"do": "close", "name": name})

    def addresses(self, name: str) -> list[str]:
        """Where a stream takes bytes now."""
        return self._addresses.get(name.lower(), [])

    def metrics(self, name: str) -> dict[str, Any] | None:
        """What the gateway counts for a stream; None when it is not open. One that a new process could not open again
        yet is closed, and `problem` says why."""
        if name.lower() not in self._orders:
            return None
        found: dict[str, Any] | None = self._ask_about(name, "metrics")["metrics"]
        if found is None and name.lower() in self._orders:
            return {"state": "closed", "problem": self._lost.get(name.lower(), "")}
        return found

    def sync(self, name: str) -> None:
        """Return when everything that the gateway has taken for a stream survives the machine."""
        if name.lower() in self._orders:
            self._ask_about(name, "sync")

    def stop(self) -> None:
        """End the process: what it has taken is in the journals."""
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

    def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        """Give an order to the process, which is started if there is none."""
        self._ensure_running()
        return self._exchange(order)

    def _ask_about(self, name: str, what: str) -> dict[str, Any]:
        """Ask about one stream, which is opened again first if the process is new."""
        self._ensure_running()
        self._reopen(name.lower())
        return self._exchange({"do": what, "name": name})

    def _ensure_running(self) -> None:
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._start()

    def _exchange(self, order: dict[str, Any]) -> dict[str, Any]:
        """Send an order and wait for its answer. Every sign that it is under way gives it more time."""
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
                process.stdin.write(json.dumps({"id": number, **order}).encode() + b"\n")
                process.stdin.flush()
            while "progress" in (answer := answers.get(timeout=ANSWER_SECONDS)):
                pass
            if answer is _ENDED:
                raise OSError("it ended")
        except (OSError, ValueError, queue.Empty) as problem:
            raise errors.GatewayFailed(
                f"the gateway does not answer: {problem or 'no answer in time'}", advice=f"See {self._log}."
            ) from None
        finally:
            with self._lock:
                del self._waiting[number]
        if "error" in answer:
            raise _error(*answer["error"])
        return answer

    def _start(self) -> None:
        """A new process takes bytes for all streams that the one before did, on the same addresses."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # what it did not read is lost with it
                self._process.stdin.close()
        try:
            with open(self._log, "ab", opener=private_opener) as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "headrace.ingress.gateway"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    umask=0o077,  # it writes journals, and nothing else
                )
        except OSError as problem:
            raise errors.GatewayFailed(f"the gateway cannot be started: {problem}") from None
        watch = threading.Thread(target=self._listen, args=(self._process,), name="headrace-gateway", daemon=True)
        watch.start()
        if self._orders:
            self.restarts += 1
            self._lost = dict.fromkeys(self._orders, "the gateway was started again, and opens the journal")
            threading.Thread(
                target=self._reopen_all, args=(self._process,), name="headrace-reopen", daemon=True
            ).start()

    def _reopen_all(self, process: subprocess.Popen[bytes]) -> None:
        """Open what a new process does not have yet, until it has everything or is replaced."""
        while True:
            for name in list(self._lost):
                self._reopen(name)
            if not self._lost or self._process is not process or process.poll() is not None:
                return
            time.sleep(RESTART_SECONDS)

    def _reopen(self, name: str) -> None:
        """Open a stream again if the process does not have it. If that fails, it is tried again, and `metrics` says
        why."""
        with self._turns[name]:
            order = self._orders.get(name)
            if order is None or name not in self._lost:
                return
            try:
                addresses = self._exchange(order)["addresses"]
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
                answer = json.loads(line)
                with self._lock:
                    _, waiting = self._waiting.get(answer["id"], (None, None))
                if waiting is not None:  # else who asked has given up
                    waiting.put(answer)
        process.wait()
        with self._lock:
            for asked, waiting in self._waiting.values():
                if asked is process:
                    waiting.put(_ENDED)
        self._revive(process)

    def _revive(self, process: subprocess.Popen[bytes]) -> None:
        """The process died and nobody asked it to: see that there is a new one."""
        while True:
            time.sleep(RESTART_SECONDS)
            with self._lock:
                if not self._orders or self._process is not process:
                    return
                with contextlib.suppress(errors.GatewayFailed):
                    self._start()
                    return


def _open_order(stream: StreamDef, directory: Path, settings: GatewaySettings) -> dict[str, Any]:
    return {"do": "open", "stream": dump(stream), "directory": str(directory), "settings": dump(settings)}


def _with_port(settings: GatewaySettings, addresses: list[str]) -> GatewaySettings:
    """The settings that open the stream again on the same port, if the system picked one."""
    if not settings.listen or settings.listen[1] or not addresses:
        return settings
    host, _, port = addresses[0].split("://")[1].split("/")[0].rpartition(":")
    return replace(settings, listen=(host.strip("[]"), int(port)))


def _error(code: str, message: str, advice: str) -> errors.HeadraceError:
    """The error that the gateway reported."""
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.HeadraceError) and kind.code == code:
            return kind(message, advice=advice)
    return errors.GatewayFailed(message, advice=advice)
