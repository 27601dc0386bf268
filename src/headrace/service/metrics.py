"""All Prometheus metrics of a hub, with their help texts. See docs/metrics.md.

Each scrape reads the status objects, so values agree with SHOW and DESCRIBE. Cardinality is bounded: labels are only
names of streams, pipelines, sinks, phases and reasons, and at most `MAX_PIPELINES` pipelines, `MAX_STREAMS` streams and
`MAX_SINKS` sinks are listed.
"""

from __future__ import annotations

from collections import Counter
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

MAX_PIPELINES, MAX_STREAMS, MAX_SINKS = 1000, 200, 1000
# name -> (kind, help, attribute of StreamStatus)
STREAM_METRICS = {
    "headrace_stream_running": ("gauge", "1 while the query of the stream runs.", "running"),
    "headrace_stream_epoch": ("gauge", "Newest committed epoch.", "epoch"),
    "headrace_stream_rows_total": ("counter", "Records read, in committed epochs.", "rows"),
    "headrace_stream_read_bytes_total": ("counter", "Bytes read, in committed epochs.", "bytes"),
    "headrace_stream_lag_bytes": ("gauge", "Bytes of input that are in no planned epoch yet.", "lag_bytes"),
    "headrace_stream_dead_letters_total": ("counter", "Records written to the dead letter sink.", "dead_letters"),
    "headrace_stream_rejected_records_total": ("counter", "Records that no pipeline got as a row.", "rejected"),
    "headrace_stream_nulled_records_total": ("counter", "Broken records that became rows of NULLs.", "nulled"),
    "headrace_stream_dropped_records_total": ("counter", "Records that the gateway dropped under overload.", "dropped"),
    "headrace_stream_skipped_files_total": ("counter", "Files that were skipped.", "skipped_files"),
    "headrace_stream_far_future_rows_total": ("counter", "Rows too far ahead of the clock.", "far_future"),
    "headrace_stream_columns_declared": ("gauge", "Columns in the declared schema.", "columns_declared"),
}
PIPELINE_METRICS = {
    "headrace_pipeline_rows_out_total": ("counter", "Rows committed to the first sink.", "rows_out"),
    "headrace_pipeline_late_rows_total": ("counter", "Rows dropped because their windows had closed.", "late"),
    "headrace_pipeline_bad_rows_total": ("counter", "Rows with a bad value in a column that it reads.", "bad"),
    "headrace_pipeline_rejected_rows_total": ("counter", "Rows with a bad value that it did not get.", "rejected"),
    "headrace_pipeline_missed_rows_total": (
        "counter",
        "Rows read while it did not run.",
        "missed_rows",
    ),
    "headrace_pipeline_groups": ("gauge", "Groups in its state.", "groups"),
    "headrace_pipeline_state_bytes": ("gauge", "Bytes of its state.", "state_bytes"),
}
# Of StreamTotals, with the labels `stream` and `sink`.
SINK_METRICS = {
    "headrace_sink_rows_total": ("counter", "Rows committed since the hub was opened.", "rows"),
    "headrace_sink_commit_seconds_total": ("counter", "Time of its commits since the hub was opened.", "seconds"),
    "headrace_sink_owed_epochs": ("gauge", "Epochs that it still has to commit.", "owed"),
}
# Counters of the gateway for each class of origins (tcp, tcp_client, http), with the labels `stream` and `class`.
GATEWAY_METRICS = {
    "headrace_gateway_open_connections": ("gauge", "Connections that are open now.", "open"),
    "headrace_gateway_connections_total": ("counter", "Connections that were opened.", "opened"),
    "headrace_gateway_received_bytes_total": ("counter", "Bytes written to the journal.", "bytes"),
    "headrace_gateway_requests_total": ("counter", "HTTP requests that were accepted.", "requests"),
    "headrace_gateway_refused_total": ("counter", "Requests and connections that were refused.", "refused"),
    "headrace_gateway_dropped_records_total": ("counter", "Records dropped under overload.", "dropped_records"),
    "headrace_gateway_dropped_bytes_total": ("counter", "Bytes dropped under overload.", "dropped_bytes"),
    "headrace_gateway_timeouts_total": ("counter", "Connections closed because they were idle or slow.", "timeouts"),
    "headrace_gateway_errors_total": ("counter", "Connections that broke, and connects that failed.", "errors"),
}
JOURNAL_METRICS = {
    "headrace_gateway_journal_bytes": ("gauge", "Bytes in the journal that no epoch has read.", "journal_bytes"),
    "headrace_gateway_journal_limit_bytes": ("gauge", "Journal size at which backpressure begins.", "journal_limit"),
    "headrace_gateway_pauses_total": ("counter", "How many times the stream's senders were paused.", "pauses"),
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
        streams = dict(list(self._hub.streams.items())[:MAX_STREAMS])
        yield from _streams(list(_statuses(streams)))
        yield from _epochs(streams)
        yield from _gateway(streams)
        pipelines = list(_statuses(self._hub.pipelines))
        hidden = max(0, len(pipelines) - MAX_PIPELINES)
        yield GaugeMetricFamily(
            "headrace_pipelines_not_listed", "Pipelines beyond the limit of listed ones.", value=hidden
        )
        yield from _pipelines(pipelines[:MAX_PIPELINES])
        yield _detached(pipelines)


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
        decoded.add_metric([s.name], s.columns_decoded)
        if s.epoch_ms is not None:
            epoch.add_metric([s.name], s.epoch_ms / 1000)
        if s.watermark is not None:
            watermark.add_metric([s.name], s.watermark.timestamp())
    yield from (bad, decoded, epoch, watermark)


def _epochs(streams: Mapping[str, Stream]) -> Iterator[Metric]:
    """Epochs, their time by phase, and the commits of sinks."""
    count = CounterMetricFamily("headrace_epoch_committed", "Epochs since the hub was opened.", labels=["stream"])
    phases = CounterMetricFamily(
        "headrace_epoch_phase_seconds", "Time of all epochs, by phase.", labels=["stream", "phase"]
    )
    sinks = {name: _family(name, kind, text, ["stream", "sink"]) for name, (kind, text, _) in SINK_METRICS.items()}
    listed = 0
    for name, stream in streams.items():
        try:
            totals = stream.totals()
        except HeadraceError:  # dropped since it was listed
            continue
        count.add_metric([name], totals.epochs)
        for phase, seconds in totals.phase_seconds.items():
            phases.add_metric([name, phase], seconds)
        for sink, found in list(totals.sinks.items())[: MAX_SINKS - listed]:
            listed += 1
            for metric, (_, _, attribute) in SINK_METRICS.items():
                sinks[metric].add_metric([name, sink], float(getattr(found, attribute)))
    yield from (count, phases, *sinks.values())


def _gateway(streams: Mapping[str, Stream]) -> Iterator[Metric]:
    """Counters of the gateway, for pushed streams that run."""
    classes = {n: _family(n, kind, text, ["stream", "class"]) for n, (kind, text, _) in GATEWAY_METRICS.items()}
    journals = {n: _family(n, kind, text, ["stream"]) for n, (kind, text, _) in JOURNAL_METRICS.items()}
    paused = GaugeMetricFamily("headrace_gateway_paused", "1 while senders are paused.", labels=["stream"])
    for name, stream in streams.items():
        try:
            found = stream.ingress()
        except HeadraceError:  # the stream was dropped meanwhile
            continue
        if not found:
            continue
        paused.add_metric([name], float(found.get("state") == "paused"))
        for metric, (_, _, key) in JOURNAL_METRICS.items():
            if found.get(key) is not None:
                journals[metric].add_metric([name], float(found[key]))
        for kind, counters in found.get("classes", {}).items():
            for metric, (_, _, key) in GATEWAY_METRICS.items():
                classes[metric].add_metric([name, kind], float(counters[key]))
    yield from (*classes.values(), *journals.values(), paused)


def _detached(statuses: list[object]) -> Metric:
    found = Counter((p.stream, sink) for p in statuses if isinstance(p, PipelineStatus) for sink in p.detached)
    family = GaugeMetricFamily(
        "headrace_sink_detached_pipelines", "Pipelines that continue without this sink.", labels=["stream", "sink"]
    )
    for (stream, sink), count in found.most_common(MAX_SINKS):
        family.add_metric([stream, sink], count)
    return family


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
