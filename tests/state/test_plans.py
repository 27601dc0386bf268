"""Plan versions and progress: readers see complete files only, and needed versions are kept."""

from __future__ import annotations

import errno
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from headrace.base.durable import write_atomic
from headrace.errors import DiskFull, StateDamaged
from headrace.model.codec import pack
from headrace.model.definitions import PipelineDef, StreamDef
from headrace.model.plan_version import PlanVersion
from headrace.model.program import Meaning, PipelineProgram, Ring0Program
from headrace.model.schema import INT, TIMESTAMP, Field, Schema, View
from headrace.state.plans import PlanStore, parse_plan, unpack_plan
from headrace.state.progress import (
    Applied,
    PipelineProgress,
    Progress,
    read_applied,
    read_progress,
    write_applied,
    write_progress,
)
from tests import strategies

SCHEMA = Schema((Field("x", INT), Field("ts", TIMESTAMP), Field("y", INT)))
STREAM = StreamDef("s", SCHEMA, 1, 0, "files", "json", {})


def plan(version: int, *views: View, event_time: int | None = 1) -> PlanVersion:
    made = (
        PipelineDef(f"p{i}", i, (), PipelineProgram("s", v, Ring0Program(None), None, SCHEMA, Meaning()), 1)
        for i, v in enumerate(views, 1)
    )
    return PlanVersion(version, replace(STREAM, event_time=event_time), tuple(made))


def test_a_published_plan_is_the_current_one(tmp_path: Path) -> None:
    store = PlanStore(tmp_path / "s")
    assert store.current() == 0
    for version in (1, 2, 12):
        store.publish(plan(version, View.all()))
        assert store.current() == version
        assert PlanStore(tmp_path / "s").load(version) == plan(version, View.all())
    assert store.load(1) == plan(1, View.all())


@settings(max_examples=15)
@given(strategies.plans)
def test_any_plan_is_parsed_as_it_was_written(made: PlanVersion) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = PlanStore(Path(directory))
        store.publish(made)
        assert parse_plan(store.text(made.version)) == made
        assert unpack_plan(pack(store.text(made.version))) == made


def test_a_crash_before_the_pointer_leaves_the_old_version_current(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PlanStore(tmp_path)
    store.publish(plan(1, View.all()))
    written: list[Path] = []

    def crash_on_second(path: Path, data: bytes) -> None:
        if written:
            raise OSError(errno.ENOSPC, "disk full")
        written.append(path)
        write_atomic(path, data)

    monkeypatch.setattr("headrace.model.stored.write_atomic", crash_on_second)
    with pytest.raises(DiskFull):
        store.publish(plan(2, View.none()))
    assert store.current() == 1
    assert store.load(1) == plan(1, View.all())


def test_pruning_keeps_versions_that_an_uncommitted_epoch_may_name(tmp_path: Path) -> None:
    store = PlanStore(tmp_path)
    store.prune(5)  # nothing was published yet
    for version in range(1, 12):
        store.publish(plan(version))
    store.prune(10)
    assert [store.load(v).version for v in (10, 11)] == [10, 11]
    for version in (1, 9, 12):
        with pytest.raises(StateDamaged) as caught:
            store.load(version)
        assert caught.value.params["version"] == version


def test_a_plan_decodes_exactly_the_union_and_always_the_event_time() -> None:
    assert plan(1).view == View.some([1])
    assert plan(1, View.none(), View.some([2])).view == View.some([1, 2])
    assert plan(1, View.some([0]), View.all()).view == View.all()
    assert plan(1, View.none(), event_time=None).view == View.none()


def test_progress_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_progress(tmp_path) == Progress()
    first = Progress(3, 2, -5, 10, 100, {"bad_json": 1}, {"7": PipelineProgress(1, 2, 3)})
    for progress in (first, replace(first, epoch=4, watermark=None, pipelines={})):
        write_progress(tmp_path, progress)
        assert read_progress(tmp_path) == progress


def test_the_applied_projection_is_unknown_before_the_first_write(tmp_path: Path) -> None:
    assert read_applied(tmp_path) is None
    write_applied(tmp_path, Applied(2, 5, (0, 3)))
    assert read_applied(tmp_path) == Applied(2, 5, (0, 3))
