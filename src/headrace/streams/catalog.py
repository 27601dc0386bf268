"""What is declared: streams, sinks, pipelines. Durable, atomic, versioned; no half-registered thing is ever visible.

A `Catalog` is immutable; a script works on a draft and `CatalogFile.save` replaces the old one whole, or nothing
happens.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

from headrace.codec import dump
from headrace.durable import state_errors, write_atomic
from headrace.errors import ExternalError, StateDamaged
from headrace.program import Left, PipelineDef, SinkDef, StreamDef
from headrace.status import Change, State
from headrace.stored import store_text, stored
from headrace.streams.lifecycle import Desired, desired_in, follow
from headrace.streams.secrets import Vault, names_in, read_vault
from headrace.streams.state_dir import DROPPED, STREAMS, stream_directory

CATALOG_VERSION = 2  # since 2 streams name their secrets
READABLE_VERSIONS = (1, CATALOG_VERSION)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PipelineRecord:
    """A pipeline and what became of it. `detached` are the sinks that it goes on without, and why."""

    definition: PipelineDef
    history: tuple[Change, ...] = (Change("created", "", 0.0),)
    detached: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> State:
        return self.history[-1].state

    @property
    def desired(self) -> Desired:
        """Whether the plan has it."""
        return desired_in(self.state)

    @property
    def error(self) -> str:
        """Why it failed, if it has."""
        return self.history[-1].reason if self.state == "failed" else ""

    @property
    def attached(self) -> PipelineDef:
        """The pipeline with the sinks that are written to."""
        late = self.definition.late
        return replace(
            self.definition,
            sinks=tuple(s for s in self.definition.sinks if s.name not in self.detached),
            late=None if late is not None and late.sink.name in self.detached else late,
        )

    def to(self, state: State, reason: str, at: float | None = None) -> PipelineRecord:
        """The record after a change. Raises IllegalTransition."""
        now = time.time() if at is None else at
        return replace(self, history=follow(self.history, state, reason, now))


@dataclass(frozen=True, slots=True)
class Catalog:
    """All declarations, by name (lower case: names are compared without case). Methods return a changed copy.

    `ended` are instances that ended and whose lanes no plan version tells of it yet: stored with what ended them, so
    that a crash before the plan is published leaves no state behind.
    """

    version: int = CATALOG_VERSION
    next_instance: int = 1
    streams: dict[str, StreamDef] = field(default_factory=dict)
    sinks: dict[str, SinkDef] = field(default_factory=dict)
    pipelines: dict[str, PipelineRecord] = field(default_factory=dict)
    ended: tuple[Left, ...] = ()

    def stream(self, name: str) -> StreamDef | None:
        return self.streams.get(name.lower())

    def sink(self, name: str) -> SinkDef | None:
        return self.sinks.get(name.lower())

    def pipeline(self, name: str) -> PipelineRecord | None:
        return self.pipelines.get(name.lower())

    def stream_names(self) -> tuple[str, ...]:
        return tuple(s.name for s in self.streams.values())

    def sink_names(self) -> tuple[str, ...]:
        return tuple(s.name for s in self.sinks.values())

    def pipeline_names(self) -> tuple[str, ...]:
        return tuple(p.definition.name for p in self.pipelines.values())

    def of_stream(self, name: str) -> Iterator[PipelineRecord]:
        """The pipelines that read a stream."""
        return (p for p in self.pipelines.values() if p.definition.program.stream.lower() == name.lower())

    def running(self, stream: str) -> tuple[PipelineDef, ...]:
        """The pipelines of a stream that should run, in the order of their instances."""
        wanted = (p.attached for p in self.of_stream(stream) if p.desired == "running")
        return tuple(sorted(wanted, key=lambda d: d.instance))

    def users_of_sink(self, name: str) -> list[str]:
        """The pipelines that write to a sink, and the streams whose dead letters go there."""
        lowered = name.lower()
        records = self.pipelines.values()
        writing = [
            p.definition.name for p in records if any(s.name.lower() == lowered for s, _ in p.definition.outlets)
        ]
        letters = [s for s in self.streams.values() if s.dead_letters and s.dead_letters.name.lower() == lowered]
        return [*writing, *(s.name for s in letters)]

    def with_stream(self, stream: StreamDef) -> Catalog:
        return replace(self, streams={**self.streams, stream.name.lower(): stream})

    def with_sink(self, sink: SinkDef) -> Catalog:
        return replace(self, sinks={**self.sinks, sink.name.lower(): sink})

    def with_pipeline(self, record: PipelineRecord) -> Catalog:
        """Add or change a pipeline; an instance number that was used is never given again."""
        return replace(
            self,
            pipelines={**self.pipelines, record.definition.name.lower(): record},
            next_instance=max(self.next_instance, record.definition.instance + 1),
        )

    def marked(self, instances: Collection[int], state: State, reason: str) -> Catalog:
        """The catalog after these instances have changed their state; without those for which that is nothing new."""
        changed = self
        for record in self.pipelines.values():
            if record.definition.instance in instances and record.state != state:
                changed = changed.with_pipeline(record.to(state, reason))
        return changed

    def with_end(self, pipeline: PipelineDef, flush: bool, drop: bool = True) -> Catalog:
        """Note that an instance ends here; it may begin anew, or go on if its state is not dropped."""
        left = Left(pipeline, flush, self.next_instance, drop)
        return replace(self, ended=(*self.ended, left), next_instance=self.next_instance + 1)

    def without_stop(self, instance: int) -> Catalog:
        """It is started again before any plan told of its stop, which had kept its state."""
        kept = tuple(e for e in self.ended if e.drop or e.pipeline.instance != instance)
        return replace(self, ended=kept) if kept != self.ended else self

    def ended_on(self, stream: str) -> tuple[Left, ...]:
        """The ends of a stream's pipelines that are still to be told."""
        return tuple(e for e in self.ended if e.pipeline.program.stream.lower() == stream.lower())

    def without_ends(self, stream: str) -> Catalog:
        """A plan version tells them now, or the stream is gone with all its state."""
        told = self.ended_on(stream)
        return replace(self, ended=tuple(e for e in self.ended if e not in told)) if told else self

    def without(self, kind: Literal["stream", "sink", "pipeline"], name: str) -> Catalog:
        """Remove one declaration."""
        lowered = name.lower()
        if kind == "stream":
            return replace(self.without_ends(name), streams=_omit(self.streams, lowered))
        if kind == "sink":
            return replace(self, sinks=_omit(self.sinks, lowered))
        return replace(self, pipelines=_omit(self.pipelines, lowered))


