"""A script runs again while a permission of its stream is withdrawn: the stream is declared, and its query waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import BrokerDenied, StoreDenied, UserError
from headrace.model.definitions import StreamDef
from headrace.sources.source_kind import SourceKind
from tests.shared.mini import Mini


@pytest.mark.parametrize("denied", [BrokerDenied, StoreDenied])
def test_only_an_unchanged_declaration_is_accepted_without_the_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, denied: type[UserError]
) -> None:
    mini = Mini(tmp_path / "state", monkeypatch)
    options = "source = 'nats', format = 'json', stream = 'S', url = 'nats://localhost:1', user = 'u', password ="
    answer: list[UserError] = []

    def check(kind: SourceKind, stream: StreamDef) -> None:
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
