"""`headrace run`: apply a script, then wait for its end, for Ctrl-C, or for the last pipeline to fail."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import headrace
from headrace.checking import check_script
from headrace.hub import Hub
from headrace.interrupts import Interrupts
from headrace.logs import TOLD, LogFormat, Logs, facts, logging_to
from headrace.status import ALIVE, Waited
from headrace.view.lines import closing_line, pipelines_line, warning_lines

# How often a waiting run looks around: failures are told within this time; Ctrl-C is seen at once.
_PAUSE = 0.2
_log = logging.getLogger(__name__)
Tell = Callable[[str], None]


def run_script(
    text: str,
    *,
    until_end: bool,
    state_dir: Path,
    master: str | None,
    verbose: bool,
    stop_limit: float,
    log_format: LogFormat = "text",
) -> int:
    """Run `text` to its end or until Ctrl-C or SIGTERM; then epochs in flight have `stop_limit` seconds to finish.
    Returns the exit code: 0, or 1 when a pipeline failed on the way."""
    check_script(text, state_dir)  # all errors at once, before anything is made or started
    level = logging.INFO if verbose else logging.WARNING
    with Interrupts() as interrupts, logging_to(log_format, level, timed=False, told=TOLD) as logs:
        try:
            return _run(text, interrupts, logs, until_end, state_dir, master, verbose, stop_limit)
        except KeyboardInterrupt:  # Spark's own handler raises it while Spark starts
            print("ended while starting", file=sys.stderr)
            return 0


def teller(logs: Logs) -> Tell:
    """How the command tells its user something on standard error: as it is, or as a log line in JSON."""

    def tell(text: str) -> None:
        if logs.form == "json":
            _log.warning(text, extra=facts("told"))
        else:
            print(text, file=sys.stderr, flush=True)

    return tell


def _run(
    text: str,
    interrupts: Interrupts,
    logs: Logs,
    until_end: bool,
    state_dir: Path,
    master: str | None,
    verbose: bool,
    stop_limit: float,
) -> int:
    with headrace.connect(state_dir, master=master, verbose=verbose) as hub:
        logs.keep(hub.directory)
        interrupts.install()  # pipelines that go on have started Spark, which has taken SIGINT
        try:
            results = hub.sql(text)
        finally:
            interrupts.install()
        for result in results:
            print(result.render(), flush=True)
        for name, stream in hub.streams.items():
            for address in stream.addresses():
                print(f"stream {name} listens on {address}", flush=True)
        tell = teller(logs)
        failed = _Watch(hub, interrupts, tell if logs.form == "text" else _nothing).wait(until_end)
        hub.drain(stop_limit, lambda waited: report_wait(waited, tell))
        report_closing(hub, tell)
    return 1 if failed else 0


def _nothing(text: str) -> None:
    """Failures are in the log already."""


def report_closing(hub: Hub, tell: Tell) -> None:
    """The last words: what came in and out, what was lost, and what somebody should look at."""
    streams = [stream.status() for stream in hub.streams.values()]
    pipelines = [pipeline.status() for pipeline in hub.pipelines.values()]
    for stream in streams:
        if stream.epoch >= 0:
            tell(closing_line(stream))
    if pipelines:
        tell(pipelines_line(pipelines))
    for line in warning_lines(streams, pipelines):
        tell(line)


def report_wait(waited: Waited, tell: Tell) -> None:
    """What the shutdown waited for."""
    what = f"epoch {waited.epoch} of stream {waited.stream}"
    if waited.done:
        said = f"{what} is committed; waited {waited.seconds:.1f} s for it"
    else:
        said = f"{what} was still running after {waited.seconds:.1f} s and was given up; the next run repeats it"
    tell(said)


class _Watch:
    """Waits as `headrace run` promises, and tells of every failure once."""

    def __init__(self, hub: Hub, interrupts: Interrupts, tell: Tell) -> None:
        self._hub, self._asked, self._tell = hub, interrupts.asked, tell
        self._told: set[str] = set()
        self._detached: set[tuple[str, str]] = set()
        self._ill: dict[str, str] = {}
        self._died = False

    def wait(self, until_end: bool) -> bool:
        """Whether a pipeline or a stream failed. Raises StreamFailed when no stream is left that could go on."""
        end = _End(self._hub) if until_end else None
        while not self._asked.wait(_PAUSE):
            running = self._look()
            if end is not None and end.reached():
                break
            if not running:
                break
        self._look()
        return bool(self._told) or self._died

    def _look(self) -> bool:
        """Tell of new failures; whether any pipeline still runs."""
        statuses = [p.status() for p in self._hub.pipelines.values()]
        for status in statuses:
            if status.state == "failed" and status.name not in self._told:
                self._told.add(status.name)
                self._tell(f"pipeline {status.name} failed: {status.error}")
            for sink, reason in status.detached.items():
                if (status.name, sink) not in self._detached:
                    self._detached.add((status.name, sink))
                    self._tell(f"pipeline {status.name} goes on without sink {sink}: {reason}")
        wanted = sorted({s.stream for s in statuses if s.state in ALIVE})
        left = [name for name in wanted if not self._dead(name)]
        if wanted and not left:
            self._hub.runtime(wanted[0]).raise_failure()
        return bool(left)

    def _dead(self, stream: str) -> bool:
        """Tell when a stream's query is started again, runs again, or is dead; whether it is dead."""
        runtime = self._hub.runtime(stream)
        state, problem, retrying = runtime.state, runtime.problem, runtime.keeper.retrying
        attempt = 0 if retrying is None else retrying.attempt
        known, self._ill[stream] = self._ill.get(stream, ""), f"{state} {attempt}"
        said = ""
        if state == "retrying" and self._ill[stream] != known:
            said = f"stream {stream} failed and is started again (attempt {attempt}): {problem}"
        elif state == "running" and known.startswith("retrying"):
            said = f"stream {stream} runs again"
        elif state == "dead" and self._ill[stream] != known:
            self._died = True
            said = f"stream {stream} is dead: {problem}"
        if said:
            self._tell(said)
        return state == "dead"


class _End:
    """`hub.wait_until_end` beside the main thread, which stays free for signals."""

    def __init__(self, hub: Hub) -> None:
        self._problem: BaseException | None = None
        self._hub = hub
        self._thread = threading.Thread(target=self._run, name="headrace-until-end", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._hub.wait_until_end()
        except BaseException as problem:
            self._problem = problem

    def reached(self) -> bool:
        """Whether the end was reached. Raises what went wrong on the way."""
        if self._thread.is_alive():
            return False
        if self._problem is not None:
            raise self._problem
        return True
