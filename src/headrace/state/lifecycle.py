"""The states of a pipeline and the allowed transitions between them, in one table.

Every change has a reason and a time and is stored with the pipeline (`headrace.state.catalog.PipelineRecord`).
"""

from __future__ import annotations

from typing import Literal

from headrace.errors import IllegalTransition
from headrace.model.status import State, StateChange

# "finished": the finite source has ended and all windows are closed. It continues when its stream does.
TRANSITIONS: dict[State, tuple[State, ...]] = {
    "created": ("starting", "stopping", "failed"),
    "starting": ("running", "stopping", "failed", "finished"),
    "running": ("starting", "stopping", "failed", "finished"),  # starting: the hub was reopened
    "stopping": ("stopped", "starting", "failed"),
    "stopped": ("starting",),
    "failed": ("starting",),
    "finished": ("starting", "stopping", "failed"),
}
KEPT_CHANGES = 16
Desired = Literal["running", "stopped", "failed"]


def follow(history: tuple[StateChange, ...], state: State, reason: str, at: float) -> tuple[StateChange, ...]:
    """`history` with one more change. Keeps the newest `KEPT_CHANGES`. Raises IllegalTransition."""
    if history and state not in TRANSITIONS[history[-1].state]:
        raise IllegalTransition(
            f"a pipeline that is {history[-1].state} cannot become {state}",
            advice="This is a bug in headrace: please report it.",
            before=history[-1].state,
            after=state,
        )
    return (*history, StateChange(state, reason, at))[-KEPT_CHANGES:]


def desired_in(state: State) -> Desired:
    """What the stream's plan does with a pipeline in this state."""
    if state in ("stopping", "stopped"):
        return "stopped"
    return "failed" if state == "failed" else "running"
