"""A savepoint taken under load, restored elsewhere when the input before it is gone, gives the same result as an
uninterrupted run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.errors import AlreadyExists, BadOption, SinkAhead, StateInUse, UnknownStream
from headrace.state.progress import read_progress
from headrace.state.restore import read, restore
from tests.e2e.support import put, until
from tests.e2e.test_control import STREAM, Feeder, json_ids, lines, parquet_ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def script(place: Path) -> str:
    return f"""{STREAM.format(place=place)};
        CREATE SINK rows WITH (type = 'parquet', path = '{place}/rows');
        CREATE SINK copy WITH (type = 'jsonl', path = '{place}/copy');
        CREATE SINK windows WITH (type = 'jsonl', path = '{place}/windows');
        CREATE PIPELINE plain INTO rows, copy AS SELECT id FROM s;
        CREATE PIPELINE counted INTO windows AS
          SELECT unix_seconds(window.start) AS start, k, count(*) AS n FROM s GROUP BY window(ts, '10 seconds'), k"""


def windows(place: Path) -> Counter[tuple[int, str, int]]:
    parts = (place / "windows").glob("part-*")
    rows = [json.loads(line) for part in parts for line in part.read_text().splitlines()]
    return Counter((row["start"], row["k"], row["n"]) for row in rows)


def wanted_windows(rows: int) -> Counter[tuple[int, str, int]]:
    counts = Counter((1767225600 + i // 100 * 10, f"k{i % 3}") for i in range(rows))
    return Counter((start, k, n) for (start, k), n in counts.items())


def test_a_savepoint_taken_under_load_and_restored_elsewhere_ends_like_an_uninterrupted_run(
    tmp_path: Path, spark: SparkSession
) -> None:
    put(tmp_path / "in" / "0.json", lines(0, 100))
    with headrace.connect(tmp_path / "state", spark=spark, buckets=2) as hub:
        hub.sql(script(tmp_path))
        feeder = Feeder(tmp_path)
        until(lambda: len(parquet_ids(tmp_path / "rows")) > 200, "rows flow")
        hub.sql("SAVEPOINT monday OF STREAM s")
        taken = tmp_path / "state" / "savepoints" / "monday"
        cut = read_progress(taken / "streams" / "s")
        until(lambda: len(parquet_ids(tmp_path / "rows")) > cut.rows + 100, "the hub continues after the savepoint")
        with pytest.raises(AlreadyExists):
            hub.savepoint("monday")
        with pytest.raises(UnknownStream):
            hub.sql("SAVEPOINT other OF STREAM nothing")
        with pytest.raises(BadOption):
            hub.sql("SAVEPOINT `a/b`")
        with pytest.raises(StateInUse):
            restore(taken, tmp_path / "restored", rewind=True)
        fed = feeder.stop()
    gone = [p for p in (tmp_path / "in").glob("*.json") if int(p.stem) + (100 if p.stem == "0" else 50) <= cut.rows]
    assert gone
    for path in gone:
        path.unlink()
    with pytest.raises(SinkAhead):
        restore(taken, tmp_path / "restored")
    command = [
        sys.executable,
        "-m",
        "headrace.app.cli",
        "restore",
        str(taken),
        "--state-dir",
        str(tmp_path / "restored"),
    ]
    done = subprocess.run([*command, "--rewind"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert str(read(taken).cuts[0].epoch) in re.findall(r"\d+", done.stdout)
    assert parquet_ids(tmp_path / "rows") == json_ids(tmp_path / "copy") == list(range(cut.rows))  # the cut, everywhere
    (tmp_path / "state").rename(tmp_path / "burnt")
    put(tmp_path / "in" / f"{fed:06}.json", lines(fed, fed + 77))
    with headrace.connect(tmp_path / "restored", spark=spark) as again:
        assert again.wait_until_end(120)
        assert again.streams["s"].status().rows == fed + 77
    assert parquet_ids(tmp_path / "rows") == json_ids(tmp_path / "copy") == list(range(fed + 77))
    assert windows(tmp_path) == wanted_windows(fed + 77)
