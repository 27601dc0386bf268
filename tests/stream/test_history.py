"""The newest epochs of a stream: rates over all of them, and what the newest one did for each pipeline."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.control.signals import EPOCH, Barrier
from headrace.model.definitions import StreamDef
from headrace.model.schema import TIMESTAMP, Field, Schema, View
from headrace.spark.summary import EpochSummary
from headrace.state.progress import PipelineProgress, Progress
from headrace.stream import history
from headrace.stream.history import History

STREAM = StreamDef("s", Schema((Field("ts", TIMESTAMP),)), 0, 0, "files", "json", {})


def summary(epoch: int) -> EpochSummary:
    return EpochSummary(
        epoch=epoch, plan=1, barrier=Barrier(EPOCH.name, epoch), ending=False, rows=100, bytes=2_000_000, values=100,
        tasks=2, progress=Progress(epoch, pipelines={"7": PipelineProgress(rows_out=epoch)}), failures={}, detached={},
        pipeline_ms={7: float(epoch)}, state_bytes={7: 1},
    )  # fmt: skip


def test_only_the_newest_epoch_keeps_what_it_did_for_each_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty epochs are kept. With 300 pipelines their counters took 5 MB."""
    clock = iter(range(1, 100))
    monkeypatch.setattr(history, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    plans: Any = SimpleNamespace(load=lambda version: SimpleNamespace(view=View.some([0])))
    seen = History(STREAM, plans)
    seen.add(summary(0), (400.0, 600.0))
    assert seen.rates() == (100.0, 2.0), "of the one epoch, which took a second"
    seen = History(STREAM, plans)
    for epoch in range(4):
        seen.add(summary(epoch))
    *older, newest = seen.recent
    assert newest == summary(3)
    for epoch, found in enumerate(older):
        assert (found.epoch, found.rows, found.bytes, found.progress.epoch) == (epoch, 100, 2_000_000, epoch)
        assert not found.progress.pipelines and not found.pipeline_ms and not found.state_bytes
    assert seen.rates() == (100.0, 2.0)
