"""`headrace run`: apply a script, then wait until all input is read, Ctrl-C is pressed, or the last pipeline fails."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import headrace
from headrace.app.attending import attended
from headrace.app.check import CheckedScript, check_script
from headrace.app.interrupts import STOPPING, Interrupts
from headrace.app.view.displays import LIVE_SECONDS, Display, LiveDisplay, Say, choose_display, phases_to
from headrace.app.view.input_progress import InputProgress
from headrace.app.view.lines import closing_line, pipelines_line
from headrace.base.logs import PRINTED_BY_RUN, SHOWN_BY_VIEW, LogFormat, LogOutput, facts, logging_to
from headrace.hub.hub import Hub
from headrace.hub.questions import QUESTIONS
from headrace.hub.results import Result
from headrace.model.spark_options import SparkOptions
from headrace.model.status import ALIVE, Waited
from headrace.sql import CreateDerivedStream, CreatePipeline, CreateSink, CreateStream
from headrace.state.catalog import Catalog

# Seconds between two checks of the statuses: a failure is printed within this time. Ctrl-C is handled at once.
_PAUSE = 0.2
_WHILE_STARTING = "stopping as soon as the start is done; Ctrl-C again to quit at once"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The options of `headrace run`."""

    state_dir: Path = Path(".headrace")
    until_end: bool = False
    stop_limit: float = 60.0
    spark: SparkOptions = field(default_factory=SparkOptions)
    time_zone: str | None = None
    log_format: LogFormat = "text"
    quiet: bool = False


def run_script(text: str, settings: RunSettings) -> int:
    """Run `text` until Ctrl-C or SIGTERM, or with `until_end` until all input is read. Running epochs then have
    `stop_limit` seconds to finish. Returns the exit code: 0, or 1 if a pipeline failed meanwhile."""
    # Reports all errors at once, before anything is created or started.
    checked = check_script(text, settings.state_dir, settings.time_zone)
    level = logging.INFO if settings.spark.verbose else logging.WARNING
    with (
        Interrupts(_WHILE_STARTING) as interrupts,
        logging_to(settings.log_format, level, timed=False, hidden=PRINTED_BY_RUN) as logs,
    ):
        say = message_printer(logs)
        display = choose_display(
            quiet=settings.quiet,
            as_json=logs.form == "json",
            prints_rows=checked.prints_rows or settings.spark.verbose,
            say=say,
        )
        if isinstance(display, LiveDisplay):
            logs.hidden |= SHOWN_BY_VIEW
        with display, phases_to(display):
            run = _ScriptRun(
                text=text, checked=checked, settings=settings, logs=logs, display=display, interrupts=interrupts
            )
            failed = run.run()
        for line in run.closing:
            say(line)
    return 1 if failed else 0


class _ScriptRun:
    """One run of a script: start, watch, stop. Slow calls run in another thread (`headrace.app.attending`)."""

    def __init__(
        self,
        text: str,
        checked: CheckedScript,
        settings: RunSettings,
        logs: LogOutput,
        display: Display,
        interrupts: Interrupts,
    ) -> None:
        self._text, self._checked, self._settings = text, checked, settings
        self._logs, self._display, self._interrupts = logs, display, interrupts
        self._acknowledged = False
        self.closing: list[str] = []  # the totals, for the end
        # A raw write would disturb the live view.
        interrupts.prints = not isinstance(display, LiveDisplay)

    def run(self) -> bool:
        """Returns True if a pipeline or a stream failed."""
        settings, display = self._settings, self._display
        hub = attended(self._open, self._tick)
        failed = False
        try:
            self._logs.keep(hub.directory)
            if self._interrupts.asked.is_set():
                display.say("ended while starting")
                return False
            results = attended(lambda: hub.sql(self._text), self._tick)
            self._print(results)
            self._introduce(hub)
            self._interrupts.message = STOPPING
            # As JSON, the log has a line for every failure already.
            tell = display.say if self._logs.form == "text" else _discard
            failed = _Watch(hub, self._interrupts, tell, self._show).wait(settings.until_end)
            self._acknowledge()
            attended(
                lambda: hub.drain(settings.stop_limit, lambda waited: report_wait(waited, display.say)), self._tick
            )
            self._show(hub, note="")  # the streams have stopped only now
            self.closing = closing_lines(hub, self._logs.warned)
        finally:
            attended(hub.close, self._tick)
        return failed

    def _open(self) -> Hub:
        spark = self._settings.spark
        return headrace.connect(
            self._settings.state_dir,
            master=spark.master,
            conf=spark.conf,
            packages=spark.packages,
            ui=spark.ui,
            verbose=spark.verbose,
            time_zone=self._settings.time_zone,
        )

    def _tick(self) -> None:
        self._acknowledge()
        self._display.tick()

    def _acknowledge(self) -> None:
        """Show once that Ctrl-C was seen, unless the signal handler prints it."""
        if self._interrupts.asked.is_set() and not self._acknowledged and not self._interrupts.prints:
            self._acknowledged = True
            self._display.say(self._interrupts.message)

    def _print(self, results: list[Result]) -> None:
        for statement, result in zip(self._checked.statements, results, strict=True):
            if not self._settings.quiet or isinstance(statement, QUESTIONS) or result.warnings:
                print(result.render(), flush=True)

    def _introduce(self, hub: Hub) -> None:
        if self._settings.quiet:
            return
        for name, stream in hub.streams.items():
            for address in stream.addresses():
                print(f"stream {name} listens on {address}", flush=True)
        for line in not_in_script(hub.catalog, self._checked):
            self._display.say(line)

    def _show(self, hub: Hub, note: str | None = None) -> None:
        streams = [hub.runtime(name).last_status() for name in hub.streams]
        pipelines = [pipeline.status() for pipeline in hub.pipelines.values()]
        until_end = self._settings.until_end
        if note is None:
            note = "stops when all input is read; Ctrl-C stops it earlier" if until_end else "Ctrl-C stops"
        self._display.update(streams, pipelines, note, InputProgress.of(streams) if until_end else None)


