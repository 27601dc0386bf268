"""The catalog: all declared streams, views, sinks and pipelines.

A `Catalog` is immutable. A script changes a draft, and `CatalogFile.save` replaces the stored catalog atomically, so a
script takes effect as a whole or not at all.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

from headrace.base.durable import state_errors, write_atomic
from headrace.errors import ExternalError, StateDamaged
from headrace.model.codec import dump
from headrace.model.definitions import PipelineDef, SinkDef, StreamDef, ViewDef
from headrace.model.plan_version import PipelineExit
from headrace.model.status import State, StateChange
from headrace.model.stored import store_text, stored
from headrace.state.lifecycle import Desired, desired_in, follow
from headrace.state.secrets import Vault, names_in, read_vault
from headrace.state.state_dir import DROPPED, STREAMS, stream_directory

CATALOG_VERSION = 2  # since 2 streams name their secrets
READABLE_VERSIONS = (1, CATALOG_VERSION)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PipelineRecord:
    """A declared pipeline with its state history. `detached` lists sinks that get no more rows, with the reason."""

    definition: PipelineDef
    history: tuple[StateChange, ...] = (StateChange("created", "", 0.0),)
    detached: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> State:
        return self.history[-1].state

    @property
    def desired(self) -> Desired:
        """True if the stream's plan should run it."""
        return desired_in(self.state)

    @property
    def error(self) -> str:
        """The reason of its failure. Empty if it has not failed."""
        return self.history[-1].reason if self.state == "failed" else ""

    @property
    def attached(self) -> PipelineDef:
        """The pipeline without its detached sinks."""
        late = self.definition.late
        return replace(
            self.definition,
            sinks=tuple(s for s in self.definition.sinks if s.name not in self.detached),
            late=None if late is not None and late.sink.name in self.detached else late,
        )

    def to(self, state: State, reason: str, at: float | None = None) -> PipelineRecord:
        """The record after a change of state. Raises IllegalTransition."""
        now = time.time() if at is None else at
        return replace(self, history=follow(self.history, state, reason, now))


