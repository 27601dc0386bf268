"""What the tests of the service talk to: one real `headrace serve` for the whole run (`process`), or a hub that runs
its epochs in the test's process (`served`), for tests that look or reach into the hub."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.service.client import RemoteHub
from headrace.service.guard import AccessPolicy
from headrace.service.server import HubServer
from tests.e2e.support import put, until
from tests.service.process import Server, serving
from tests.shared.mini import Mini

TOKEN, READ_TOKEN = "full-token", "read-token"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that runs until the last test, with two tokens. Its stream `s` reads JSON files of `in`, and its sink
    `out` keeps rows in memory. The pipeline `base` keeps the stream running and decodes `d` only. Tests declare objects
    under a name of their own, and drop them."""
    work = tmp_path_factory.mktemp("served")
    (work / "in").mkdir()
    (work / "read").write_text(READ_TOKEN)
    (work / "app.sql").write_text(
        "CREATE STREAM s (a BIGINT, b STRING, c INT, d STRING) WITH (source = 'files', format = 'json', "
        f"path = '{work / 'in'}'); CREATE SINK out WITH (type = 'memory');"
        "CREATE PIPELINE base INTO out AS SELECT d FROM s WHERE d IS NOT NULL"
    )
    with serving(work, "--read-token-file", str(work / "read"), token=TOKEN) as server:
        server.wait_ready()
        put(work / "in" / "base.json", ['{"d": "first"}'])
        until(lambda: server.get("/api/v1/pipelines/base/results")["total"] == 1, "an epoch is committed", 60)
        server.wait_settled()
        yield server


@pytest.fixture
def name() -> str:
    """A name that no other test has."""
    return f"t{next(_numbers)}"


@pytest.fixture
def client(process: Server) -> Iterator[RemoteHub]:
    """A client of the real server, over its Unix socket."""
    with RemoteHub(process.directory) as hub:
        yield hub


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
    """With a full token and a read-only one."""
    access = AccessPolicy(token=TOKEN, read_only_token=READ_TOKEN)
    server = HubServer(mini.hub, mini.directory, access, bind=("127.0.0.1", 0))
    yield Served(mini, server, mini.directory)
    server.close()


@pytest.fixture
def remote(served: Served) -> Iterator[RemoteHub]:
    with RemoteHub(served.directory) as hub:
        yield hub
