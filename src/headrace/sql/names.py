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
    """The names that the statements of one script declare. It plans scripts without a hub, in benchmarks and tests."""

    streams: dict[str, StreamDef] = field(default_factory=dict)
    sinks: dict[str, SinkDef] = field(default_factory=dict)

    def add_stream(self, stream: StreamDef) -> None:
        """Declares or replaces a stream."""
        self.streams[stream.name.lower()] = stream

    def add_sink(self, sink: SinkDef) -> None:
        """Declares or replaces a sink."""
        self.sinks[sink.name.lower()] = sink

    def stream(self, name: str) -> StreamDef | None:
        return self.streams.get(name.lower())

    def sink(self, name: str) -> SinkDef | None:
        return self.sinks.get(name.lower())

    def stream_names(self) -> Sequence[str]:
        return sorted(s.name for s in self.streams.values())

    def sink_names(self) -> Sequence[str]:
        return sorted(s.name for s in self.sinks.values())
