"""Status objects: plain facts about streams and pipelines, for programs, terminals and notebooks."""

from __future__ import annotations

import dataclasses
import html
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

State = Literal["running", "stopped", "failed", "finished"]


def to_datetime(micros: int | None) -> datetime | None:
    """Microseconds since 1970 as a UTC datetime; None stays None, and so does what no datetime can hold."""
    if micros is None:
        return None
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    except OverflowError:
        return None


class HtmlTable:
    """A dataclass that shows itself as a small table in a notebook."""

    def _repr_html_(self) -> str:
        facts = [(f.name, getattr(self, f.name)) for f in dataclasses.fields(self)]  # type: ignore[arg-type]
        rows = "".join(f"<tr><th>{html.escape(n)}</th><td>{html.escape(str(v))}</td></tr>" for n, v in facts)
        return f"<table>{rows}</table>"


@dataclass(frozen=True)
class StreamStatus(HtmlTable):
    """A stream. `columns_decoded` is what the newest planned epoch decodes; rates are over the last epochs."""

    name: str
    running: bool
    epoch: int
    plan_version: int
    rows: int
    bytes: int
    bad: dict[str, int]
    columns_decoded: list[str]
    columns_declared: int
    watermark: datetime | None
    lag_bytes: int
    epoch_ms: float | None
    rows_per_s: float
    mb_per_s: float


@dataclass(frozen=True)
class PipelineStatus(HtmlTable):
    """A pipeline. `rows_out` are rows visible in its first sink; `late` rows came after all their windows had
    closed."""

    name: str
    stream: str
    state: State
    instance: int
    rows_out: int
    late: int
    bad: int
    groups: int
    epoch_ms: float | None
    error: str
