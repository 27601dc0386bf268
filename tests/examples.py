"""Runs the examples in docstrings and documents: the hub that they use, and how they are run.

Examples run on the data and the script of `headrace init`, with a hub that needs no Spark (`tests.shared.running`).
They find these names: `hub` is that hub, and `remote` is a client of it.
"""

from __future__ import annotations

import doctest
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.app.init import write_example
from headrace.hub.hub import Hub
from headrace.service.client import RemoteHub
from headrace.service.server import HubServer
from tests.shared.running import RunningQueries

# What the examples have besides the script of `headrace init`.
MORE = """
CREATE SINK kept WITH (type = 'memory');
CREATE PIPELINE warm INTO kept AS SELECT device, temp FROM sensors WHERE temp > 25;
"""
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


@contextmanager
def example_names(directory: Path) -> Iterator[dict[str, Any]]:
    """The names that examples may use, while the current directory is that of `headrace init`. Examples that open a hub
    of their own get one without Spark, too."""
    script, _ = write_example(directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        patch.setattr("headrace.hub.hub.SparkLauncher", lambda *_: RunningQueries())
        with Hub(directory / ".headrace", RunningQueries(), buckets=2, start_timeout=60.0) as hub:
            hub.on_close(HubServer(hub, hub.directory).close)
            hub.sql(script.read_text(encoding="utf-8") + MORE)
            hub.streams["sensors"].sync()
            with RemoteHub(hub.directory) as remote:
                yield {"headrace": headrace, "hub": hub, "remote": remote}


def run_example(example: doctest.DocTest) -> str:
    """Run one example. Returns what went wrong: empty if all is as written."""
    out = io.StringIO()
    doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(example, out=out.write)
    return out.getvalue()


def examples_of(text: str, names: dict[str, Any], where: str) -> doctest.DocTest:
    """The examples in a text."""
    return doctest.DocTestParser().get_doctest(text, dict(names), where, where, 0)
