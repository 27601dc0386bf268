"""A damaged manifest of a sink: its pipeline fails with a code and the path, and no wrong row becomes visible."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.errors import StateDamaged, kind_of
from headrace.sinks.file_sink import FileSink
from tests.e2e.support import put
from tests.shared.mini import Crash, Mini


def test_a_manifest_that_was_changed_is_named_and_its_files_stay_staged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mini, out = Mini(tmp_path / "state", monkeypatch), tmp_path / "out"
    put(tmp_path / "in" / "0.json", ['{"a": 0}'])
    mini.hub.sql(f"""
        CREATE STREAM s (a BIGINT) WITH (source = 'files', format = 'json', path = '{tmp_path / "in"}');
        CREATE SINK lines WITH (type = 'jsonl', path = '{out}'); CREATE SINK kept WITH (type = 'memory');
        CREATE PIPELINE p INTO lines AS SELECT a FROM s; CREATE PIPELINE q INTO kept AS SELECT a FROM s""")
    mini.drain()

    def die(sink: FileSink, *_: object) -> None:
        raise Crash("between the manifest and the files")

    with monkeypatch.context() as patch:
        patch.setattr(FileSink, "_roll_forward", die)
        put(tmp_path / "in" / "1.json", ['{"a": 1}'])
        with pytest.raises(Crash):
            mini.drain()
    manifest = max((out / "_headrace" / "manifests").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    facts = json.loads(manifest.read_text())
    (staged,) = facts["files"]
    facts["files"] = {staged: "part-0.jsonl"}  # a valid manifest, with another name
    manifest.write_text(json.dumps(facts))
    mini.crash()
    mini.drain()
    assert mini.hub.pipelines["p"].status().state == "failed"
    assert kind_of(mini.hub.pipelines["p"].status().error) is StateDamaged
    assert str(manifest) in mini.hub.pipelines["p"].status().error
    assert mini.hub.pipelines["q"].status().state == "running"
    assert [json.loads(path.read_text())["a"] for path in out.glob("part-*")] == [0]
    mini.hub.close()
