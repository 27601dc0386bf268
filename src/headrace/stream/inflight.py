"""The epoch in flight: how old it is, what it waits for, and how long it may take.

Pure: the caller passes the times.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import EpochTimeout, SinkUnavailable, kind_of
from headrace.model.stream_options import StreamSettings
from headrace.stream.budget import EPOCHS

# An idle planner reports at every poll. If it is silent for longer than max_latency plus this, it is planning.
SILENCE_SECONDS = 10.0

PLANNING = "planning"  # the phase of an epoch whose tasks have not begun

# Added to the budgets of the pipelines, for reading, decoding and cold workers, when the stream has no max_epoch_time.
BESIDES_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class InFlight:
    """An epoch that is being planned or run. `phase` is what it waits for."""

    epoch: int
    age: float
    phase: str


def epoch_limit(settings: StreamSettings, pipelines: int) -> float | None:
    """How many seconds an epoch may take: `max_epoch_time` if the stream has it, else the sum of the time budgets of
    its pipelines, else no limit."""
    if settings.max_epoch_time is not None:
        return float(settings.max_epoch_time) / 1e6
    if settings.pipeline_time_budget is not None:
        return BESIDES_SECONDS + EPOCHS * pipelines * float(settings.pipeline_time_budget) / 1e6
    return None


def too_long(stream: str, found: InFlight, limit: float) -> EpochTimeout:
    """The error for an epoch that takes too long."""
    advice = "The epoch runs again. If one pipeline holds it up, that pipeline is found and stopped."
    if found.phase == PLANNING:
        advice = "It is tried again. The source may take long to say what there is to read; raise max_epoch_time then."
    return EpochTimeout(
        f"epoch {found.epoch} of stream {stream} is {found.age:.0f} s old and {_waits_for(found.phase)}; its limit "
        f"is {limit:g} s",
        advice=advice,
        stream=stream,
        epoch=found.epoch,
        phase=found.phase,
    )


def letters_too_late(stream: str, found: InFlight, limit: float) -> SinkUnavailable:
    """The error for an epoch that takes too long because of the sink of the dead letters. No pipeline is to blame, and
    the stream cannot go on without them: it tries again until the sink answers."""
    return SinkUnavailable(
        f"epoch {found.epoch} of stream {stream} is {found.age:.0f} s old and {_waits_for(found.phase)}; its limit "
        f"is {limit:g} s",
        advice="Find out why the sink does not answer. When it has answered, the stream continues by itself. Nothing "
        "is lost.",
        stream=stream,
        epoch=found.epoch,
        phase=found.phase,
    )


def sink_hangs(phase: str, epoch: int) -> EpochTimeout:
    """The error for a pipeline whose sink held up an epoch, and did not answer after the epoch was aborted either."""
    return EpochTimeout(
        f"epoch {epoch} waited for {phase}, which does not answer",
        advice="Find out why the sink does not answer. Then start the pipeline again: it begins without state.",
        epoch=epoch,
        phase=phase,
    )


def planning_took_too_long(problem: str) -> bool:
    """True if a problem is that of an epoch that was not planned in time. No pipeline has a part in that."""
    return kind_of(problem) is EpochTimeout and f" {_waits_for(PLANNING)};" in problem


def _waits_for(phase: str) -> str:
    return f"waits for {phase}"
