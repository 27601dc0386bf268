"""What the commit of an epoch asks of the epoch host, and what it gets. `headrace.spark.epoch_queries` runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headrace.bridge.spark_rows import RowsForSpark
from headrace.model.definitions import PipelineDef
from headrace.model.stream_options import StreamSettings
from headrace.sinks.sink_kind import SinkKey, Staged

EPOCHS = 8  # as in `headrace.stream.budget`: one long epoch is no reason to stop a pipeline


@dataclass(frozen=True, slots=True)
class EpochQuery:
    """The query of one pipeline in one epoch. `now` is the clock of the epoch in microseconds."""

    pipeline: PipelineDef
    key: SinkKey
    staged: tuple[RowsForSpark, ...]
    now: int


@dataclass(slots=True)
class QueryOutcome:
    """The result of a query: what each sink has staged, sinks that could not be written to, or why it failed."""

    receipts: dict[str, list[Staged]] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    failure: str = ""
    ms: float = 0.0


class QueryRunner(Protocol):
    """The epoch host, as the committer sees it."""

    def run(
        self, asked: Sequence[EpochQuery], limit: float | None, quit_now: Callable[[PipelineDef], bool]
    ) -> dict[int, QueryOutcome]:
        """The outcome of every query, by instance."""
        ...

    def forget(self, instances: set[int]) -> None:
        """Forget what is kept for these instances."""
        ...


def query_limit(settings: StreamSettings) -> float | None:
    """How many seconds the query of one pipeline may take in an epoch: half of `max_epoch_time`, so that the pipeline
    is stopped before the epoch is aborted, and no more than the time budget of `EPOCHS` epochs; else no limit."""
    limits = []
    if settings.max_epoch_time is not None:
        limits.append(settings.max_epoch_time / 2e6)
    if settings.pipeline_time_budget is not None:
        limits.append(EPOCHS * settings.pipeline_time_budget / 1e6)
    return min(limits, default=None)
