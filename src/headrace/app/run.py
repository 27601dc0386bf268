"""`headrace run`: apply a script, then wait for its end, for Ctrl-C, or for the last pipeline to fail."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import headrace
from headrace.app.check import check_script
from headrace.app.interrupts import Interrupts
from headrace.app.view.lines import closing_line, pipelines_line, warning_lines
from headrace.hub.hub import Hub
from headrace.model.status import ALIVE, Waited

# How often a waiting run looks around: failures are told within this time; Ctrl-C is seen at once.
_PAUSE = 0.2


def run_script(
    text: str, *, until_end: bool, state_dir: Path, master: str | None, verbose: bool, stop_limit: float
) -> int:
    """Run `text` to its end or until Ctrl-C or SIGTERM; then epochs in flight have `stop_limit` seconds to finish.
    Returns the exit code: 0, or 1 when a pipeline failed on the way."""
    check_script(text, state_dir)  # all errors at once, before anything is made or started
    with Interrupts() as interrupts, logged(verbose):
        try:
            return _run(text, interrupts, until_end, state_dir, master, verbose, stop_limit)
        except KeyboardInterrupt:  # Spark's own handler raises it while Spark starts
            print("ended while starting", file=sys.stderr)
            return 0


@contextmanager
def logged(verbose: bool) -> Iterator[None]:
    """Show what headrace logs on standard error: warnings, and with `verbose` a line per epoch."""
    handler, logger = logging.StreamHandler(), logging.getLogger("headrace")
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if verbose else logging.WARNING)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


def _run(
    text: str,
    interrupts: Interrupts,
    until_end: bool,
    state_dir: Path,
    master: str | None,
    verbose: bool,
    stop_limit: float,
) -> int:
    with headrace.connect(state_dir, master=master, verbose=verbose) as hub:
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
        failed = _Watch(hub, interrupts).wait(until_end)
        hub.drain(stop_limit, report_wait)
        report_closing(hub)
    return 1 if failed else 0


def report_closing(hub: Hub) -> None:
    """The last words: what came in and out, what was lost, and what somebody should look at."""
    streams = [stream.status() for stream in hub.streams.values()]
    pipelines = [pipeline.status() for pipeline in hub.pipelines.values()]
    for stream in streams:
        if stream.epoch >= 0:
            print(closing_line(stream), file=sys.stderr)
    if pipelines:
        print(pipelines_line(pipelines), file=sys.stderr)
    for line in warning_lines(streams, pipelines):
        print(line, file=sys.stderr)
    sys.stderr.flush()


def report_wait(waited: Waited) -> None:
    """What the shutdown waited for."""
    what = f"epoch {waited.epoch} of stream {waited.stream}"
    if waited.done:
        said = f"{what} is committed; waited {waited.seconds:.1f} s for it"
    else:
        said = f"{what} was still running after {waited.seconds:.1f} s and was given up; the next run repeats it"
    print(said, file=sys.stderr, flush=True)


class _Watch:
    """Waits as `headrace run` promises, and tells of every failure once."""

    def __init__(self, hub: Hub, interrupts: Interrupts) -> None:
        self._hub, self._asked = hub, interrupts.asked
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
                print(f"pipeline {status.name} failed: {status.error}", file=sys.stderr, flush=True)
            for sink, reason in status.detached.items():
                if (status.name, sink) not in self._detached:
                    self._detached.add((status.name, sink))
                    print(f"pipeline {status.name} goes on without sink {sink}: {reason}", file=sys.stderr, flush=True)
        wanted = sorted({s.stream for s in statuses if s.state in ALIVE})
        left = [name for name in wanted if not self._dead(name)]
        if wanted and not left:
            self._hub.runtime(wanted[0]).raise_failure()
        return bool(left)

    def _dead(self, stream: str) -> bool:
        """Tell when a stream's query is started again, runs again, or is dead; whether it is dead."""
        runtime = self._hub.runtime(stream)
        state, problem, retrying = runtime.state, runtime.problem, runtime.retrying
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
            print(said, file=sys.stderr, flush=True)
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
