"""A power loss takes what Spark logged last, but sinks have committed it: the epoch is the same again, or refused."""

from __future__ import annotations

import contextlib
import copy
import json
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.errors import EpochMismatch, StateDamaged
from tests.e2e.support import put
from tests.shared.mini import Crash, Mini

Sinks = tuple[str, ...]


class Losing:
    """A stream of numbers into sinks of these kinds, whose newest logs can be lost."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch, kinds: Sinks = ("jsonl", "parquet")) -> None:
        self.root, self.kinds, self.fed, self.files = root, kinds, 0, 0
        (root / "in").mkdir()
        self.mini = Mini(root / "state", patch)
        self.directory = root / "state" / "streams" / "s"
        path = {"jsonl": f", path = '{root}/jsonl'", "parquet": f", path = '{root}/parquet'"}
        sinks = "".join(f"CREATE SINK {kind} WITH (type = '{kind}'{path.get(kind, '')});" for kind in kinds)
        self.mini.hub.sql(
            f"CREATE STREAM s (id BIGINT) WITH (source = 'files', path = '{root}/in', format = 'json');{sinks}"
            f"CREATE PIPELINE p INTO {', '.join(kinds)} AS SELECT id FROM s"
        )
        self.before = self.kept()

    def kept(self) -> tuple[Any, Any]:
        return self.mini.checkpoint.end, copy.deepcopy(self.mini.checkpoint.state)

    def feed(self, rows: int = 3) -> None:
        put(self.root / "in" / f"{self.files:03}.json", [f'{{"id":{self.fed + i}}}' for i in range(rows)])
        self.files, self.fed = self.files + 1, self.fed + rows

    def step(self) -> None:
        before = self.kept()
        for _ in range(2):  # a source that was asked too often looks again
            if self.mini.step():
                self.before = before
                return

    def crash(self, place: str) -> None:
        """The process dies at a place of the next epoch, or between epochs when there is none."""
        self.mini.checkpoint.crash = place
        with contextlib.suppress(Crash):
            self.step()
        self.mini.checkpoint.crash = ""
        self.mini.crash()

    def lose(self) -> None:
        """The machine loses power: the newest offsets are gone, and the commit with them if there was one."""
        checkpoint = self.mini.checkpoint
        if checkpoint.logged is not None:
            checkpoint.logged = None
        else:
            checkpoint.end, checkpoint.state = self.before
        self.mini.crash()

    def shown(self) -> list[list[int]]:
        read: dict[str, Callable[[Path], list[Any]]] = {
            "jsonl": lambda part: [json.loads(line)["id"] for line in part.read_text().splitlines()],
            "parquet": lambda part: pq.read_table(part).column("id").to_pylist(),
        }
        kinds = [k for k in self.kinds if k in read]
        return [sorted(i for part in (self.root / k).glob("part-*") for i in read[k](part)) for k in kinds]


@pytest.mark.parametrize("kinds", [("jsonl",), ("parquet",), ("jsonl", "parquet"), ("jsonl", "memory", "console")])
def test_an_epoch_that_is_committed_is_planned_again_with_the_same_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds: Sinks
) -> None:
    stream = Losing(tmp_path, monkeypatch, kinds)
    for _ in range(2):
        stream.feed()
        stream.crash("committed")
        stream.feed()  # other input than the epoch had
        stream.lose()
        stream.mini.drain()
        assert all(found == list(range(stream.fed)) for found in stream.shown())
        assert stream.mini.hub.streams["s"].status().rows == stream.fed
    stream.mini.hub.close()


@pytest.mark.parametrize("kinds", [("jsonl",), ("parquet",), ("jsonl", "parquet")])
def test_an_epoch_with_other_input_than_the_manifest_of_its_number_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds: Sinks
) -> None:
    stream = Losing(tmp_path, monkeypatch, kinds)
    stream.feed()
    old = (stream.directory / "progress.json").read_bytes()
    stream.crash("committed")
    (stream.directory / "progress.json").write_bytes(old)  # as if it had died before progress was stored
    stream.feed()
    stream.lose()
    for _ in range(2):
        with pytest.raises(EpochMismatch):
            stream.mini.drain()
        assert all(found == [0, 1, 2] for found in stream.shown())
    stream.mini.hub.close(drain=False)


def test_a_checkpoint_that_lost_more_than_one_epoch_and_progress_that_is_lost_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Losing(tmp_path, monkeypatch)
    first = stream.kept()
    for _ in range(2):
        stream.feed()
        stream.step()
    newest = stream.kept()
    stream.mini.checkpoint.end, stream.mini.checkpoint.state = first
    stream.mini.crash()
    with pytest.raises(EpochMismatch):
        stream.mini.drain()
    stream.mini.checkpoint.end, stream.mini.checkpoint.state = newest
    stream.mini.checkpoint.logged = None
    (stream.directory / "progress.json").unlink()
    stream.mini.crash()
    stream.feed()
    stream.mini.drain()
    status = stream.mini.hub.streams["s"].status()
    assert status.state == "dead" and "[STATE_DAMAGED]" in status.problem and "progress.json" in status.problem
    for done in (stream.directory / "checkpoint" / "commits").iterdir():  # the planner finds it without them, too
        done.unlink()
    stream.mini.crash()
    with pytest.raises(StateDamaged):
        stream.mini.drain()
    (stream.directory / "progress.json").write_text("{")
    stream.mini.hub.close(drain=False)
    assert stream.shown() == [list(range(6))] * 2


ACTIONS = st.one_of(
    st.tuples(st.just("feed"), st.integers(1, 4)),
    st.tuples(st.just("step"), st.none()),
    st.tuples(st.just("crash"), st.sampled_from(["logged", "tasks", "lanes", "committed"])),
    st.tuples(st.just("lose"), st.none()),
)


@settings(max_examples=15)
@given(st.lists(ACTIONS, max_size=10))
@example([("feed", 2), ("crash", "committed"), ("feed", 2), ("lose", None), ("step", None), ("lose", None)])
def test_every_row_is_there_once_whatever_is_lost_and_when(schedule: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        stream = Losing(Path(root), patch)
        for action, given_ in schedule:
            getattr(stream, action)(*(() if given_ is None else (given_,)))
            assert all(max(Counter(found).values(), default=1) == 1 for found in stream.shown())
        stream.mini.drain()
        assert stream.shown() == [list(range(stream.fed))] * 2
        stream.mini.hub.close()
