"""The epoch that a stream is in: how old it is, what it waits for, and how long it may take.

Pure: the times come from the caller.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import EpochTimeout
from headrace.model.stream_options import StreamSettings
from headrace.stream.budget import EPOCHS

# An idle planner says so at every poll. Silence for longer than this, beyond what max_latency explains, is planning.
SILENCE_SECONDS = 10.0

# What an epoch may take besides its pipelines, when only they have a budget: reading, decoding, cold workers.
BESIDES_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class InFlight:
    """An epoch that is planned or run; `phase` says what it waits for."""

    epoch: int
    age: float
    phase: str


def epoch_limit(settings: StreamSettings, pipelines: int) -> float | None:
    """How many seconds an epoch may take, by the stream's options: `max_epoch_time`; else, when pipelines have a time
    budget, what that allows to all of them together."""
    if settings.max_epoch_time is not None:
        return float(settings.max_epoch_time) / 1e6
    if settings.pipeline_time_budget is not None:
        return BESIDES_SECONDS + EPOCHS * pipelines * float(settings.pipeline_time_budget) / 1e6
    return None


def too_long(stream: str, found: InFlight, limit: float) -> EpochTimeout:
    """The epoch is older than it may be."""
    return EpochTimeout(
        f"epoch {found.epoch} of stream {stream} is {found.age:.0f} s old and waits for {found.phase}; it may take "
        f"{limit:g} s",
        advice="It is run again. If one pipeline holds it up, that is found and stopped.",
        stream=stream,
        epoch=found.epoch,
        phase=found.phase,
    )
