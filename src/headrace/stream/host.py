"""What a stream needs from the hub that runs it, and from the engine that runs its query.

The hub's reconciler is the host and Spark is the launcher (`headrace.hub.launcher`). Tests have others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from headrace.ingress.gateway_service import GatewayService
    from headrace.model.definitions import PipelineDef
    from headrace.sinks import DriverSink
    from headrace.spark.committer import EpochCommitter
    from headrace.state.notices import NoticeBoard
    from headrace.state.plans import PlanStore
    from headrace.stream.dedicated_status import DedicatedState
    from headrace.stream.managed_query import ManagedQuery
    from headrace.stream.waiting import QueryWaits

OnEnd = Callable[[str | None], None]


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """A query to start. `options` are those of the stream's data source. The query calls `on_end` in its own thread
    when it ends, with the reason, or None if it was stopped. `planner_pid` returns the planning process, if
    known, and `pipelines` the names of those in the current plan."""

    stream: str
    directory: Path
    committer: EpochCommitter
    options: dict[str, str]
    on_end: OnEnd
    planner_pid: Callable[[], int | None]
    pipelines: Callable[[], list[str]]


class Query(Protocol):
    """A running query."""

    def stop(self) -> None:
        """End the query within a bounded time. An epoch in flight is given up and runs again with the next query."""
        ...

    def last_epoch(self) -> tuple[int, float] | None:
        """The newest epoch that the engine reports, and how many milliseconds it took; None before the first."""
        ...


@dataclass(frozen=True, slots=True)
class StreamFailures:
    """Failures that one stream reports. Both tables are keyed by `PipelineDef.run`: the reason why a pipeline failed,
    and the sinks that a pipeline lost, each with its reason. If both are empty, the stream only needs a new plan,
    because the set of pipelines that are measured alone has changed."""

    stream: str
    failed: Mapping[str, str]
    detached: Mapping[str, dict[str, str]]


class StreamHost(Protocol):
    """The hub, as a stream sees it. Any thread may call; no method waits for the hub's lock."""

    @property
    def board(self) -> NoticeBoard:
        """Receives the notices of planning processes."""
        ...

    @property
    def gateway(self) -> GatewayService:
        """Takes bytes for pushed streams."""
        ...

    def launch(self, request: QueryRequest) -> Query:
        """Start a query. Starts Spark first, if it does not run."""
        ...

    def waits(self, query: ManagedQuery, plans: PlanStore) -> QueryWaits:
        """Waits for this query, as its engine allows."""
        ...

    def declared_instances(self) -> set[int]:
        """The pipeline instances in the catalog."""
        ...

    def dedicated_sink(self, pipeline: PipelineDef, name: str) -> DriverSink | None:
        """A sink of a pipeline on the dedicated host; None for other pipelines."""
        ...

    def drain_dedicated(self, stream: str, timeout: float) -> bool:
        """Wait until pipelines on the dedicated host have read the rows of a stream. True if that was in time."""
        ...

    def dedicated_state(self, instance: int) -> DedicatedState:
        """The query of a pipeline on the dedicated host."""
        ...

    def report(self, failures: StreamFailures) -> None:
        """Drop failed pipelines and lost sinks from the next plan version. Returns at once."""
        ...