def _omit(entries: dict[str, T], name: str) -> dict[str, T]:
    return {k: v for k, v in entries.items() if k != name}


class CatalogFile:
    """The catalog on disk, and the secrets that it names. One process, one lock around it: the hub's.

    `catalog.previous.json` is the catalog before the newest change. A catalog that is missing or cannot be read is an
    error wherever there are signs that there was one: an empty one would give up every stream.
    """

    def __init__(self, state_dir: Path, vault: Vault | None = None) -> None:
        self._root = state_dir
        self._path, self._previous = state_dir / "catalog.json", state_dir / "catalog.previous.json"
        self.vault = vault or Vault()
        self.catalog = Catalog()
        self._text: str | None = None  # what is stored; None when that was not read

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
                raise self._damaged(f"is missing, although there is {signs[0]}") from None
            return Catalog()
        if catalog.version not in READABLE_VERSIONS:
            raise self._damaged(f"has version {catalog.version}")
        return catalog

    def _damaged(self, how: str) -> StateDamaged:
        return StateDamaged(
            f"{self._path} {how}",
            advice=f"Nothing was changed. Put the file back from a backup, or copy {self._previous.name} over it: that "
            "is the catalog before its newest change.",
            path=str(self._path),
        )

    def save(self, catalog: Catalog) -> None:
        """Replace the stored catalog. What it names is durable before, and streams that it does not have any more are
        marked as dropped: only what bears that mark is ever deleted. Raises DiskFull or StateUnavailable: then the old
        catalog stands."""
        text = dump(catalog)
        before = text if self._text is None else self._text
        with state_errors(self._path):
            self.vault.write(self._root, names_in(text) | names_in(before))
            for name in self.catalog.streams.keys() - catalog.streams.keys():
                directory = stream_directory(self._root, name)
                if directory.is_dir():
                    write_atomic(directory / DROPPED, b"")
        store_text(self._previous, before)
        store_text(self._path, text)
        self.catalog, self._text = catalog, text
