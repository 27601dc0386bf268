"""docs/metrics.md lists the metrics that exist, and no others; docs/grafana.json shows them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx

from headrace.status import PHASES
from tests.e2e.support import put
from tests.service.conftest import Served

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_page_lists_every_metric_once(served: Served) -> None:
    text = httpx.get(f"{served.url}/metrics").text
    exposed = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    listed = re.findall(r"`(headrace_\w+)`", PAGE.read_text(encoding="utf-8"))
    assert len(listed) == len(set(listed))
    assert exposed == set(listed)


def test_the_dashboard_shows_every_metric_and_no_other(served: Served) -> None:
    text = httpx.get(f"{served.url}/metrics").text
    exposed = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    dashboard = json.loads((PAGE.parent / "grafana.json").read_text(encoding="utf-8"))
    expressions = [t["expr"] for panel in dashboard["panels"] for t in panel.get("targets", [])]
    assert set(re.findall(r"headrace_\w+", " ".join(expressions))) == exposed
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_names_of_metrics_say_their_subsystem_and_unit(served: Served) -> None:
    text = httpx.get(f"{served.url}/metrics").text
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)", text, re.MULTILINE):
        assert re.match(r"headrace_(stream|pipeline|pipelines|sink|gateway|epoch|build)_", name), name
        assert (kind == "counter") == name.endswith("_total"), name


def test_metrics_of_epochs_and_sinks_agree_with_what_happened(served: Served) -> None:
    served.mini.hub.sql("CREATE PIPELINE p INTO out AS SELECT a FROM s")
    put(served.directory.parent / "in" / "0.json", ['{"a": 1}', '{"a": 2}'])
    served.mini.drain()
    text = httpx.get(f"{served.url}/metrics").text
    assert 'headrace_sink_rows_total{sink="out",stream="s"} 2.0' in text
    epochs = served.mini.hub.streams["s"].totals().epochs
    assert f'headrace_epoch_committed_total{{stream="s"}} {epochs:.1f}' in text
    for phase in PHASES:
        assert f'headrace_epoch_phase_seconds_total{{phase="{phase}",stream="s"}}' in text
