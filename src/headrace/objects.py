"""Streams and pipelines as Python objects: thin handles on a hub, cheap to make, always up to date."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.control.signals import FLUSH, PING, SYNC_TEST
from headrace.errors import HeadraceError, PipelineFailed, UnknownSink
from headrace.ring0.validity import policy_of
from headrace.status import ALIVE, PipelineStatus, StreamStatus, StreamTotals
from headrace.streams.progress import PipelineProgress, Progress

if TYPE_CHECKING:
    from headrace.hub import Hub


class Stream:
    """A handle on a declared stream."""

    def __init__(self, hub: Hub, name: str) -> None:
        self._hub, self.name = hub, name

    def status(self) -> StreamStatus:
        """What really happened to the stream so far."""
        return self._hub.runtime(self.name).status()

    def totals(self) -> StreamTotals:
        """Epochs, their phases and the sinks since the hub was opened."""
        return self._hub.runtime(self.name).totals

    def addresses(self) -> list[str]:
        """Where a pushed stream takes bytes now; none while it does not run."""
        found: list[str] = self.ingress().get("addresses", [])
        return found

    def ingress(self) -> dict[str, Any]:
        """What the gateway says of a pushed stream, with counters for each class of origins; empty for others, and
        while the stream does not run."""
        return self._hub.runtime(self.name).ingress()

    def dead_letters(self) -> pa.Table:
        """The newest rejected records, when the stream's `dead_letter_sink` is a memory sink."""
        runtime = self._hub.runtime(self.name)
        sink = runtime.stream.dead_letters
        if sink is None or sink.kind != "memory":
            raise UnknownSink(
                f"the dead letters of stream {self.name} are in no memory sink",
                advice="Only memory sinks can be read here; others are read where they write.",
                name=None if sink is None else sink.name,
            )
        held: Any = runtime.committer.letters(sink)
        table: pa.Table = held.read()
        return table

    def flush(self, timeout: float = 60.0) -> int:
        """Wait until all that the sinks and the gateway were given is durable; the newest epoch then. Raises SinkFailed
        when a sink still cannot show an epoch that it owes, TimeoutError when an epoch takes longer to commit."""
        return self._hub.runtime(self.name).control(FLUSH).result(timeout).epoch

    def sync(self, timeout: float = 60.0) -> int:
        """Send a barrier behind the rows and wait until it has come through: every epoch up to the one that carried it
        is in the sinks. That epoch. Raises StreamFailed when the stream does not run, TimeoutError when it takes
        longer."""
        return self._hub.runtime(self.name).barrier(SYNC_TEST).result(timeout).epoch

    def ping(self) -> int:
        """Ask the committer, past the rows, for its newest epoch."""
        return self._hub.runtime(self.name).control(PING).result(0).epoch

    def __repr__(self) -> str:
        return f"Stream({self.name})"

    def _repr_html_(self) -> str:
        return self.status()._repr_html_()


class Pipeline:
    """A handle on a declared pipeline."""

    def __init__(self, hub: Hub, name: str) -> None:
        self._hub, self.name = hub, name

    @property
    def sql(self) -> str:
        """The statement that created it."""
        return self._hub.record(self.name).definition.sql

    def status(self) -> PipelineStatus:
        """Its state and counters."""
        record = self._hub.record(self.name)
        definition = record.definition
        runtime = self._hub.runtime(definition.program.stream)
        try:
            progress = runtime.progress
        except HeadraceError:  # the stream says so
            progress = Progress()
        # The catalog says what the pipeline should do; with a query that does not run it does nothing.
        ill = runtime.state in ("retrying", "dead") and record.state in ("created", "starting", "running")
        counted = progress.pipelines.get(str(definition.instance), PipelineProgress())
        away = counted.epoch is not None and record.desired != "running"
        return PipelineStatus(
            name=definition.name,
            stream=runtime.stream.name,
            state=runtime.state if ill else record.state,
            instance=definition.instance,
            rows_out=counted.rows_out,
            late=counted.late,
            bad=counted.bad,
            groups=counted.groups,
            state_bytes=counted.bytes,
            sent=counted.sent,
            received=counted.received,
            epoch_ms=runtime.spent_ms(definition.instance),
            missed_rows=counted.missed_rows + (progress.rows - counted.seen_rows if away else 0),
            gaps=list(counted.gaps),
            error=record.error or (runtime.problem if ill else ""),
            detached=dict(record.detached) | runtime.notes(definition),
            changes=list(record.history),
            rows_in=counted.rows_in,
            rejected=counted.bad if policy_of(runtime.stream) in ("skip", "dead_letter") else 0,
        )

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the pipeline no longer runs (finished or stopped); whether it did in time.

        Raises PipelineFailed when it failed, StreamFailed when its stream's query died.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            status = self.status()
            if status.state == "failed":
                raise PipelineFailed(f"pipeline {self.name} failed: {status.error}", name=self.name)
            if status.state not in ALIVE:
                return True
            self._hub.runtime(status.stream).raise_failure()
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(0.05)

    def start(self) -> None:
        """Start it again; it goes on with the stream as it is now, with the state it had when it was stopped. One that
        failed begins anew."""
        self._hub.sql(f"START PIPELINE {_quoted(self.name)}")

    def stop(self, *, close_windows: bool = False, now: bool = False) -> None:
        """Stop it: what came before is in every sink when this returns. Open windows are kept for a later start, or
        closed and emitted. `now` waits for nothing, and drops the epoch in flight and the state."""
        mode = "NOW" if now else f"GRACEFUL {'CLOSE' if close_windows else 'KEEP'} WINDOWS"
        self._hub.sql(f"STOP PIPELINE {_quoted(self.name)} {mode}")

    def results(self, sink: str | None = None) -> pa.Table:
        """What its memory sink holds; `sink` names one when there are several."""
        definition = self._hub.record(self.name).definition
        runtime = self._hub.runtime(definition.program.stream)
        for candidate, _ in definition.outlets:
            if candidate.kind == "memory" and (sink is None or candidate.name.lower() == sink.lower()):
                held: Any = runtime.committer.sink(definition, candidate.name)
                table: pa.Table = held.read()
                return table
        raise UnknownSink(
            f"pipeline {self.name} has no memory sink" + (f" {sink}" if sink else ""),
            advice="Only memory sinks can be read here; others are read where they write.",
            name=sink,
        )

    def __repr__(self) -> str:
        return f"Pipeline({self.name})"

    def _repr_html_(self) -> str:
        return self.status()._repr_html_()


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
