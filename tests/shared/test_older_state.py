"""What an earlier version stored goes on: files without checksums, tokens in the catalog, manifests without digests.

`before_generations.json` was written by the last version that counted the lives of a pipeline, after a pipeline was
started again, another was quarantined, and a sink had committed an epoch that Spark had not logged as done.
`before_checksums.json` holds a state directory with a savepoint, its input and its output. The last version before
checksums wrote it and was killed after the sink had committed the epoch in `logged`; `monday` is the offset of the cut.
"""

from __future__ import annotations

import base64
import errno
import json
from pathlib import Path
from typing import Any

import pytest

from headrace.base.durable import write_atomic
from headrace.errors import BadSavepoint, SinkAhead, StateTooNew
from headrace.hub import draft_pipelines
from headrace.model.definitions import PipelineDef
from headrace.model.stored import FORMAT
from headrace.ring1.lane_state import BlobKey
from headrace.service.offline import OfflineHub
from headrace.state.restore import restore
from tests.e2e.support import put
from tests.ring1.memory_store import MemoryStore
from tests.shared.chain import Chain
from tests.shared.mini import Checkpoint, Mini

BEFORE: dict[str, Any] = json.loads(Path(__file__).with_name("before_checksums.json").read_text())


def written(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("@ROOT@", str(root)))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    written(tmp_path, BEFORE["files"])
    for stream in tmp_path.rglob("streams/s"):
        (stream / "checkpoint").mkdir()
    return tmp_path


def shown(root: Path) -> list[int]:
    return sorted(json.loads(line)["id"] for part in root.glob("out/part-*") for line in part.read_text().splitlines())


def feed(root: Path) -> None:
    put(root / "in" / "3.json", [json.dumps({"id": i}) for i in range(12, 16)])


def holding_token(root: Path) -> set[str]:
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file() and b"s3cret" in p.read_bytes()}


def test_a_state_directory_of_an_earlier_version_continues_with_the_epoch_that_it_ended_in(
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


def lanes(stored: list[Any]) -> dict[tuple[int, int], MemoryStore]:
    """The state of lanes as it was stored: instance, bucket, header, blobs."""
    found: dict[tuple[int, int], MemoryStore] = {}
    for instance, bucket, head, blobs in stored:
        store = found[instance, bucket] = MemoryStore()
        store.head = None if head is None else base64.b64decode(head)
        store.blobs = {BlobKey(*key): base64.b64decode(data) for *key, data in blobs}
    return found


def test_state_of_lanes_restarted_pipelines_and_the_quarantine_of_an_earlier_version_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = json.loads(Path(__file__).with_name("before_generations.json").read_text())
    written(tmp_path, before["files"])
    kept = Checkpoint(
        end=before["end"], logged=tuple(before["logged"]), state=lanes(before["lanes"]), rows=before["rows"]
    )
    mini = Mini(tmp_path / "state", monkeypatch, kept=kept)
    states = {name: (mini.hub.record(name).definition.run, p.status().state) for name, p in mini.hub.pipelines.items()}
    mini.drain()
    assert states == {"rows": ("1/0", "starting"), "windows": ("2/1", "starting"), "killer": ("3/0", "failed")}
    again = "CREATE PIPELINE windows INTO out AS SELECT k, sum(id) AS total FROM s GROUP BY window(ts, '2 minutes'), k"
    declared = mini.hub.record("windows").definition
    mini.hub.sql(again)
    assert mini.hub.record("windows").definition == declared
    records = [{"id": 12 + i, "k": "ab"[i % 2], "ts": f"2026-01-01T00:05:0{i}Z"} for i in range(4)]
    put(tmp_path / "in" / "3.json", [json.dumps(record) for record in records])
    mini.drain()
    rows = [json.loads(line) for part in tmp_path.glob("out/part-*") for line in part.read_text().splitlines()]
    assert sorted(r["id"] for r in rows if "id" in r) == list(range(16))
    assert sorted(r["total"] for r in rows if "total" in r) == [12, 16, 18, 20]
    assert sorted(r["killed"] for r in rows if "killed" in r) == [2, 2]
    mini.hub.close()


# --- format 2: pools that share partitions, and the first that are spread --------------------------------------------

MINUTES = (
    "CREATE STREAM s (ts TIMESTAMP, k STRING, WATERMARK FOR ts AS ts) WITH (source = 'files', format = 'json', "
    "path = '{path}'); CREATE SINK out WITH (type = 'kept'); "
    "CREATE PIPELINE p INTO out AS SELECT k, count(*) AS n FROM s GROUP BY window(ts, '1 minute'), k"
)


def minutes(root: Path, spread: bool, monkeypatch: pytest.MonkeyPatch) -> Chain:
    """A hub whose pipeline has an open window with two rows of `a` and one of `b`."""
    (root / "in").mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(draft_pipelines, "PipelineDef", lambda **made: PipelineDef(**made | {"spread": spread}))
        chain = Chain(root / "state", monkeypatch)
        chain.sql(MINUTES.format(path=root / "in"))
    arrive(chain, root, 0, "a", "a", "b")
    return chain


def arrive(chain: Chain, root: Path, minute: int, *keys: str) -> None:
    lines = [json.dumps({"ts": f"2026-01-01T00:0{minute}:00Z", "k": k}) for k in keys]
    put(root / "in" / f"{len(list((root / 'in').iterdir()))}.json", lines)
    chain.drain()


def format_2(file: Path) -> None:
    """A savepoint's description as a release of format 2 wrote it."""
    file.write_text(json.dumps(json.loads(file.read_text().splitlines()[0]) | {"format": 2}))


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("restored", [False, True])
def test_open_windows_of_format_2_close_in_a_directory_or_savepoint_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spread: bool, restored: bool
) -> None:
    chain, state = minutes(tmp_path, spread, monkeypatch), tmp_path / "state"
    taken = chain.hub.savepoint("monday")
    chain.hub.close()
    if restored:
        format_2(taken / "savepoint.json")
        restore(taken, tmp_path / "restored")
        state = tmp_path / "restored"
    else:
        (state / "VERSION").write_text("2\n")
    again = Chain(state, monkeypatch, like=chain)
    arrive(again, tmp_path, 0, "a")
    arrive(again, tmp_path, 5, "a")
    assert dict(again.rows("p")) == {"a": 3, "b": 1}
    assert again.hub.record("p").definition.spread is spread
    again.hub.close()
    assert (state / "VERSION").read_text() == "3\n"


def test_a_release_of_format_2_refuses_state_whose_pools_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would ignore that a pipeline is `spread`, and look for its open windows in other pools."""
    chain = minutes(tmp_path, True, monkeypatch)
    taken = chain.hub.savepoint("monday")
    chain.hub.close()
    monkeypatch.setattr("headrace.state.state_dir.FORMAT", 2)
    monkeypatch.setattr("headrace.state.restore.READABLE_FORMATS", (1, 2))
    with pytest.raises(StateTooNew):
        Chain(tmp_path / "state", monkeypatch)
    with pytest.raises(BadSavepoint):
        restore(taken, tmp_path / "restored")
