"""Times after the year 9999, which Python's own types cannot hold: no stream dies of one, wherever it is shown."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.hub.results import Result
from headrace.service.models import newest
from headrace.service.printing import printed
from tests.e2e.support import put
from tests.shared.mini import Mini

FAR, SHOWN = 10**18, "33658-09-27T01:46:40.000000Z"  # microseconds since 1970


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mini]:
    (tmp_path / "in").mkdir()
    mini = Mini(tmp_path / "state", monkeypatch)
    mini.hub.sql(f"""
        CREATE STREAM s (n BIGINT, far TIMESTAMP AS (timestamp_micros(n)))
        WITH (source = 'files', format = 'json', path = '{tmp_path / "in"}');
        CREATE SINK rows WITH (type = 'memory'); CREATE SINK kept WITH (type = 'kept')""")
    put(tmp_path / "in" / "1.json", [json.dumps({"n": n}) for n in (0, FAR)])
    yield mini
    mini.hub.close()


def test_a_console_shows_them_and_its_stream_continues(mini: Mini, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stdout", shown)
    mini.hub.sql("""
        CREATE SINK screen WITH (type = 'console');
        CREATE PIPELINE p INTO screen AS SELECT far, array(far) AS a, struct(far) AS b, map(1, far) AS c FROM s;
        CREATE PIPELINE neighbour INTO kept AS SELECT n FROM s""")
    mini.drain()
    assert mini.hub.streams["s"].status().problem == ""
    assert mini.hub.pipelines["p"].status().state == "running"
    assert len(mini.output(mini.hub.record("neighbour").definition.instance)) == 2
    mini.hub.close()
    assert shown.getvalue().count("33658-09-27") == 4


def test_results_are_printed_and_sent_to_clients(mini: Mini) -> None:
    mini.hub.sql("CREATE PIPELINE p INTO rows AS SELECT far FROM s")
    mini.drain()
    found: Any = mini.hub.pipelines["p"].results()
    assert newest(found, 10).rows[1] == [SHOWN]
    result = Result(table=found)
    assert SHOWN in result.render()
    assert SHOWN in result._repr_html_()
    for how in ("table", "csv", "json"):
        assert SHOWN in printed([result], how)


def test_a_failure_that_names_one_fails_its_pipeline_alone(mini: Mini) -> None:
    mini.hub.sql("""
        CREATE PIPELINE p INTO kept AS SELECT 1 / (year(far) - year(far)) AS x FROM s WHERE n > 0;
        CREATE PIPELINE neighbour INTO kept AS SELECT n FROM s""")
    mini.drain()
    status = mini.hub.pipelines["p"].status()
    assert (status.error or "").startswith("[EVALUATION_FAILED]")
    assert SHOWN in (status.error or "")
    assert len(mini.output(mini.hub.record("neighbour").definition.instance)) == 2
