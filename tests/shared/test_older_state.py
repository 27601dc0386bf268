"""What an earlier version stored goes on: files without checksums, tokens in the catalog, manifests without digests.

`before_checksums.json` holds a state directory with a savepoint, its input and its output. The last version before
checksums wrote it and was killed after the sink had committed the epoch in `logged`; `monday` is the offset of the cut.
"""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from headrace.base.durable import write_atomic
from headrace.errors import SinkAhead
from headrace.model.stored import FORMAT
from headrace.service.offline import OfflineHub
from headrace.state.restore import restore
from tests.e2e.support import put
from tests.shared.mini import Checkpoint, Mini

BEFORE: dict[str, Any] = json.loads(Path(__file__).with_name("before_checksums.json").read_text())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in BEFORE["files"].items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("@ROOT@", str(tmp_path)))
    for stream in tmp_path.rglob("streams/s"):
        (stream / "checkpoint").mkdir()
    return tmp_path


def shown(root: Path) -> list[int]:
    return sorted(json.loads(line)["id"] for part in root.glob("out/part-*") for line in part.read_text().splitlines())


def feed(root: Path) -> None:
    put(root / "in" / "3.json", [json.dumps({"id": i}) for i in range(12, 16)])


def holding_token(root: Path) -> set[str]:
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file() and b"s3cret" in p.read_bytes()}


def test_a_state_directory_of_an_earlier_version_goes_on_with_the_epoch_that_it_ended_in(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = root / "state"
    assert "SELECT id" in OfflineHub(state).sql("SHOW CREATE PIPELINE p")[0].render()
    mini = Mini(state, monkeypatch, kept=Checkpoint(logged=tuple(BEFORE["logged"])))
    feed(root)
    mini.drain()
    assert shown(root) == list(range(16))
    status = mini.hub.streams["s"].status()
    assert (status.state, status.rows, status.problem) == ("running", 16, "")
    assert holding_token(state) == {"secrets.json", "savepoints/monday/secrets.json"}
    assert f'"format": {FORMAT}' in (state / "streams" / "s" / "progress.json").read_text()
    mini.crash()
    assert mini.hub.streams["s"].status().state == "running"
    mini.hub.close()


def test_a_savepoint_that_cannot_be_changed_does_not_keep_the_hub_closed(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(path: Path, data: bytes) -> None:
        if "monday" in str(path):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        write_atomic(path, data)

    for user in ("headrace.state.catalog", "headrace.state.secrets", "headrace.model.stored"):
        monkeypatch.setattr(f"{user}.write_atomic", refused)
    mini = Mini(root / "state", monkeypatch, kept=Checkpoint(logged=tuple(BEFORE["logged"])))
    mini.drain()
    assert shown(root) == list(range(12))
    assert "monday" in caplog.text
    mini.hub.close()


@pytest.mark.parametrize("opened_before", [False, True])
def test_a_savepoint_of_an_earlier_version_is_restored(
    root: Path, monkeypatch: pytest.MonkeyPatch, opened_before: bool
) -> None:
    if opened_before:  # which takes the tokens out of the savepoint, too
        Mini(root / "state", monkeypatch, kept=Checkpoint(logged=tuple(BEFORE["logged"]))).hub.close()
    with pytest.raises(SinkAhead):
        restore(root / "state" / "savepoints" / "monday", root / "restored")
    restore(root / "state" / "savepoints" / "monday", root / "restored", rewind=True)
    assert shown(root) == list(range(4))
    mini = Mini(root / "restored", monkeypatch, kept=Checkpoint(end=BEFORE["monday"]))
    feed(root)
    mini.hub.sql("START PIPELINE p")
    mini.drain()
    assert shown(root) == list(range(16))
    assert holding_token(root / "restored") == {"secrets.json"}
    mini.hub.close()