@dataclass(frozen=True, slots=True)
class Catalog:
    """All declarations, by lower-case name, because names ignore case. Methods return a changed copy.

    `ended` lists ended instances that a plan version still has to name to their lanes. It is stored together with the
    statement that ended them. So a crash before the plan is published does not leak their state. `looks` are the names
    of what SELECT has made for a while; it is never stored.
    """

    version: int = CATALOG_VERSION
    next_instance: int = 1
    streams: dict[str, StreamDef] = field(default_factory=dict)
    sinks: dict[str, SinkDef] = field(default_factory=dict)
    pipelines: dict[str, PipelineRecord] = field(default_factory=dict)
    ended: tuple[PipelineExit, ...] = ()
    views: dict[str, ViewDef] = field(default_factory=dict)
    looks: tuple[str, ...] = ()

    def stream(self, name: str) -> StreamDef | None:
        return self.streams.get(name.lower())

    def sink(self, name: str) -> SinkDef | None:
        return self.sinks.get(name.lower())

    def view(self, name: str) -> ViewDef | None:
        return self.views.get(name.lower())

    def pipeline(self, name: str) -> PipelineRecord | None:
        return self.pipelines.get(name.lower())

    def stream_names(self) -> tuple[str, ...]:
        return tuple(s.name for s in self.streams.values())

    def sink_names(self) -> tuple[str, ...]:
        return tuple(s.name for s in self.sinks.values())

    def view_names(self) -> tuple[str, ...]:
        return tuple(v.name for v in self.views.values())

    def pipeline_names(self) -> tuple[str, ...]:
        return tuple(p.definition.name for p in self.pipelines.values())

    def of_stream(self, name: str) -> Iterator[PipelineRecord]:
        """The pipelines that read a stream."""
        wanted = name.lower()
        return (p for p in self.pipelines.values() if wanted in (s.lower() for s in p.definition.streams))

    def is_dedicated(self, instance: int) -> bool:
        """True if an instance is declared and has a query of its own."""
        found = (p.definition for p in self.pipelines.values() if p.definition.instance == instance)
        return any(d.program.dedicated is not None for d in found)

    def running(self, stream: str) -> tuple[PipelineDef, ...]:
        """The pipelines of a stream that should run, in the order of their instances. Of one on the dedicated host it
        is the part that the stream runs."""
        wanted = (p.attached.on_stream(stream) for p in self.of_stream(stream) if p.desired == "running")
        return tuple(sorted(wanted, key=lambda d: d.instance))

    def fed_by(self, pipeline: str) -> list[StreamDef]:
        """The streams that are the output of a pipeline."""
        return [s for s in self.streams.values() if (s.fed_by or "").lower() == pipeline.lower()]

    def readers_of(self, stream: str) -> list[str]:
        """The pipelines and the views that read a stream. Views are named as such."""
        pipelines = [p.definition.name for p in self.of_stream(stream)]
        return [*pipelines, *(f"view {view}" for view in self.views_over(stream))]

    def users_of_sink(self, name: str) -> list[str]:
        """The pipelines that write to a sink, and the streams whose dead letters go there."""
        lowered = name.lower()
        records = self.pipelines.values()
        writing = [
            p.definition.name for p in records if any(s.name.lower() == lowered for s, _ in p.definition.outlets)
        ]
        letters = [s for s in self.streams.values() if s.dead_letters and s.dead_letters.name.lower() == lowered]
        return [*writing, *(s.name for s in letters)]

    def views_over(self, name: str) -> list[str]:
        """The views that read a stream or view themselves."""
        return [v.name for v in self.views.values() if name.lower() in (r.lower() for r in v.reads)]

    def users_of_view(self, name: str) -> list[str]:
        """The views and the pipelines that read a view."""
        lowered = name.lower()
        pipelines = [p.definition for p in self.pipelines.values()]
        return [*self.views_over(name), *(p.name for p in pipelines if lowered in (v.name.lower() for v in p.views))]

    def with_view(self, view: ViewDef) -> Catalog:
        return replace(self, views={**self.views, view.name.lower(): view})

    def with_views(self, views: Collection[ViewDef]) -> Catalog:
        return replace(self, views=self.views | {v.name.lower(): v for v in views})

    def without_loose_views(self) -> Catalog:
        """Without views that read a stream or view that is not declared."""
        known = {*self.streams, *self.views}
        loose = [name for name, view in self.views.items() if not {r.lower() for r in view.reads} <= known]
        if not loose:
            return self
        return replace(self, views={k: v for k, v in self.views.items() if k not in loose}).without_loose_views()

    def with_stream(self, stream: StreamDef) -> Catalog:
        return replace(self, streams={**self.streams, stream.name.lower(): stream})

    def with_sink(self, sink: SinkDef) -> Catalog:
        return replace(self, sinks={**self.sinks, sink.name.lower(): sink})

    def with_pipeline(self, record: PipelineRecord) -> Catalog:
        """Add or change a pipeline. An instance number is never assigned twice."""
        return replace(
            self,
            pipelines={**self.pipelines, record.definition.name.lower(): record},
            next_instance=max(self.next_instance, record.definition.instance + 1),
        )

    def marked(self, instances: Collection[int], state: State, reason: str) -> Catalog:
        """The catalog with these instances in `state`. Skips those that are in it already."""
        changed = self
        for record in self.pipelines.values():
            if record.definition.instance in instances and record.state != state:
                changed = changed.with_pipeline(record.to(state, reason))
        return changed

    def with_end(self, pipeline: PipelineDef, flush: bool, drop: bool = True) -> Catalog:
        """Record the end of an instance on each of its streams. It can be started again later, with its state unless
        that is dropped."""
        first, streams = self.next_instance, pipeline.streams
        left = tuple(PipelineExit(pipeline.on_stream(s), flush, first + i, drop) for i, s in enumerate(streams))
        return replace(self, ended=(*self.ended, *left), next_instance=first + len(left))

    def without_stop(self, instance: int) -> Catalog:
        """Forget a stop that kept the state: the instance starts again before any plan version contains the stop."""
        kept = tuple(e for e in self.ended if e.drop or e.pipeline.instance != instance)
        return replace(self, ended=kept) if kept != self.ended else self

    def ended_on(self, stream: str) -> tuple[PipelineExit, ...]:
        """The ends of a stream's pipelines that no plan version contains yet."""
        return tuple(e for e in self.ended if e.pipeline.program.stream.lower() == stream.lower())

    def lasting(self) -> Catalog:
        """The catalog as it is stored: looks have ended in it."""
        catalog = self
        for name in self.looks:
            record = catalog.pipeline(name)
            catalog = catalog.without("pipeline", name).without("sink", name)
            if record is not None and catalog.stream(name) is None:
                catalog = catalog.with_end(record.definition, flush=False)
            catalog = catalog.without("stream", name)
        return replace(catalog, looks=()) if self.looks else self

    def without_ends(self, stream: str) -> Catalog:
        """Forget the ends of a stream: a plan version contains them now, or the stream is dropped with its state."""
        published = self.ended_on(stream)
        return replace(self, ended=tuple(e for e in self.ended if e not in published)) if published else self

    def without(self, kind: Literal["stream", "sink", "pipeline", "view"], name: str) -> Catalog:
        """Remove one declaration."""
        lowered = name.lower()
        if kind == "stream":
            return replace(self.without_ends(name), streams=_omit(self.streams, lowered))
        if kind == "sink":
            return replace(self, sinks=_omit(self.sinks, lowered))
        if kind == "view":
            return replace(self, views=_omit(self.views, lowered))
        return replace(self, pipelines=_omit(self.pipelines, lowered))


