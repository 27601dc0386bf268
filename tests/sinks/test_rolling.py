"""Sinks that join the files of epochs: exactly once whatever dies where, and readers never see a row twice."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import BadOption, SinkFailed
from headrace.model.definitions import SinkDef
from headrace.model.schema import BIGINT, STRING, Field, Schema
from headrace.sinks import SINKS, SinkKey, Staged
from headrace.sinks.file_sink import FileTask
from headrace.sinks.joiners import LineJoiner
from headrace.sinks.outputs import LocalOutput
from headrace.sinks.rolling import RollingSink
from tests.e2e.support import until
from tests.sinks.crashes import Crash, crashing_at
from tests.sinks.test_files import rows, visible, write_text
from tests.strategies import examples


@contextmanager
def dying_at(step: int | None) -> Iterator[None]:
    """A context in which file operations of the sink die at `step`."""
    if step is None:
        yield
        return
    with crashing_at(step):
        yield


def key(epoch: int) -> SinkKey:
    return SinkKey("c", 1, epoch)


class LimitedOutput(LocalOutput):
    """A directory in which no file that is larger than a limit gets its visible name, as on S3."""

    def __init__(self, root: Path, limit: int) -> None:
        super().__init__(root)
        self.largest = limit

    def move(self, name: str, to: str) -> None:
        assert self.largest is not None
        if self.info(name).size > self.largest:
            raise OSError("the copy source is larger than the maximum allowable size")
        super().move(name, to)


def opened(root: Path, size: int, limit: int | None = None) -> RollingSink:
    output = LocalOutput(root) if limit is None else LimitedOutput(root, limit)
    return RollingSink(output, "s", "txt", LineJoiner(False), size, None)


def stage(root: Path, epoch: int, parts: Sequence[Sequence[int]]) -> list[Staged]:
    task = FileTask(root, "s", write_text)
    return [task.stage(rows(*part), key(epoch)) for part in parts if part]


PARTS = st.lists(st.lists(st.integers(0, 999), max_size=4), max_size=3)


@settings(max_examples=examples(60), deadline=None)
@given(
    epochs=st.lists(PARTS, min_size=1, max_size=7),
    size=st.integers(1, 60),
    deaths=st.lists(st.one_of(st.none(), st.integers(0, 60)), min_size=7, max_size=7),
    back=st.integers(0, 7),
    death=st.one_of(st.none(), st.integers(0, 40)),
    limit=st.one_of(st.none(), st.integers(40, 80)),
)
def test_every_row_is_in_one_file_whatever_dies_and_a_rewind_takes_back_what_came_later(
    epochs: list[list[list[int]]], size: int, deaths: list[int | None], back: int, death: int | None, limit: int | None
) -> None:
    # Each row gets a number of its own, so that a duplicate shows.
    epochs = [
        [[e * 1000 + p * 100 + i for i in range(len(part))] for p, part in enumerate(parts)]
        for e, parts in enumerate(epochs)
    ]
    said = [sum(map(len, parts)) for parts in epochs]
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        sink = opened(root, size, limit)
        for epoch, parts in enumerate(epochs):
            done = [x for earlier in epochs[: epoch + 1] for part in earlier for x in part]
            try:
                with dying_at(deaths[epoch]):
                    assert sink.commit(key(epoch), stage(root, epoch, parts)) == said[epoch]
            except Crash:
                assert len(set(visible(root))) == len(visible(root)) and set(visible(root)) <= set(done)
                sink = opened(root, size, limit)  # another process, which runs the epoch again
                assert sink.commit(key(epoch), stage(root, epoch, parts)) in (said[epoch], 0)
            assert len(set(visible(root))) == len(visible(root)) and set(visible(root)) <= set(done)
        sink.close()
        assert visible(root) == sorted(x for parts in epochs for part in parts for x in part)
        try:
            with dying_at(death):
                sink.rewind(key(back))
        except Crash:
            sink = opened(root, size, limit)
            sink.rewind(key(back))
        assert sink.ahead(key(back)) == 0
        assert visible(root) == sorted(x for parts in epochs[: back + 1] for part in parts for x in part)


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "jsonl gzip"])
def test_a_trickle_leaves_few_files_in_each_partition_and_old_ones_roll_by_themselves(
    kind: str, tmp_path: Path
) -> None:
    output = Schema((Field("x", BIGINT), Field("p", STRING)))
    options = {"path": str(tmp_path), "partition_by": "p", "roll_age": "1h", "roll_size": "1GiB"}
    options |= {"compression": "gzip"} if "gzip" in kind else {}
    sink = SinkDef("s", kind.split()[0], options)
    made = SINKS[sink.kind]
    made.check(options)
    driver = made.driver(sink, output)
    for epoch in range(10):
        table = pa.table({"x": [epoch, epoch + 100], "p": ["a", "b"]})
        driver.commit(key(epoch), [made.task(sink).stage(table, key(epoch))])
    assert seen(tmp_path, kind) == 0
    assert isinstance(driver, RollingSink)
    driver._max_age = 0.05
    driver._wait(key(9))
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and seen(tmp_path, kind) < 20:
        time.sleep(0.05)
    assert seen(tmp_path, kind) == 20  # by age, without another epoch
    driver.commit(key(10), [made.task(sink).stage(pa.table({"x": [7], "p": ["a"]}), key(10))])
    driver.close()  # makes the rest visible
    assert seen(tmp_path, kind) == 21
    assert len([p for p in tmp_path.rglob("part-*") if "_headrace" not in p.parts]) == 3
    assert not [p for p in (tmp_path / "_headrace" / "open").rglob("*") if p.is_file()]


def seen(root: Path, kind: str) -> int:
    form: Any = "parquet" if kind == "parquet" else "json"
    files: Any = [str(p) for p in root.rglob("part-*") if "_headrace" not in p.parts]
    found: Any = ds.dataset(files, format=form) if files else None
    return 0 if found is None else int(found.count_rows())


class CopyingOutput(LocalOutput):
    """Like an object store: what is moved stays under its old name, too. `failures` deletions of staged files fail."""

    failures = 0

    def move(self, name: str, to: str) -> None:
        (self.root / to).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(self.root / name, self.root / to)

    def delete_directory(self, directory: str) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("the request timed out")
        super().delete_directory(directory)


def test_an_epoch_that_was_joined_before_its_clean_up_is_not_joined_again(tmp_path: Path) -> None:
    output, now = CopyingOutput(tmp_path), [time.time()]
    sink = RollingSink(output, "s", "txt", LineJoiner(False), None, 60_000_000, clock=lambda: now[0])
    sink.commit(key(0), stage(tmp_path, 0, [[1, 2]]))
    staged = stage(tmp_path, 1, [[3, 4]])
    output.failures = 1
    with pytest.raises(SinkFailed):
        sink.commit(key(1), staged)
    now[0] += 600
    sink._on_time()
    assert visible(tmp_path) == [1, 2, 3, 4]
    assert sink.commit(key(1), staged) == 2
    sink.close()
    assert visible(tmp_path) == [1, 2, 3, 4]


def test_a_joined_object_may_not_be_larger_than_a_store_can_copy() -> None:
    for kind in ("jsonl", "parquet"):
        with pytest.raises(BadOption) as caught:
            SINKS[kind].check({"path": "s3://bucket/x", "roll_size": "5GiB"})
        assert caught.value.params["option"] == "roll_size"


def test_a_roll_that_failed_is_tried_again_without_another_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.sinks.rolling.AGAIN", 0.05)
    now, failed = [time.time()], list[str]()
    sink = RollingSink(tmp_path, "s", "txt", LineJoiner(False), None, 60_000_000, clock=lambda: now[0])
    begin = sink._begin

    def fails_once(*arguments: Any) -> Any:
        if not failed:
            failed.append("once")
            raise OSError("the request timed out")
        return begin(*arguments)

    monkeypatch.setattr(sink, "_begin", fails_once)
    sink.commit(key(0), stage(tmp_path, 0, [[1, 2]]))
    now[0] += 600
    sink._on_time()
    until(lambda: visible(tmp_path) == [1, 2], "the rows are visible")
    assert failed
    sink.close()
