"""Where tasks stage the rows of sinks that have no directory of their own: the stream's directory in the state
directory, or the one that the option `staging` names. All machines must see it under the same path.

The planner and the committer both add it to the sinks of a plan, because both know the stream's directory. It is not
stored with the sink, so a restored or moved state directory stages in its new place.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from headrace.model.definitions import FEED, LateRows, PipelineDef, SinkDef
from headrace.model.plan_version import PlanVersion
from headrace.sinks import SINKS

OPTION = "staging"
STAGING = "staging"


def staged_in(sink: SinkDef, directory: Path, feeds: Path | None = None) -> SinkDef:
    """`sink` with a staging directory below `directory`, if its kind has the option and the user did not set it. Else
    the same object. A feed finds its place beside its staging directory: with `feeds`, that is below the directory of
    a stream, which `directory` then is not."""
    declared = {option.name for option in SINKS[sink.kind].all_options}
    if OPTION not in declared or any(name.lower() == OPTION for name in sink.options):
        return sink
    place = feeds if feeds is not None and sink.kind == FEED else directory
    return replace(sink, options={**sink.options, OPTION: str(place.absolute() / STAGING)})


def plan_staged_in(plan: PlanVersion, directory: Path) -> PlanVersion:
    """`plan` with a staging directory in every sink that needs one. The same object if none does."""
    letters = plan.stream.dead_letters
    used = [sink for p in plan.pipelines for sink, _ in p.outlets] + ([] if letters is None else [letters])
    if all(staged_in(sink, directory) is sink for sink in used):
        return plan
    stream = plan.stream if letters is None else replace(plan.stream, dead_letters=staged_in(letters, directory))
    return replace(plan, stream=stream, pipelines=tuple(pipeline_staged_in(p, directory) for p in plan.pipelines))


def pipeline_staged_in(pipeline: PipelineDef, directory: Path, feeds: Path | None = None) -> PipelineDef:
    """`pipeline` with a staging directory in every sink that needs one, as `staged_in` has it."""
    late = pipeline.late
    return replace(
        pipeline,
        sinks=tuple(staged_in(sink, directory, feeds) for sink in pipeline.sinks),
        late=None if late is None else LateRows(staged_in(late.sink, directory), late.outputs),
    )
