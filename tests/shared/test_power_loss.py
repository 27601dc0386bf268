"""A power loss at any moment of a hub's life, with everything on disk but Spark's own files: catalog, plans, progress,
the log of files, feeds, and the files of sinks. Afterwards every row is in every sink once.

`tests.power_loss` says what may be missing. What Spark has logged survives if it was made durable, and may otherwise.
"""

from __future__ import annotations

import copy
import json
import random
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headrace.spark.committer import EpochCommitter
from headrace.state.checkpoint_sync import CheckpointSync
from tests.e2e.support import put
from tests.ingress.test_journal import MEMORY
from tests.power_loss import Disk
from tests.shared.chain import Chain, at, record
from tests.shared.mini import Checkpoint
from tests.strategies import examples

SCRIPT = """
CREATE STREAM raw (ts TIMESTAMP, k STRING, v BIGINT, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)
WITH (source = 'files', format = 'json', path = '{input}', max_epoch_bytes = '400');
CREATE SINK one WITH (type = 'jsonl', path = '{root}/one');
CREATE SINK two WITH (type = 'jsonl', path = '{root}/two');
CREATE SINK windows WITH (type = 'jsonl', path = '{root}/windows');
CREATE SINK seen WITH (type = 'jsonl', path = '{root}/seen');
CREATE PIPELINE both INTO one, two AS SELECT v FROM raw;
CREATE PIPELINE counts INTO windows AS
SELECT window.start AS m, count(*) AS n FROM raw GROUP BY window(ts, '10 seconds');
CREATE PIPELINE filled INTO STREAM some AS SELECT ts, v FROM raw WHERE v % 3 < 2;
CREATE PIPELINE reader INTO seen AS SELECT v + 1000 AS v FROM some
"""
LATER = [
    "CREATE PIPELINE extra INTO one AS SELECT v + 5000 AS v FROM raw",
    "CREATE OR REPLACE PIPELINE extra INTO two AS SELECT v + 6000 AS v FROM raw",
    "DROP PIPELINE extra",
]
Logged = tuple[Any, Any, Any]


@dataclass(frozen=True, slots=True)
class Facts:
    """What Spark has logged of each checkpoint now, and what of it is durable, by the id of the checkpoint."""

    now: dict[str, Logged]
    durable: dict[str, Logged]


def logged(kept: Checkpoint) -> Logged:
    return kept.end, kept.logged, kept.state


class Life:
    """A hub that is recorded until the power fails."""

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch, chances: random.Random) -> None:
        self.root, self.input, self.chances = directory / "disk", directory / "in", chances
        self.root.mkdir()
        self.input.mkdir()
        self.fed, self.patch, self.durable = 0, patch, dict[str, Logged]()
        self.chain = Chain(self.root / "state", patch)
        self.chain.sql(SCRIPT.format(input=self.input, root=self.root))
        self._watch()
        self.disk = Disk(self.root, self.facts)

    def _watch(self) -> None:
        """Note when headrace makes the logs of Spark durable: before a commit, and before an epoch is planned."""
        commit, sync, life = EpochCommitter.commit, CheckpointSync.sync, self

        def committing(self: EpochCommitter, *args: Any, **kwargs: Any) -> None:
            life.make_durable(self._directory)
            commit(self, *args, **kwargs)

        def syncing(self: CheckpointSync) -> None:
            sync(self)
            life.make_durable(self._checkpoint.parent)

        self.patch.setattr(EpochCommitter, "commit", committing)
        self.patch.setattr(CheckpointSync, "sync", syncing)

    def make_durable(self, directory: Path) -> None:
        for query in self.chain.queries.values():
            if query.planner.directory == directory:
                self.durable[query.planner.checkpoint] = logged(query.checkpoint)

    def facts(self) -> Facts:
        now = {name: logged(kept) for name, kept in self.chain.checkpoints.items()}
        return Facts(now, dict(self.durable))

    def feed(self, count: int) -> None:
        rows = range(self.fed, self.fed + count)
        put(self.input / f"{self.fed:04}.json", [record(v * 2, k="k", v=v) for v in rows])
        self.fed += count

    def live(self) -> None:
        with self.disk.recording():
            for statement in LATER[: self.chances.randrange(4)]:
                self.feed(self.chances.randint(1, 8))
                self._epochs()
                self.chain.sql(statement)
            self.feed(self.chances.randint(1, 8))
            self._epochs()

    def _epochs(self) -> None:
        for _ in range(self.chances.randrange(6)):
            self.chain.step(self.chances.choice(["raw", "some"]))

    def lose_power(self) -> None:
        """Leave what a power loss leaves, and open the hub on it."""
        moment = self.chances.choice(self.disk.moments)
        self.chain.hub.close(drain=False)
        self.disk.after_power_loss(moment, self.chances)
        facts: Facts = moment.facts
        self.chain.checkpoints.clear()
        for name, now in facts.now.items():
            chosen = self.chances.choice([now, facts.durable.get(name, (None, None, {}))])
            end, planned, state = copy.deepcopy(chosen)
            self.chain.checkpoints[name] = Checkpoint(end=end, logged=planned, state=state)
        self.chain.open()

    def written(self, sink: str) -> list[dict[str, Any]]:
        return [
            json.loads(line)
            for path in sorted((self.root / sink).glob("*.jsonl"))
            for line in path.read_text().splitlines()
        ]

    def check(self) -> None:
        self.feed(5)
        self.chain.drain()
        assert self.chain.hub.wait_until_end(60)
        wanted = Counter(range(self.fed))
        for sink in ("one", "two"):
            assert Counter(row["v"] for row in self.written(sink) if row["v"] < 5000) == wanted, sink
        extra = Counter(row["v"] for sink in ("one", "two") for row in self.written(sink) if row["v"] >= 5000)
        assert not extra or max(extra.values()) == 1
        assert Counter(row["v"] - 1000 for row in self.written("seen")) == Counter(v for v in wanted if v % 3 < 2)
        windows = Counter(at(v * 2 // 10 * 10).isoformat()[:19] for v in wanted)
        assert {row["m"][:19].replace(" ", "T"): row["n"] for row in self.written("windows")} == windows
        assert len(self.written("windows")) == len(windows)
        self.chain.hub.close()


@settings(
    max_examples=examples(12),
    suppress_health_check=list(HealthCheck),
    deadline=None,
    phases=[Phase.reuse, Phase.generate],
)
@given(st.integers(0, 2**32))  # a seed: how many moments there are depends on threads, and hypothesis must not see that
def test_every_row_is_in_every_sink_once_after_a_power_loss(seed: int) -> None:
    chances = random.Random(seed)
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory, pytest.MonkeyPatch.context() as patch:
        life = Life(Path(directory), patch, chances)
        life.live()
        life.lose_power()
        life.check()
