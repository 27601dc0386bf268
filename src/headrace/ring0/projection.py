"""What a plan version means for a task: built once per worker and version, however many tasks and epochs it runs.

A worker keeps the newest few; tasks of one epoch, and of those that follow with the same plan, find it built.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.formats import FORMATS
from headrace.formats.base import Format
from headrace.model.program import Meaning, PlanVersion

# With many filters hardly a row is wanted by none of them, and looking for such rows costs as much as it saves.
MAX_FILTERS = 4
KEPT = 8


@dataclass(frozen=True, slots=True)
class Projection:
    """The columns that all pipelines need together, and how to get them.

    `first` are the columns that filters read and the event time; when `selective`, they are parsed before the others,
    which are then parsed only for rows that some filter keeps. `families` are the instances that share a pass.
    """

    format: Format
    wanted: tuple[int, ...]
    filters: tuple[str, ...]
    first: tuple[int, ...]
    meaning: Meaning | None
    selective: bool
    families: tuple[tuple[int, ...], ...]

    @staticmethod
    def build(plan: PlanVersion) -> Projection:
        """Work it out; `projection_of` does so only when it must."""
        stream = plan.stream
        ring0 = [p.program.ring0 for p in plan.pipelines]
        wanted = tuple(plan.view.indexes(len(stream.schema)))
        filters = tuple(dict.fromkeys(r.filter for r in ring0 if r.filter is not None))
        needed = {c for r in ring0 for c in r.filter_columns}
        first = tuple(sorted(needed | ({stream.event_time} if stream.event_time is not None else set())))
        # A filter that makes values of any size runs in its pipeline's own pass, which cuts the batch.
        all_filter = bool(ring0) and all(
            r.filter is not None and r.filter_columns and not r.growth.in_filter for r in ring0
        )
        return Projection(
            FORMATS[stream.format].make(stream.schema, stream.options),
            wanted,
            filters,
            first,
            plan.pipelines[0].program.meaning if plan.pipelines else None,
            all_filter and len(filters) <= MAX_FILTERS and len(first) < len(wanted),
            tuple(plan.families),
        )


_built: dict[int, tuple[PlanVersion, Projection]] = {}


def projection_of(plan: PlanVersion) -> Projection:
    """The projection of this very plan object; `headrace.state.plans.parse_plan` gives one object for equal plans."""
    found = _built.get(id(plan))
    if found is None or found[0] is not plan:
        while len(_built) >= KEPT:
            del _built[next(iter(_built))]
        found = _built[id(plan)] = (plan, Projection.build(plan))
    return found[1]
