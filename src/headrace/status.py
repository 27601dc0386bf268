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


@dataclass(frozen=True, slots=True)
class Gap:
    """Input that a pipeline missed: the epochs from `first` to `last`, in which the stream had `rows` rows."""

    first: int
    last: int
    rows: int
    bytes: int


class HtmlTable:
    """A dataclass that shows itself as a small table in a notebook."""

    def _repr_html_(self) -> str:
        facts = [(f.name, getattr(self, f.name)) for f in dataclasses.fields(self)]  # type: ignore[arg-type]
        rows = "".join(f"<tr><th>{html.escape(n)}</th><td>{html.escape(str(v))}</td></tr>" for n, v in facts)
        return f"<table>{rows}</table>"


@dataclass(frozen=True)
class StreamStatus(HtmlTable):
    """A stream, as it really is: nothing here is planned or promised.

    `decoding_columns`, `projection_version` (a plan version) and `subscribers` (pipelines with the columns each needs,
    `*` for all) are those of the newest planned epoch; `epoch` is the newest committed one, and `rows`, `bytes`, `bad`
    and `watermark` are as of it; rates are over the last epochs. `bad` counts by reason what was rejected for all or
    concerned a pipeline; `dead_letters` are in the stream's sink.
    """

    name: str
    running: bool
    epoch: int
    projection_version: int
    decoding_columns: list[str]
    columns_declared: int
    subscribers: dict[str, list[str]]
    rows: int
    bytes: int
    bad: dict[str, int]
    watermark: datetime | None
    lag_bytes: int
    epoch_ms: float | None
    rows_per_s: float
    mb_per_s: float
    dead_letters: int = 0


@dataclass(frozen=True)
class PipelineStatus(HtmlTable):
    """A pipeline. `rows_out` are rows visible in its first sink; `late` rows came after all their windows had
    closed.

    `missed_rows` are the stream's rows that passed while it was stopped or failed; each `gap` is a run of epochs that
    it missed before it came back.
    """

    name: str
    stream: str
    state: State
    instance: int
    rows_out: int
    late: int
    bad: int
    groups: int
    epoch_ms: float | None
    missed_rows: int
    gaps: list[Gap]
    error: str
