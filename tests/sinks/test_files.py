"""The commit protocol of the file sinks: exactly once, whichever process dies at whichever step."""

from __future__ import annotations

import itertools
import json
import os
import random
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import EpochMismatch, SinkFailed, StateDamaged, UnwritablePath
from headrace.model.definitions import SinkDef
from headrace.model.schema import BIGINT, Field, Schema
from headrace.sinks import SINKS, SinkKey, Staged
from headrace.sinks.file_sink import FileSink, FileTask
from headrace.sinks.sink_paths import STAGING
from tests.power_loss import Disk
from tests.sinks.crashes import Crash, crashing_at

OUTPUT = Schema((Field("x", BIGINT),))


def write_text(table: pa.Table, path: Path) -> None:
    """The smallest format: one number per line."""
    path.write_text("".join(f"{x}\n" for x in table.column(0).to_pylist()))


def rows(*numbers: int) -> pa.Table:
    return pa.table({"x": pa.array(numbers, pa.int64())})


class Runner:
    """Runs epochs as a stream does: tasks stage, then the driver commits."""

    def __init__(self, root: Path, sink: str = "s", checkpoint: str = "c", instance: int = 1) -> None:
        self.root, self.sink, self.checkpoint, self.instance = root, sink, checkpoint, instance

    def key(self, epoch: int) -> SinkKey:
        return SinkKey(self.checkpoint, self.instance, epoch)

    def stage(self, epoch: int, parts: Sequence[Sequence[int]]) -> list[Staged]:
        task = FileTask(self.root, self.sink, write_text)
        return [task.stage(rows(*part), self.key(epoch)) for part in parts if part]

    def run(self, epoch: int, parts: Sequence[Sequence[int]]) -> int:
        return FileSink(self.root, self.sink, "txt").commit(self.key(epoch), self.stage(epoch, parts))


def visible(root: Path) -> list[int]:
    """The lines that a reader sees: every line of every file that is not hidden."""
    return sorted(int(line) for path in root.glob("*.txt") for line in path.read_text().splitlines())


def staged_files(root: Path) -> list[str]:
    return [name for _, _, names in os.walk(root / "_headrace" / "staging") for name in names]


