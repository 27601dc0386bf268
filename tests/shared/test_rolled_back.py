"""Scripts that are rolled back: pipelines that they stopped, dropped or replaced go on, and count what they missed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.errors import AddressInUse, StartTimeout
from headrace.state.quarantine import read_quarantine
from headrace.stream.host import QueryRequest
from headrace.stream.managed_query import ManagedQuery
from tests.e2e.support import put
from tests.shared.mini import Mini, MiniQuery

ENDS = [
    "STOP PIPELINE a NOW",
    "STOP PIPELINE a",
    "DROP PIPELINE a",
    "CREATE OR REPLACE PIPELINE a INTO kept AS SELECT id + 100 AS id FROM s",
]


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mini]:
    (tmp_path / "in").mkdir()
    mini = Mini(tmp_path / "state", monkeypatch)
    options = f"(id BIGINT) WITH (source = 'files', format = 'json', path = '{tmp_path / 'in'}')"
    mini.hub.sql(
        f"CREATE STREAM s {options}; CREATE STREAM t {options}; CREATE SINK kept WITH (type = 'kept');"
        "CREATE PIPELINE a INTO kept AS SELECT id FROM s; CREATE PIPELINE c INTO kept AS SELECT id FROM s"
    )
    feed(mini, 1)
    mini.drain()
    yield mini
    mini.hub.close()


def feed(mini: Mini, number: int) -> None:
    put(mini.directory.parent / "in" / f"{number}.json", [f'{{"id": {number}}}'])


def output(mini: Mini, name: str) -> list[int]:
    return [row[0] for row in mini.output(mini.hub.record(name).definition.instance)]


def before_launching_t(mini: Mini, act: Callable[[], None]) -> None:
    """Do something when the query of t is launched, which then fails."""
    real = mini.launch

    def launch(request: QueryRequest) -> MiniQuery:
        if request.stream == "t":
            act()
            raise AddressInUse("t cannot start")
        return real(request)

    mini.launch = launch  # type: ignore[method-assign]


@pytest.mark.parametrize("end", ENDS)
def test_when_another_stream_cannot_start_the_pipelines_miss_nothing(mini: Mini, end: str) -> None:
    version = mini.hub.runtime("s").plans.current()
    before_launching_t(mini, lambda: feed(mini, 2))
    with pytest.raises(AddressInUse):
        mini.hub.sql(f"{end}; CREATE PIPELINE b INTO kept AS SELECT id FROM t")
    plans, instance = mini.hub.runtime("s").plans, mini.hub.record("a").definition.instance
    assert plans.current() == version + 1
    assert instance not in {left.pipeline.instance for left in plans.load(version + 1).left}
    assert read_quarantine(mini.hub.runtime("s").directory).out == ()
    mini.drain()
    feed(mini, 3)
    mini.drain()
    status = mini.hub.pipelines["a"].status()
    assert (status.state, status.rows_out, status.missed_rows, status.gaps) == ("running", 3, 0, [])
    assert output(mini, "a") == output(mini, "c") == [1, 2, 3]


@pytest.mark.parametrize("meanwhile", [True, False])
@pytest.mark.parametrize("end", ENDS)
def test_pipelines_continue_after_a_rollback_on_their_own_stream_and_count_the_epochs_meanwhile(
    mini: Mini, monkeypatch: pytest.MonkeyPatch, end: str, meanwhile: bool
) -> None:
    feed(mini, 2)

    def wait(query: ManagedQuery, version: int) -> None:
        if meanwhile:
            mini.drain()
        raise StartTimeout("the epoch is slow")

    with monkeypatch.context() as patch:
        patch.setattr(mini, "wait_planned", wait)
        with pytest.raises(StartTimeout):
            mini.hub.sql(f"{end}; CREATE PIPELINE b INTO kept AS SELECT id FROM s")
    assert read_quarantine(mini.hub.runtime("s").directory).out == ()
    for number in (3, 4):
        mini.drain()
        feed(mini, number)
    mini.drain()
    status, got = mini.hub.pipelines["a"].status(), output(mini, "a")
    assert output(mini, "c") == [1, 2, 3, 4]
    assert got in ([1, 3, 4], [1, 2, 3, 4]) if meanwhile else got == [1, 2, 3, 4]
    missed = 4 - len(got)
    assert (status.state, status.rows_out, status.missed_rows) == ("running", len(got), missed)
    assert len(status.gaps) == missed
