"""Handles on the streams and pipelines of a hub. They are cheap to make and always up to date."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.base.logs import facts
from headrace.control.signals import FLUSH, PING, SYNC_TEST
from headrace.errors import PipelineFailed, UnknownSink
from headrace.hub.observed import pipeline_status
from headrace.model.status import ALIVE, PipelineStatus, StreamStatus, StreamTotals

if TYPE_CHECKING:
    from headrace.hub.hub import Hub

_log = logging.getLogger(__name__)


class Stream:
    """A handle on a declared stream.

    >>> hub.streams["sensors"].name
    'sensors'
    """

    def __init__(self, hub: Hub, name: str) -> None:
        self._hub, self.name = hub, name

    def status(self) -> StreamStatus:
        """The stream's status, as of its newest committed epoch.

        >>> hub.streams["sensors"].status().decoding_columns
        ['device', 'ts', 'temp']
        """
        return self._hub.runtime(self.name).status()

    def totals(self) -> StreamTotals:
        """Epochs, their phases and the sinks since the hub was opened.

        >>> hub.streams["sensors"].totals().sinks["alarms"].rows
        37
        """
        return self._hub.runtime(self.name).totals

    def addresses(self) -> list[str]:
        """The addresses at which a pushed stream takes bytes; none while it does not run.

        >>> hub.streams["sensors"].addresses()
        []
        """
        found: list[str] = self.ingress().get("addresses", [])
        return found

    def ingress(self) -> dict[str, Any]:
        """The gateway's counters for a pushed stream, for each class of origins. Empty for other streams, and while the
        stream does not run.

        >>> hub.streams["sensors"].ingress()
        {}
        """
        return self._hub.runtime(self.name).ingress()

    def dead_letters(self) -> pa.Table:
        """The newest rejected records, when the stream's `dead_letter_sink` is a memory sink.

        >>> with headrace.connect("rejected") as own:
        ...     _ = own.sql(
        ...         "CREATE SINK bad WITH (type = 'memory'); CREATE SINK good WITH (type = 'noop');"
        ...         "CREATE STREAM s (temp INT) WITH (source = 'files', path = 'data', format = 'json',"
        ...         "  on_error = 'dead_letter', dead_letter_sink = 'bad');"
        ...         "CREATE PIPELINE p INTO good AS SELECT temp FROM s"
        ...     )
        ...     _ = own.streams["s"].sync()
        ...     own.streams["s"].dead_letters().select(["column", "reason"]).to_pylist()[0]
        {'column': 'temp', 'reason': 'bad_integer'}
        """
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
        """Wait until everything in the sinks and the gateway is durable, and return the newest epoch. Raises SinkFailed
        when a sink still cannot write an epoch that it owes, TimeoutError when an epoch takes longer to commit.

        >>> hub.streams["sensors"].flush() >= 0
        True
        """
        return self._hub.runtime(self.name).control(FLUSH).result(timeout).epoch

    def sync(self, timeout: float = 60.0) -> int:
        """Send a barrier after the rows, wait until every epoch up to the one that carries it is in the sinks, and
        return that epoch. Raises StreamFailed when the stream does not run, TimeoutError when it takes longer.

        >>> hub.streams["sensors"].sync() > 0
        True
        """
        deadline = time.monotonic() + timeout
        runtime = self._hub.runtime(self.name)
        epoch = runtime.barrier(SYNC_TEST).result(timeout).epoch
        if not runtime.drain_dedicated(max(0.1, deadline - time.monotonic())):
            raise TimeoutError(f"a pipeline on the dedicated host did not deliver stream {self.name} in {timeout:g} s")
        return epoch

    def ping(self) -> int:
        """Ask the committer for its newest epoch, without waiting for rows.

        >>> hub.streams["sensors"].ping() >= 0
        True
        """
        return self._hub.runtime(self.name).control(PING).result(0).epoch

    def __repr__(self) -> str:
        return f"Stream({self.name})"

    def _repr_html_(self) -> str:
        return self.status()._repr_html_()


class PySparkNames(ABC):
    """The names of PySpark's StreamingQuery, for pipelines here and on another hub."""

    @abstractmethod
    def status(self) -> PipelineStatus: ...

    @abstractmethod
    def wait(self, timeout: float | None = None) -> bool: ...

    @abstractmethod
    def _plan(self) -> str: ...

    @property
    def isActive(self) -> bool:
        """True while the pipeline runs, or starts.

        >>> hub.pipelines["hot"].isActive
        True
        """
        return self.status().state in ALIVE

    def awaitTermination(self, timeout: float | None = None) -> bool:
        """The same as `wait`.

        >>> hub.pipelines["hot"].awaitTermination(0.1)
        False
        """
        return self.wait(timeout)

    def explain(self) -> None:
        """Print the plan, as EXPLAIN PIPELINE does.

        >>> hub.pipelines["hot"].explain()
        pipeline hot
        reads: stream sensors ...
        """
        print(self._plan())


