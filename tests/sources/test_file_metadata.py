"""Metadata columns of files, through a hub without Spark."""

from __future__ import annotations

import datetime as dt
import gzip
import os
from pathlib import Path

import pytest

from tests.shared.mini import Mini

LINES = ['{"a": 1}', '{"a": 22}', "", '{"a": 333}', '{"a": "x"}', '{"a": 5}']


def test_path_position_and_modification_time_are_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    for name in ("one.json", "two.json.gz"):
        text = "\n".join(LINES).encode()
        (tmp_path / "in" / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        os.utime(tmp_path / "in" / name, ns=(0, 1_700_000_000_123_456_000))
    mini = Mini(tmp_path / "state", monkeypatch)
    mini.hub.sql(
        "CREATE STREAM s (path STRING METADATA, a BIGINT, at BIGINT METADATA FROM 'position', name STRING METADATA, "
        "modified TIMESTAMP METADATA FROM 'modification_time') "
        f"WITH (source = 'files', format = 'json', path = '{tmp_path / 'in'}', on_error = 'skip');"
        "CREATE SINK out WITH (type = 'kept');"
        "CREATE PIPELINE p INTO out AS SELECT path, a, at, name, modified FROM s WHERE at <> 9"
    )
    mini.drain()
    modified = dt.datetime.fromtimestamp(1_700_000_000, dt.UTC).replace(microsecond=123_456)
    wanted = [
        (str(tmp_path / "in" / name), a, at, name, modified)
        for name in ("one.json", "two.json.gz")
        for a, at in ((1, 0), (333, 20), (5, 42))
    ]
    assert sorted(row for rows in mini.checkpoint.kept.values() for row in rows) == sorted(wanted)
    mini.hub.close()
