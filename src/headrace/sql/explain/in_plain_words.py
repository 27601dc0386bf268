"""The first lines of EXPLAIN: what a pipeline reads, what it keeps as state, and what its sinks guarantee."""

from __future__ import annotations

from headrace.model.program import Ring1Program
from headrace.model.schema import field_at, root_of
from headrace.sinks import SINKS
from headrace.sql.plan.physical import show_window
from headrace.sql.planner import Planned

# One line for each word of ours that the rest of the text uses. docs/glossary.md has the others.
RING0 = "ring 0 (in the tasks that read the stream)"
BRIDGE = "bridge (from the tasks to the state; a lane is one part of a pipeline's groups)"
RING1 = "ring 1 (in Spark's state store)"


def plain_words(planned: Planned) -> list[str]:
    """Three lines. They begin with `reads:`, `keeps:` and `guarantees:`."""
    return [f"reads: {_reads(planned)}", f"keeps: {_keeps(planned)}", f"guarantees: {_guarantees(planned)}"]


def _reads(planned: Planned) -> str:
    stream, view = planned.stream, planned.program.view
    wanted = view.indexes(len(stream.schema))
    total = len(stream.schema)
    number = len({root_of(stream.schema, i) for i in wanted})  # two fields of one STRUCT are one column
    if not wanted:
        columns = f"none of its {total} columns, only the number of rows"
    else:
        shown = [field_at(stream.schema, i).name for i in wanted[:8]]
        more = f" and {len(wanted) - 8} more" if len(wanted) > 8 else ""
        columns = f"{number} of its {total} columns: {', '.join(shown)}{more}"
    query = planned.program.dedicated
    others = "" if query is None else "".join(f"; stream {given.stream}" for given in query.inputs[1:])
    return f"stream {stream.name} ({stream.source}, {stream.format}), {columns}{others}"


def _keeps(planned: Planned) -> str:
    ring1 = planned.program.ring1
    if planned.program.dedicated is not None:
        return "the state of Spark's own operators, in a checkpoint of its own"
    if ring1 is None:
        return "no state: every row is handled by itself"
    what = "the result so far" if planned.program.ring0.partials else "one entry"
    number = len(ring1.keys)
    keys = f" for each group ({number} key{'s' if number > 1 else ''})" if number else ""
    if ring1.window is not None:
        keys = f"{keys} and open window" if number else " for each open window"
    return f"{what}{keys or ' of all rows'}, {_until(ring1)}"


def _until(ring1: Ring1Program) -> str:
    if ring1.window is None:
        return "for as long as the pipeline exists"
    return f"until the watermark closes the window ({show_window(ring1.window)})"


def _guarantees(planned: Planned) -> str:
    if not planned.sinks:
        return "nothing, because it has no sink"
    return "; ".join(f"sink {sink.name}: {SINKS[sink.kind].guarantee_of(sink)}" for sink in planned.sinks)
