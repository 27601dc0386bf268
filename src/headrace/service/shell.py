"""The prompt of `headrace sql`: reads statements and sends them to a hub, and keeps a history. The module
`completion` completes words.

A statement ends with a semicolon and may span lines. A line that begins with a backslash is a command of the prompt:
see `COMMANDS`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator

from prompt_toolkit import PromptSession
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from headrace.base.cache import cache_directory
from headrace.errors import HeadraceError, HubUnreachable
from headrace.service.completion import Target, Words
from headrace.service.printing import OutputFormat, printed
from headrace.sql import statement_ends

COMMANDS = {
    r"\d": (r"\d [NAME]", "list streams, views, sinks and pipelines, or describe one"),
    r"\s": (r"\s", "list streams"),
    r"\p": (r"\p", "list pipelines"),
    r"\e": (r"\e QUERY", "explain a query or a CREATE PIPELINE"),
    r"\t": (r"\t", "turn the time of statements on or off"),
    r"\?": (r"\?", "show this list"),
    r"\q": (r"\q", "quit; so does Ctrl-D"),
}


class Shell:
    """Runs statements on a target and prints their results. A statement that fails does not end the shell."""

    def __init__(
        self, target: Target, how: OutputFormat = "table", out: Callable[[str], None] = print, terminal: bool = False
    ) -> None:
        self._target, self._how, self._out, self._terminal = target, how, out, terminal
        self._timing = False
        self.failures = 0

    def run(self, lines: Iterable[str]) -> None:
        """Run the statements and commands in `lines`, until the last line or the command `\\q`."""
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
        """Run statements, and print their results or the error."""
        began = time.monotonic()
        try:
            results = self._target.sql(text)
            self._out(printed(results, self._how, self._terminal))
            if self._how == "csv":  # standard output is for the rows
                for warning in (w for result in results if result.table is not None for w in result.warnings):
                    print(f"warning: {warning}", file=sys.stderr)
        except HubUnreachable:
            raise
        except KeyboardInterrupt:  # of a SELECT that waits for rows; a hub in another process ends it by itself
            self.failures += 1
            print("interrupted", file=sys.stderr)
        except HeadraceError as problem:
            self.failures += 1
            print(problem.render(), file=sys.stderr)
        if self._timing:
            self._out(f"{time.monotonic() - began:.3f} s")

    def _command(self, line: str) -> bool:
        """Run a command of the prompt. Returns False if the shell should quit."""
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
                self.execute("SHOW STREAMS; SHOW VIEWS; SHOW SINKS; SHOW PIPELINES")
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
                self._out(rf"there is no command {name}; \? lists all commands")
        return True


def interactive(target: Target, how: OutputFormat) -> None:
    """Run the prompt until Ctrl-D or `\\q`. Ctrl-C discards what is typed."""
    words = Words(target)
    session: PromptSession[str] = PromptSession(
        history=_history(), completer=words, complete_while_typing=False, enable_history_search=True
    )
    shell = Shell(target, how, terminal=sys.stdout.isatty())
    shell.run(typed(session, words))


def typed(session: PromptSession[str], words: Words) -> Iterator[str]:
    """The statements and commands that the user types, until Ctrl-D. Ctrl-C discards an unfinished statement. `words`
    gets its earlier lines."""
    while True:
        try:
            line = session.prompt("headrace> " if not words.earlier else "     ...> ")
        except KeyboardInterrupt:
            words.earlier = ""
            continue
        except EOFError:
            return
        if not words.earlier and line.lstrip().startswith("\\"):
            yield line
            continue
        text = words.earlier + line + "\n"
        end = statement_ends(text)
        words.earlier = text[end:].lstrip()
        if end:
            yield text[:end]


def _history() -> History:
    try:
        path = cache_directory() / "sql_history"
        path.touch(mode=0o600, exist_ok=True)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
