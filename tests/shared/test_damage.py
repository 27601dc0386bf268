"""Each file of a stream's directory is damaged in turn: the stream goes on with the right rows, or it is dead with a
coded reason that names the file, and can be dropped. Never a wrong row, and never a bare error."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.control.signals import SYNC_TEST
from headrace.errors import HeadraceError, kind_of
from tests.e2e.support import put
from tests.shared.mini import Checkpoint, Mini


def _overwrite(file: Path, change: Callable[[bytes], bytes]) -> None:
    file.write_bytes(change(file.read_bytes()))


def _flip(data: bytes) -> bytes:
    place = len(data) // 3
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


DAMAGES: dict[str, Callable[[Path], None]] = {
    "empty": lambda file: _overwrite(file, lambda data: b""),
    "garbage": lambda file: _overwrite(file, lambda data: b"\x00\xff{]" * 9),
    "truncated": lambda file: _overwrite(file, lambda data: data[: len(data) // 2]),
    "flipped": lambda file: _overwrite(file, _flip),
    "other": lambda file: _overwrite(file, lambda data: b'{"version": 99, "format": 99}'),
    "newer": lambda file: _overwrite(file, lambda data: data.replace(b'"format": 1', b'"format": 99')),
    "removed": lambda file: file.unlink(),
}
OURS = {"plans", "current", "progress.json", "applied.json", "quarantine.json", "signals.json", "checkpoint.id"}


def rows(low: int, high: int) -> list[str]:
    return [json.dumps({"a": i}) for i in range(low, high)]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Checkpoint]:
    """A hub that was closed after some epochs, with every file that a stream may have."""
    root = tmp_path_factory.mktemp("damage")
    with pytest.MonkeyPatch.context() as patch:
        mini = Mini(root / "state", patch)
        put(root / "in" / "0.json", rows(0, 10))
        mini.hub.sql(
            f"CREATE STREAM s (a BIGINT) WITH (source = 'files', format = 'json', path = '{root / 'in'}');"
            "CREATE SINK out WITH (type = 'kept'); CREATE PIPELINE p INTO out AS SELECT a FROM s;"
            "CREATE PIPELINE q INTO out AS SELECT count(*) AS n FROM s"
        )
        mini.drain()
        mini.hub.sql("STOP PIPELINE q NOW")
        mini.hub.runtime("s").barrier(SYNC_TEST)
        put(root / "in" / "1.json", rows(10, 20))
        mini.drain()
        mini.hub.close()
    files = {str(f.relative_to(root / "state" / "streams" / "s").parts[0]) for f in _files(root / "state")}
    assert files >= OURS | {"source"}
    return root, mini.checkpoint


def _files(state: Path) -> list[Path]:
    """All but those of Spark's checkpoint."""
    stream = state / "streams" / "s"
    return sorted(f for f in stream.rglob("*") if f.is_file() and f.relative_to(stream).parts[0] != "checkpoint")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named_or_does_no_harm(
    template: tuple[Path, Checkpoint], tmp_path: Path, damage: str
) -> None:
    root, checkpoint = template
    put(root / "in" / "2.json", rows(20, 30))
    for number, original in enumerate(_files(root / "state")):
        name = original.relative_to(root / "state")
        state = tmp_path / str(number)
        shutil.copytree(root / "state", state)
        before = (state / name).read_bytes()
        DAMAGES[damage](state / name)
        if (state / name).exists() and (state / name).read_bytes() == before:
            continue
        with pytest.MonkeyPatch.context() as patch:
            _check(Mini(state, patch, kept=copy.deepcopy(checkpoint)), name)
    (root / "in" / "2.json").unlink()


def _check(mini: Mini, name: Path) -> None:
    try:
        mini.drain()
    except HeadraceError as problem:  # in the planning process
        assert mini.query is not None
        mini.query.end(problem.render())
    status = mini.hub.streams["s"].status()
    assert status.state in ("running", "dead"), (name, status)
    if status.state == "running":
        assert mini.output(1) == [(i,) for i in range(30)], name
    else:
        assert kind_of(status.problem) is not None, (name, status.problem)
        assert name.name in status.problem, (name, status.problem)
        assert mini.hub.pipelines["p"].status().state == "dead"
    mini.hub.sql("SHOW STREAMS; SHOW PIPELINES; DESCRIBE STREAM s; DESCRIBE PIPELINE p")
    mini.hub.sql("DROP PIPELINE p; DROP PIPELINE q; DROP STREAM s")
    assert not mini.hub.streams
    mini.hub.close()
