"""Prometheus metrics of a hub: all of them are defined here, with their help texts. See docs/metrics.md.

Values are read from status objects when they are asked for, so they agree with SHOW and DESCRIBE. Labels are names of
streams, pipelines and reasons only, and at most `MAX_PIPELINES` pipelines are listed: cardinality is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

import headrace
from headrace.errors import HeadraceError
from headrace.model.status import PipelineStatus, StreamStatus

if TYPE_CHECKING:
    from headrace.hub.hub import Hub
    from headrace.hub.objects import Pipeline, Stream

MAX_PIPELINES = 1000
# name -> (kind, help, attribute of StreamStatus)
STREAM_METRICS = {
    "headrace_stream_running": ("gauge", "1 while the query of the stream runs.", "running"),
    "headrace_stream_epoch": ("gauge", "Newest committed epoch.", "epoch"),
    "headrace_stream_rows_total": ("counter", "Records read, in committed epochs.", "rows"),
    "headrace_stream_read_bytes_total": ("counter", "Bytes read, in committed epochs.", "bytes"),
    "headrace_stream_lag_bytes": ("gauge", "Bytes that wait and are in no planned epoch yet.", "lag_bytes"),
    "headrace_stream_dead_letters_total": ("counter", "Records in the dead letter sink.", "dead_letters"),
    "headrace_stream_rejected_records_total": ("counter", "Records that were no row for any pipeline.", "rejected"),
    "headrace_stream_nulled_records_total": ("counter", "Broken records that were rows of NULLs.", "nulled"),
    "headrace_stream_dropped_records_total": ("counter", "Records that the gateway gave up.", "dropped"),
    "headrace_stream_skipped_files_total": ("counter", "Files that were left out.", "skipped_files"),
    "headrace_stream_far_future_rows_total": ("counter", "Rows too far ahead of the clock.", "far_future"),
    "headrace_stream_columns_declared": ("gauge", "Columns in the declared schema.", "columns_declared"),
}
PIPELINE_METRICS = {
    "headrace_pipeline_rows_out_total": ("counter", "Rows committed to the first sink.", "rows_out"),
    "headrace_pipeline_late_rows_total": ("counter", "Rows dropped because their windows had closed.", "late"),
    "headrace_pipeline_bad_rows_total": ("counter", "Rows with a bad value that concerns it.", "bad"),
    "headrace_pipeline_rejected_rows_total": ("counter", "Of those, rows that it did not get.", "rejected"),
    "headrace_pipeline_missed_rows_total": ("counter", "Rows that passed while it did not run.", "missed_rows"),
    "headrace_pipeline_groups": ("gauge", "Groups in its state.", "groups"),
    "headrace_pipeline_state_bytes": ("gauge", "Bytes of its state.", "state_bytes"),
}


class HubCollector:
    """Reads a hub's status objects on every scrape."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def collect(self) -> Iterator[Metric]:
        """All metrics of the hub."""
        info = GaugeMetricFamily("headrace_build_info", "Always 1; the label is the version.", labels=["version"])
        info.add_metric([headrace.__version__], 1)
        yield info
        yield from _streams(list(_statuses(self._hub.streams)))
        pipelines = list(_statuses(self._hub.pipelines))
        hidden = max(0, len(pipelines) - MAX_PIPELINES)
        yield GaugeMetricFamily(
            "headrace_pipelines_not_listed", "Pipelines beyond the limit of listed ones.", value=hidden
        )
        yield from _pipelines(pipelines[:MAX_PIPELINES])


def exposition(hub: Hub) -> tuple[bytes, str]:
    """The metrics in Prometheus' text format, and its media type."""
    registry = CollectorRegistry()
    registry.register(HubCollector(hub))
    return generate_latest(registry), CONTENT_TYPE_LATEST


def _statuses(handles: Mapping[str, Stream | Pipeline]) -> Iterator[object]:
    for handle in handles.values():
        try:
            yield handle.status()
        except HeadraceError:  # dropped since it was listed
            continue


def _family(name: str, kind: str, text: str, labels: list[str]) -> GaugeMetricFamily | CounterMetricFamily:
    if kind == "counter":
        return CounterMetricFamily(name.removesuffix("_total"), text, labels=labels)
    return GaugeMetricFamily(name, text, labels=labels)


def _streams(statuses: list[object]) -> Iterator[Metric]:
    streams = [s for s in statuses if isinstance(s, StreamStatus)]
    for name, (kind, text, attribute) in STREAM_METRICS.items():
        family = _family(name, kind, text, ["stream"])
        for s in streams:
            family.add_metric([s.name], float(getattr(s, attribute)))
        yield family
    bad = CounterMetricFamily(
        "headrace_stream_bad_records", "Rejected records and bad values, by reason.", labels=["stream", "reason"]
    )
    decoded = GaugeMetricFamily("headrace_stream_columns_decoded", "Columns that are decoded.", labels=["stream"])
    epoch = GaugeMetricFamily("headrace_stream_epoch_seconds", "Duration of the newest epoch.", labels=["stream"])
    watermark = GaugeMetricFamily("headrace_stream_watermark_seconds", "Watermark, as Unix time.", labels=["stream"])
    for s in streams:
        for reason, count in s.bad.items():
            bad.add_metric([s.name, reason], count)
        decoded.add_metric([s.name], len(s.decoding_columns))
        if s.epoch_ms is not None:
            epoch.add_metric([s.name], s.epoch_ms / 1000)
        if s.watermark is not None:
            watermark.add_metric([s.name], s.watermark.timestamp())
    yield from (bad, decoded, epoch, watermark)


def _pipelines(statuses: list[object]) -> Iterator[Metric]:
    pipelines = [p for p in statuses if isinstance(p, PipelineStatus)]
    for name, (kind, text, attribute) in PIPELINE_METRICS.items():
        family = _family(name, kind, text, ["stream", "pipeline"])
        for p in pipelines:
            family.add_metric([p.stream, p.name], float(getattr(p, attribute)))
        yield family
    state = GaugeMetricFamily(
        "headrace_pipeline_state", "1 for the state that the pipeline is in.", labels=["stream", "pipeline", "state"]
    )
    spent = GaugeMetricFamily(
        "headrace_pipeline_epoch_seconds", "Time in the newest epoch, over all tasks.", labels=["stream", "pipeline"]
    )
    for p in pipelines:
        state.add_metric([p.stream, p.name, p.state], 1)
        if p.epoch_ms is not None:
            spent.add_metric([p.stream, p.name], p.epoch_ms / 1000)
    yield from (state, spent)
