"""What a script changes: the seam between the draft of a script and the reconciler."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.definitions import PipelineDef
from headrace.state.catalog import Catalog


@dataclass(frozen=True, slots=True)
class StreamChange:
    """What a script, a failure or the opening of a hub changes on one stream.

    - `wait`: the caller waits until an epoch is planned with the new plan.
    - `graceful`: pipelines that end with a barrier. The caller waits until all rows before it are in their sinks.
    - `quick`: pipelines that end now, without waiting for the epoch in flight.
    - `start`: start the query if a pipeline needs it. Otherwise a stopped query stays stopped.
    - `revive`: restart the query if it is dead or retrying.
    - `only_leaves`: pipelines only leave; nothing is started or changed. A damaged stream or a full disk must not make
      the statement fail.
    - `patient`: retry a query that cannot be started, instead of raising.
    """

    stream: str
    wait: bool = False
    graceful: tuple[PipelineDef, ...] = ()
    quick: tuple[PipelineDef, ...] = ()
    start: bool = True
    revive: bool = False
    only_leaves: bool = False
    patient: bool = False


@dataclass(frozen=True, slots=True)
class ScriptEffects:
    """The catalog after a script, and the streams that it changes. Names are in lower case.

    `dropped` are streams to delete. `savepoints` are (name, stream or None for all), taken after everything else.
    """

    catalog: Catalog
    changes: tuple[StreamChange, ...] = ()
    dropped: frozenset[str] = frozenset()
    savepoints: tuple[tuple[str, str | None], ...] = ()

    @property
    def streams(self) -> frozenset[str]:
        """All streams that the script is about."""
        return self.dropped | {change.stream for change in self.changes}


@dataclass(frozen=True, slots=True)
class DeclaredScript:
    """A script whose catalog is saved and whose changes are still to be carried out. `before` is the catalog that a
    rollback goes back to. `warnings` are about streams that were deleted."""

    before: Catalog
    after: Catalog
    changes: tuple[StreamChange, ...]
    quick: tuple[PipelineDef, ...]
    warnings: tuple[str, ...] = ()

    @property
    def streams(self) -> set[str]:
        """The streams whose plan changes."""
        return {change.stream for change in self.changes}


def only_leaves(before: Catalog, after: Catalog, stream: str) -> bool:
    """True if a script starts and changes nothing on a stream."""
    same = before.stream(stream) == after.stream(stream)
    return same and {p.run for p in after.running(stream)} <= {p.run for p in before.running(stream)}
