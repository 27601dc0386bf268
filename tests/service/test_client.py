"""A client of a hub: the same answers, errors and methods as a hub in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace
from headrace.errors import (
    AlreadyExists,
    UnknownColumn,
    UnknownPipeline,
)
from headrace.hub.objects import Pipeline, Stream
from headrace.service.client import RemoteHub, RemotePipeline, RemoteStream
from tests.e2e.support import put
from tests.service.conftest import Served

PIPELINE = "CREATE PIPELINE p INTO out AS SELECT a, b FROM s WHERE a > 1"


def test_show_and_explain_return_the_same_as_on_the_hub(served: Served, remote: RemoteHub) -> None:
    remote.sql(PIPELINE)
    served.mini.drain()
    for statement in ("SHOW STREAMS", "SHOW PIPELINES", "DESCRIBE SINK out", "EXPLAIN PIPELINE p"):
        (here,), (there,) = served.mini.hub.sql(statement), remote.sql(statement)
        assert there.render() == here.render()
        assert there.table == here.table  # with the same types
    query = "CREATE PIPELINE q INTO out AS SELECT d FROM s"
    assert remote.explain(query) == served.mini.hub.check(f"EXPLAIN {query}")[0].text


def test_errors_are_those_of_a_hub_with_code_position_and_advice(served: Served, remote: RemoteHub) -> None:
    long = ", ".join(f"a AS a{i}" for i in range(100))
    for script in (
        "SELCT",
        "CREATE PIPELINE p INTO out AS SELECT aa FROM s",
        f"CREATE PIPELINE p INTO out AS SELECT {long}, aa, {long} FROM s",
        f"SHOW SINKS;\nCREATE PIPELINE p INTO out AS SELECT {long}, aa FROM s",
        "DROP STREAM nothing",
    ):
        with pytest.raises(headrace.errors.HeadraceError) as here:
            served.mini.hub.sql(script)
        with pytest.raises(type(here.value)) as there:
            remote.sql(script)
        assert there.value.render() == here.value.render()
    remote.sql(PIPELINE)
    with pytest.raises(AlreadyExists):
        remote.sql("CREATE PIPELINE p INTO out AS SELECT d FROM s")
    with pytest.raises(UnknownPipeline):
        remote._json("GET", "/api/v1/pipelines/none")
    with pytest.raises(UnknownColumn):
        remote.validate("CREATE PIPELINE q INTO out AS SELECT zz FROM s")


@pytest.mark.parametrize(("local", "remote"), [(Stream, RemoteStream), (Pipeline, RemotePipeline)])
def test_a_client_has_every_public_method_of_a_local_hub(local: type, remote: type) -> None:
    def public(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_") or name == "_repr_html_"}

    assert public(local) <= public(remote)


def test_a_client_reads_dead_letters_totals_and_barriers(served: Served, tmp_path: Path, remote: RemoteHub) -> None:
    (tmp_path / "more").mkdir()
    remote.sql(
        "CREATE SINK letters WITH (type = 'memory'); CREATE STREAM t (x BIGINT) WITH (source = 'files', "
        f"format = 'json', path = '{tmp_path / 'more'}', on_error = 'dead_letter', dead_letter_sink = 'letters');"
        "CREATE PIPELINE q INTO out AS SELECT x FROM t"
    )
    put(tmp_path / "more" / "0.json", ['{"x": 1}', "{"])
    served.mini.drain()
    here, there = served.mini.hub.streams["t"], remote.streams["t"]
    assert there.dead_letters().equals(here.dead_letters())
    assert there.dead_letters().num_rows == 1
    assert there.totals() == here.totals()
    assert there.totals().sinks["out"].rows == 1
    assert set(there.totals().phase_seconds) == {"planning", "reading", "ring0", "state", "sinks"}
    assert there.ping() == here.ping() == here.status().epoch
    assert there.flush() == here.status().epoch
    assert there.ingress() == {}
    assert "<table>" in remote._repr_html_() + there._repr_html_() + remote.pipelines["q"]._repr_html_()
    assert remote.savepoints() == []
