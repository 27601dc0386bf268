"""Each file of a savepoint is damaged in turn: the restored streams go on with the right rows, or an error with a code
names the file or refuses the savepoint. Never a wrong row, and never a bare error."""

from __future__ import annotations

import copy
import shutil
from collections import Counter
from pathlib import Path

import pytest

from headrace.errors import HeadraceError, kind_of
from headrace.state.restore import restore
from tests.e2e.support import put
from tests.shared.chain import Chain, record
from tests.shared.test_damage import DAMAGES

SCRIPT = """
CREATE STREAM raw (ts TIMESTAMP, a BIGINT, WATERMARK FOR ts AS ts)
WITH (source = 'files', format = 'json', path = '{path}');
CREATE SINK o WITH (type = 'kept'); CREATE SINK p WITH (type = 'kept');
CREATE PIPELINE up INTO p, STREAM t AS SELECT ts, a FROM raw;
CREATE PIPELINE down INTO o AS SELECT a FROM t;
CREATE PIPELINE counted INTO o AS SELECT window.start AS m, count(*) AS n FROM raw GROUP BY window(ts, '10 seconds')
"""
ROWS = 60


class Taken:
    """A savepoint of a chain of two streams, taken in the middle of its input, and what Spark and the sinks had."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.chain = Chain(root / "state", patch)
        put(root / "in" / "0.json", [record(i, a=i) for i in range(20)])
        self.chain.sql(SCRIPT.format(path=root / "in"))
        self.chain.drain()
        put(root / "in" / "1.json", [record(i, a=i) for i in range(20, 40)])
        self.chain.step("raw")  # the feed holds rows that the second stream has not read
        self.path = self.chain.hub.savepoint("here")
        self.checkpoints, self.kept = self.chain.copied()
        self.chain.hub.close()
        put(root / "in" / "2.json", [record(i, a=i) for i in range(40, ROWS)])

    def files(self) -> list[Path]:
        """All but those that only Spark reads."""
        found = (f.relative_to(self.path) for f in self.path.rglob("*") if f.is_file())
        return sorted(f for f in found if "checkpoint" not in f.parts)

    def as_taken(self) -> Chain:
        """What Spark and the sinks had."""
        self.chain.checkpoints = copy.deepcopy(self.checkpoints)
        self.chain.kept.clear()  # the sinks that are declared have this object
        self.chain.kept.update(copy.deepcopy(self.kept))
        return self.chain


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named_or_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    taken = Taken(tmp_path, monkeypatch)
    harmless = []
    for number, name in enumerate(taken.files()):
        savepoint = tmp_path / str(number) / "savepoint"
        shutil.copytree(taken.path, savepoint)
        before = (savepoint / name).read_bytes()
        DAMAGES[damage](savepoint / name)
        if (savepoint / name).exists() and (savepoint / name).read_bytes() == before:
            continue
        said, rows = _restored(taken, savepoint, monkeypatch)
        if said:
            assert kind_of(said) is not None, (name, said)
            assert name.name in said or said.startswith("[BAD_SAVEPOINT]"), (name, said)
        else:
            harmless.append(name)
            assert rows["up"] == rows["down"] == Counter(range(ROWS)), name
        assert rows["down"] <= Counter(range(ROWS)), name
        assert rows["up"] <= Counter(range(ROWS)), name
    assert harmless and len(harmless) < 10, harmless


def _restored(taken: Taken, savepoint: Path, patch: pytest.MonkeyPatch) -> tuple[str, dict[str, Counter[int]]]:
    """Restore a savepoint and go on: the problem, if there is one, and the rows of both sinks."""
    state = savepoint.with_name("restored")
    try:
        taken.as_taken()
        restore(savepoint, state)
        again = Chain(state, patch, like=taken.as_taken())
    except HeadraceError as problem:
        return problem.render(), {"up": Counter(), "down": Counter()}
    for stream in ("raw", "t") * 4:
        try:
            again.step(stream)
        except HeadraceError as problem:  # in the planning process
            again.queries[stream].end(problem.render())
    problems = [s.status().problem for s in again.hub.streams.values()]
    problems += [p.status().error for p in again.hub.pipelines.values()]
    rows = {name: Counter(row[-1] for row in again.rows(name)) for name in ("up", "down")}
    again.hub.close(drain=False)
    return next((problem for problem in problems if problem), ""), rows
