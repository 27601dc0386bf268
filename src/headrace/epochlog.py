"""What the epochs of a stream did, for Python's log: a line for each (INFO), and a warning for what should not be."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.program import StreamDef
from headrace.ring0.validity import policy_of
from headrace.sources.badfiles import read_summary
from headrace.status import pipeline_warning, stream_warning

if TYPE_CHECKING:
    from headrace.spark.summary import EpochSummary

_log = logging.getLogger(__name__)


class EpochLog:
    """Logs the epochs of one stream, in Spark's streaming thread. A stream or pipeline that rejects many rows is warned
    of once, a file that is left out when the next epoch is committed."""

    def __init__(self, stream: StreamDef, directory: Path) -> None:
        self._stream, self._directory = stream, directory / "source"
        self._rejects = policy_of(stream) in ("skip", "dead_letter")
        self._warned: set[str] = set()
        self._files = read_summary(self._directory).count

    def add(
        self, summary: EpochSummary, names: Callable[[], Mapping[int, str]], dropped: Callable[[], int] = lambda: 0
    ) -> None:
        """An epoch is committed. `names` gives the names of the pipelines in its plan, by instance, and `dropped` the
        records that the gateway gave up; both are asked only when that is logged."""
        progress, name = summary.progress, self._stream.name
        self._warn("", stream_warning(name, progress.rows, progress.rejected, progress.bad))
        known: Mapping[int, str] = {}
        if _log.isEnabledFor(logging.INFO) or any(p.bad for p in progress.pipelines.values()):
            known = names()
        for instance, pipeline in known.items():
            counted = progress.pipelines.get(str(instance))
            if counted is not None:
                text = pipeline_warning(pipeline, counted.rows_in, counted.bad, self._rejects)
                self._warn(str(instance), text)
        self._warn_of_files()
        if _log.isEnabledFor(logging.INFO):
            _log.info("stream %s, epoch %d: %s", name, summary.epoch, "; ".join(_words(summary, known, dropped())))

    def _warn(self, subject: str, text: str) -> None:
        if text and subject not in self._warned:
            self._warned.add(subject)
            _log.warning(text)

    def _warn_of_files(self) -> None:
        skipped = read_summary(self._directory)
        for path, why in skipped.newest[len(skipped.newest) - min(len(skipped.newest), skipped.count - self._files) :]:
            _log.warning("stream %s left out %s: %s", self._stream.name, path, why)
        self._files = skipped.count


def _words(summary: EpochSummary, names: Mapping[int, str], dropped: int) -> list[str]:
    """The epoch's rows, and what was lost since the beginning."""
    progress = summary.progress
    words = [f"{summary.rows:,} rows"]
    for what, count in {"rejected": progress.rejected, "dropped": dropped}.items():
        words += [f"{count:,} {what} so far"] if count else []
    for instance, name in names.items():
        counted = progress.pipelines.get(str(instance))
        if counted is not None:
            losses = {"late": counted.late, "bad": counted.bad, "missed": counted.missed_rows}
            said = [f"{n:,} {what}" for what, n in losses.items() if n]
            words += [f"{name} {', '.join(said)} so far"] if said else []
    return words
