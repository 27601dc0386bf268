"""Changes of pipeline states that follow from events of their streams.

Pure functions from catalog to catalog. They return the same object if nothing changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from headrace.model.definitions import PipelineDef
from headrace.model.status import State
from headrace.state.catalog import Catalog


def reopened(catalog: Catalog) -> Catalog:
    """The states after a hub was opened."""
    for name in catalog.streams:
        again = _instances_in(catalog, name, "created", "running", "finished")
        catalog = catalog.marked(again, "starting", "the hub was opened")
        catalog = catalog.marked(_instances_in(catalog, name, "stopping"), "stopped", "the hub was closed")
    return catalog


def going_on(catalog: Catalog, stream: str) -> Catalog:
    """The states when a stream runs again whose source had ended."""
    return catalog.marked(_instances_in(catalog, stream, "finished"), "starting", "its stream continues")


def starting(catalog: Catalog, stream: str) -> list[str]:
    """The pipelines that wait for their first epoch, by `PipelineDef.run`."""
    return [r.definition.run for r in catalog.of_stream(stream) if r.state == "starting"]


def planned(catalog: Catalog, stream: str, runs: Collection[str]) -> Catalog:
    """The states after an epoch with these pipelines was planned: they run."""
    waiting = [r.definition for r in catalog.of_stream(stream) if r.state == "starting"]
    return catalog.marked([d.instance for d in waiting if d.run in runs], "running", "its first epoch is planned")


def stopped(catalog: Catalog, pipelines: Sequence[PipelineDef], reason: str) -> Catalog:
    """These pipelines have stopped. One that was started again meanwhile has a newer generation, and is skipped."""
    ended = {(p.instance, p.generation) for p in pipelines}
    now = [r.definition for r in catalog.pipelines.values() if r.state == "stopping"]
    return catalog.marked([d.instance for d in now if (d.instance, d.generation) in ended], "stopped", reason)


def failed(catalog: Catalog, stream: str, failures: Mapping[str, str]) -> Catalog:
    """Mark pipelines of a stream as failed, by `PipelineDef.run`, with the reason. Skips a pipeline that was started
    again since."""
    for record in list(catalog.of_stream(stream)):
        reason = failures.get(record.definition.run)
        if reason is None or not (record.desired == "running" or record.state == "stopping"):
            continue
        catalog = catalog.with_pipeline(record.to("failed", reason))
        if record.desired == "running":  # the end of a stopping pipeline is recorded already
            catalog = catalog.with_end(record.definition, flush=False)
    return catalog


def detached(catalog: Catalog, stream: str, lost: Mapping[str, dict[str, str]]) -> Catalog:
    """Detach the `lost` sinks, by `PipelineDef.run`. Their pipelines continue with the other sinks."""
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
    return catalog.without_loose_views()


def _instances_in(catalog: Catalog, stream: str, *states: State) -> list[int]:
    return [r.definition.instance for r in catalog.of_stream(stream) if r.state in states]
