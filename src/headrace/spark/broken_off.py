"""What the sinks of a pipeline owe of an epoch whose commit hung in one of them and was given up.

The stream commits the epoch without the pipeline. If no sink of the pipeline shows it, nothing is owed. But the sink
that hangs may show it when it answers, and others may show it already. The argument for exactly once is that of
`headrace.sinks.delivery`: an epoch is decided from the moment in which the first of its sinks may commit. At that
moment all sinks have promised it, durably. So, if it is decided, the sinks that have not committed owe it. The debts
are part of the stream's progress, and become durable with the epoch that goes on without the pipeline. If the hub dies
before, the epoch runs again, and a sink that shows it decides it again. A debt is committed under the key of the
epoch, so a sink that had committed it after all keeps one copy.

What cannot be completed or is not known is logged as a warning that names pipeline, sink and epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from headrace.errors import HeadraceError, SinkFailed
from headrace.model.definitions import PipelineDef
from headrace.sinks.delivery import Delivered
from headrace.sinks.sink_kind import DriverSink, DurablePromises, SinkKey, Staged

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrokenOff:
    """How far the delivery of an epoch came: the sinks that have to commit it, with what is staged there, and those
    that have promised rows. None have to if it is not decided (`headrace.sinks.delivery.Delivery`)."""

    epoch: int
    left: Mapping[str, Sequence[Staged]]
    promised: Collection[str]


def owed_by_hanging(
    pipeline: PipelineDef,
    key: SinkKey,
    failure: str,
    *,
    asked: Sequence[str],
    hanging: Collection[str],
    known: BrokenOff | None,
    open_sink: Callable[[str], DriverSink],
) -> Delivered:
    """What the sinks `asked` of a pipeline owe of the epoch `key`, which the stream commits without it. No `hanging`
    sink is used. `known` is how far a commit of this process came. Without it, sinks that answer say whether an earlier
    process has decided the epoch."""
    result = Delivered(failure=failure)
    promised: Collection[str] = ()
    if known is not None and known.epoch == key.epoch:
        left, promised = known.left, known.promised
    elif len(asked) == 1:  # it may have begun to show the epoch
        left = dict.fromkeys(asked, ())
    else:
        answers = [name for name in asked if name not in hanging]
        shown = {name for name in answers if _says(partial(_shows, open_sink, name, key))}
        left = {name: () for name in asked if name not in shown} if shown else {}
        if not shown and any(_says(partial(_promised, open_sink, name, key)) for name in answers):
            _warn(pipeline, key, ", ".join(hanging), "does not say whether it has the epoch; no other sink gets it")
    for name, staged in left.items():
        sink = None if name in hanging else _opened(open_sink, name)
        if sink is None or isinstance(sink, DurablePromises):  # only sinks that do I/O hang, or cannot be opened
            result.owed.append(name)
            if name in promised:
                result.promised.append(name)
        else:
            _show_now(pipeline, key, name, staged=staged, sink=sink)
    return result


def _opened(open_sink: Callable[[str], DriverSink], name: str) -> DriverSink | None:
    try:
        return open_sink(name)
    except HeadraceError:
        return None


def _says(asks: Callable[[], bool]) -> bool:
    """What a sink answers; False if it cannot. The stream does not wait for it: its pipeline is left out."""
    try:
        return asks()
    except HeadraceError:
        return False


def _shows(open_sink: Callable[[str], DriverSink], name: str, key: SinkKey) -> bool:
    return open_sink(name).committed(key)


def _promised(open_sink: Callable[[str], DriverSink], name: str, key: SinkKey) -> bool:
    sink = open_sink(name)
    return isinstance(sink, DurablePromises) and sink.promised(key)


def _show_now(pipeline: PipelineDef, key: SinkKey, name: str, *, staged: Sequence[Staged], sink: DriverSink) -> None:
    """Commit the epoch in a sink of this process, whose rows outlive no debt."""
    try:
        if staged:
            sink.commit(key, list(staged))
        elif not sink.committed(key):
            _warn(pipeline, key, name, "may lack the rows of the epoch, which another sink has")
    except HeadraceError as problem:
        _warn(pipeline, key, name, f"lacks the rows of the epoch, which another sink has: {problem.message}")


def _warn(pipeline: PipelineDef, key: SinkKey, sink: str, what: str) -> None:
    problem = SinkFailed(
        f"a commit of epoch {key.epoch} hung in a sink of pipeline {pipeline.name}, and was given up: "
        f"sink {sink} {what}",
        advice="Compare the sinks of the pipeline.",
        pipeline=pipeline.name,
        sink=sink,
        epoch=key.epoch,
    )
    _log.warning(problem.render())
