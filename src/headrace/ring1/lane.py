"""One lane, one epoch: the door to Ring 1.

`advance` is pure but for the store it is given: same state, same step, same outcome. Which layout keeps a pipeline's
groups follows from its program alone: `log_lane` for windows that emit on close, `table_lane` for the rest.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.model.program import Meaning, Ring1Program
from headrace.ring1 import log_lane, table_lane
from headrace.ring1.state import LaneHeader, LaneStep, Outcome, Store


def advance(program: Ring1Program, meaning: Meaning, store: Store, step: LaneStep) -> Outcome:
    """Fold the epoch's partials into the lane's state, close what the watermark closes, and say what came out.

    The watermark never goes back, whatever a step says.
    """
    if step.reset:
        store.clear()
    if step.drop and not step.flush:  # untouched: what is in there may be what killed a worker
        store.clear()
        return Outcome(None, 0, 0, 0)
    header = LaneHeader.decode(store.header())
    known = [w for w in (header.watermark, step.watermark) if w is not None]
    header.watermark = max(known) if known else None
    step = replace(step, watermark=header.watermark)
    window = program.window
    logged = program.emit == "close" and window is not None and window.kind != "session"
    layout = log_lane.advance if logged else table_lane.advance
    outcome = layout(program, meaning, store, header, step)
    if step.drop:
        store.clear()
        return Outcome(outcome.output, outcome.late, outcome.closed)
    store.set_header(header.encode())
    return outcome
