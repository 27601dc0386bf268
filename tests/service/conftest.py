"""A hub that runs its epochs in this process, served on its socket and on a loopback port."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.service.client import RemoteHub
from headrace.service.guard import AccessPolicy
from headrace.service.server import HubServer
from tests.shared.mini import Mini

TOKEN, READ_TOKEN = "full-token", "read-token"


@dataclass
class Served:
    mini: Mini
    server: HubServer
    directory: Path

    @property
    def url(self) -> str:
        assert self.server.address is not None
        return self.server.address


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mini]:
    (tmp_path / "in").mkdir()
    mini = Mini(tmp_path / "state", monkeypatch)
    mini.hub.sql(
        "CREATE STREAM s (a BIGINT, b STRING, c INT, d STRING) WITH (source = 'files', format = 'json', "
        f"path = '{tmp_path / 'in'}'); CREATE SINK out WITH (type = 'memory')"
    )
    yield mini
    mini.hub.close()


@pytest.fixture
def served(mini: Mini) -> Iterator[Served]:
    """Without a token, as on loopback."""
    server = HubServer(mini.hub, mini.directory, bind=("127.0.0.1", 0))
    yield Served(mini, server, mini.directory)
    server.close()


@pytest.fixture
def guarded(mini: Mini) -> Iterator[Served]:
    """With a full token, a read-only one and small limits."""
    access = AccessPolicy(token=TOKEN, read_only_token=READ_TOKEN, max_body_bytes=1000)
    server = HubServer(mini.hub, mini.directory, access, bind=("127.0.0.1", 0))
    yield Served(mini, server, mini.directory)
    server.close()


@pytest.fixture
def remote(served: Served) -> Iterator[RemoteHub]:
    with RemoteHub(served.directory) as hub:
        yield hub
