"""Readers: the rows of shared streams for the user's own Spark queries (`headrace.spark.reader_source`).

A reader is a temporary pipeline that writes to a feed. It joins the stream like any pipeline and gets the rows from
then on. It is never stored in the catalog (`Catalog.lasting`), so that it ends with the hub. It also ends with the
Spark query: Spark tells us, or the planning process of the query is gone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError
from headrace.hub.draft import Draft
from headrace.hub.effects import DeclaredScript
from headrace.hub.reconciler import Reconciler
from headrace.model.program import PipelineDef, SinkDef
from headrace.sinks.feed_log import FeedLog, feed_directory
from headrace.sinks.feed_sink import FEED
from headrace.sql import Select, parse_script
from headrace.state.catalog import PipelineRecord
from headrace.state.notices import Notice, RowsUnwanted, RowsWanted
from headrace.state.reader_answers import ANSWERS, ReaderAnswer, forget_answer, give_answer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS = 1.0
_log = logging.getLogger(__name__)


@dataclass
class _OpenReader:
    """A reader that was asked for. `pipeline` is set when it has joined its stream."""

    stream: str
    pid: int
    pipeline: PipelineDef | None = None


class Readers:
    """The readers of one hub. `on_notice` never blocks; a thread of its own does the work."""

    def __init__(self, reconciler: Reconciler, draft: Callable[[], Draft]) -> None:
        self._reconciler, self._draft = reconciler, draft
        self._readers: dict[str, _OpenReader] = {}
        self._work: list[Callable[[], None]] = []
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._registered: SparkSession | None = None

    @property
    def _answers(self) -> Path:
        return self._reconciler.directory / ANSWERS

    def register(self, session: SparkSession) -> None:
        """Let a session read the streams of this hub."""
        if self._registered is not session:
            from headrace.spark.reader_source import HubAddress, data_source

            board = self._reconciler.board
            address = HubAddress(str(self._reconciler.directory.absolute()), board.port, board.token)
            session.dataSource.register(data_source(address))
            self._registered = session

    def on_notice(self, notice: Notice) -> None:
        """Take a notice of a reader. Any thread may call."""
        with self._changed:
            if self._closed:
                return
            if isinstance(notice, RowsWanted) and notice.reader not in self._readers:
                self._readers[notice.reader] = _OpenReader(notice.stream, notice.pid)
                self._work.append(lambda: self._open(notice))
            elif isinstance(notice, RowsUnwanted):
                self._work.append(lambda: self._end(notice.reader))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="headrace-readers", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._work and not self._closed:
                    self._changed.wait(LOOK_SECONDS)
                if self._closed:
                    return
                work, self._work = self._work, []
            for step in work:
                step()
            for reader in [name for name, found in self._readers.items() if not _lives(found.pid)]:
                self._end(reader)

    def _open(self, notice: RowsWanted) -> None:
        try:
            columns = ", ".join("`" + name.replace("`", "``") + "`" for name in json.loads(notice.columns))
            quoted = "`" + notice.stream.replace("`", "``") + "`"
            (query,) = parse_script(f"SELECT {columns} FROM {quoted}")
            assert isinstance(query, Select)
            pipeline, script = self._declare(query, f"reader-{notice.reader[:12]}")
            self._readers[notice.reader].pipeline = pipeline
            feed = self._feed(pipeline)
            FeedLog(feed).register(notice.reader)
            self._reconciler.carry_out(script)
            answer = ReaderAnswer(str(feed))
        except HeadraceError as problem:
            answer = ReaderAnswer("", problem.render())
        give_answer(self._answers, notice.reader, answer)
        if answer.problem:
            self._readers.pop(notice.reader, None)

    def _feed(self, pipeline: PipelineDef) -> Path:
        return feed_directory(self._reconciler.stream_directory(pipeline.program.stream), pipeline.instance)

    def _declare(self, query: Select, name: str) -> tuple[PipelineDef, DeclaredScript]:
        reconciler = self._reconciler
        with reconciler.lock:
            while True:
                reconciler.declarations.require_open()
                draft = self._draft()
                pipeline = draft.planned_select(query, name, SinkDef(name, FEED.name, {}))
                catalog = draft.catalog.with_pipeline(PipelineRecord(pipeline).to("starting", "readStream"))
                draft.catalog = replace(catalog, looks=(*catalog.looks, name))
                effects = draft.effects_on(pipeline.program.stream)
                if reconciler.reservations.is_free(effects.streams):
                    return pipeline, reconciler.declare(effects)
                reconciler.reservations.wait(effects.streams)

    def _end(self, reader: str) -> None:
        """Remove everything of a reader. What is left after an error goes when the hub closes."""
        found = self._readers.pop(reader, None)
        if found is None:
            return
        if found.pipeline is not None:
            try:
                self._leave(found.pipeline)
            except HeadraceError as problem:
                _log.warning("the reader of stream %s cannot be removed: %s", found.stream, problem)
            shutil.rmtree(self._feed(found.pipeline), ignore_errors=True)
        forget_answer(self._answers, reader)

    def _leave(self, pipeline: PipelineDef) -> None:
        reconciler = self._reconciler
        with reconciler.lock:
            before = reconciler.catalog
            if reconciler.closed or before.pipeline(pipeline.name) is None:
                return
            draft = self._draft()
            catalog = before.without("pipeline", pipeline.name).with_end(pipeline, flush=False)
            draft.catalog = replace(catalog, looks=tuple(n for n in catalog.looks if n != pipeline.name))
            script = reconciler.declare(draft.effects_on(pipeline.program.stream))
        reconciler.carry_out(script)

    def close(self) -> None:
        """Forget all readers, after their streams have stopped. Their pipelines are not in the stored catalog."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout=10)
        for reader, found in self._readers.items():
            if found.pipeline is not None:
                shutil.rmtree(self._feed(found.pipeline), ignore_errors=True)
                with contextlib.suppress(OSError):  # other feeds may be there
                    self._feed(found.pipeline).parent.rmdir()
            forget_answer(self._answers, reader)
        self._readers.clear()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
