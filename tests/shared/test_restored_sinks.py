"""File sinks after a restore, when pipelines were replaced or created since the savepoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.errors import SinkAhead
from headrace.state.restore import restore
from tests.e2e.support import put
from tests.shared.chain import Chain, record

STREAM = """
CREATE STREAM raw (ts TIMESTAMP, k STRING, v BIGINT) WITH (source = 'files', format = 'json', path = '{path}/in');
CREATE SINK f WITH (type = 'jsonl', path = '{path}/out'{options});
CREATE PIPELINE p INTO f AS SELECT k, v FROM raw
"""


def written(base: Path) -> list[tuple[str, int]]:
    rows = [json.loads(line) for part in (base / "out").glob("part-*") for line in part.read_text().splitlines()]
    return sorted((row["k"], row["v"]) for row in rows)


@pytest.mark.parametrize("options", ["", ", partition_by = 'k'"])
@pytest.mark.parametrize(
    "statement",
    [
        "CREATE OR REPLACE PIPELINE p INTO f AS SELECT k, v + 0 AS v FROM raw",
        "DROP PIPELINE p; CREATE PIPELINE q INTO f AS SELECT k, v FROM raw",
    ],
)
def test_what_a_newer_pipeline_wrote_into_the_same_sink_is_not_written_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str, options: str
) -> None:
    put(tmp_path / "in" / "0.json", [record(1, k="a", v=1)])
    chain = Chain(tmp_path / "state", monkeypatch)
    chain.sql(STREAM.format(path=tmp_path, options=options))
    chain.drain()
    taken = chain.hub.savepoint("monday")
    saved = chain.copied()
    chain.sql(statement)
    put(tmp_path / "in" / "1.json", [record(2, k="b", v=2)])
    chain.drain()
    chain.hub.close()
    chain.checkpoints, chain.kept = saved

    assert len(list((tmp_path / "out").rglob("part-*"))) == 2
    with pytest.raises(SinkAhead):
        restore(taken, tmp_path / "restored")
    restore(taken, tmp_path / "restored", rewind=True)
    assert len(list((tmp_path / "out").rglob("part-*"))) == 1
    again = Chain(tmp_path / "restored", monkeypatch, like=chain)
    again.drain()
    again.hub.close()
    assert len(list((tmp_path / "out").rglob("part-*"))) == 2
    if not options:
        assert written(tmp_path) == [("a", 1), ("b", 2)]


def test_a_pipeline_that_was_dropped_before_the_savepoint_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "in" / "0.json", [record(1, k="a", v=1)])
    chain = Chain(tmp_path / "state", monkeypatch)
    chain.sql(STREAM.format(path=tmp_path, options=""))
    chain.drain()
    chain.sql("DROP PIPELINE p; CREATE PIPELINE q INTO f AS SELECT k, v FROM raw")
    put(tmp_path / "in" / "1.json", [record(2, k="b", v=2)])
    chain.drain()
    taken = chain.hub.savepoint("monday")
    chain.hub.close()
    restore(taken, tmp_path / "restored")
    assert written(tmp_path) == [("a", 1), ("b", 2)]