def test_an_epoch_becomes_visible_when_it_is_committed(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    staged = runner.stage(0, [[1, 2], [3]])
    assert visible(tmp_path) == []
    assert FileSink(tmp_path, "s", "txt").commit(runner.key(0), staged) == 3
    assert visible(tmp_path) == [1, 2, 3]
    assert staged_files(tmp_path) == []


def test_running_an_epoch_again_leaves_one_copy_and_says_the_same_number(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    assert runner.run(0, [[1], [2]]) == 2
    assert runner.run(0, [[2, 1]]) == 2
    assert visible(tmp_path) == [1, 2]
    assert staged_files(tmp_path) == []


def test_a_manifest_that_was_only_half_written_is_removed(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    runner.run(0, [[1]])
    (manifest,) = (tmp_path / "_headrace" / "manifests").iterdir()
    (manifest.parent / f".{manifest.name}.0123456789abcdef0123456789abcdef").write_text("{")
    runner.run(1, [[2]])
    assert [p.name for p in manifest.parent.iterdir() if p.name.startswith(".")] == []
    assert visible(tmp_path) == [1, 2]


def test_an_epoch_without_rows_writes_nothing(tmp_path: Path) -> None:
    assert Runner(tmp_path).run(0, []) == 0
    assert list(tmp_path.iterdir()) == []


def test_only_the_receipts_of_the_driver_count_and_orphans_go(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    runner.stage(0, [[7, 8]])  # an attempt whose receipt never arrived
    runner.run(0, [[1]])
    assert visible(tmp_path) == [1]
    assert staged_files(tmp_path) == []


def test_orphans_of_an_epoch_that_ended_empty_go_too(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    runner.stage(0, [[7, 8]])
    runner.run(0, [])
    assert staged_files(tmp_path) == []


def test_manifests_before_the_previous_epoch_are_removed(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    for epoch in range(5):
        runner.run(epoch, [[epoch]])
    manifests = (tmp_path / "_headrace" / "manifests").iterdir()
    assert sorted(json.loads(m.read_text())["epoch"] for m in manifests) == [3, 4]
    assert visible(tmp_path) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "other", [{"instance": 2}, {"checkpoint": "d"}, {"sink": "t"}, {"instance": 11}], ids=lambda o: next(iter(o))
)
def test_writers_that_share_a_directory_do_not_touch_each_other(tmp_path: Path, other: dict[str, object]) -> None:
    first, second = Runner(tmp_path), Runner(tmp_path, **other)  # type: ignore[arg-type]
    waiting = second.stage(0, [[100]])
    for epoch in range(3):
        first.run(epoch, [[epoch]])
    FileSink(tmp_path, second.sink, "txt").commit(second.key(0), waiting)
    assert visible(tmp_path) == [0, 1, 2, 100]


def test_a_crash_at_any_step_of_a_commit_is_repaired_by_the_next_run(tmp_path: Path) -> None:
    before: list[list[int]] = []
    for step in itertools.count():
        root = tmp_path / str(step)
        runner = Runner(root)
        runner.run(0, [[10], [20]])
        try:
            with crashing_at(step):
                runner.run(1, [[1, 2], [3]])
        except Crash:
            before.append(visible(root))
            assert runner.run(1, [[3], [1, 2]]) == 3
            assert visible(root) == [1, 2, 3, 10, 20]
            assert staged_files(root) == []
        else:
            break
    # The crashes cover both sides of the commit point and the middle of the renames.
    assert [10, 20] in before
    assert [1, 2, 10, 20] in before
    assert [1, 2, 3, 10, 20] in before


def test_a_crash_right_after_the_commit_point_keeps_the_first_run(tmp_path: Path) -> None:
    runner = Runner(tmp_path)

    def die(name: str) -> None:
        if name == "between-manifest-and-rename":
            raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.sinks.file_sink.fault_point", die)
        with pytest.raises(Crash):
            runner.run(0, [[1]])
    assert visible(tmp_path) == []
    runner.run(0, [[999]])
    assert visible(tmp_path) == [1]


PARTS = st.lists(st.lists(st.integers(0, 99), max_size=3), max_size=3)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, list[list[int]], list[int]]]:
    """Epochs of two writers in any interleaving: (writer, rows by task, steps at which earlier attempts died)."""
    epoch = st.tuples(st.integers(0, 1), PARTS, st.lists(st.integers(0, 40), max_size=2))
    return draw(st.lists(epoch, min_size=1, max_size=6))


@given(histories())
@settings(max_examples=60, deadline=None)
def test_any_interleaving_of_staging_crashes_and_reruns_gives_every_row_once(
    history: list[tuple[int, list[list[int]], list[int]]],
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "out"
        writers = [Runner(root, instance=1), Runner(root, instance=12)]
        epochs = [0, 0]
        expected: list[int] = []
        for who, parts, crashes in history:
            for step in crashes:
                try:
                    with crashing_at(step):
                        writers[who].run(epochs[who], parts)
                except Crash:
                    assert set(visible(root)) <= {*expected, *itertools.chain(*parts)}
            # A re-run may be cut differently, but brings the same rows.
            writers[who].run(epochs[who], [list(itertools.chain(*reversed(parts)))])
            expected += itertools.chain(*parts)
            epochs[who] += 1
            assert visible(root) == sorted(expected)
        assert staged_files(root) == []


def test_readers_that_look_all_the_time_never_see_a_partial_file(tmp_path: Path) -> None:
    sink = SinkDef("s", "parquet", {"path": str(tmp_path)})
    kind = SINKS["parquet"]
    task, driver = kind.task(sink), kind.driver(sink, OUTPUT)
    (tmp_path / "_headrace").mkdir()
    done = threading.Event()
    counts: list[int] = []
    problems: list[Exception] = []

    def look() -> None:
        while not done.is_set():
            try:
                counts.append(ds.dataset(tmp_path, schema=OUTPUT.arrow, format="parquet").to_table().num_rows)
            except Exception as problem:
                problems.append(problem)
                return

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for epoch in range(60):
            key = SinkKey("c", 1, epoch)
            driver.commit(key, [task.stage(rows(*range(1000)), key), task.stage(rows(*range(1000)), key)])
    finally:
        done.set()
        reader.join()
    assert problems == []
    assert len(counts) > 3
    assert counts == sorted(counts)
    assert all(count % 1000 == 0 for count in counts)


def test_a_committed_file_that_was_removed_by_hand_is_reported(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    runner.run(0, [[1]])
    next(tmp_path.glob("*.txt")).unlink()
    with pytest.raises(StateDamaged):
        runner.run(0, [[1]])


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"version": 99}', '{"version": 1}'])
def test_a_manifest_that_cannot_be_read_is_reported(tmp_path: Path, content: str) -> None:
    runner = Runner(tmp_path)
    runner.run(0, [[1]])
    next((tmp_path / "_headrace" / "manifests").iterdir()).write_text(content)
    with pytest.raises(StateDamaged):
        runner.run(0, [[1]])


def test_a_directory_that_cannot_be_made_is_a_coded_error_in_the_task(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkFailed):
        Runner(tmp_path / "file").stage(0, [[1]])


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_checking_a_path_under_a_file_is_refused_and_makes_nothing(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnwritablePath):
        SINKS[kind].check({"path": str(tmp_path / "file" / "below")})
    SINKS[kind].check({"path": str(tmp_path / "new" / "deep")})
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_path_with_a_name_that_is_too_long_is_refused_with_a_code(tmp_path: Path) -> None:
    path = str(tmp_path / ("a" * 300))
    with pytest.raises(UnwritablePath) as caught:
        SINKS["jsonl"].check({"path": path})
    assert caught.value.params["path"] == path


def digested(runner: Runner, epoch: int, digest: str) -> SinkKey:
    return SinkKey(runner.checkpoint, runner.instance, epoch, digest)


def test_a_manifest_of_other_input_is_not_mistaken_for_that_of_the_epoch(tmp_path: Path) -> None:
    runner, sink = Runner(tmp_path), FileSink(tmp_path, "s", "txt")
    sink.commit(digested(runner, 0, "a"), runner.stage(0, [[1]]))
    again = runner.stage(0, [[1]])
    assert sink.commit(digested(runner, 0, "a"), again) == 1  # the same epoch, run again
    for step in (sink.verify, lambda key: sink.commit(key, runner.stage(0, [[2]]))):
        with pytest.raises(EpochMismatch):
            step(digested(runner, 0, "b"))
    assert visible(tmp_path) == [1]


def test_a_promise_of_other_input_is_neither_kept_nor_replaced(tmp_path: Path) -> None:
    runner, sink = Runner(tmp_path), FileSink(tmp_path, "s", "txt")
    sink.promise(digested(runner, 0, "a"), runner.stage(0, [[1]]))
    for step in (sink.verify, lambda key: sink.commit(key, runner.stage(0, [[2]]))):
        with pytest.raises(EpochMismatch):
            step(digested(runner, 0, "b"))
    assert visible(tmp_path) == [] and not sink.committed(runner.key(0))
    assert sink.commit(runner.key(0), []) == 1  # what is owed has no digest
    assert visible(tmp_path) == [1]


def test_an_epoch_whose_manifest_is_long_gone_is_not_overwritten(tmp_path: Path) -> None:
    runner, sink = Runner(tmp_path), FileSink(tmp_path, "s", "txt")
    for epoch in range(4):
        runner.run(epoch, [[epoch]])
    for step in (sink.promise, sink.commit):
        with pytest.raises(EpochMismatch):
            step(digested(runner, 0, "b"), runner.stage(0, [[99]]))
    assert visible(tmp_path) == [0, 1, 2, 3]


def test_a_manifest_that_was_removed_is_named(tmp_path: Path) -> None:
    runner, sink = Runner(tmp_path), FileSink(tmp_path, "s", "txt")
    runner.run(0, [[1]])
    manifest = tmp_path / sink.paths.manifest(runner.key(0))
    manifest.unlink()
    with pytest.raises(EpochMismatch) as caught:
        sink.commit(runner.key(0), runner.stage(0, [[1]]))
    assert str(manifest) in caught.value.message and str(caught.value.params["path"]) in caught.value.message
    assert visible(tmp_path) == [1]


def promised(runner: Runner, parts: Sequence[Sequence[int]]) -> Path:
    """The promise of an epoch: a manifest whose files are still staged."""
    FileSink(runner.root, "s", "txt").promise(runner.key(0), runner.stage(0, parts))
    (manifest,) = (runner.root / "_headrace" / "manifests").iterdir()
    return manifest


def test_no_changed_bit_of_a_manifest_leads_to_other_files_or_rows(tmp_path: Path) -> None:
    manifest = promised(Runner(tmp_path), [[1, 2], [3]])
    whole = manifest.read_bytes()
    key = SinkKey("c", 1, 0)
    for place, bit in itertools.product(range(len(whole)), range(0, 8, 3)):
        manifest.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
        with pytest.raises(StateDamaged) as caught:
            FileSink(tmp_path, "s", "txt").commit(key, [])
        assert caught.value.params["path"] == str(manifest)
    assert visible(tmp_path) == []
    manifest.write_bytes(whole)
    assert FileSink(tmp_path, "s", "txt").commit(key, []) == 3
    assert visible(tmp_path) == [1, 2, 3]


def test_a_manifest_of_an_earlier_version_has_no_checksum_and_is_taken(tmp_path: Path) -> None:
    manifest = promised(Runner(tmp_path), [[1, 2], [3]])
    facts = json.loads(manifest.read_text())
    del facts["crc"]
    manifest.write_text(json.dumps(facts))
    assert FileSink(tmp_path, "s", "txt").commit(SinkKey("c", 1, 0), []) == 3
    assert visible(tmp_path) == [1, 2, 3]


def test_a_manifest_of_an_earlier_version_has_no_digest_and_is_taken(tmp_path: Path) -> None:
    runner, sink = Runner(tmp_path), FileSink(tmp_path, "s", "txt")
    runner.run(0, [[1]])
    (manifest,) = (tmp_path / "_headrace" / "manifests").iterdir()
    facts = json.loads(manifest.read_text())
    del facts["digest"], facts["crc"]
    manifest.write_text(json.dumps(facts))
    sink.verify(digested(runner, 0, "a"))
    assert sink.commit(digested(runner, 0, "a"), runner.stage(0, [[1]])) == 1
    assert visible(tmp_path) == [1]


def test_a_task_syncs_content_and_the_driver_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sync may have to wait for the disk, and a small epoch of hundreds of pipelines has as many directories."""
    runner = Runner(tmp_path)
    runner.run(0, [[1]])
    synced: list[str] = []
    for module in ("headrace.base.durable", "headrace.sinks.outputs"):
        monkeypatch.setattr(f"{module}.fsync", lambda path: synced.append(path.suffix or path.name))
    staged = runner.stage(1, [[2], [3]])
    assert synced == [".staged", ".staged"]
    FileSink(tmp_path, "s", "txt").commit(runner.key(1), staged)
    assert {"staging", FileSink(tmp_path, "s", "txt").paths.tag(runner.key(1))} <= set(synced[2:])


def test_committed_rows_survive_a_power_loss_after_an_attempt_that_died_where_it_had_made_their_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(place: str) -> None:
        if place == "between-manifest-and-rename":
            raise Crash

    runner = Runner(tmp_path / "out")
    runner.run(0, [[1]])
    disk = Disk(runner.root)
    with disk.recording(), monkeypatch.context() as patched:
        (runner.root / STAGING / FileSink(runner.root, "s", "txt").paths.tag(runner.key(1))).mkdir()
        patched.setattr("headrace.sinks.file_sink.fault_point", die)
        with pytest.raises(Crash):
            runner.run(1, [[2], [3]])
    for seed in range(40):
        left = Runner(tmp_path / str(seed))
        disk.after_power_loss(disk.moments[-1], random.Random(seed), left.root)
        left.run(1, [[2], [3]])
        assert visible(left.root) == [1, 2, 3]
