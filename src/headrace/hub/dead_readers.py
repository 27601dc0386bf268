"""Finds out whether a stream waits in vain for room: for a dead stream that is made of its pipelines' output."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.errors import StreamFailed
from headrace.hub.reconciler import Reconciler
from headrace.stream.dedicated_runtime import DedicatedRuntime
from headrace.stream.runtime import StreamRuntime


class DeadReaders:
    """The dead streams of one hub that others wait for. Any thread may call."""

    def __init__(self, reconciler: Reconciler) -> None:
        self._reconciler = reconciler

    def require_none(self, runtime: StreamRuntime) -> None:
        """Raise StreamFailed if a stream is paused and cannot go on until a dead stream is started."""
        dead = self._behind(runtime.paused_by)
        if dead is not None:
            raise StreamFailed(
                f"stream {runtime.stream.name} waits for room in stream {dead.stream.name}, which is dead: "
                f"{dead.problem}",
                advice=f"Nothing is lost. START a pipeline of stream {dead.stream.name}, or drop what reads it.",
                stream=runtime.stream.name,
                dead=dead.stream.name,
            )

    def stuck(self, runtime: DedicatedRuntime) -> bool:
        """True if a pipeline on the dedicated host waits in vain for room."""
        return runtime.waits_for_room and self._behind([runtime.pipeline.name]) is not None

    def _behind(self, pipelines: Iterable[str]) -> StreamRuntime | None:
        """A dead stream that is made of the output of these pipelines, or that such a stream waits for."""
        for name in pipelines:
            for stream in self._reconciler.catalog.fed_by(name):
                runtime = self._reconciler.runtime(stream.name)
                dead = runtime if runtime.state == "dead" else self._behind(runtime.paused_by)
                if dead is not None:
                    return dead
        return None