def not_in_script(catalog: Catalog, checked: CheckedScript) -> list[str]:
    """Lines about what the state directory holds and the script does not name. Empty if there is nothing."""
    named = {kind: set[str]() for kind in ("stream", "sink", "pipeline")}
    for statement in checked.statements:
        if isinstance(statement, CreateStream | CreateDerivedStream | CreateSink | CreatePipeline):
            kind = type(statement).__name__.removeprefix("Create").removeprefix("Derived").lower()
            named[kind].add(statement.name.lower())
        if isinstance(statement, CreatePipeline):
            named["stream"] |= {outlet.name.lower() for outlet in statement.streams}
    lines = []
    for record in catalog.pipelines.values():
        if record.definition.name.lower() not in named["pipeline"]:
            lines.append(f"pipeline {record.definition.name} is {record.state}: declared earlier, not by this script")
    for kind, known in (("stream", catalog.streams.values()), ("sink", catalog.sinks.values())):
        others = [item.name for item in known if item.name.lower() not in named[kind]]
        lines += [f"{kind} {name} is declared earlier, not by this script" for name in others]
    if lines:
        lines.append("(DROP removes them; another --state-dir starts without them)")
    return lines


def message_printer(logs: LogOutput) -> Say:
    """A function that prints a message to the user on standard error: as plain text, or as a log line in JSON."""

    def say(text: str) -> None:
        if logs.form == "json":
            _log.warning(text, extra=facts("report"))
        else:
            print(text, file=sys.stderr, flush=True)

    return say


def _discard(text: str) -> None:
    """Print nothing."""


def closing_lines(hub: Hub, warned: Collection[str] = ()) -> list[str]:
    """The totals of all streams and pipelines, and the files that were left out after the last epoch. The warnings in
    `warned`, and those about bad rows, were printed when they became true."""
    streams = [stream.status() for stream in hub.streams.values()]
    pipelines = [pipeline.status() for pipeline in hub.pipelines.values()]
    lines = [closing_line(stream) for stream in streams if stream.epoch >= 0]
    files = [f"WARNING: {text}" for stream in streams for text in stream.left_out if text not in warned]
    return [*lines, *([pipelines_line(pipelines)] if pipelines else []), *files]


def report_wait(waited: Waited, say: Say) -> None:
    """Print which epoch the shutdown waited for, and for how long."""
    what = f"epoch {waited.epoch} of stream {waited.stream}"
    if waited.done:
        say(f"{what} is committed; waited {waited.seconds:.1f} s for it")
    else:
        say(f"{what} was still running after {waited.seconds:.1f} s and was aborted; the next run repeats it")


class _Watch:
    """Waits for the end of a run, and prints every failure once."""

    def __init__(
        self, hub: Hub, interrupts: Interrupts, say: Say, show: Callable[[Hub], None] = lambda hub: None
    ) -> None:
        self._hub, self._asked, self._say, self._show = hub, interrupts.asked, say, show
        self._failed: set[str] = set()
        self._detached: set[tuple[str, str]] = set()
        # Stream -> the state and attempt that were last printed.
        self._seen: dict[str, str] = {}
        self._died = False

    def wait(self, until_end: bool) -> bool:
        """Wait. Returns True if a pipeline or a stream failed. Raises StreamFailed if all streams are dead."""
        end = _End(self._hub) if until_end else None
        drawn = 0.0
        while not self._asked.wait(_PAUSE):
            running = self._look()
            if time.monotonic() - drawn >= LIVE_SECONDS:
                drawn = time.monotonic()
                self._show(self._hub)
            if end is not None and end.reached():
                break
            if not running:
                break
        self._look()
        self._show(self._hub)
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
