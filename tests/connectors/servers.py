"""Real servers for tests: skipped with the reason where one cannot be had, unless HEADRACE_CONNECTORS=required."""

from __future__ import annotations

import os
import socket
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Skip the test, or fail it if all servers are required (`make test-connectors`)."""
    if os.environ.get("HEADRACE_CONNECTORS") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
