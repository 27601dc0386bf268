"""A sink of dead letters that hangs holds up its stream, because no letter may be lost, but nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.hub import rollout
from headrace.hub.hub import Hub
from headrace.sinks.file_sink import FileSink
from headrace.stream.retries import RetryPolicy
from tests.e2e.support import put
from tests.shared.chain import record
from tests.shared.hanging import Queries, Sink, lines, until

SCRIPT = """
CREATE SINK d WITH (type = 'jsonl', path = '{path}/letters', retries = '0');
CREATE STREAM raw (ts TIMESTAMP, k STRING, v BIGINT) WITH (source = 'files', format = 'json', path = '{path}/in',
    {options} on_error = 'dead_letter', dead_letter_sink = 'd');
CREATE SINK f WITH (type = 'jsonl', path = '{path}/out');
CREATE PIPELINE first INTO f AS SELECT k, v FROM raw;
CREATE STREAM side (ts TIMESTAMP, k STRING, v BIGINT) WITH (source = 'files', format = 'json', path = '{path}/side');
CREATE SINK s WITH (type = 'memory');
CREATE PIPELINE other INTO s AS SELECT k, v FROM side
"""
BROKEN = '{"k": '


class Rig:
    """A hub with two streams. The sink of the dead letters of one of them hangs in `method`. Each call of `add` puts a
    row and a broken record into that stream."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch, method: str) -> None:
        self.path, self.queries, self.rows = path, Queries(), list[tuple[str, int]]()
        self.sink = Sink(patch, method, "d")
        self.sink.answers.set()
        self.open()

    def open(self) -> None:
        self.hub = Hub(self.path / "state", self.queries, buckets=2, start_timeout=60.0)

    def start(self, options: str = "") -> None:
        """The stream has committed one epoch. The sink hangs in the second one."""
        put(self.path / "side" / "0.json", [record(1, k="x", v=1)])
        self.add("a")
        self.hub.sql(SCRIPT.format(path=self.path, options=options))
        self.has_all()
        self.sink.answers.clear()
        self.add("b")
        assert self.sink.entered.wait(30)

    def add(self, key: str) -> None:
        self.rows.append((key, len(self.rows)))
        put(self.path / "in" / f"{key}.json", [record(len(self.rows), k=key, v=self.rows[-1][1]), BROKEN + key])

    def letters(self) -> list[str]:
        parts = (self.path / "letters").glob("part-*")
        return sorted(json.loads(line)["text"] for part in parts for line in part.read_text().splitlines())

    def has_all(self) -> None:
        """Every row and every letter is there once."""
        until(lambda: lines(self.path / "out") == self.rows)
        until(lambda: self.letters() == [BROKEN + key for key, _ in self.rows])

    def side_goes_on(self, number: int) -> None:
        put(self.path / "side" / f"{number}.json", [record(number, k="x", v=number)])
        until(lambda: self.hub.pipelines["other"].results().num_rows == number + 1)


@pytest.fixture(params=["commit", "verify", "_roll_forward"])
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Rig]:
    monkeypatch.setattr(rollout, "STUCK_SECONDS", 0.5)
    monkeypatch.setattr("headrace.stream.supervisor.RetryPolicy", lambda: RetryPolicy(first=0.2, longest=0.5))
    made = Rig(tmp_path, monkeypatch, request.param)
    yield made
    made.sink.answers.set()
    made.hub.close(drain=False)


def test_the_status_names_the_sink_and_other_streams_go_on(rig: Rig) -> None:
    rig.start()
    until(lambda: "sink d with the dead letters" in rig.hub.streams["raw"].status().waiting_for)
    rig.side_goes_on(1)
    rig.hub.sql("CREATE SINK t WITH (type = 'memory'); CREATE PIPELINE more INTO t AS SELECT v FROM side")
    rig.side_goes_on(2)
    rig.sink.answers.set()
    rig.has_all()
    rig.add("c")
    rig.has_all()


def test_with_a_time_limit_the_stream_waits_with_a_reason_and_blames_no_pipeline(rig: Rig) -> None:
    rig.start("max_epoch_time = '3s',")
    until(lambda: rig.hub.streams["raw"].status().state == "retrying")
    problems = set[str]()
    end = time.monotonic() + 4  # several attempts
    while time.monotonic() < end:
        problems.add(rig.hub.streams["raw"].status().problem)
        assert rig.hub.pipelines["first"].status().state in ("running", "retrying")
        time.sleep(0.05)
    assert {text.split(" ")[0] for text in problems - {""}} == {"[SINK_UNAVAILABLE]"}
    assert all("sink d with the dead letters" in text for text in problems - {""})
    assert rig.letters() == [BROKEN + "a"]
    rig.side_goes_on(1)
    rig.sink.answers.set()
    rig.has_all()
    rig.add("c")
    rig.has_all()
    until(lambda: rig.hub.pipelines["first"].status().state == "running")


@pytest.mark.parametrize("options", ["", "max_epoch_time = '3s',"])
def test_a_hub_that_is_closed_or_killed_and_opened_again_has_every_row_and_letter_once(
    rig: Rig, options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing = list[str]()
    close = FileSink.close

    def closes(sink: FileSink) -> None:
        closing.append(sink.paths.sink)
        close(sink)

    monkeypatch.setattr(FileSink, "close", closes)
    rig.start(options)
    if options:
        until(lambda: rig.hub.streams["raw"].status().state == "retrying")
    began = time.monotonic()
    rig.hub.close(drain=False)
    assert time.monotonic() - began < 10
    assert "f" in closing
    assert "d" not in closing, "closing a sink in which a commit hangs might never return"
    rig.sink.kill()
    rig.open()
    rig.has_all()
    rig.add("c")
    rig.has_all()


def test_the_stream_can_be_dropped(rig: Rig) -> None:
    rig.start()
    began = time.monotonic()
    rig.hub.sql("DROP PIPELINE first")
    rig.hub.sql("DROP STREAM raw")
    assert time.monotonic() - began < 30
    assert "raw" not in rig.hub.streams
    rig.side_goes_on(1)