def _omit(entries: dict[str, T], name: str) -> dict[str, T]:
    return {k: v for k, v in entries.items() if k != name}


class CatalogFile:
    """The catalog on disk and the secrets that it names. Only the hub uses it, under its lock.

    `catalog.previous.json` is the catalog before the newest change. A missing or unreadable catalog is an error if the
    directory shows that there was one: an empty catalog would abandon every stream.
    """

    def __init__(self, state_dir: Path, vault: Vault | None = None) -> None:
        self._root = state_dir
        self._path, self._previous = state_dir / "catalog.json", state_dir / "catalog.previous.json"
        self.vault = vault or Vault()
        self.catalog = Catalog()
        self._text: str | None = None  # the stored text; None before `read`

    def read(self) -> Catalog:
        """The stored catalog, or an empty one in a new directory. Raises StateDamaged."""
        self.catalog = self._load()
        self._text = dump(self.catalog)
        self.vault = read_vault(self._root)
        return self.catalog

    def _load(self) -> Catalog:
        try:
            catalog = stored(Catalog, self._path)
        except (StateDamaged, ExternalError) as problem:
            raise self._damaged(f"cannot be used: {problem.message}") from problem
        if catalog is None:
            streams = self._root / STREAMS
            signs = [self._previous] if self._previous.exists() else []
            signs += [e for e in streams.iterdir() if not e.name.startswith(".")] if streams.is_dir() else []
            if signs:
                raise self._damaged(f"is missing, although {signs[0]} exists") from None
            return Catalog()
        if catalog.version not in READABLE_VERSIONS:
            raise self._damaged(f"has version {catalog.version}")
        return catalog

    def _damaged(self, how: str) -> StateDamaged:
        return StateDamaged(
            f"{self._path} {how}",
            advice=f"Nothing was changed. Restore the file from a backup, or copy {self._previous.name} over it: that "
            "is the catalog before its newest change.",
            path=str(self._path),
        )

    def save(self, catalog: Catalog) -> None:
        """Replace the stored catalog. The secrets that it names are made durable first. Directories of streams that it
        no longer has are marked as dropped; only marked directories are ever deleted. Raises DiskFull or
        StateUnavailable, and then keeps the old catalog."""
        text = dump(catalog.lasting())
        before = text if self._text is None else self._text
        with state_errors(self._path):
            self.vault.write(self._root, names_in(text) | names_in(before))
            for name in self.catalog.streams.keys() - catalog.streams.keys():
                directory = stream_directory(self._root, name)
                if directory.is_dir():
                    write_atomic(directory / DROPPED, b"")
        if not self._path.exists():  # the previous one alone means that the catalog was lost
            store_text(self._path, before)
        store_text(self._previous, before)
        store_text(self._path, text)
        self.catalog, self._text = catalog, text
