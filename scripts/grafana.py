"""Write docs/grafana.json, the dashboard of the metrics in docs/metrics.md: `python scripts/grafana.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "docs" / "grafana.json"
S, P = '{stream=~"$stream"}', '{stream=~"$stream", pipeline=~"$pipeline"}'
# title, unit, [(expression, legend)], width in 24ths
ROWS: dict[str, list[tuple[str, str, list[tuple[str, str]], int]]] = {
    "Streams": [
        ("Rows/s", "short", [(f"rate(headrace_stream_rows_total{S}[1m])", "{{stream}}")], 8),
        ("Bytes/s", "Bps", [(f"rate(headrace_stream_read_bytes_total{S}[1m])", "{{stream}}")], 8),
        ("Waiting input", "bytes", [(f"headrace_stream_lag_bytes{S}", "{{stream}}")], 8),
        ("Watermark lag", "s", [(f"time() - headrace_stream_watermark_seconds{S}", "{{stream}}")], 8),
        (
            "Columns decoded",
            "short",
            [
                (f"headrace_stream_columns_decoded{S}", "{{stream}} decoded"),
                (f"headrace_stream_columns_declared{S}", "{{stream}} declared"),
            ],
            8,
        ),
        (
            "Records that were no rows, a second",
            "short",
            [
                (f"rate(headrace_stream_rejected_records_total{S}[5m])", "{{stream}} rejected"),
                (f"rate(headrace_stream_nulled_records_total{S}[5m])", "{{stream}} NULL rows"),
                (f"rate(headrace_stream_dropped_records_total{S}[5m])", "{{stream}} dropped"),
                (f"rate(headrace_stream_far_future_rows_total{S}[5m])", "{{stream}} far future"),
                (f"rate(headrace_stream_dead_letters_total{S}[5m])", "{{stream}} dead letters"),
            ],
            8,
        ),
        (
            "Bad values a second, by reason",
            "short",
            [(f"rate(headrace_stream_bad_records_total{S}[5m])", "{{stream}} {{reason}}")],
            8,
        ),
        (
            "Running, and files left out",
            "short",
            [
                (f"headrace_stream_running{S}", "{{stream}} running"),
                (f"headrace_stream_skipped_files_total{S}", "{{stream}} files left out"),
            ],
            8,
        ),
        (
            "Version, and pipelines that are not listed",
            "short",
            [("headrace_build_info", "{{version}}"), ("headrace_pipelines_not_listed", "not listed")],
            8,
        ),
    ],
    "Epochs": [
        (
            "Seconds an epoch, by phase",
            "s",
            [
                (
                    f"sum by (stream, phase) (rate(headrace_epoch_phase_seconds_total{S}[5m])) / ignoring(phase) "
                    f"group_left sum by (stream) (rate(headrace_epoch_committed_total{S}[5m]))",
                    "{{stream}} {{phase}}",
                )
            ],
            12,
        ),
        (
            "Newest epoch",
            "s",
            [(f"headrace_stream_epoch_seconds{S}", "{{stream}}"), (f"headrace_stream_epoch{S}", "{{stream}} number")],
            12,
        ),
    ],
    "Pipelines": [
        ("Rows out/s", "short", [(f"rate(headrace_pipeline_rows_out_total{P}[1m])", "{{pipeline}}")], 8),
        ("Failed", "short", [('headrace_pipeline_state{state="failed", stream=~"$stream"}', "{{pipeline}}")], 8),
        ("Time in the newest epoch", "s", [(f"headrace_pipeline_epoch_seconds{P}", "{{pipeline}}")], 8),
        ("State", "bytes", [(f"headrace_pipeline_state_bytes{P}", "{{pipeline}}")], 8),
        ("Groups", "short", [(f"headrace_pipeline_groups{P}", "{{pipeline}}")], 8),
        (
            "Rows lost a second",
            "short",
            [
                (f"rate(headrace_pipeline_late_rows_total{P}[5m])", "{{pipeline}} late"),
                (f"rate(headrace_pipeline_bad_rows_total{P}[5m])", "{{pipeline}} bad"),
                (f"rate(headrace_pipeline_rejected_rows_total{P}[5m])", "{{pipeline}} rejected"),
                (f"rate(headrace_pipeline_missed_rows_total{P}[5m])", "{{pipeline}} missed"),
            ],
            8,
        ),
    ],
    "Sinks": [
        ("Rows/s", "short", [(f"rate(headrace_sink_rows_total{S}[1m])", "{{sink}}")], 8),
        (
            "Time in commits",
            "percentunit",
            [(f"rate(headrace_sink_commit_seconds_total{S}[5m])", "{{sink}}")],
            8,
        ),
        (
            "Owed epochs, detached pipelines",
            "short",
            [
                (f"headrace_sink_owed_epochs{S}", "{{sink}} owes"),
                (f"headrace_sink_detached_pipelines{S}", "{{sink}} detached"),
            ],
            8,
        ),
    ],
    "Gateway": [
        (
            "Connections",
            "short",
            [
                (f"headrace_gateway_open_connections{S}", "{{stream}} {{class}} open"),
                (f"rate(headrace_gateway_connections_total{S}[5m])", "{{stream}} {{class}} new/s"),
            ],
            8,
        ),
        ("Received", "Bps", [(f"rate(headrace_gateway_received_bytes_total{S}[1m])", "{{stream}} {{class}}")], 8),
        (
            "Journal",
            "bytes",
            [
                (f"headrace_gateway_journal_bytes{S}", "{{stream}}"),
                (f"headrace_gateway_journal_limit_bytes{S}", "{{stream}} limit"),
            ],
            8,
        ),
        (
            "Backpressure",
            "short",
            [
                (f"headrace_gateway_paused{S}", "{{stream}} paused"),
                (f"rate(headrace_gateway_pauses_total{S}[5m])", "{{stream}} pauses/s"),
            ],
            8,
        ),
        (
            "Given up a second",
            "short",
            [
                (f"rate(headrace_gateway_dropped_records_total{S}[5m])", "{{stream}} records"),
                (f"rate(headrace_gateway_dropped_bytes_total{S}[5m])", "{{stream}} bytes"),
            ],
            8,
        ),
        (
            "Requests and failures a second",
            "short",
            [
                (f"rate(headrace_gateway_requests_total{S}[5m])", "{{stream}} {{class}} requests"),
                (f"rate(headrace_gateway_refused_total{S}[5m])", "{{stream}} {{class}} refused"),
                (f"rate(headrace_gateway_timeouts_total{S}[5m])", "{{stream}} {{class}} timeouts"),
                (f"rate(headrace_gateway_errors_total{S}[5m])", "{{stream}} {{class}} errors"),
            ],
            8,
        ),
    ],
}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def variable(name: str, query: str) -> dict[str, Any]:
    """A choice of label values; all of them at first."""
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }


def panels() -> list[dict[str, Any]]:
    """All panels, row by row."""
    made: list[dict[str, Any]] = []
    y = 0
    for row, charts in ROWS.items():
        made.append({"id": len(made) + 1, "type": "row", "title": row, "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}})
        x, y = 0, y + 1
        for title, unit, targets, width in charts:
            if x + width > 24:
                x, y = 0, y + 8
            made.append(
                {
                    "id": len(made) + 1,
                    "type": "timeseries",
                    "title": title,
                    "datasource": SOURCE,
                    "gridPos": {"h": 8, "w": width, "x": x, "y": y},
                    "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
                    "targets": [
                        {"refId": chr(65 + i), "expr": expression, "legendFormat": legend, "datasource": SOURCE}
                        for i, (expression, legend) in enumerate(targets)
                    ],
                }
            )
            x += width
        y += 8
    return made


def dashboard() -> str:
    """The dashboard as JSON."""
    found = {
        "title": "headrace",
        "uid": "headrace",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "current": {}},
                variable("stream", "label_values(headrace_stream_epoch, stream)"),
                variable("pipeline", 'label_values(headrace_pipeline_state{stream=~"$stream"}, pipeline)'),
            ]
        },
        "panels": panels(),
    }
    return json.dumps(found, indent=1) + "\n"


if __name__ == "__main__":
    TARGET.write_text(dashboard(), encoding="utf-8")
