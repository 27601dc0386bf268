"""A few kills between real servers. The long version: `make soak-connectors`."""

from __future__ import annotations

import os

import pytest

from tests.connectors.servers import missing
from tests.soak.connectors import soak

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_kills_of_hub_worker_and_broker_lose_and_double_nothing_between_real_servers() -> None:
    said: list[str] = []
    kills, wrong, absent = soak(3, 7, said.append)
    assert wrong == {}, said
    assert kills["hub"] == kills["worker"] == 1 and (kills["broker"] == 1 or "kafka" in absent)
    if absent and os.environ.get("HEADRACE_CONNECTORS") == "required":
        missing(f"servers are missing: {absent}")
