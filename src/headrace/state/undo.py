"""Undoes a script whose stream could not be started: nothing that it declared may stay.

A pure function of three catalogs. Keeps changes that other statements made in the meantime.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from headrace.model.plan_version import PipelineExit
from headrace.sources import keeps_progress
from headrace.state.catalog import Catalog, PipelineRecord


def take_back(current: Catalog, before: Catalog, after: Catalog) -> Catalog:
    """`current` without the changes of a script from `before` to `after`, except those that were overwritten since.

    Instances that the script created get an end, because an epoch of another stream may know them. Pipelines that it
    ended go on, so their ends are removed. Sinks and streams that a newer pipeline uses stay.
    """
    catalog = current
    for name in _changed(*({n: _wanted(r) for n, r in c.pipelines.items()} for c in (before, after, current))):
        made, old = after.pipelines.get(name), before.pipelines.get(name)
        if made is not None and (old is None or old.definition.lane != made.definition.lane):
            catalog = catalog.with_end(made.definition, flush=False)
        catalog = catalog.without("pipeline", name) if old is None else catalog.with_pipeline(old)
    for name in _changed(before.sinks, after.sinks, current.sinks):
        sink = before.sinks.get(name)
        if sink is not None:
            catalog = catalog.with_sink(sink)
        elif not catalog.users_of_sink(name):
            catalog = catalog.without("sink", name)
    for name in _changed(before.streams, after.streams, current.streams):
        stream, now = before.streams.get(name), after.streams.get(name)
        if stream is not None and now is not None and keeps_progress(stream, now):
            catalog = catalog.with_stream(stream)
        elif not any(catalog.of_stream(name)):
            catalog = catalog.without("stream", name)
            catalog = catalog if stream is None else catalog.with_stream(stream)
    for name in _changed(before.views, after.views, current.views):
        view = before.views.get(name)
        catalog = catalog.without("view", name) if view is None else catalog.with_view(view)
    exits = withdrawn(catalog, before, after)
    return replace(catalog, ended=tuple(e for e in catalog.ended if e not in exits))


def withdrawn(catalog: Catalog, before: Catalog, after: Catalog) -> tuple[PipelineExit, ...]:
    """The exits of a script that do not happen, because `catalog` has the pipelines again that used these lanes."""
    now = {record.definition.run for record in catalog.pipelines.values()}
    lanes = {r.definition.lane for r in before.pipelines.values() if r.definition.run in now}
    return tuple(e for e in after.ended if e not in before.ended and e.pipeline.lane in lanes)


def _wanted(record: PipelineRecord) -> object:
    """The part of a record that a script determines. The history of states is not part of it."""
    return record.definition, record.desired, record.detached


def _changed(before: Mapping[str, Any], after: Mapping[str, Any], current: Mapping[str, Any]) -> Iterator[str]:
    """The names that the script changed and no other statement has changed since."""
    names = dict.fromkeys([*before, *after])
    return (n for n in names if before.get(n) != after.get(n) and current.get(n) == after.get(n))
