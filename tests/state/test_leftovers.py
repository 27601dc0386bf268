"""State versions that no committed epoch wrote are removed before a query starts; nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.state.leftovers import remove_uncommitted_state


def names(checkpoint: Path) -> set[str]:
    return {p.relative_to(checkpoint / "state").as_posix() for p in (checkpoint / "state").rglob("*") if p.is_file()}


def put(checkpoint: Path, committed: int, files: list[str]) -> None:
    (checkpoint / "commits").mkdir(parents=True)
    for epoch in range(committed + 1):
        (checkpoint / "commits" / str(epoch)).touch()
        (checkpoint / "commits" / f".{epoch}.crc").touch()
    for file in files:
        path = checkpoint / "state" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_a_version_after_the_newest_committed_one_is_removed_with_its_checksum_and_temporary_files(
    tmp_path: Path,
) -> None:
    kept = ["0/0/3.changelog", "0/0/.3.changelog.crc", "0/0/3.zip", "0/1/1.changelog", "0/0/SSTs/000012-ab.sst"]
    kept += ["0/_metadata/v2/0", "0/_stateSchema/default/0_12", "0/0/_metadata/schema"]
    gone = ["0/0/4.changelog", "0/0/.4.changelog.crc", "0/0/.4.changelog.11-22.TID8.tmp", "0/1/4.zip", "0/1/5_ab-c.zip"]
    gone += ["0/1/left/9.delta"]
    put(tmp_path, 2, kept + gone)
    assert remove_uncommitted_state(tmp_path) == len(gone)
    assert names(tmp_path) == set(kept)
    assert remove_uncommitted_state(tmp_path) == 0


def test_a_checkpoint_that_never_committed_keeps_no_version(tmp_path: Path) -> None:
    put(tmp_path, -1, ["0/0/1.changelog", "0/_metadata/v2/0"])
    remove_uncommitted_state(tmp_path)
    assert names(tmp_path) == {"0/_metadata/v2/0"}


def test_the_initial_state_of_a_logged_epoch_stays_if_the_commit_log_is_lost(tmp_path: Path) -> None:
    put(tmp_path, -1, ["0/0/99.changelog", "0/0/100.changelog", "0/0/101.changelog"])
    (tmp_path / "offsets").mkdir()
    for epoch in (99, 100):
        (tmp_path / "offsets" / str(epoch)).touch()
    remove_uncommitted_state(tmp_path)
    assert names(tmp_path) == {"0/0/99.changelog", "0/0/100.changelog"}


def test_a_stream_without_a_checkpoint_has_nothing_to_remove(tmp_path: Path) -> None:
    assert remove_uncommitted_state(tmp_path / "none") == 0


@given(committed=st.integers(-1, 12), versions=st.lists(st.integers(0, 15), unique=True))
def test_exactly_the_versions_of_committed_epochs_stay(
    tmp_path_factory: pytest.TempPathFactory, committed: int, versions: list[int]
) -> None:
    checkpoint = tmp_path_factory.mktemp("checkpoint")
    put(checkpoint, committed, [f"0/0/{v}.changelog" for v in versions])
    remove_uncommitted_state(checkpoint)
    assert names(checkpoint) == {f"0/0/{v}.changelog" for v in versions if v <= committed + 1}
