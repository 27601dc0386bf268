"""How the states of pipelines change with what happens to their streams.

Pure: a catalog in, a catalog out; the same object when nothing changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from headrace.model.program import PipelineDef
from headrace.model.status import State
from headrace.state.catalog import Catalog


def reopened(catalog: Catalog) -> Catalog:
    """The states as a hub finds them when it is opened."""
    for name in catalog.streams:
        again = _instances_in(catalog, name, "created", "running", "finished")
        catalog = catalog.marked(again, "starting", "the hub was opened")
        catalog = catalog.marked(_instances_in(catalog, name, "stopping"), "stopped", "the hub was closed")
    return catalog


def going_on(catalog: Catalog, stream: str) -> Catalog:
    """A stream whose source had ended runs again."""
    return catalog.marked(_instances_in(catalog, stream, "finished"), "starting", "its stream goes on")


def starting(catalog: Catalog, stream: str) -> list[str]:
    """Who waits for a first epoch, by `PipelineDef.run`."""
    return [r.definition.run for r in catalog.of_stream(stream) if r.state == "starting"]


def planned(catalog: Catalog, stream: str, runs: Collection[str]) -> Catalog:
    """An epoch with these was planned: they run."""
    waiting = [r.definition for r in catalog.of_stream(stream) if r.state == "starting"]
    return catalog.marked([d.instance for d in waiting if d.run in runs], "running", "its first epoch is planned")


def stopped(catalog: Catalog, pipelines: Sequence[PipelineDef], reason: str) -> Catalog:
    """These have come to their end. One that was started again meanwhile has another generation, and is left alone."""
    ended = {(p.instance, p.generation) for p in pipelines}
    now = [r.definition for r in catalog.pipelines.values() if r.state == "stopping"]
    return catalog.marked([d.instance for d in now if (d.instance, d.generation) in ended], "stopped", reason)


def failed(catalog: Catalog, stream: str, failures: Mapping[str, str]) -> Catalog:
    """Without the pipelines of a stream that failed, by `PipelineDef.run`; their error is kept. One that was started
    again since is left alone."""
    for record in list(catalog.of_stream(stream)):
        reason = failures.get(record.definition.run)
        if reason is None or not (record.desired == "running" or record.state == "stopping"):
            continue
        catalog = catalog.with_pipeline(record.to("failed", reason))
        if record.desired == "running":  # the end of the others is told already
            catalog = catalog.with_end(record.definition, flush=False)
    return catalog


def detached(catalog: Catalog, stream: str, lost: Mapping[str, dict[str, str]]) -> Catalog:
    """Without the sinks that are `lost`, by `PipelineDef.run`; their pipelines go on with the others."""
    for record in list(catalog.of_stream(stream)):
        new = lost.get(record.definition.run, {})
        if record.desired == "running" and new.keys() - record.detached.keys():
            catalog = catalog.with_pipeline(replace(record, detached=record.detached | new))
    return catalog


def without_streams(catalog: Catalog, streams: Iterable[str]) -> Catalog:
    """Without these streams and their pipelines."""
    for name in streams:
        for record in list(catalog.of_stream(name)):
            catalog = catalog.without("pipeline", record.definition.name)
        catalog = catalog.without("stream", name)
    return catalog


def _instances_in(catalog: Catalog, stream: str, *states: State) -> list[int]:
    return [r.definition.instance for r in catalog.of_stream(stream) if r.state in states]
