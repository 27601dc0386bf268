"""Name lookup for the planner, and an implementation over the statements of one script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headrace.model.program import SinkDef, StreamDef


class Names(Protocol):
    """Looks up names, ignoring case. Planning does no I/O, so an implementation answers from memory."""

    def stream(self, name: str) -> StreamDef | None:
        """The stream of that name."""
        ...

    def sink(self, name: str) -> SinkDef | None:
        """The sink of that name."""
        ...

    def stream_names(self) -> Sequence[str]:
        """All streams, for "did you mean"."""
        ...

    def sink_names(self) -> Sequence[str]:
        """All sinks, for "did you mean"."""
        ...


@dataclass(slots=True)
class ScriptNames:
    """The names that the statements of a script have declared so far, on top of an optional `base` catalog."""

    base: Names | None = None
    streams: dict[str, StreamDef] = field(default_factory=dict)
    sinks: dict[str, SinkDef] = field(default_factory=dict)

    def add_stream(self, stream: StreamDef) -> None:
        """Declares or replaces a stream."""
        self.streams[stream.name.lower()] = stream

    def add_sink(self, sink: SinkDef) -> None:
        """Declares or replaces a sink."""
        self.sinks[sink.name.lower()] = sink

    def stream(self, name: str) -> StreamDef | None:
        found = self.streams.get(name.lower())
        return found if found is not None or self.base is None else self.base.stream(name)

    def sink(self, name: str) -> SinkDef | None:
        found = self.sinks.get(name.lower())
        return found if found is not None or self.base is None else self.base.sink(name)

    def stream_names(self) -> Sequence[str]:
        inherited = () if self.base is None else self.base.stream_names()
        return sorted({*inherited, *(s.name for s in self.streams.values())})

    def sink_names(self) -> Sequence[str]:
        inherited = () if self.base is None else self.base.sink_names()
        return sorted({*inherited, *(s.name for s in self.sinks.values())})
