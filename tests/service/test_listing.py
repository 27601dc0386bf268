"""Lists of streams, sinks and pipelines while others drop them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.errors import UnknownPipeline, UnknownStream
from headrace.hub.hub import Hub
from headrace.service.routes.pipelines import PipelineRoutes
from headrace.service.routes.sinks import SinkRoutes
from headrace.service.routes.streams import StreamRoutes
from headrace.state.catalog import Catalog
from tests.stream.test_supervision import PIPELINES, TWO, Queries


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub(tmp_path / "state", Queries(monkeypatch)) as opened:
        opened.sql(f"{TWO}; CREATE SINK unused WITH (type = 'memory')")
        opened.sql(PIPELINES)
        yield opened


def drop_after(hub: Hub, reads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drop pipeline q with its stream t, and a sink, when the catalog was read so many times."""
    left = [reads]
    declared: Callable[[Hub], Catalog] = vars(Hub)["catalog"].fget

    def catalog(hub: Hub) -> Catalog:
        left[0] -= 1
        found = declared(hub)
        if left[0] == 0:
            hub.sql("DROP PIPELINE q; DROP STREAM t; DROP SINK unused")
        return found

    monkeypatch.setattr(Hub, "catalog", property(catalog))


@pytest.mark.parametrize("reads", range(1, 9))
def test_a_list_leaves_out_what_is_dropped_meanwhile(hub: Hub, monkeypatch: pytest.MonkeyPatch, reads: int) -> None:
    drop_after(hub, reads, monkeypatch)
    assert "p" in {p.name for p in PipelineRoutes(hub).list_pipelines()}
    assert "s" in {s.name for s in StreamRoutes(hub).list_streams()}
    assert "m" in {s.name for s in SinkRoutes(hub).list_sinks()}


@pytest.mark.parametrize("reads", range(1, 9))
def test_an_object_that_is_dropped_meanwhile_is_found_or_unknown(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, reads: int
) -> None:
    drop_after(hub, reads, monkeypatch)
    with contextlib.suppress(UnknownPipeline, UnknownStream):
        assert PipelineRoutes(hub).get_pipeline("q").name == "q"
    with contextlib.suppress(UnknownStream):
        assert StreamRoutes(hub).get_stream("t").name == "t"
