"""Random schedules of joining, leaving, stopping, replacing, crashing and dying workers, over random queries.

What every instance brought out is what the query means over exactly the rows of the epochs in which it was active. An
undecoded column reads as NULL, so a projection that came too late would show as well.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import os
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from headrace.errors import UnsupportedOnShared
from headrace.sql import Planned
from headrace.state.progress import read_applied
from tests.e2e.support import put
from tests.shared.mini import Crash, Mini, lanes_with_state
from tests.sql.data import rows_of
from tests.sql.execute import bag, plain, run_plan, run_program
from tests.sql.random_queries import query
from tests.sql.support import HERE, MEANING, names, plan
from tests.strategies import examples

ROWS = 60
STREAM = (HERE / "streams.sql").read_text("utf-8").split(";")[0]


def stream_rows(seed: int) -> pa.Table:
    """Rows in order of time, so that none is late."""
    declared = names().stream("s")
    assert declared is not None
    return rows_of(declared, ROWS, seed).sort_by("_t")


def as_lines(rows: pa.Table) -> list[str]:
    declared = names().stream("s")
    assert declared is not None
    fields = [f.name for f in declared.schema]
    return [
        json.dumps(
            {name: _json(name, value) for name, value in zip(fields, list(row.values())[: len(fields)], strict=True)}
        )
        for row in rows.to_pylist()
    ]


def _json(name: str, value: Any) -> Any:
    if name == "attrs" and value is not None:
        return dict(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime):
        return value.isoformat() if value.tzinfo is None else value.astimezone(dt.UTC).isoformat()
    return str(value) if isinstance(value, dt.date | Decimal) else value


@st.composite
def a_query(draw: st.DrawFn) -> str:
    """A random query that the shared host takes and that fails on none of the rows."""
    text = draw(query())
    try:
        planned = plan(text)
        run_program(planned.program, stream_rows(0))
    except (UnsupportedOnShared, duckdb.Error):
        assume(False)
    return text


ACTIONS = st.one_of(
    st.tuples(st.just("feed"), st.integers(1, 12)),
    st.tuples(st.just("feed"), st.integers(1, 12)),
    st.tuples(st.just("step"), st.integers(1, 2)),
    st.tuples(st.just("create"), st.integers(0, 3)),
    st.tuples(st.just("replace"), st.integers(0, 3)),
    st.tuples(st.sampled_from(["drop", "stop", "start", "kill"]), st.integers(0, 3)),
    st.tuples(st.just("crash"), st.sampled_from(["logged", "tasks", "lanes", "committed"])),
    st.tuples(st.just("open"), st.none()),
)


class Schedule:
    """Applies actions to a hub, and knows what each instance ran."""

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch, queries: list[str]) -> None:
        self.input, self.queries = directory / "in", queries
        self.input.mkdir()
        self.rows, self.fed, self.files = stream_rows(0), 0, 0
        self.lines = as_lines(self.rows)
        self.mini = Mini(directory / "state", patch)
        source = STREAM.replace("source = 'generator'", f"source = 'files', path = '{self.input}'")
        self.mini.hub.sql(f"{source}; CREATE SINK out WITH (type = 'kept')")
        self.instances: dict[int, str] = {}
        self.failed: set[int] = set()

    def apply(self, action: str, given: Any) -> None:
        hub, mini = self.mini.hub, self.mini
        try:
            if action == "feed":
                put(self.input / f"{self.files:03}.json", self.lines[self.fed : self.fed + given])
                self.files, self.fed = self.files + 1, min(ROWS, self.fed + given)
            elif action == "step":
                for _ in range(given):
                    mini.step()
            elif action == "crash":
                mini.checkpoint.crash = given
                mini.step()
                mini.checkpoint.crash = ""
                mini.crash()
            elif action == "open":
                hub.close()
                mini.open()
            elif action == "kill":
                mini.checkpoint.killers = {f"p{given}"}
                self.apply("feed", 3)
                mini.drain()  # it dies, dies again, and is looked for
            else:
                self._pipeline(action, f"p{given}", self.queries[given])
        except Crash:
            mini.crash()
        self._note()

    def _pipeline(self, action: str, name: str, text: str) -> None:
        hub, record = self.mini.hub, self.mini.hub.catalog.pipeline(name)
        self.mini.checkpoint.killers.discard(name)
        if action == "create" and record is None:
            hub.sql(f"CREATE PIPELINE {name} INTO out AS {text}")
        elif action == "replace" and record is not None:
            # With the same Ring 1 program it would go on with the state of the other, whose rows were others.
            stateful = record.definition.program.ring1 is not None
            other = text.replace(" FROM ", ", count(*) AS more FROM " if stateful else ", id + 1 AS more FROM ", 1)
            changed = other if record.definition.sql.endswith(text) else text
            hub.sql(f"CREATE OR REPLACE PIPELINE {name} INTO out AS {changed}")
        elif action in ("drop", "stop", "start") and record is not None:
            hub.sql(f"{action.upper()} PIPELINE {name}")
        found = hub.catalog.pipeline(name)
        if action in ("create", "replace", "start") and found is not None and found.desired == "running":
            applied = read_applied(hub.runtime("s").directory)
            assert applied is not None
            needed = set(found.definition.program.view.indexes(14))
            assert needed <= set(applied.columns), "START returns when an epoch that covers it is planned"

    def _note(self) -> None:
        for record in self.mini.hub.catalog.pipelines.values():
            self.instances[record.definition.instance] = record.definition.sql
            if record.desired == "failed":
                self.failed.add(record.definition.instance)

    def finish(self) -> None:
        """Start what is stopped, read everything, close all windows."""
        self.mini.checkpoint.killers.clear()
        for name, record in self.mini.hub.catalog.pipelines.items():
            if record.desired == "stopped":
                self._pipeline("start", name, "")
        self.apply("feed", ROWS)
        self.mini.drain()
        running = {p.instance for p in self.mini.hub.catalog.running("s")}
        assert self.mini.hub.wait_until_end(30)
        assert sum(e.rows for e in self.mini.checkpoint.epochs) == (ROWS if running else self.mini.checkpoint.rows)
        kept = lanes_with_state(self.mini.checkpoint.state)
        assert kept <= {r.definition.lane for r in self.mini.hub.catalog.pipelines.values()}, "no state is left behind"
        for instance, text in self.instances.items():
            self.check(instance, plan(text), instance in running - self.failed)
        self.mini.hub.close()

    def check(self, instance: int, planned: Planned, whole: bool) -> None:
        """Compare what came out with what the query means over the rows of its epochs. The windows and groups of one
        that did not live to the end, or began again, are not `whole`; its rows without state still are."""
        parts = [self.rows.slice(e.first, e.rows) for e in self.active(instance)]
        rows = pa.concat_tables([self.rows.slice(0, 0), *parts])
        found = [tuple(plain(v) for v in row) for row in self.mini.output(instance)]
        ring1 = planned.program.ring1
        if ring1 is None:
            assert bag(found) == bag(run_plan(planned.bound, rows, MEANING))
            return
        if not whole:
            return
        session = ring1.window is not None and ring1.window.kind == "session"
        wanted = run_program(planned.program, rows) if session else run_plan(planned.bound, rows, MEANING)
        if not wanted and not ring1.keys and ring1.window is None:
            return  # whether the one group of nothing is a row at the end is not about epochs
        if ring1.emit == "changes":
            keys = [i for i, o in enumerate(planned.program.output) if o.name.startswith("k")]
            found = list({tuple(repr(row[i]) for i in keys): row for row in found}.values())
        assert bag(found) == bag(wanted)

    def active(self, instance: int) -> list[Any]:
        return [e for e in self.mini.checkpoint.epochs if instance in e.instances]


@settings(max_examples=examples(15), suppress_health_check=list(HealthCheck))
@given(st.lists(a_query(), min_size=4, max_size=4), st.lists(ACTIONS, max_size=16))
def test_every_pipeline_gets_exactly_the_rows_of_its_epochs(queries: list[str], actions: list[tuple[str, Any]]) -> None:
    shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # every epoch syncs several files
    with tempfile.TemporaryDirectory(dir=shm) as directory, pytest.MonkeyPatch.context() as patch:
        schedule = Schedule(Path(directory), patch, queries)
        for action, given_ in [("create", 0), ("create", 1), ("create", 2), *actions]:
            schedule.apply(action, given_)
        schedule.finish()
