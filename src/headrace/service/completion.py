"""Completion for the prompt of `headrace sql`: keywords, declared names, columns of streams, and fields of structs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Protocol

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from headrace.errors import HeadraceError, UnknownType
from headrace.hub.results import Result
from headrace.model.schema import STRING, Field, Struct, parse_type
from headrace.sql import CreateStream, parse_script, statement_ends

_KEYWORDS = """
ALTER AS BY CHANGES CLOSE CREATE DESCRIBE DROP EMIT EXISTS EXPLAIN FOR FROM GRACEFUL GROUP HAVING IF INTO KEEP NOT NOW
OF OR PIPELINE PIPELINES REPLACE SAVEPOINT SELECT SET SHOW SINK SINKS START STOP STREAM STREAMS VERBOSE VIEW VIEWS
WATERMARK WHERE WINDOWS WITH window session_window count sum avg min max
"""
KEYWORDS = tuple(_KEYWORDS.split())
# The last of these words before the cursor decides what is completed first: columns, or the names of objects.
_BEFORE_COLUMNS = frozenset({"SELECT", "WHERE", "BY", "HAVING"})
_BEFORE_NAMES = frozenset({"FROM", "INTO", "STREAM", "SINK", "PIPELINE", "VIEW", "DESCRIBE"})
_PATH = re.compile(r"((?:(?:\w+|`[^`]*`)\.)*)(\w*)$")
_FROM = re.compile(r"\bFROM\s+`?(\w+)`?(?:\s+(?:AS\s+)?`?(\w+))?", re.IGNORECASE)


class Target(Protocol):
    """A hub that runs statements: local, remote or offline."""

    def sql(self, text: str) -> list[Result]: ...


class Words(Completer):
    """Completes words of a statement. Asks the target for its declarations every five seconds at most. `earlier` holds
    the lines of the statement that were typed before the current one."""

    def __init__(self, target: Target, clock: Callable[[], float] = time.monotonic) -> None:
        self._target, self._clock = target, clock
        self.earlier = ""
        self._names: tuple[str, ...] = ()
        self._columns: dict[str, tuple[Field, ...]] = {}
        self._until = 0.0

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        before = self.earlier + document.text_before_cursor
        before = before[statement_ends(before) :]
        found = _PATH.search(before)
        assert found is not None  # both parts may be empty
        path, word = found[1], found[2]
        self._refresh()
        statement = before + document.text_after_cursor
        for text in dict.fromkeys(self._candidates(before[: found.start()], statement, path, word)):
            if text.lower().lstrip("`").startswith(word.lower()) and text != word:
                yield Completion(text, -len(word))

    def _candidates(self, before: str, statement: str, path: str, word: str) -> list[str]:
        if path:
            return [_quoted(f.name) for f in self._fields(statement, path)]
        columns = [_quoted(f.name) for f in self._fields(statement)]
        clause = _clause(before)
        if not word:  # nothing is typed yet: only what this place asks for
            return columns if clause in _BEFORE_COLUMNS else list(self._names) if clause in _BEFORE_NAMES else []
        first, second = (columns, self._names) if clause in _BEFORE_COLUMNS else (self._names, columns)
        return [*first, *second, *KEYWORDS]

    def _fields(self, statement: str, path: str = "") -> list[Field]:
        """The columns of the streams that the statement reads, or of all streams if it names none. With a `path` such
        as `place.`, the fields of that struct, or the columns of that stream or alias."""
        sources = {name.lower(): columns for name, columns in self._columns.items()}
        read: dict[str, tuple[Field, ...]] = {}
        for stream, alias in _FROM.findall(statement):
            if stream.lower() in sources:
                read |= dict.fromkeys((stream.lower(), alias.lower()), sources[stream.lower()])
        sources = read or sources
        parts = [part.strip("`").lower() for part in path.split(".")[:-1]]
        if parts and parts[0] in sources:
            return _inside(sources[parts[0]], parts[1:])
        return _inside((f for columns in sources.values() for f in columns), parts)

    def _refresh(self) -> None:
        """Fetch names and columns; none if the hub does not answer."""
        if self._clock() < self._until:
            return
        self._until = self._clock() + 5
        self._names, self._columns = (), {}
        try:
            shown = self._target.sql("SHOW STREAMS; SHOW VIEWS; SHOW SINKS; SHOW PIPELINES")
            names = [r.table.column("name").to_pylist() for r in shown if r.table is not None]
            self._names = tuple(_quoted(str(n)) for found in names for n in found)
            script = ";".join(f"SHOW CREATE STREAM {_quoted(str(n))}" for n in names[0])
            created = [s for r in (self._target.sql(script) if script else []) for s in parse_script(r.text)]
            self._columns = {s.name: s.schema.fields for s in created if isinstance(s, CreateStream)}
            self._columns |= self._of_views([str(n) for n in names[1]])
        except HeadraceError:
            return

    def _of_views(self, views: list[str]) -> dict[str, tuple[Field, ...]]:
        """The columns of views."""
        script = ";".join(f"DESCRIBE VIEW {_quoted(name)}" for name in views)
        described = self._target.sql(script) if script else []
        return {
            name: tuple(_field(row["value"]) for row in result.table.to_pylist() if row["fact"].startswith("column "))
            for name, result in zip(views, described, strict=True)
            if result.table is not None
        }


def _field(text: str) -> Field:
    """A column as DESCRIBE shows it: its name and its type. Both may have spaces."""
    for space in (i for i, character in enumerate(text) if character == " "):
        with suppress(UnknownType):
            return Field(text[:space], parse_type(text[space + 1 :]))
    return Field(text, STRING)


def _clause(before: str) -> str:
    """The last keyword that decides what comes next; empty if there is none."""
    words = [w.upper() for w in re.findall(r"\w+", before)]
    return next((w for w in reversed(words) if w in _BEFORE_COLUMNS | _BEFORE_NAMES), "")


def _inside(fields: Iterable[Field], path: list[str]) -> list[Field]:
    """The fields that `path` leads to, through structs; none if it leads nowhere."""
    found = list(fields)
    for part in path:
        types = [f.type for f in found if f.name.lower() == part]
        found = [f for kind in types if isinstance(kind, Struct) for f in kind.fields]
    return found


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else "`" + name.replace("`", "``") + "`"
