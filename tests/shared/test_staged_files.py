"""Files with large packs of events: none stays behind when an epoch ends anywhere, and savepoints have none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headrace.errors import StateUnavailable
from tests.e2e.support import put
from tests.shared.mini import Crash, Mini

KEYS = 40
DECLARED = """
    CREATE STREAM s (ts TIMESTAMP, k STRING, v BIGINT, WATERMARK FOR ts AS ts - INTERVAL 1 SECOND)
    WITH (source = 'files', path = '{path}', format = 'json');
    CREATE SINK m WITH (type = 'kept');
    CREATE PIPELINE p INTO m AS SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY window(ts, '1 minute'), k
"""


def packs(root: Path) -> list[Path]:
    return list(root.rglob("*.pack"))


def opened(base: Path, patch: pytest.MonkeyPatch) -> Mini:
    mini = Mini(base / "state of größe %41", patch)
    (base / "in").mkdir()
    mini.hub.sql(DECLARED.format(path=base / "in"))
    for number in range(2):
        rows = [f'{{"ts": "2026-01-01 00:00:0{number}", "k": "key {k}", "v": {k}}}' for k in range(KEYS)]
        put(base / "in" / f"{number}.json", rows)
    return mini


def all_rows(mini: Mini) -> bool:
    return sorted(mini.output(1)) == sorted((f"key {k}", 2, 2 * k) for k in range(KEYS))


def end(mini: Mini) -> None:
    assert mini.hub.wait_until_end(timeout=60)
    assert all_rows(mini)
    assert not packs(mini.directory)


@pytest.mark.parametrize("place", ["logged", "tasks", "lanes", "committed"])
def test_a_hub_that_dies_anywhere_leaves_no_pack_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    mini = opened(tmp_path, monkeypatch)
    mini.checkpoint.crash = place
    with pytest.raises(Crash):
        mini.drain()
    assert bool(packs(mini.directory)) == (place in ("tasks", "lanes"))
    dead = tmp_path / "as it was"
    shutil.copytree(mini.directory, dead, ignore=shutil.ignore_patterns("hub.sock"))
    mini.hub.close(drain=False)
    assert not packs(mini.directory)  # it was closed in mid-epoch
    shutil.rmtree(mini.directory)
    dead.rename(mini.directory)
    mini.open()
    assert not packs(mini.directory)
    end(mini)


def test_a_killed_hub_leaves_no_pack_to_a_stream_that_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mini = opened(tmp_path, monkeypatch)
    mini.hub.sql("STOP PIPELINE p")
    mini.hub.close()
    (staged,) = mini.directory.rglob("staged")
    (staged / "0123.pack").write_bytes(b"rows")
    mini.open()
    assert not packs(mini.directory)


def test_a_savepoint_has_no_packs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that was cancelled may write one after its epoch."""
    mini = opened(tmp_path, monkeypatch)
    mini.hub.sql("STOP PIPELINE p")
    (staged,) = mini.directory.rglob("staged")
    (staged / "0123.pack").write_bytes(b"rows")
    saved = mini.hub.savepoint("now")
    assert (saved / "savepoint.json").exists()
    assert not packs(saved)


def test_a_damaged_pack_is_no_wrong_result_and_no_failure_of_a_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mini = opened(tmp_path, monkeypatch)
    mini.checkpoint.crash = "tasks"
    die = mini.checkpoint.die

    def damage(place: str) -> None:
        try:
            die(place)
        except Crash:
            for path in packs(mini.directory):
                data = bytearray(path.read_bytes())
                data[-9] ^= 1  # in the last values
                path.write_bytes(data)

    monkeypatch.setattr(mini.checkpoint, "die", damage)
    with pytest.raises(StateUnavailable):
        mini.drain()
    end(mini)
