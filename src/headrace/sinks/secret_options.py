"""The options of a sink that hold a secret, such as a password. Catalog and plans have only names of secrets
(`headrace.state.secrets`). The driver side of a sink gets the values. Tasks get only those that they need to stage rows
(`SinkKind.task_secrets`), with their work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headrace.model.definitions import LateRows, PipelineDef, SinkDef
from headrace.model.plan_version import PlanVersion
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


def secrets_for_tasks(plan: PlanVersion, reveal: Callable[[str], str]) -> PlanVersion:
    """`plan` with the secrets that its tasks need. The same object if they need none."""
    letters = plan.stream.dead_letters
    used = [sink for p in plan.pipelines for sink, _ in p.outlets] + ([] if letters is None else [letters])
    if not any(_needed(sink) for sink in used):
        return plan
    stream = plan.stream
    if letters is not None:
        stream = replace(stream, dead_letters=_with_needed(letters, reveal))
    return replace(plan, stream=stream, pipelines=tuple(pipeline_for_tasks(p, reveal) for p in plan.pipelines))


def pipeline_for_tasks(pipeline: PipelineDef, reveal: Callable[[str], str]) -> PipelineDef:
    """`pipeline` with the secrets that its tasks need. The same object if they need none."""
    if not any(_needed(sink) for sink, _ in pipeline.outlets):
        return pipeline
    late = pipeline.late
    return replace(
        pipeline,
        sinks=tuple(_with_needed(sink, reveal) for sink in pipeline.sinks),
        late=None if late is None else LateRows(_with_needed(late.sink, reveal), late.outputs),
    )


def _needed(sink: SinkDef) -> set[str]:
    needed = SINKS[sink.kind].task_secrets
    return {name for name in secret_options(sink) if name.lower() in needed} if needed else set()


def _with_needed(sink: SinkDef, reveal: Callable[[str], str]) -> SinkDef:
    needed = _needed(sink)
    if not needed:
        return sink
    return replace(sink, options={k: reveal(v) if k in needed else v for k, v in sink.options.items()})
