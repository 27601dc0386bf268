"""Writes the epochs of a stream to Python's log: a line for each epoch (INFO), and warnings about lost rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from headrace.base.logs import code_of, facts
from headrace.model.definitions import StreamDef
from headrace.model.status import REJECTED_SHARE, StreamState, pipeline_warning, stream_warning, untimed_warning
from headrace.ring0.validity import policy_of
from headrace.sources.badfiles import read_summary

if TYPE_CHECKING:
    from headrace.spark.summary import EpochSummary

_log = logging.getLogger(__name__)
# Besides all rows, the newest are checked, this many at a time. After months of good rows it would take weeks until a
# tenth of all rows is rejected.
RECENT = 1000


class EpochLog:
    """Logs the epochs of one stream, in Spark's streaming thread. It warns once about a stream or pipeline that rejects
    many of all rows, again whenever a stream begins to reject many of its newest rows, and about each file that is left
    out when the next epoch is committed."""

    def __init__(self, stream: StreamDef, directory: Path) -> None:
        self._stream, self._directory = stream, directory / "source"
        self._rejects = policy_of(stream) in ("skip", "dead_letter")
        self._warned: set[str] = set()
        self._judged: tuple[int, int] | None = None  # rows and rejected rows at the last check of the newest
        self._ill = False  # many of those rows were rejected
        self._files = read_summary(self._directory).count
        self._query: tuple[StreamState, int] = ("stopped", 0)

    def query(self, state: StreamState, problem: str, attempt: int) -> None:
        """The query of the stream is in this state now. A failure is logged once."""
        before, self._query = self._query, (state, attempt)
        if before == self._query:
            return
        name, code = self._stream.name, code_of(problem)
        if state == "retrying":
            noted = facts("stream_retrying", code, stream=name, attempt=attempt)
            _log.warning("stream %s failed and is started again (attempt %d): %s", name, attempt, problem, extra=noted)
        elif state == "dead":
            _log.error("stream %s is dead: %s", name, problem, extra=facts("stream_dead", code, stream=name))
        elif state == "running" and before[0] == "retrying":
            _log.info("stream %s runs again", name, extra=facts("stream_running", stream=name))

    def add(
        self,
        summary: EpochSummary,
        names: Callable[[], Mapping[int, str]],
        dropped: Callable[[], int] = lambda: 0,
        phases: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Log a committed epoch. `names` returns the names of the pipelines in its plan, by instance, and `dropped` how
        many records the gateway gave up. Both are called only when the answer is logged. `phases` are the
        milliseconds of the epoch."""
        progress, name = summary.progress, self._stream.name
        rejecting = stream_warning(
            name,
            rows=progress.rows,
            rejected=progress.rejected,
            nulled=progress.nulled,
            bad=progress.bad,
            kept_in="" if self._stream.dead_letters is None else self._stream.dead_letters.name,
        )
        self._warn("", rejecting)
        self._warn("untimed", untimed_warning(name, progress.rows, progress.bad))
        self._judge_newest(progress.rows, progress.rejected + progress.nulled)
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
            self._log_epoch(summary, known, dropped(), phases)

    def _log_epoch(
        self, summary: EpochSummary, names: Mapping[int, str], dropped: int, phases: Mapping[str, float]
    ) -> None:
        name, took = self._stream.name, sum(phases.values())
        noted = facts(
            "epoch",
            stream=name,
            epoch=summary.epoch,
            plan=summary.plan,
            rows=summary.rows,
            bytes=summary.bytes,
            tasks=summary.tasks,
            pipelines=len(names),
            rejected=summary.progress.rejected,
            ms=round(took, 1),
            phases=dict(phases),
        )
        words = "; ".join(_words(summary, names, dropped, self._rejects))
        _log.info("stream %s, epoch %d in %.0f ms: %s", name, summary.epoch, took, words, extra=noted)

    def _warn(self, subject: str, text: str) -> None:
        if text and subject not in self._warned:
            self._warned.add(subject)
            self._ill |= not subject
            _log.warning(text, extra=facts("bad_rows", stream=self._stream.name))

    def _judge_newest(self, rows: int, rejected: int) -> None:
        """Warn when many of the newest rows are rejected and the rows before were not."""
        before = self._judged or (rows, rejected)
        newest, lost = rows - before[0], rejected - before[1]
        if newest and newest < RECENT:
            return
        self._judged = rows, rejected
        ill = lost > REJECTED_SHARE * newest
        if ill and not self._ill:
            _log.warning(
                "stream %s found %s of its newest %s rows bad: has the input changed?",
                self._stream.name, f"{lost:,}", f"{newest:,}", extra=facts("newly_bad_rows", stream=self._stream.name),
            )  # fmt: skip
        self._ill = ill if newest else self._ill

    def _warn_of_files(self) -> None:
        skipped = read_summary(self._directory)
        for path, why in skipped.newest[len(skipped.newest) - min(len(skipped.newest), skipped.count - self._files) :]:
            noted = facts("file_left_out", code_of(why), stream=self._stream.name, path=path)
            _log.warning("stream %s left out %s: %s", self._stream.name, path, why, extra=noted)
        self._files = skipped.count


def _words(summary: EpochSummary, names: Mapping[int, str], dropped: int, rejects: bool) -> list[str]:
    """The epoch's rows, and the rows that were lost since the stream was created."""
    progress = summary.progress
    words = [f"{summary.rows:,} rows"]
    for what, count in {"rejected": progress.rejected, "broken and NULL": progress.nulled, "dropped": dropped}.items():
        words += [f"{count:,} {what} so far"] if count else []
    for instance, name in names.items():
        counted = progress.pipelines.get(str(instance))
        if counted is not None:
            bad = "rejected" if rejects else "with bad values"
            losses = {"late": counted.late, bad: counted.bad, "missed": counted.missed_rows}
            said = [f"{n:,} {what}" for what, n in losses.items() if n]
            words += [f"{name} {', '.join(said)} so far"] if said else []
    return words
