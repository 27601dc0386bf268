"""The options of a sink that hold a secret, such as a password. Catalog and plans have only names of secrets
(`headrace.state.secrets`); the driver side of a sink gets the values, tasks never do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headrace.model.program import SinkDef
from headrace.sinks import SINKS


def secret_options(sink: SinkDef) -> set[str]:
    """The options of a sink that hold a secret, in the sink's own spelling."""
    declared = SINKS[sink.kind].all_options
    return {name for name, value in sink.options.items() if value and any(o.hides(name) for o in declared)}


def revealed(sink: SinkDef, reveal: Callable[[str], str]) -> SinkDef:
    """The sink with the values of its secrets, for its driver side."""
    secret = secret_options(sink)
    if not secret:
        return sink
    return replace(sink, options={k: reveal(v) if k in secret else v for k, v in sink.options.items()})
