"""`headrace sql`: statements typed at a prompt and sent to a hub. Words are completed, history is kept.

A statement ends with a semicolon and may span lines. Lines that begin with a backslash are short commands (`COMMANDS`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from headrace.cache import cache_directory
from headrace.errors import HeadraceError, HubUnreachable
from headrace.results import Result
from headrace.service.printing import Format, printed
from headrace.sql import statement_ends

_KEYWORDS = """
AS BY CHANGES CLOSE CREATE DESCRIBE DROP EMIT EXISTS EXPLAIN FOR FROM GRACEFUL GROUP HAVING IF INTO KEEP NOT NOW OF OR
PIPELINE PIPELINES REPLACE SAVEPOINT SELECT SHOW SINK SINKS START STOP STREAM STREAMS VERBOSE WATERMARK WHERE WINDOWS
WITH window session_window count sum avg min max
"""
KEYWORDS = tuple(_KEYWORDS.split())
COMMANDS = {
    r"\d": (r"\d [NAME]", "list streams, sinks and pipelines, or describe one"),
    r"\s": (r"\s", "list streams"),
    r"\p": (r"\p", "list pipelines"),
    r"\e": (r"\e QUERY", "explain a query or a CREATE PIPELINE"),
    r"\t": (r"\t", "show how long statements take, or not"),
    r"\?": (r"\?", "this list"),
    r"\q": (r"\q", "leave; so does Ctrl-D"),
}


class Target(Protocol):
    """What statements are sent to."""

    def sql(self, text: str) -> list[Result]: ...


class Words(Completer):
    """Completes keywords and the names that are declared. Names are fetched at most every few seconds."""

    def __init__(self, target: Target, clock: Callable[[], float] = time.monotonic) -> None:
        self._target, self._clock = target, clock
        self._names: tuple[str, ...] = ()
        self._until = 0.0

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        word = document.get_word_before_cursor(WORD=False)
        if not word:
            return
        for candidate in (*self.names(), *KEYWORDS):
            if candidate.lower().startswith(word.lower()) and candidate != word:
                yield Completion(candidate, -len(word))

    def names(self) -> tuple[str, ...]:
        """The declared names; none when the hub cannot be asked."""
        if self._clock() >= self._until:
            self._until = self._clock() + 5
            try:
                tables = [r.table for r in self._target.sql("SHOW STREAMS; SHOW SINKS; SHOW PIPELINES")]
            except HeadraceError:
                tables = []
            self._names = tuple(str(n) for t in tables if t is not None for n in t.column("name").to_pylist())
        return self._names


class Shell:
    """Runs statements on a target and prints what comes back. Errors of statements do not end it."""

    def __init__(
        self, target: Target, how: Format = "table", out: Callable[[str], None] = print, terminal: bool = False
    ) -> None:
        self._target, self._how, self._out, self._terminal = target, how, out, terminal
        self._timing = False
        self.failures = 0

    def run(self, lines: Iterable[str]) -> None:
        """Take lines until they end or one says to leave."""
        pending = ""
        for line in lines:
            if not pending.strip() and line.strip().startswith("\\"):
                if not self._command(line.strip()):
                    return
                continue
            pending += line + "\n"
            end = statement_ends(pending)
            if end:
                self.execute(pending[:end])
                pending = pending[end:].lstrip()
        if pending.strip():
            self.execute(pending)

    def execute(self, text: str) -> None:
        """Run statements, and print results or the error."""
        began = time.monotonic()
        try:
            self._out(printed(self._target.sql(text), self._how, self._terminal))
        except HubUnreachable:
            raise
        except HeadraceError as problem:
            self.failures += 1
            print(problem.render(), file=sys.stderr)
        if self._timing:
            self._out(f"{time.monotonic() - began:.3f} s")

    def _command(self, line: str) -> bool:
        """Run a short command; False to leave."""
        name, _, rest = line.partition(" ")
        rest = rest.strip().rstrip(";")
        match name:
            case r"\q":
                return False
            case r"\?":
                self._out("\n".join(f"{usage:<12} {text}" for usage, text in COMMANDS.values()))
            case r"\d" if rest:
                self.execute(f"DESCRIBE {rest}")
            case r"\d":
                self.execute("SHOW STREAMS; SHOW SINKS; SHOW PIPELINES")
            case r"\s":
                self.execute("SHOW STREAMS")
            case r"\p":
                self.execute("SHOW PIPELINES")
            case r"\e":
                self.execute(f"EXPLAIN {rest}")
            case r"\t":
                self._timing = not self._timing
                self._out(f"timing is {'on' if self._timing else 'off'}")
            case _:
                self._out(rf"there is no command {name}; \? lists them")
        return True


def interactive(target: Target, how: Format) -> None:
    """The prompt, until Ctrl-D or `\\q`. Ctrl-C clears the line."""
    session: PromptSession[str] = PromptSession(
        history=_history(), completer=Words(target), complete_while_typing=False, enable_history_search=True
    )
    shell = Shell(target, how, terminal=sys.stdout.isatty())
    shell.run(_typed(session))


def _typed(session: PromptSession[str]) -> Iterator[str]:
    pending = ""
    while True:
        try:
            line = session.prompt("headrace> " if not pending else "     ...> ")
        except KeyboardInterrupt:
            pending = ""
            continue
        except EOFError:
            return
        pending = "" if statement_ends(pending + line) or line.startswith("\\") else pending + line + "\n"
        yield line


def _history() -> History:
    try:
        path = cache_directory() / "sql_history"
        path.touch(mode=0o600, exist_ok=True)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
