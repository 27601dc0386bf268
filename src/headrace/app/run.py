"""`headrace run`: apply a script, then wait until all input is read, Ctrl-C is pressed, or the last pipeline fails."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import headrace
from headrace.app.check import check_script
from headrace.app.interrupts import Interrupts
from headrace.app.view.lines import closing_line, pipelines_line, warning_lines
from headrace.base.logs import PRINTED_BY_RUN, LogFormat, LogOutput, facts, logging_to
from headrace.hub.hub import Hub
from headrace.model.status import ALIVE, Waited

# Seconds between two looks at the statuses: a failure is printed within this time. Ctrl-C is handled at once.
_PAUSE = 0.2
_log = logging.getLogger(__name__)
Say = Callable[[str], None]


def run_script(
    text: str,
    *,
    until_end: bool,
    state_dir: Path,
    master: str | None,
    verbose: bool,
    stop_limit: float,
    log_format: LogFormat = "text",
    time_zone: str | None = None,
) -> int:
    """Run `text` until Ctrl-C or SIGTERM, or with `until_end` until all input is read. Running epochs then have
    `stop_limit` seconds to finish. Returns the exit code: 0, or 1 if a pipeline failed meanwhile."""
    check_script(text, state_dir, time_zone)  # reports all errors at once, before anything is created or started
    level = logging.INFO if verbose else logging.WARNING
    with Interrupts() as interrupts, logging_to(log_format, level, timed=False, hidden=PRINTED_BY_RUN) as logs:
        try:
            with headrace.connect(state_dir, master=master, verbose=verbose, time_zone=time_zone) as hub:
                logs.keep(hub.directory)
                apply_script(hub, text, interrupts)
                _print_addresses(hub)
                say = message_printer(logs)
                # As JSON, the log has a line for every failure already.
                failed = _Watch(hub, interrupts, say if logs.form == "text" else _discard).wait(until_end)
                hub.drain(stop_limit, lambda waited: report_wait(waited, say))
                report_closing(hub, say)
            return 1 if failed else 0
        except KeyboardInterrupt:  # Spark's own handler raises it while Spark starts
            print("ended while starting", file=sys.stderr)
            return 0


def message_printer(logs: LogOutput) -> Say:
    """A function that prints a message to the user on standard error: as plain text, or as a log line in JSON."""

    def say(text: str) -> None:
        if logs.form == "json":
            _log.warning(text, extra=facts("report"))
        else:
            print(text, file=sys.stderr, flush=True)

    return say


def apply_script(hub: Hub, text: str, interrupts: Interrupts) -> None:
    """Run the statements of `text` and print their results."""
    # Spark installs its own SIGINT handler when it starts. Opening the hub starts it if pipelines were running when the
    # hub was last closed, and a statement may start it too.
    interrupts.install()
    try:
        results = hub.sql(text)
    finally:
        interrupts.install()
    for result in results:
        print(result.render(), flush=True)


def _print_addresses(hub: Hub) -> None:
    for name, stream in hub.streams.items():
        for address in stream.addresses():
            print(f"stream {name} listens on {address}", flush=True)


def _discard(text: str) -> None:
    """Print nothing."""


def report_closing(hub: Hub, say: Say) -> None:
    """Print the totals of all streams and pipelines, and their warnings."""
    streams = [stream.status() for stream in hub.streams.values()]
    pipelines = [pipeline.status() for pipeline in hub.pipelines.values()]
    for stream in streams:
        if stream.epoch >= 0:
            say(closing_line(stream))
    if pipelines:
        say(pipelines_line(pipelines))
    for line in warning_lines(streams, pipelines):
        say(line)


def report_wait(waited: Waited, say: Say) -> None:
    """Print which epoch the shutdown waited for, and for how long."""
    what = f"epoch {waited.epoch} of stream {waited.stream}"
    if waited.done:
        say(f"{what} is committed; waited {waited.seconds:.1f} s for it")
    else:
        say(f"{what} was still running after {waited.seconds:.1f} s and was aborted; the next run repeats it")


class _Watch:
    """Waits for the end of a run, and prints every failure once."""

    def __init__(self, hub: Hub, interrupts: Interrupts, say: Say) -> None:
        self._hub, self._asked, self._say = hub, interrupts.asked, say
        self._failed: set[str] = set()
        self._detached: set[tuple[str, str]] = set()
        # Stream -> the state and attempt that were last printed.
        self._seen: dict[str, str] = {}
        self._died = False

    def wait(self, until_end: bool) -> bool:
        """Wait. Returns True if a pipeline or a stream failed. Raises StreamFailed if all streams are dead."""
        end = _End(self._hub) if until_end else None
        while not self._asked.wait(_PAUSE):
            running = self._look()
            if end is not None and end.reached():
                break
            if not running:
                break
        self._look()
        return bool(self._failed) or self._died

    def _look(self) -> bool:
        """Print new failures. Returns True while a pipeline runs."""
        statuses = [p.status() for p in self._hub.pipelines.values()]
        for status in statuses:
            if status.state == "failed" and status.name not in self._failed:
                self._failed.add(status.name)
                self._say(f"pipeline {status.name} failed: {status.error}")
            for sink, reason in status.detached.items():
                if (status.name, sink) not in self._detached:
                    self._detached.add((status.name, sink))
                    self._say(f"pipeline {status.name} continues without sink {sink}: {reason}")
        wanted = sorted({s.stream for s in statuses if s.state in ALIVE})
        left = [name for name in wanted if not self._dead(name)]
        if wanted and not left:
            self._hub.runtime(wanted[0]).raise_failure()
        return bool(left)

    def _dead(self, stream: str) -> bool:
        """Print that a stream's query is restarted, runs again, or is dead. Returns True if it is dead."""
        runtime = self._hub.runtime(stream)
        state, problem, retrying = runtime.state, runtime.problem, runtime.retrying
        attempt = 0 if retrying is None else retrying.attempt
        before, self._seen[stream] = self._seen.get(stream, ""), f"{state} {attempt}"
        if state == "retrying" and self._seen[stream] != before:
            self._say(f"stream {stream} failed and is started again (attempt {attempt}): {problem}")
        elif state == "running" and before.startswith("retrying"):
            self._say(f"stream {stream} runs again")
        elif state == "dead" and self._seen[stream] != before:
            self._died = True
            self._say(f"stream {stream} is dead: {problem}")
        return state == "dead"


class _End:
    """Runs `hub.wait_until_end` in its own thread, so that the main thread can handle signals."""

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
        """True if all input is read. Raises the error that ended the wait."""
        if self._thread.is_alive():
            return False
        if self._problem is not None:
            raise self._problem
        return True
