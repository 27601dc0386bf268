"""Progress is parsed again only when the file has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import StateDamaged
from headrace.state.progress import Progress, ProgressView, write_progress


def test_a_view_gives_the_newest_progress_and_parses_each_once(tmp_path: Path) -> None:
    view = ProgressView(tmp_path)
    assert view.read() == Progress()
    for epoch in range(5):
        write_progress(tmp_path, Progress(epoch=epoch))
        first = view.read()
        assert first.epoch == epoch
        assert view.read() is first


def test_a_view_of_a_damaged_file_raises_until_the_file_is_restored(tmp_path: Path) -> None:
    view = ProgressView(tmp_path)
    write_progress(tmp_path, Progress(epoch=3))
    view.read()
    whole = (tmp_path / "progress.json").read_bytes()
    (tmp_path / "progress.json").write_bytes(whole[:20])
    with pytest.raises(StateDamaged):
        view.read()
    (tmp_path / "progress.json").write_bytes(whole)
    assert view.read().epoch == 3
