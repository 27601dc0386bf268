"""A script runs again although its streams and sinks could not be declared now: a permission is withdrawn, or an
earlier version allowed more."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import BadOption, BrokerDenied, StoreDenied, UserError
from headrace.model.definitions import StreamDef
from headrace.sinks.sink_kind import SinkKind
from headrace.sources.source_kind import SourceKind
from tests.shared.mini import Mini


@pytest.mark.parametrize("denied", [BrokerDenied, StoreDenied])
def test_only_an_unchanged_declaration_is_accepted_without_the_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, denied: type[UserError]
) -> None:
    mini = Mini(tmp_path / "state", monkeypatch)
    options = "source = 'nats', format = 'json', stream = 'S', url = 'nats://localhost:1', user = 'u', password ="
    answer: list[UserError] = []

    def check(kind: SourceKind[Any], stream: StreamDef) -> None:
        for problem in answer:
            raise problem

    monkeypatch.setattr(SourceKind, "check", check)
    try:
        mini.hub.sql(f"CREATE STREAM s (a BIGINT) WITH ({options} 'right')")
        answer.append(denied("no permission"))
        for statement in ("CREATE STREAM", "CREATE STREAM IF NOT EXISTS", "CREATE OR REPLACE STREAM"):
            mini.hub.sql(f"{statement} s (a BIGINT) WITH ({options} 'right')")
        with pytest.raises(denied):
            mini.hub.sql(f"CREATE OR REPLACE STREAM s (a BIGINT) WITH ({options} 'wrong')")
        with pytest.raises(denied):
            mini.hub.sql(f"CREATE STREAM t (a BIGINT) WITH ({options} 'right')")
    finally:
        mini.hub.close(drain=False)


@pytest.mark.parametrize("denied", [BrokerDenied, StoreDenied])
def test_only_an_unchanged_sink_is_accepted_without_the_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, denied: type[UserError]
) -> None:
    mini = Mini(tmp_path / "state", monkeypatch)
    options = "type = 'parquet', path = 's3://bucket/x', access_key = 'a', secret_key ="
    answer: list[UserError] = []

    def check(kind: SinkKind[Any], options: Mapping[str, str]) -> None:
        for problem in answer:
            raise problem

    monkeypatch.setattr(SinkKind, "check", check)
    try:
        mini.hub.sql(f"CREATE SINK o WITH ({options} 'right')")
        answer.append(denied("no permission"))
        mini.hub.sql(f"CREATE SINK o WITH ({options} 'right')")
        with pytest.raises(denied):
            mini.hub.sql(f"CREATE OR REPLACE SINK o WITH ({options} 'wrong')")
        with pytest.raises(denied):
            mini.hub.sql(f"CREATE SINK other WITH ({options} 'right')")
    finally:
        mini.hub.close(drain=False)


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_a_sink_with_a_larger_roll_size_than_is_allowed_now_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (tmp_path / "in").mkdir()
    script = (
        f"CREATE SINK o WITH (type = '{kind}', path = 's3://bucket/x', roll_size = '5GiB'); "
        f"CREATE STREAM s (a BIGINT) WITH (source = 'files', format = 'json', path = '{tmp_path / 'in'}'); "
        "CREATE PIPELINE p INTO o AS SELECT a FROM s"
    )
    mini = Mini(tmp_path / "state", monkeypatch)
    try:
        with monkeypatch.context() as earlier:
            earlier.setattr(SinkKind, "check", lambda kind, options: None)
            mini.hub.sql(script)
        mini.hub.close(drain=False)
        mini.open()
        status = mini.hub.pipelines["p"].status()
        assert (status.state, status.error) == ("starting", "")
        mini.hub.sql(script)
        with pytest.raises(BadOption):
            mini.hub.sql(f"CREATE SINK n WITH (type = '{kind}', path = 's3://bucket/x', roll_size = '5GiB')")
    finally:
        mini.hub.close(drain=False)
