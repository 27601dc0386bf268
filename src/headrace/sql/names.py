"""Name lookup for the planner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headrace.model.definitions import SinkDef, StreamDef, ViewDef


class Names(Protocol):
    """Looks up names, ignoring case. Planning does no I/O, so an implementation answers from memory."""

    def stream(self, name: str) -> StreamDef | None:
        """The stream of that name."""
        ...

    def sink(self, name: str) -> SinkDef | None:
        """The sink of that name."""
        ...

    def view(self, name: str) -> ViewDef | None:
        """The view of that name."""
        ...

    def stream_names(self) -> Sequence[str]:
        """All streams, for "did you mean"."""
        ...

    def sink_names(self) -> Sequence[str]:
        """All sinks, for "did you mean"."""
        ...

    def view_names(self) -> Sequence[str]:
        """All views, for "did you mean"."""
        ...
