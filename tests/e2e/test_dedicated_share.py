"""A pipeline on the dedicated host beside others whose stream reads a backlog."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace.bridge import read_share
from headrace.spark.dedicated_committer import DedicatedCommitter
from tests.e2e.support import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]
FILES, ROWS = 12, 6000


def test_a_query_that_spills_runs_no_batch_while_its_neighbours_read_a_backlog_and_loses_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apart from its first one. Its share is so small here that a test sees it."""
    monkeypatch.setattr(read_share, "WAIT_PER_SECOND", 1e6)
    monkeypatch.setattr(read_share, "LONGEST_WAIT", 1e6)
    asked: list[bool] = []
    began: list[bool] = []
    give_way = DedicatedCommitter.give_way

    def asking(committer: DedicatedCommitter, query: Any) -> None:
        asked.append(query.gives_way())
        give_way(committer, query)
        began.append(query.gives_way())

    monkeypatch.setattr(DedicatedCommitter, "give_way", asking)
    inbox = tmp_path / "in"
    inbox.mkdir()
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        text = "".join(json.dumps({"id": i, "pad": "x" * 180}) + "\n" for i in ids)
        assert len(text) > 1 << 20
        (inbox / f"{number:02}.json").write_text(text)
    with headrace.connect(tmp_path / "state", spark=spark) as hub:
        hub.sql(
            f"CREATE STREAM s (id BIGINT, pad STRING) WITH (source = 'files', format = 'json', path = '{inbox}', "
            "max_epoch_bytes = '1200KB');"
            "CREATE SINK m WITH (type = 'memory', max_rows = '1000000');"
            "CREATE PIPELINE n INTO m AS SELECT id FROM s WHERE id % 1000 = 0;"
            "CREATE PIPELINE d INTO m WITH (host = 'dedicated') AS SELECT DISTINCT id FROM s"
        )
        until(lambda: hub.streams["s"].status().rows == FILES * ROWS, "the stream has read all", 300)
        hub.streams["s"].sync(300)
        found = sorted(row["id"] for row in hub.pipelines["d"].results().to_pylist())
        assert found == list(range(FILES * ROWS))
        assert hub.pipelines["n"].results().num_rows == FILES * ROWS // 1000
    assert any(asked[1:]), "no batch met a backlog"
    assert not any(began[1:])
