"""Whether a hub is ready: every stream and pipeline that should run does run."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError, NotReady, PipelineFailed, StreamFailed, kind_of

if TYPE_CHECKING:
    from headrace.hub.hub import Hub
    from headrace.model.status import PipelineStatus, StreamStatus

_ADVICE = "Wait for those that are starting. The others say what is wrong; headrace status shows all of them."


def require_ready(hub: Hub, startup: str = "") -> None:
    """Raise NotReady with one error for each stream and pipeline that should run and does not. `startup` is what the
    process still has to do before anything can run; empty if nothing."""
    found = [*([NotReady(startup)] if startup else []), *_culprits(hub)]
    if found:
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        raise NotReady(f"the hub is not ready: {found[0].message}{more}", advice=_ADVICE, errors=tuple(found))


def _culprits(hub: Hub) -> list[HeadraceError]:
    found: list[HeadraceError] = []
    streams: dict[str, StreamStatus] = {}
    for name, stream in hub.streams.items():
        with suppress(HeadraceError):  # dropped since it was listed
            streams[name] = stream.status()
            if streams[name].problem:
                found.append(_error(StreamFailed, f"stream {name}", streams[name].problem))
    for pipeline in hub.pipelines.values():
        with suppress(HeadraceError):
            status = pipeline.status()
            culprit = _not_running(status, streams.get(status.stream))
            if culprit is not None:
                found.append(culprit)
    return found


def _not_running(status: PipelineStatus, stream: StreamStatus | None) -> HeadraceError | None:
    """Why a pipeline that should run does not. None if it runs, was stopped or has finished, and if its stream is the
    culprit."""
    what = f"pipeline {status.name}"
    match status.state:
        case "failed":
            return _error(PipelineFailed, what, status.error or "failed")
        case "created" | "starting":
            return NotReady(f"{what} is starting")
        case "retrying" | "dead" if stream is None or not stream.problem:
            return _error(StreamFailed, what, status.error or f"its stream is {status.state}")
        case "running" if stream is None or stream.state == "stopped":  # the hub closes
            return NotReady(f"{what} waits for its stream, which does not run")
    return None


def _error(default: type[HeadraceError], what: str, problem: str) -> HeadraceError:
    """The first line of `problem` as an error with the code that `problem` starts with."""
    kind, line = kind_of(problem), problem.split("\n")[0]
    return (kind or default)(f"{what}: {line.partition('] ')[2] if kind is not None else line}")
