"""Runs one lane for one epoch: the entry point of Ring 1.

`advance` has no effect but on the store it is given: the same state and the same step give the same outcome. The
program alone decides how groups are kept: in logs (`log_lane`) for windows that emit on close, else in tables
(`table_lane`).
"""

from __future__ import annotations

from dataclasses import replace

from headrace.model.program import Meaning, Ring1Program
from headrace.ring1 import log_lane, table_lane
from headrace.ring1.lane_state import NOTHING, LaneHeader, LaneStep, Outcome, Store


def advance(program: Ring1Program, meaning: Meaning, store: Store, step: LaneStep) -> Outcome:
    """Merge the epoch's partial aggregates into the lane's state, close the windows that the watermark closes, and
    return the output.

    The watermark never goes back, even if the step has an older one.
    """
    if step.reset:
        store.clear()
    if step.drop and not step.flush:  # do not read the state: reading it may be what killed a worker
        store.clear()
        return NOTHING
    header = LaneHeader.decode(store.header())
    known = [w for w in (header.watermark, step.watermark) if w is not None]
    header.watermark = max(known) if known else None
    step = replace(step, watermark=header.watermark)
    window = program.window
    logged = program.emit == "close" and window is not None and window.kind != "session"
    layout = log_lane.advance if logged else table_lane.advance
    outcome = layout(program=program, meaning=meaning, store=store, header=header, step=step)
    if step.drop:
        store.clear()
        return Outcome(outcome.output, outcome.late, outcome.closed)
    store.set_header(header.encode())
    return outcome