class Pipeline(PySparkNames):
    """A handle on a declared pipeline.

    >>> hub.pipelines["hot"].name
    'hot'
    """

    def __init__(self, hub: Hub, name: str) -> None:
        self._hub, self.name = hub, name

    @property
    def sql(self) -> str:
        """The statement that created it.

        >>> print(hub.pipelines["warm"].sql)
        CREATE PIPELINE warm INTO kept AS SELECT device, temp FROM sensors WHERE temp > 25
        """
        return self._hub.record(self.name).definition.sql

    def status(self) -> PipelineStatus:
        """The state and counters of the pipeline.

        >>> status = hub.pipelines["hot"].status()
        >>> status.state, status.rows_out, status.late
        ('running', 37, 0)
        """
        record = self._hub.record(self.name)
        return pipeline_status(record, self._hub.runtime(record.definition.program.stream))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the pipeline no longer runs (finished or stopped). True if that happened in time.

        Raises PipelineFailed when it failed, StreamFailed when its stream's query died.

        >>> hub.pipelines["hot"].wait(timeout=0.1)
        False
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
        """Start the pipeline again. It joins the stream as it is now, with the state that it had when it was stopped. A
        pipeline that failed starts without state.

        >>> hub.pipelines["hot"].stop()
        >>> hub.pipelines["hot"].start()
        >>> hub.pipelines["hot"].status().state
        'running'
        """
        self._hub.sql(f"START PIPELINE {_quoted(self.name)}")

    def stop(self, *, close_windows: bool = False, now: bool = False) -> None:
        """Stop the pipeline. All rows before the stop are in every sink when this returns. Open windows are kept for a
        later start, or closed and emitted. `now` does not wait, and drops the epoch in flight and the state.

        >>> hub.pipelines["hot"].stop()
        >>> hub.pipelines["hot"].status().state
        'stopped'
        >>> hub.pipelines["hot"].start()
        """
        mode = "NOW" if now else f"GRACEFUL {'CLOSE' if close_windows else 'KEEP'} WINDOWS"
        self._hub.sql(f"STOP PIPELINE {_quoted(self.name)} {mode}")

    def results(self, sink: str | None = None) -> pa.Table:
        """The rows in its memory sink. `sink` names one when there are several. A memory sink has only rows that came
        since the hub was opened: if there are none, but the pipeline has made some before, the log says so.

        >>> table = hub.pipelines["warm"].results()
        >>> table.column_names, table.num_rows
        (['device', 'temp'], 166)
        >>> table.to_pandas().shape
        (166, 2)
        """
        definition = self._hub.record(self.name).definition
        runtime = self._hub.runtime(definition.program.stream)
        for candidate, _ in definition.outlets:
            if candidate.kind == "memory" and (sink is None or candidate.name.lower() == sink.lower()):
                held: Any = runtime.sink(definition, candidate.name)
                table: pa.Table = held.read()
                if not table.num_rows and candidate == definition.sinks[0]:  # `rows_out` counts the rows of the first
                    self._explain_empty(candidate.name, held)
                return table
        raise UnknownSink(
            f"pipeline {self.name} has no memory sink" + (f" {sink}" if sink else ""),
            advice="Only memory sinks can be read here; others are read where they write.",
            name=sink,
        )

    def _explain_empty(self, sink: str, held: Any) -> None:
        """Log why a memory sink is empty although the pipeline had output. `held` has its rows: the first ones may have
        come just now."""
        status = self.status()
        if status.rows_out and not held.read().num_rows:
            runs = f", and START PIPELINE {self.name} runs it" if status.state == "stopped" else ""
            _log.warning(
                "memory sink %s of pipeline %s is empty: its %s rows went with the process that kept them; it gets the "
                "rows that come from now on%s", sink, self.name, f"{status.rows_out:,}", runs,
                extra=facts("memory_sink_empty", pipeline=self.name, sink=sink),
            )  # fmt: skip

    def _plan(self) -> str:
        return self._hub.sql(f"EXPLAIN PIPELINE {_quoted(self.name)}")[0].text

    def __repr__(self) -> str:
        return f"Pipeline({self.name})"

    def _repr_html_(self) -> str:
        return self.status()._repr_html_()


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
