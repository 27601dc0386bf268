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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace import errors
from headrace.codec import dump
from headrace.durable import private_opener
from headrace.program import StreamDef

ANSWER_SECONDS = 60.0  # importing the kernels on a busy machine takes some
RESTART_SECONDS = 1.0


class GatewayService:
    """See the module. `log` is where the process writes what goes wrong; `reveal` gives the value of a secret."""

    def __init__(self, log: Path, reveal: Callable[[str], str] = str) -> None:
        self._log, self.reveal = log, reveal
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._orders: dict[str, dict[str, Any]] = {}  # what to open again
        self._addresses: dict[str, list[str]] = {}
        self._lost: set[str] = set()  # what a new process could not open yet
        self._id = 0
        self.restarts = 0

    def open(self, stream: StreamDef, directory: Path, values: dict[str, Any]) -> list[str]:
        """Take bytes for a stream; the addresses. Raises what the gateway says."""
        name = stream.name.lower()
        order = {"do": "open", "stream": dump(stream), "directory": str(directory), "values": values}
        with self._lock:
            if name in self._orders:
                return self._addresses[name]
            addresses: list[str] = self._ask(order)["addresses"]
            self._orders[name] = _fixed(order, addresses)
            self._addresses[name] = addresses
            return addresses

    def close(self, name: str) -> None:
        """Stop taking bytes for a stream; ends the process with the last one."""
        with self._lock:
            if self._orders.pop(name.lower(), None) is None:
                return
            self._addresses.pop(name.lower(), None)
            self._lost.discard(name.lower())
            if self._orders:
                with contextlib.suppress(errors.HeadraceError):  # it takes no bytes any more; its log says what failed
                    self._ask({"do": "close", "name": name})
            else:
                self.stop()

    def addresses(self, name: str) -> list[str]:
        """Where a stream takes bytes now."""
        return self._addresses.get(name.lower(), [])

    def metrics(self, name: str) -> dict[str, Any] | None:
        """What the gateway counts for a stream; None when it is not open."""
        with self._lock:
            if name.lower() not in self._orders:
                return None
            found: dict[str, Any] | None = self._ask({"do": "metrics", "name": name})["metrics"]
            return found

    def sync(self, name: str) -> None:
        """Return when everything that the gateway has taken for a stream survives the machine."""
        with self._lock:
            if name.lower() in self._orders:
                self._ask({"do": "sync", "name": name})

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
        if self._process is None or self._process.poll() is not None:
            self._start()
        return self._exchange(order)

    def _exchange(self, order: dict[str, Any]) -> dict[str, Any]:
        process = self._process
        assert process is not None and process.stdin is not None
        self._id += 1
        try:
            process.stdin.write(json.dumps({"id": self._id, **order}).encode() + b"\n")
            process.stdin.flush()
            deadline = time.monotonic() + ANSWER_SECONDS
            while True:
                answer = self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
                if answer is None:
                    self._answers.put(None)  # for whoever asks next
                    raise OSError("it ended")
                if answer["id"] == self._id:
                    break
        except (OSError, queue.Empty) as problem:
            raise errors.GatewayFailed(
                f"the gateway does not answer: {problem or 'no answer in time'}", advice=f"See {self._log}."
            ) from None
        if "error" in answer:
            raise _error(*answer["error"])
        return answer

    def _start(self) -> None:
        """A new process takes bytes for all streams that the one before did, on the same addresses."""
        self._answers = queue.Queue()
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
        watch = threading.Thread(
            target=self._listen, args=(self._process, self._answers), name="headrace-gateway", daemon=True
        )
        watch.start()
        if self._orders:
            self.restarts += 1
            self._lost = set(self._orders)
            self._reopen()

    def _reopen(self) -> None:
        """Open what is not open yet. What fails is tried again by `_revive`."""
        for name in list(self._lost):
            with contextlib.suppress(errors.HeadraceError):
                self._addresses[name] = self._exchange(self._orders[name])["addresses"]
                self._lost.discard(name)

    def _listen(self, process: subprocess.Popen[bytes], answers: queue.Queue[dict[str, Any] | None]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                answers.put(json.loads(line))
        answers.put(None)
        process.wait()
        self._revive(process)

    def _revive(self, process: subprocess.Popen[bytes]) -> None:
        """The process died and nobody asked it to: see that there is a new one and that it takes bytes for all
        streams."""
        while True:
            time.sleep(RESTART_SECONDS)
            with self._lock:
                if not self._orders:
                    return
                if self._process is process:
                    with contextlib.suppress(errors.GatewayFailed):
                        self._start()
                elif self._process is None or self._process.poll() is not None:
                    return  # the next one died as well: another thread sees to that
                else:
                    self._reopen()
                if self._process is not process and not self._lost:
                    return


def _fixed(order: dict[str, Any], addresses: list[str]) -> dict[str, Any]:
    """The order that opens a stream on the addresses it has: a port that was chosen stays."""
    values = dict(order["values"])
    if values.get("listen") and not values["listen"][1] and addresses:
        host, _, port = addresses[0].split("://")[1].split("/")[0].rpartition(":")
        values["listen"] = [host.strip("[]"), int(port)]
    return {**order, "values": values}


def _error(code: str, message: str, advice: str) -> errors.HeadraceError:
    """The error that the gateway reported."""
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.HeadraceError) and kind.code == code:
            return kind(message, advice=advice)
    return errors.GatewayFailed(message, advice=advice)
