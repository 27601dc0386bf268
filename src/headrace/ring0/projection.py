"""What a task derives from a plan version. It is built once per worker and version, and kept for later tasks.

A worker keeps the projections of the newest `KEPT` plan versions.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.base.identity import kept_by_identity
from headrace.formats import FORMATS
from headrace.formats.format_kind import Format
from headrace.model.definitions import ComputedColumn
from headrace.model.plan_version import PlanVersion
from headrace.model.program import Meaning
from headrace.model.schema import View, field_at
from headrace.ring0.located import RecordLayout
from headrace.ring0.record_cells import RecordCells

# With many filters nearly every row passes one of them, and looking for the others costs as much as it saves.
MAX_FILTERS = 4
KEPT = 8


@dataclass(frozen=True, slots=True)
class Projection:
    """The columns that all pipelines need together, and how to get them.

    `first` are the columns that filters read, and the event time. If `selective`, they are parsed first, and the other
    columns only for rows that some filter keeps. Both lists have the columns that computed columns read. `computed` are
    the wanted computed columns. `families` are the instances that share a pass. `cells` are the values of a record in
    the wanted columns.
    """

    format: Format
    computed: tuple[ComputedColumn, ...]
    wanted: tuple[int, ...]
    filters: tuple[str, ...]
    first: tuple[int, ...]
    meaning: Meaning | None
    selective: bool
    families: tuple[tuple[int, ...], ...]
    layout: RecordLayout
    cells: RecordCells

    @staticmethod
    def build(plan: PlanVersion) -> Projection:
        """Build the projection. Call `projection_of`, which keeps it."""
        stream = plan.stream
        ring0 = [p.program.ring0 for p in plan.pipelines]
        wanted = tuple(plan.view.indexes(len(stream.schema)))
        filters = tuple(dict.fromkeys(r.filter for r in ring0 if r.filter is not None))
        needed = {c for r in ring0 for c in r.filter_columns}
        needed |= {stream.event_time} if stream.event_time is not None else set()
        first = stream.closed(View.some(needed)).indexes(len(stream.schema))
        # A filter that may make large values runs in its pipeline's own pass, which cuts the batch into pieces.
        all_filter = bool(ring0) and all(
            r.filter is not None and r.filter_columns and not r.growth.in_filter for r in ring0
        )
        return Projection(
            format=FORMATS[stream.format].make(stream.record_schema, stream.options),
            computed=tuple(c for c in stream.computed if c.index in wanted),
            wanted=wanted,
            filters=filters,
            first=first,
            meaning=plan.pipelines[0].program.meaning if plan.pipelines else None,
            selective=all_filter and len(filters) <= MAX_FILTERS and len(first) < len(wanted),
            families=tuple(plan.families),
            layout=RecordLayout(stream),
            cells=RecordCells.of(field_at(stream.schema, column).type for column in wanted),
        )


@kept_by_identity(KEPT)
def projection_of(plan: PlanVersion) -> Projection:
    """The projection of this plan object. `headrace.state.plans.unpack_plan` returns one object for equal plans, so
    tasks of one plan version share it."""
    return Projection.build(plan)
