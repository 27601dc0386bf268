"""A hub as the soaks drive it: in this process, or in one of its own that can be killed.

    python -m tests.soak.hubs STATE_DIR [MASTER]     the process: takes one JSON order per line, answers one per line

Both kinds raise `HubError` for what a hub refuses. A code means one of ours; without a code it is a bare exception,
which no user should ever see. `HubGone` means that the process of the hub has ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANSWER_SECONDS = 240.0


class HubError(Exception):
    """What a hub refused: the code, or none for a bare exception, and the whole text."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code or 'bare exception'}: {text}")
        self.code, self.text = code, text


class HubGone(Exception):
    """The process of the hub has ended, or ends now."""


class Driven(Protocol):
    """What a soak needs of a hub."""

    pid: int

    def sql(self, text: str) -> None: ...
    def addresses(self, stream: str) -> list[str]: ...
    def states(self) -> dict[str, str]: ...
    def problems(self) -> dict[str, str]: ...
    def memory(self, pipeline: str) -> list[int]: ...
    def close(self) -> None: ...


class LocalHub:
    """A hub in this process. Without `spark` it starts a session of its own when it needs one."""

    def __init__(self, state: Path, spark: SparkSession | None = None, master: str | None = None) -> None:
        import headrace

        self.pid = os.getpid()
        with _ours():
            self._hub = headrace.connect(state, spark, master=master)

    def sql(self, text: str) -> None:
        with _ours():
            self._hub.sql(text)

    def addresses(self, stream: str) -> list[str]:
        with _ours():
            return self._hub.streams[stream].addresses()

    def states(self) -> dict[str, str]:
        """The state of every pipeline, with its error if it failed."""
        with _ours():
            found = {name: pipeline.status() for name, pipeline in self._hub.pipelines.items()}
        return {name: s.state + (f": {s.error}" if s.error else "") for name, s in found.items()}

    def problems(self) -> dict[str, str]:
        """The problem of each stream, as its status shows it; empty if there is none."""
        with _ours():
            return {name: stream.status().problem for name, stream in self._hub.streams.items()}

    def memory(self, pipeline: str) -> list[int]:
        """The column `id` of what its memory sink holds."""
        with _ours():
            return [row["id"] for row in self._hub.pipelines[pipeline].results().to_pylist()]

    def close(self, drain: bool = True) -> None:
        with _ours():
            self._hub.close(drain)


class RemoteHub:
    """A hub in a process of its own, in a session of its own. `said` is where its standard error goes."""

    def __init__(self, state: Path, said: Path, master: str | None = None, env: dict[str, str] | None = None) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_FAULT")}
        self.said = said
        with open(said, "ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.soak.hubs", str(state), *([master] if master else [])],
                cwd=Path(__file__).parents[2],
                env={**clean, **(env or {})},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._lock = threading.Lock()
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._id = 0
        self._over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def opened(self) -> RemoteHub:
        """Wait until the hub is open. Raises what opening raised."""
        self._ask("opened")
        return self

    def sql(self, text: str) -> None:
        self._ask("sql", text)

    def addresses(self, stream: str) -> list[str]:
        found: list[str] = self._ask("addresses", stream)
        return found

    def states(self) -> dict[str, str]:
        found: dict[str, str] = self._ask("states")
        return found

    def problems(self) -> dict[str, str]:
        found: dict[str, str] = self._ask("problems")
        return found

    def memory(self, pipeline: str) -> list[int]:
        found: list[int] = self._ask("memory", pipeline)
        return found

    def close(self) -> None:
        """Close in order and end the process."""
        self._ask("close")
        self.wait()

    def signal(self, how: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, how)

    def wait(self, seconds: float = 120) -> int:
        """The exit code, when the process has ended; it is killed when that takes longer than `seconds`."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"the hub did not end within {seconds:g} s") from None
        self._reader.join()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        return code

    def _ask(self, do: str, *arguments: object) -> Any:
        assert self._process.stdin is not None
        with self._lock:
            self._id += 1
            mine = self._id
            answers = self._answers[mine] = queue.Queue()
            if self._over:
                raise HubGone
            try:
                self._process.stdin.write(json.dumps([mine, do, *arguments]) + "\n")
                self._process.stdin.flush()
            except (OSError, ValueError):
                raise HubGone from None
        try:
            answer = answers.get(timeout=ANSWER_SECONDS)
        except queue.Empty:
            raise AssertionError(f"the hub did not answer {do} {arguments} within {ANSWER_SECONDS:g} s") from None
        if "gone" in answer:
            raise HubGone
        if "error" in answer:
            raise HubError(*answer["error"])
        return answer["value"]

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                answer = json.loads(line)
                self._answers[answer["id"]].put(answer)
        with self._lock:
            self._over = True
            for waiting in self._answers.values():
                waiting.put({"gone": True})


@contextlib.contextmanager
def _ours() -> Iterator[None]:
    """Turns what a hub raises into HubError."""
    try:
        yield
    except HeadraceError as problem:
        raise HubError(problem.code, problem.render()) from problem
    except TimeoutError as problem:
        raise HubError("TIMEOUT", str(problem)) from problem
    except Exception as problem:
        raise HubError("", traceback.format_exc()) from problem


class _Server:
    """The other end of `RemoteHub`. Orders run beside each other: a statement may wait while the next one comes."""

    def __init__(self, state: Path, master: str | None) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # what Spark prints must not mix with answers
        self._lock = threading.Lock()
        self._hub: LocalHub | None = None
        self._problem: HubError | None = None
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        try:
            self._hub = LocalHub(state, master=master)
        except HubError as problem:
            self._problem = problem

    def run(self) -> None:
        try:
            for line in sys.stdin:
                order = json.loads(line)
                if order[1] == "close":
                    self._answer(order[0], self._close)
                    return
                threading.Thread(target=self._answer, args=(order[0], partial(self._do, *order[1:]))).start()
        finally:
            with contextlib.suppress(HubError):
                self._close()
            self._out.flush()
            os._exit(0)  # threads of orders that still wait must not keep it

    def _close(self) -> None:
        hub, self._hub = self._hub, None
        if hub is not None:
            hub.close()

    def _do(self, do: str, *arguments: str) -> object:
        if self._problem is not None:
            raise self._problem
        if self._hub is None:
            raise HubError("HUB_CLOSED", "the hub is closed")
        return None if do == "opened" else getattr(self._hub, do)(*arguments)

    def _answer(self, id: int, act: Callable[[], object]) -> None:
        answer: dict[str, object] = {"id": id}
        try:
            answer["value"] = act()
        except HubError as problem:
            answer["error"] = [problem.code, problem.text]
        with self._lock:
            self._out.write(json.dumps(answer) + "\n")
            self._out.flush()


def wait_for(fact: Callable[[], object], seconds: float, every: float = 0.1) -> bool:
    """True if `fact` became true in time."""
    deadline = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True


if __name__ == "__main__":
    _Server(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None).run()
