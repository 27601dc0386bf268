"""Taking a script back: its stream could not be started, so nothing that it declared may stay.

Pure: three catalogs in, one out. Others may have changed the catalog meanwhile; what they did is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.sources import keeps_progress
from headrace.state.catalog import Catalog, PipelineRecord


def take_back(current: Catalog, before: Catalog, after: Catalog) -> Catalog:
    """`current` without what a script changed from `before` to `after`, as far as it still stands.

    Instances that the script created end here: an epoch of another stream may have known them. What a newer pipeline
    uses stays.
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
        stream = before.streams.get(name)
        if stream is not None and keeps_progress(stream, after.streams[name]):
            catalog = catalog.with_stream(stream)
        elif not any(catalog.of_stream(name)):
            catalog = catalog.without("stream", name)
            catalog = catalog if stream is None else catalog.with_stream(stream)
    return catalog


def _wanted(record: PipelineRecord) -> object:
    """What a script says about a pipeline; when it came to be running is not of it."""
    return record.definition, record.desired, record.detached


def _changed(before: Mapping[str, Any], after: Mapping[str, Any], current: Mapping[str, Any]) -> Iterator[str]:
    """The names that the script changed, and nobody else since."""
    names = dict.fromkeys([*before, *after])
    return (n for n in names if before.get(n) != after.get(n) and current.get(n) == after.get(n))
