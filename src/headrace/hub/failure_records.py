"""Records failures that streams report in the catalog, and logs those that are new."""

from __future__ import annotations

import logging

from headrace.base.logs import code_of, facts
from headrace.hub.declarations import Declarations
from headrace.state.catalog import PipelineRecord
from headrace.stream.host import StreamFailures

_log = logging.getLogger(__name__)


class FailureRecords:
    """The failures of one hub's pipelines. Any thread may call. A method that returns True has changed the catalog, so
    the stream needs a new plan version."""

    def __init__(self, declarations: Declarations) -> None:
        self._declarations = declarations

    def failed(self, failures: StreamFailures) -> bool:
        """Mark failed pipelines. Their error is kept."""
        before = self._not_ended(failures.stream)
        if not self._declarations.failed(failures.stream, failures.failed):
            return False
        for run, reason in failures.failed.items():
            if run in before:  # the others had failed or stopped before
                name = before[run].definition.name
                noted = facts("pipeline_failed", code_of(reason), stream=failures.stream, pipeline=name)
                _log.error("pipeline %s failed: %s", name, reason, extra=noted)
        return True

    def detached(self, failures: StreamFailures) -> bool:
        """Mark the sinks that pipelines have lost."""
        before = self._not_ended(failures.stream)
        if not self._declarations.detached(failures.stream, failures.detached):
            return False
        for run, record in before.items():
            lost, name = failures.detached.get(run, {}), record.definition.name
            for sink, reason in lost.items():
                if sink not in record.detached:
                    noted = facts("sink_detached", code_of(reason), stream=failures.stream, pipeline=name, sink=sink)
                    _log.warning("pipeline %s continues without sink %s: %s", name, sink, reason, extra=noted)
        return True

    def _not_ended(self, stream: str) -> dict[str, PipelineRecord]:
        """The pipelines of a stream that run or are stopping, by `PipelineDef.run`."""
        found = self._declarations.catalog.of_stream(stream)
        return {r.definition.run: r for r in found if r.desired == "running" or r.state == "stopping"}
