"""docs/operations.md lists every file of a state directory."""

from __future__ import annotations

import http.client
from pathlib import Path

from headrace.hub.hub import Hub
from tests.shared.running import RunningQueries
from tests.state.files_page import listed, unlisted


def test_every_file_of_a_state_directory_is_on_the_page(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.json").write_text('{"id": 1}\n')
    state = tmp_path / "state"
    with Hub(state, RunningQueries(), buckets=2, start_timeout=60.0) as hub:
        hub.sql(
            f"CREATE STREAM s (id BIGINT) WITH (source = 'files', format = 'json', path = '{tmp_path / 'data'}');"
            "CREATE STREAM t (id BIGINT) WITH (source = 'http', format = 'json', listen = '127.0.0.1:0', token = 'x');"
            "CREATE SINK out WITH (type = 'memory');"
            "CREATE PIPELINE p INTO out, STREAM u AS SELECT id FROM s; CREATE PIPELINE q INTO out AS SELECT id FROM t;"
            "CREATE PIPELINE r INTO out AS SELECT id FROM u"
        )
        place = hub.streams["t"].addresses()[0].split("://")[1].split("/")
        client = http.client.HTTPConnection(place[0])
        client.request("POST", "/" + "/".join(place[1:]), b'{"id": 2}\n', {"Authorization": "Bearer x"})
        assert client.getresponse().status == 204
        client.close()
        for stream in ("s", "t", "u"):
            hub.streams[stream].sync()
        hub.pipelines["p"].stop(now=True)
        hub.savepoint("one")
        found = sorted(p.relative_to(state).as_posix() for p in state.rglob("*") if p.is_file())
    assert unlisted(found) == []
    kinds = {
        "secrets.json",
        "streams/t/source/journal/synced",
        "streams/s/source/files.log",
        "streams/u/input/epochs/000000000000.json",
        "savepoints/one/catalog.json",
    }
    assert kinds <= set(found)


def test_a_file_that_is_not_on_the_page_is_found() -> None:
    assert unlisted(["streams/s/plans/00000001.json", "streams/s/plans/x.json", "other"]) == [
        "streams/s/plans/x.json",
        "other",
    ]
    assert "hub.log.N" in listed()
