"""The hub: one state directory, its streams and pipelines, and the Spark session that they run on.

    with headrace.connect(state_dir=".headrace") as hub:
        hub.sql("CREATE STREAM ...; CREATE SINK ...; CREATE PIPELINE ...")

The hub is a thin door. It parses a script, makes a `Draft` of it, and passes the effects to the `Reconciler`, which
saves the new catalog and gives each changed stream one new plan version. Spark starts with the first pipeline.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from headrace.base.durable import state_errors
from headrace.base.unknown import unknown
from headrace.bridge.pools import MOST_BUCKETS
from headrace.errors import BadOption, UnknownPipeline
from headrace.hub.describe import show
from headrace.hub.drafts import Drafts
from headrace.hub.effects import DeclaredScript, ScriptEffects
from headrace.hub.launcher import QueryLauncher, SparkLauncher
from headrace.hub.look import Looks
from headrace.hub.objects import Pipeline, Stream
from headrace.hub.readers import Readers
from headrace.hub.reconciler import Reconciler
from headrace.hub.results import Result
from headrace.hub.rollout import DRAIN_SECONDS
from headrace.hub.shutdown import Shutdown
from headrace.model.spark_options import SparkOptions
from headrace.model.status import Waited
from headrace.sql import Select, Statement, parse_script
from headrace.sql.functions import evaluate
from headrace.state.catalog import Catalog, PipelineRecord
from headrace.state.state_dir import SAVEPOINTS, require_savepoint_name
from headrace.stream.runtime import START_LIMIT_SECONDS, StreamRuntime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_hub(
    state_dir: str | os.PathLike[str] = ".headrace",
    spark: SparkSession | None = None,
    *,
    options: SparkOptions | None = None,
    buckets: int | None = None,
    start_timeout: float = START_LIMIT_SECONDS,
    time_zone: str | None = None,
) -> Hub:
    """Open a hub on `state_dir`. The arguments are those of `headrace.connect`."""
    if buckets is not None and not 1 <= buckets <= MOST_BUCKETS:
        raise BadOption(
            f"buckets cannot be {buckets}", advice=f"It must be 1 to {MOST_BUCKETS}.", option="buckets", value=buckets
        )
    if not start_timeout > 0:
        raise BadOption(
            f"start_timeout cannot be {start_timeout}",
            advice="It must be more than 0 seconds.",
            option="start_timeout",
            value=start_timeout,
        )
    launcher = SparkLauncher(spark, options or SparkOptions(), time_zone)
    return Hub(Path(state_dir), launcher, buckets=buckets, start_timeout=start_timeout)


class Hub:
    """One open state directory. Use it as a context manager, or call `close`.

    Any thread may call any method. Scripts are declared one at a time.

    >>> hub.sql("SHOW STREAMS")[0].table.column("name").to_pylist()
    ['sensors']
    """

    def __init__(
        self,
        state_dir: Path,
        launcher: QueryLauncher,
        *,
        buckets: int | None = None,
        start_timeout: float = START_LIMIT_SECONDS,
    ) -> None:
        self._launcher = launcher
        self._on_close: list[Callable[[], None]] = []
        self._reconciler = Reconciler(state_dir, launcher, start_timeout)
        self._shutdown = Shutdown(self._reconciler)
        self._drafts = Drafts(self._reconciler, launcher, buckets or min(8, os.cpu_count() or 1))
        self._looks = Looks(self._reconciler, self._drafts)
        self._readers = Readers(self._reconciler, self.sql, self.check)
        try:
            self._reconciler.recover()
        except BaseException:
            self.close()
            raise

    @property
    def directory(self) -> Path:
        """The state directory.

        >>> hub.directory.name
        '.headrace'
        """
        return self._reconciler.directory

    # --- scripts ----------------------------------------------------------------------------------

    def sql(self, text: str) -> list[Result]:
        """Run a script: all of its statements take effect, or none. Returns one result per statement.

        Pipelines of one script that read the same stream join it in the same epoch. Returns when that epoch is planned.
        If a query dies, plans nothing in time or cannot be started, the script is rolled back and the error raised; the
        state of pipelines that it dropped or replaced may be gone by then. A StopTimeout rolls nothing back: the
        pipelines stop when the epoch in flight ends.

        SAVEPOINT and SELECT run after everything else. SELECT gives the rows that come in time as a table, see
        `headrace.hub.look`.

        >>> hub.sql("CREATE PIPELINE cold INTO kept AS SELECT device, temp FROM sensors WHERE temp < 10")
        [created pipeline cold]
        >>> hub.sql("DROP PIPELINE cold")
        [dropped pipeline cold]
        >>> hub.sql("CREATE PIPELINE p INTO kept AS SELECT tmp FROM sensors")
        Traceback (most recent call last):
        headrace.errors.UnknownColumn: [UNKNOWN_COLUMN] 'sensors' has no column 'tmp' ...
        """
        statements = parse_script(text)
        results, script, effects = self._declare(statements)
        warnings = self._reconciler.carry_out(script)
        for savepoint, stream in effects.savepoints:
            self.savepoint(savepoint, stream)
        for i, statement in enumerate(statements):
            if isinstance(statement, Select):
                results[i] = self._looks.run(statement)
        if warnings:
            results[-1] = replace(results[-1], warnings=(*results[-1].warnings, *warnings))
        return results

    def _declare(self, statements: tuple[Statement, ...]) -> tuple[list[Result], DeclaredScript, ScriptEffects]:
        """Draft a script and save what it declares. Waits while its streams are reserved; the catalog may change
        meanwhile, so the script is drafted again then."""
        reconciler = self._reconciler
        with reconciler.lock, state_errors(self.directory):  # questions read the state directory too
            while True:
                reconciler.declarations.require_open()
                draft = self._drafts.to_run()
                draft.selects = []
                results = [draft.apply(statement) for statement in statements]
                effects = draft.effects()
                if reconciler.reservations.is_free(effects.streams):
                    return results, reconciler.declare(effects), effects
                reconciler.reservations.wait(effects.streams)

    def check(self, text: str) -> list[Result]:
        """Plan a script against the current catalog, without any effect. Raises what `sql` would raise.

        >>> hub.check("CREATE PIPELINE cold INTO kept AS SELECT device FROM sensors WHERE temp < 10")
        [created pipeline cold]
        >>> "cold" in hub.pipelines
        False
        """
        reconciler = self._reconciler
        with reconciler.lock:
            reconciler.declarations.require_open()
            draft = self._drafts.to_check()
            return [draft.apply(statement) for statement in parse_script(text)]

    # --- objects ----------------------------------------------------------------------------------

    @property
    def catalog(self) -> Catalog:
        """The current catalog. For tools: its type may change in any version.

        >>> sorted(hub.catalog.streams)
        ['sensors']
        """
        return self._reconciler.catalog

    @property
    def streams(self) -> dict[str, Stream]:
        """The declared streams, by name.

        >>> hub.streams
        {'sensors': Stream(sensors)}
        """
        return {s.name: Stream(self, s.name) for s in self.catalog.streams.values()}

    @property
    def pipelines(self) -> dict[str, Pipeline]:
        """The declared pipelines, by name.

        >>> hub.pipelines["hot"]
        Pipeline(hot)
        """
        return {p.definition.name: Pipeline(self, p.definition.name) for p in self.catalog.pipelines.values()}

    @property
    def spark(self) -> SparkSession:
        """The session that everything runs on. Starts Spark if it does not run. `readStream.format("headrace")` reads
        streams of this hub, see docs/hosts.md.

        >>> hub.spark.sql("SELECT 1 AS one").collect()
        [Row(one=1)]
        """
        self._reconciler.declarations.require_open()
        session = self._launcher.session()
        self._readers.register(session)
        return session

    def record(self, name: str) -> PipelineRecord:
        """The declaration of a pipeline. Raises UnknownPipeline. For tools: its type may change in any version.

        >>> hub.record("hot").definition.name
        'hot'
        """
        found = self.catalog.pipeline(name)
        if found is None:
            raise unknown(UnknownPipeline, "pipeline", name, self.catalog.pipeline_names())
        return found

    def runtime(self, stream: str) -> StreamRuntime:
        """The running side of a stream. Raises UnknownStream. For tools: its type may change in any version.

        >>> hub.runtime("sensors").stream.name
        'sensors'
        """
        return self._reconciler.runtime(stream)

    # --- savepoints -------------------------------------------------------------------------------

    def savepoint(self, name: str, stream: str | None = None, timeout: float = DRAIN_SECONDS) -> Path:
        """Take a consistent copy of a stream, or of all streams, with their pipelines, while they run. Returns its
        path.

        `headrace restore` makes a state directory of it. Raises SavepointTimeout, with the names of the streams, when
        their epochs in flight do not end in time. Scripts about these streams wait until the copy is done.

        >>> hub.savepoint("before-upgrade").name
        'before-upgrade'
        """
        target = self.directory / SAVEPOINTS / require_savepoint_name(name)
        return self._reconciler.savepoint(target, stream, timeout)

    def savepoints(self) -> list[Path]:
        """The savepoints in this state directory, by name.

        >>> _ = hub.savepoint("monday")
        >>> "monday" in [path.name for path in hub.savepoints()]
        True
        """
        directory = self.directory / SAVEPOINTS
        return sorted(p for p in directory.iterdir() if not p.name.startswith(".")) if directory.is_dir() else []

    # --- the end ----------------------------------------------------------------------------------

    def wait_until_end(self, timeout: float | None = None) -> bool:
        """Wait until every finite source has ended, then close all windows (unless the stream has close_at_end =
        'false'), commit, and stop the queries. True if that happened in time.

        Raises StreamFailed if a query dies. A source that never ends is waited for.

        >>> from pathlib import Path
        >>> with headrace.connect("to-the-end") as own:
        ...     _ = own.sql(Path("app.sql").read_text())
        ...     own.wait_until_end(timeout=60)
        ...     own.pipelines["by_minute"].status().rows_out
        True
        40
        """
        return self._shutdown.wait_until_end(timeout)

    def drain(self, timeout: float = DRAIN_SECONDS, on_waited: Callable[[Waited], None] | None = None) -> bool:
        """Let every epoch in flight finish, then stop the queries. True if all finished in time. `on_waited` is called
        for each stream when it has stopped.

        >>> from pathlib import Path
        >>> with headrace.connect("drained") as own:
        ...     _ = own.sql(Path("app.sql").read_text())
        ...     own.drain(timeout=60)
        True
        """
        return self._shutdown.drain(timeout, on_waited)

    def close(self, drain: bool = True) -> None:
        """Stop everything that this hub started. Pipelines that run now continue when the directory is opened again.

        >>> own = headrace.connect("closed")
        >>> own.close()
        """
        if self._reconciler.closed:
            return
        try:
            if drain:
                self.drain()
        finally:
            self._readers.close()
            self._reconciler.close(self._on_close)
            evaluate.end_thread()

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` after everything else has stopped, before the state directory is released.

        >>> with headrace.connect("called") as own:
        ...     own.on_close(lambda: print("stopped"))
        stopped
        """
        self._on_close.append(callback)

    def __enter__(self) -> Hub:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Hub({str(self.directory)!r}, streams={list(self.streams)}, pipelines={list(self.pipelines)})"

    def _repr_html_(self) -> str:
        return "".join(show(self._reconciler, self.catalog, kind)._repr_html_() for kind in ("streams", "pipelines"))
