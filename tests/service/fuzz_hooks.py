"""Hooks of schemathesis, which runs in a process of its own: they keep requests short, and let them reach something."""

from __future__ import annotations

import os
from typing import Any

import schemathesis


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Read one event instead of all. Name objects that exist where a request does something with one. Drop nothing but
    what is there to be dropped: schemathesis also tries names that it has seen in answers."""
    path: str = case.operation.path
    if path == "/api/v1/events":
        case.query = {**(case.query or {}), "once": "true"}
    elif path.startswith(("/api/v1/streams/{name}/", "/api/v1/pipelines/{name}/")):
        case.path_parameters = {"name": os.environ["FUZZED"]}
    elif path.endswith("/{name}") and case.method.upper() == "DELETE":
        case.path_parameters = {"name": os.environ["FUZZED"] + "_gone"}
