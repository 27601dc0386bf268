"""A state directory that no process owns, read as it is: SHOW, DESCRIBE and EXPLAIN, and nothing that changes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.account import status_of
from headrace.describe import describe, show
from headrace.draft import Draft
from headrace.errors import HubNotRunning, MissingFile, UnknownPipeline, UnknownStream
from headrace.history import History
from headrace.intake import read_dropped
from headrace.objects import Pipeline, Stream
from headrace.program import Meaning, PipelineDef, StreamDef
from headrace.results import Result
from headrace.sealing import read_sealed
from headrace.sql import Describe, Explain, Show, ShowCreate, parse_script
from headrace.status import StreamStatus
from headrace.streams.catalog import Catalog, PipelineRecord
from headrace.streams.plans import PlanStore
from headrace.streams.progress import Progress, ProgressView, read_progress
from headrace.streams.state_dir import StateDir, require_known_format
from headrace.watch import Watch

_READING = (Show, ShowCreate, Describe, Explain)


class OfflineHub:
    """Reads a state directory without owning it. The facts are those of the last run."""

    def __init__(self, directory: Path) -> None:
        """Raises MissingFile when `directory` is no state directory."""
        if not (directory / "VERSION").is_file():
            raise MissingFile(
                f"{directory} is no state directory",
                advice="Name one with --state-dir, or a running hub with --server.",
                path=str(directory),
            )
        require_known_format(directory)
        self.directory = directory
        self.catalog: Catalog = read_sealed(directory)[0]

    def sql(self, text: str) -> list[Result]:
        """Run statements that only read. Raises HubNotRunning for others."""
        statements = parse_script(text)
        for statement in statements:
            if not isinstance(statement, _READING):
                raise HubNotRunning(
                    f"no process runs the hub in {self.directory}, so nothing can be changed",
                    advice="Start one with headrace serve or headrace run. SHOW, DESCRIBE and EXPLAIN work without.",
                    span=statement.span,
                    path=str(self.directory),
                )
        hub: Any = self
        draft = Draft(
            self.catalog,
            self._meaning(),
            1,
            describe=lambda catalog, kind, name: describe(hub, catalog, kind, name),
            show=lambda catalog, kind: show(hub, catalog, kind),
        )
        return [draft.apply(statement) for statement in statements]

    def _meaning(self) -> Meaning:
        records = self.catalog.pipelines.values()
        return next((r.definition.program.meaning for r in records), Meaning())

    # --- what describing needs of a hub -----------------------------------------------------------

    @property
    def streams(self) -> dict[str, Stream]:
        hub: Any = self
        return {s.name: Stream(hub, s.name) for s in self.catalog.streams.values()}

    @property
    def pipelines(self) -> dict[str, Pipeline]:
        hub: Any = self
        return {p.definition.name: Pipeline(hub, p.definition.name) for p in self.catalog.pipelines.values()}

    def record(self, name: str) -> PipelineRecord:
        found = self.catalog.pipeline(name)
        if found is None:
            raise UnknownPipeline(f"there is no pipeline {name}", name=name)
        return found

    def runtime(self, name: str) -> OfflineRuntime:
        stream = self.catalog.stream(name)
        if stream is None:
            raise UnknownStream(f"there is no stream {name}", name=name)
        return OfflineRuntime(stream, StateDir(self.directory, -1).stream(name.lower()))


class OfflineRuntime:
    """A stream that does not run, as far as describing it needs."""

    running = False
    state = "stopped"
    problem = ""

    def __init__(self, stream: StreamDef, directory: Path) -> None:
        self.stream, self.directory, self.plans = stream, directory, PlanStore(directory)

    @property
    def progress(self) -> Progress:
        return read_progress(self.directory)

    def spent_ms(self, instance: int) -> None:
        """Only a running hub measures."""

    def notes(self, pipeline: PipelineDef) -> dict[str, str]:
        """Only a running hub has sinks."""
        return {}

    def ingress(self) -> dict[str, Any]:
        return {}

    def status(self) -> StreamStatus:
        history = History(self.stream, self.plans)
        dropped = read_dropped(self.directory)
        view = ProgressView(self.directory)
        return status_of(self.stream, self.directory, view, self.plans, Watch(), history, None, None, None, "", dropped)
