"""What `headrace run` shows while it runs: a live view in a terminal, plain lines in a log or pipe, or only failures.

All of it goes to standard error; standard output has the answers of statements and the rows of console sinks. The main
thread calls `update`, other threads may call `phase` and `say`.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from headrace.app.view.input_progress import InputProgress
from headrace.app.view.lines import count_lines
from headrace.app.view.live import draw
from headrace.model.status import PipelineStatus, StreamStatus

Say = Callable[[str], None]
# Seconds between the status lines of a run whose output is not a terminal.
LINE_SECONDS = 10.0
# Seconds between redraws: often enough to look live, and nearly free.
LIVE_SECONDS = 0.25


class Display(Protocol):
    """Shows a run to a person. Use it as a context manager."""

    def phase(self, text: str) -> None:
        """Show what the start is doing now."""
        ...

    def say(self, text: str) -> None:
        """Show a message that stays."""
        ...

    def update(
        self,
        streams: Sequence[StreamStatus],
        pipelines: Sequence[PipelineStatus],
        note: str,
        progress: InputProgress | None,
    ) -> None:
        """Show the current status."""
        ...

    def tick(self) -> None:
        """Show that time passes. Called a few times a second before the first `update`."""
        ...

    def __enter__(self) -> Display: ...

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class SilentDisplay:
    """Shows messages only. `say` prints them or logs them."""

    def __init__(self, say: Say) -> None:
        self.say = say

    def phase(self, text: str) -> None:
        """Nothing to show."""

    def update(
        self,
        streams: Sequence[StreamStatus],
        pipelines: Sequence[PipelineStatus],
        note: str,
        progress: InputProgress | None,
    ) -> None:
        """Nothing to show."""

    def tick(self) -> None:
        """Nothing to show."""

    def __enter__(self) -> SilentDisplay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is open."""


class LineDisplay(SilentDisplay):
    """Prints a line per phase, and the counts every ten seconds if they changed. Warnings come from the log, once."""

    def __init__(self, say: Say, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(say)
        self._clock, self._next = clock, clock() + LINE_SECONDS
        self._shown: tuple[int, ...] = ()
        self._ended = True  # the progress that was printed last is that of the end

    def phase(self, text: str) -> None:
        self.say(f"{text} ...")

    def update(
        self,
        streams: Sequence[StreamStatus],
        pipelines: Sequence[PipelineStatus],
        note: str,
        progress: InputProgress | None,
    ) -> None:
        if progress is not None and progress.ended and not self._ended:
            self._ended = True
            self.say(f"  {progress.words()}")
        now, seen = self._clock(), tuple(stream.epoch for stream in streams)
        if now < self._next or seen == self._shown:
            return
        self._next, self._shown = now + LINE_SECONDS, seen
        for line in count_lines(streams, pipelines):
            self.say(line)
        if progress is not None and progress.known and not progress.ended:
            self._ended = False
            self.say(f"  {progress.words()}")


class LiveDisplay:
    """Redraws the status in place. Messages and everything else that is printed appear above it."""

    def __init__(self, console: Console | None = None) -> None:
        # Spark's start points descriptor 2 at a file for some seconds. The view continues.
        self._own = None if console is not None else os.fdopen(os.dup(2), "w", encoding="utf-8")
        self._console = console or Console(file=self._own)
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._phase: str | None = "opening the state directory"
        self._spinner = Spinner("dots")
        self._shown: RenderableType = Text("")
        # A terminal shows standard output too, so lines printed there must go above the view. A file must get them.
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            redirect_stdout=sys.stdout.isatty(),
            get_renderable=self._render,
        )

    def phase(self, text: str) -> None:
        with self._lock:
            self._phase = text

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def tick(self) -> None:
        self._live.refresh()

    def update(
        self,
        streams: Sequence[StreamStatus],
        pipelines: Sequence[PipelineStatus],
        note: str,
        progress: InputProgress | None,
    ) -> None:
        shown = draw(streams, pipelines, note)
        bar = [progress.draw()] if progress is not None and progress.known else []
        with self._lock:
            self._phase, self._shown = None, Group(shown, *bar)
        self._live.refresh()

    def _render(self) -> RenderableType:
        with self._lock:
            if self._phase is None:
                return self._shown
            seconds = time.monotonic() - self._began
            self._spinner.update(text=Text(f"{self._phase} ... ({seconds:.0f} s)"))
            return self._spinner

    def __enter__(self) -> LiveDisplay:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.transient = self._phase is not None  # only a status is worth keeping
        self._live.stop()
        if self._own is not None:
            self._own.close()


def choose_display(*, quiet: bool, as_json: bool, prints_rows: bool, say: Say) -> Display:
    """The display for this process's output. A script with a console sink gets lines: its rows are written to the
    terminal by another thread, and a live view would be drawn over them."""
    if quiet or as_json:
        return SilentDisplay(say)
    if sys.stderr.isatty() and not prints_rows:
        return LiveDisplay()
    return LineDisplay(say)


class _PhaseHandler(logging.Handler):
    def __init__(self, display: Display) -> None:
        super().__init__(logging.INFO)
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        event = getattr(record, "facts", {}).get("event")
        if event == "phase":
            self._display.phase(record.getMessage())
        elif event == "spark_ui":
            self._display.say(record.getMessage())


@contextmanager
def phases_to(display: Display) -> Iterator[None]:
    """Show what the hub logs about its start."""
    logger, handler = logging.getLogger("headrace"), _PhaseHandler(display)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if before == logging.NOTSET else min(before, logging.INFO))
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
