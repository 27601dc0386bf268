"""The servers of the connector tests. Each process of a test run starts its own, when the first test needs it.

Where one cannot be had the tests are skipped, with the reason (`tests/connectors/servers.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connectors.broker import Broker, BrokerMissing
from tests.connectors.servers import missing
from tests.connectors.topics import Topics
from tests.shared.mini import Mini

# Topics have no rules until a test makes some. The user without a password may always do everything.
_RULES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """An Apache Kafka broker. A test that stops it starts it again."""
    try:
        made = Broker(tmp_path_factory.mktemp("kafka"), _RULES)
    except BrokerMissing as problem:
        missing(f"no Kafka broker: {problem}")
    made.start()
    yield made
    made.stop()


@pytest.fixture
def topics(broker: Broker) -> Topics:
    """Makes topics with new names, and writes to them and reads them."""
    return Topics(broker.address)


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mini]:
    """A hub without Spark, with a sink `out` that keeps its rows."""
    made = Mini(tmp_path / "state", monkeypatch)
    made.hub.sql("CREATE SINK out WITH (type = 'kept')")
    yield made
    made.hub.close(drain=False)
