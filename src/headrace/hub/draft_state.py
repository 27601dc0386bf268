"""The catalog as a script changes it, and the resulting changes to streams. All statements of a draft work on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from headrace.errors import (
    AlreadyExists,
    ExternalError,
    HeadraceError,
    MissingFile,
    Span,
    StoreDenied,
    UnknownBucket,
    UnreadableDirectory,
    UnwritablePath,
)
from headrace.hub.effects import ScriptEffects, StreamChange, only_leaves
from headrace.hub.lookup import (
    is_declared,
)
from headrace.hub.observed import ObservedStreams
from headrace.hub.redeclaring import (
    lost_with,
)
from headrace.model.definitions import PipelineDef, StreamDef
from headrace.model.program import Meaning
from headrace.sql import (
    CreatePipeline,
    Planned,
    Select,
    plan_pipeline,
)
from headrace.sql.hosts.spark_checker import SparkChecker
from headrace.state.catalog import Catalog, PipelineRecord
from headrace.state.secrets import Vault

# Errors about the machine, which do not matter if the script will run on another one.
_ELSEWHERE = (MissingFile, StoreDenied, UnknownBucket, UnreadableDirectory, UnwritablePath)


@dataclass(slots=True)
class DraftState:
    """A catalog and the statements applied to it so far. Not thread-safe.

    `buckets` is how many buckets a new stateful pipeline gets. `streams` are the running streams, for questions and to
    see which queries are dead; None when there is only a catalog. Secrets in statements go to `vault`. `spark` checks
    queries that only Spark understands; without it they are planned unchecked. With `elsewhere` the script will run on
    another machine: paths that are missing here are noted in `absent`, and are not errors. `selects` collects the
    SELECTs of the script, to be run after it; they are errors if it is None.
    """

    catalog: Catalog
    meaning: Meaning
    buckets: int
    streams: ObservedStreams | None = None
    vault: Vault = field(default_factory=Vault)
    spark: SparkChecker | None = None
    elsewhere: bool = False
    absent: list[HeadraceError] = field(default_factory=list)
    selects: list[Select] | None = None
    _before: Catalog = field(init=False)
    _changes: dict[str, StreamChange] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    savepoints: list[tuple[str, str | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._before = self.catalog

    def effects(self) -> ScriptEffects:
        """What the statements applied so far change."""
        changes = (
            replace(change, only_leaves=not change.revive and only_leaves(self._before, self.catalog, change.stream))
            for change in self._changes.values()
        )
        dropped = frozenset(name.lower() for name in self.dropped)
        return ScriptEffects(self.catalog, tuple(changes), dropped, tuple(self.savepoints))

    def effects_on(self, stream: str) -> ScriptEffects:
        """What the catalog as it is now changes on one stream."""
        self.touch(stream, wait=True)
        return self.effects()

    @contextmanager
    def paths(self) -> Iterator[None]:
        """Notes paths and services that cannot be used from here, if the script will run elsewhere."""
        try:
            yield
        except (*_ELSEWHERE, ExternalError) as problem:
            if not self.elsewhere:
                raise
            self.absent.append(problem)

    def plan(self, statement: CreatePipeline) -> Planned:
        return plan_pipeline(statement, self.catalog, self.meaning, self.spark)

    def refuse_taken(self, kind: Literal["stream", "view"], name: str, span: Span) -> None:
        """Raise AlreadyExists if the name is taken: streams and views share their names."""
        if is_declared(self.catalog, kind, name):
            raise AlreadyExists(
                f"{name} is a {kind}",
                advice=f"Use another name, or DROP {kind.upper()} {name} first.",
                span=span,
                name=name,
            )

    # --- changes ----------------------------------------------------------------------------------

    def redefine(self, record: PipelineRecord, definition: PipelineDef) -> None:
        """Change the outlets of a pipeline. It keeps its instance and its state."""
        self.catalog = self.catalog.with_pipeline(replace(record, definition=definition))
        if record.desired == "running":
            for stream in definition.streams:
                self.touch(stream, wait=True)

    def drop_stream(self, stream: StreamDef) -> tuple[str, ...]:
        self.dropped.append(stream.name)
        self.catalog = self.catalog.without("stream", stream.name)
        return (lost_with(stream),)

    def start(self, record: PipelineRecord) -> None:
        if record.desired == "failed":  # its state may be that of half an epoch, so its exit removes all of it
            self.leave(record)
        definition = record.definition if record.desired != "failed" else without_state(record.definition)
        self.catalog = self.catalog.without_stop(definition.instance)
        for stream in definition.streams:
            change = self.touch(stream, wait=True)
            self.set_change(
                replace(change, graceful=tuple(p for p in change.graceful if p.instance != definition.instance))
            )
        again = replace(record, definition=replace(definition, generation=definition.generation + 1), detached={})
        self.catalog = self.catalog.with_pipeline(again.to("starting", "START PIPELINE"))

    def leave(self, record: PipelineRecord) -> None:
        """End an instance. Its state is dropped, and open windows emit nothing."""
        self.catalog = self.catalog.with_end(record.definition, flush=False)
        for stream in record.definition.streams:
            self.touch(stream, wait=True)

    def touch(self, stream: str, *, wait: bool, revive: bool = False) -> StreamChange:
        """Give a stream a new plan."""
        old = self._changes.get(stream.lower(), StreamChange(stream.lower()))
        change = replace(old, wait=old.wait or wait, revive=old.revive or revive)
        self.set_change(change)
        return change

    def set_change(self, change: StreamChange) -> None:
        self._changes[change.stream] = change


def without_state(pipeline: PipelineDef) -> PipelineDef:
    """`pipeline`, whose next generation begins without state if its query runs on the dedicated host."""
    if pipeline.program.dedicated is None:
        return pipeline
    return replace(pipeline, fresh=pipeline.generation + 1)
