"""Spark's epoch logs are durable before the first commit, and are repaired after a power loss."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import EpochMismatch, StateDamaged
from headrace.state import spark_log
from headrace.state.spark_log import mend_logs, sync_commit, sync_epoch

OFFSETS = 'v1\n{"batchWatermarkMs":0}\n{"epoch":%d}'
COMMITS = 'v1\n{"nextBatchWatermarkMs":0}'


def make(root: Path, planned: int, done: int) -> Path:
    """A checkpoint with the epochs up to `planned`, of which those up to `done` are done."""
    for name, last in (("offsets", planned), ("commits", done)):
        (root / name).mkdir(parents=True)
        for n in range(last + 1):
            (root / name / str(n)).write_text(OFFSETS % n if name == "offsets" else COMMITS)
            (root / name / f".{n}.crc").write_text("crc")
    for part in ("0", "1"):
        (root / "state" / "0" / part).mkdir(parents=True)
        (root / "state" / "0" / part / f"{planned}.changelog").write_text("x")
    return root


def entries(root: Path) -> tuple[list[int], list[int]]:
    found = [sorted(int(p.name) for p in (root / n).iterdir() if p.name.isdigit()) for n in ("offsets", "commits")]
    return found[0], found[1]


def test_all_that_a_rerun_needs_is_synced_with_its_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(spark_log, "fsync", lambda path: synced.append(str(path.relative_to(tmp_path))))
    make(tmp_path, 2, 1)
    sync_epoch(tmp_path, 2)
    state = {"state/0/0/2.changelog", "state/0/1/2.changelog", "state/0/0", "state/0/1"}
    assert set(synced) == {"offsets/2", "offsets", "commits/1", "commits"} | state
    assert synced.index("offsets/2") < synced.index("offsets")  # the file, then its name
    synced.clear()
    sync_commit(tmp_path, 1)
    sync_commit(tmp_path, 7)
    assert synced == ["commits/1", "commits"]
    with pytest.raises(StateDamaged):
        sync_epoch(tmp_path, 3)


@pytest.mark.parametrize("torn", ["", "v", "v1\n", 'v1\n{"batchWat', OFFSETS % 2 + "x", "\0\0\0"])
def test_torn_offsets_are_removed_with_their_commit(tmp_path: Path, torn: str) -> None:
    make(tmp_path, 2, 2)
    (tmp_path / "offsets" / "2").write_text(torn)
    mend_logs(tmp_path, 1)
    assert entries(tmp_path) == ([0, 1], [0, 1])
    assert not list(tmp_path.rglob(".2.crc"))


@pytest.mark.parametrize("torn", ["", "v1", "v1\n{"])
def test_a_torn_commit_is_removed_alone(tmp_path: Path, torn: str) -> None:
    make(tmp_path, 2, 2)
    (tmp_path / "commits" / "2").write_text(torn)
    mend_logs(tmp_path, 1)
    assert entries(tmp_path) == ([0, 1, 2], [0, 1])


def test_intact_logs_stay_and_a_commit_without_offsets_is_removed(tmp_path: Path) -> None:
    mend_logs(tmp_path / "none yet", -1)
    make(tmp_path, 2, 1)
    mend_logs(tmp_path, 1)
    assert entries(tmp_path) == ([0, 1, 2], [0, 1])
    for n in (1, 2):
        (tmp_path / "offsets" / str(n)).unlink()
    mend_logs(tmp_path, 1)
    assert entries(tmp_path) == ([0], [0])
    with pytest.raises(EpochMismatch):
        mend_logs(tmp_path, 2)
    assert (tmp_path / "state").is_dir()


def test_the_first_epoch_begins_without_state_when_its_offsets_are_torn(tmp_path: Path) -> None:
    make(tmp_path, 0, -1)
    (tmp_path / "offsets" / "0").write_text("")
    mend_logs(tmp_path, 0)
    assert entries(tmp_path) == ([], []) and not (tmp_path / "state").exists()
