"""SHOW, DESCRIBE and EXPLAIN on a state directory that no process owns. Changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.base.unknown import unknown
from headrace.errors import HubNotRunning, MissingFile, UnknownStream
from headrace.hub.draft import Draft
from headrace.hub.results import Result
from headrace.model.definitions import PipelineDef, StreamDef
from headrace.model.program import Meaning
from headrace.model.status import StreamState, StreamStatus
from headrace.sql import Describe, Explain, Show, ShowCreate, parse_script
from headrace.state.catalog import Catalog
from headrace.state.plans import PlanStore
from headrace.state.progress import Progress, ProgressView, read_progress
from headrace.state.sealing import read_sealed
from headrace.state.state_dir import StateDir, require_known_format
from headrace.stream.dedicated_status import DedicatedState
from headrace.stream.intake import read_dropped
from headrace.stream.stream_status import QueryFacts, StoredStream

_READING = (Show, ShowCreate, Describe, Explain)


class OfflineHub:
    """Reads a state directory without owning it. Counters are those of the last run; no pipeline runs."""

    def __init__(self, directory: Path) -> None:
        """Raises MissingFile if `directory` is not a state directory."""
        if not (directory / "VERSION").is_file():
            raise MissingFile(
                f"{directory} is not a state directory",
                advice="Name one with --state-dir, or a running hub with --server.",
                path=str(directory),
            )
        require_known_format(directory)
        self.directory = directory
        self.catalog: Catalog = read_sealed(directory)[0]

    def sql(self, text: str) -> list[Result]:
        """Run statements that only read. Raises HubNotRunning for all others."""
        statements = parse_script(text)
        for statement in statements:
            if not isinstance(statement, _READING):
                raise HubNotRunning(
                    f"no hub runs on {self.directory}, so nothing can be changed",
                    advice="Start one with headrace serve or headrace run. SHOW, DESCRIBE and EXPLAIN need none.",
                    span=statement.span,
                    path=str(self.directory),
                )
        draft = Draft(self.catalog, self._meaning(), buckets=1, streams=self)
        return [draft.apply(statement) for statement in statements]

    def _meaning(self) -> Meaning:
        records = self.catalog.pipelines.values()
        return next((r.definition.program.meaning for r in records), Meaning())

    def runtime(self, name: str) -> OfflineRuntime:
        stream = self.catalog.stream(name)
        if stream is None:
            raise unknown(UnknownStream, "stream", name, self.catalog.stream_names())
        return OfflineRuntime(stream, StateDir(self.directory, -1).stream(name.lower()))


class OfflineRuntime:
    """A stream that does not run: the parts of a stream's runtime that SHOW and DESCRIBE need."""

    owned = running = False
    state: StreamState = "stopped"
    problem = ""

    def __init__(self, stream: StreamDef, directory: Path) -> None:
        self.stream, self.directory, self.plans = stream, directory, PlanStore(directory)

    @property
    def progress(self) -> Progress:
        return read_progress(self.directory)

    def spent_ms(self, instance: int) -> None:
        """None: only a running hub measures time."""

    def notes(self, pipeline: PipelineDef) -> dict[str, str]:
        """Empty: only a running hub has open sinks."""
        return {}

    def dedicated_state(self, instance: int) -> DedicatedState:
        """Nothing: no query runs."""
        return DedicatedState()

    def ingress(self) -> dict[str, Any]:
        return {}

    def status(self) -> StreamStatus:
        stored = StoredStream(self.stream, self.directory, self.plans, ProgressView(self.directory))
        return stored.status(QueryFacts(dropped=read_dropped(self.directory)))
