"""What becomes of plans after they are published, on several streams at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from headrace.control.acks import Ack
from headrace.errors import HeadraceError, StopTimeout
from headrace.program import PipelineDef
from headrace.runtime import StreamRuntime


@dataclass(frozen=True)
class Published:
    """A plan version of a stream. It is `needed` if any pipeline is in it; those `ending` have come to their end when
    `ack` is there. Those `dropped` keep nothing: an epoch that does not end may be given up to get rid of them.
    With `leaving` nothing was started or changed."""

    name: str
    runtime: StreamRuntime
    version: int
    needed: bool
    ending: Sequence[PipelineDef]
    ack: Future[Ack] | None
    dropped: Sequence[PipelineDef] = ()
    leaving: bool = False

    @property
    def reached(self) -> bool:
        """Whether an epoch with it was planned, and nobody ends any more."""
        return self.runtime.planned >= self.version and (self.ack is None or self.ack.done())


def end_of(ack: Future[Ack]) -> str:
    """Why pipelines that waited for `ack` are stopped now that it is there."""
    if (problem := ack.exception()) is not None:
        return f"the stream ended first: {problem}"
    return f"all rows before {ack.result().signal} are in its sinks"


@contextlib.contextmanager
def noting(problems: list[Exception]) -> Iterator[None]:
    """Add what goes wrong in here to `problems`, and go on."""
    try:
        yield
    except Exception as problem:
        problems.append(problem)


def weightiest(problems: list[Exception]) -> Exception:
    """The one to raise, with the others as notes: a script is taken back unless it is only late to end something."""
    first, *others = sorted(problems, key=lambda p: (isinstance(p, StopTimeout), not isinstance(p, HeadraceError)))
    for other in others:
        first.add_note(f"also: {other}")
    return first
