"""The options of CREATE STREAM that belong to the engine, not to the source or the format."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.base.options import boolean, declared, duration, integer, option, read_settings, size, text
from headrace.model.program import StreamDef


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """How the engine runs one stream. Durations are microseconds, sizes are bytes."""

    max_epoch_bytes: int = option(
        size,
        default=512 * 1024 * 1024,
        help="how much one epoch reads at most; smaller epochs commit sooner, larger ones cost less per byte",
    )
    max_epoch_time: int | None = option(
        duration,
        help="how long an epoch may take; one that takes longer is aborted and run again, and a pipeline that holds it "
        "up is stopped",
    )
    pipeline_time_budget: int | None = option(
        duration,
        help="time per epoch, over all tasks, that a pipeline may take on average; one that takes more is stopped",
    )
    pipeline_state_budget: int | None = option(
        size,
        help="state that a pipeline may keep; one that keeps more is stopped",
    )
    dead_letter_sink: str | None = option(
        text,
        help="the sink that gets rejected records; needed with on_error = 'dead_letter', and only then",
    )
    max_rows: int = option(
        integer(1, 1 << 31),
        default=65536,
        help="an epoch is cut when about this many rows wait; a message between the rings holds at most this many",
    )
    max_latency: int = option(
        duration,
        default=0,
        help="an epoch is cut when rows have waited this long, however few; 0: as soon as there is any",
    )
    flush_on_watermark: bool = option(
        boolean,
        default=True,
        help="after an epoch that closed windows the next one does not wait for max_latency",
    )
    max_future: int = option(
        duration,
        default=24 * 3600 * 1_000_000,
        help="rows further than this ahead of the clock do not move the watermark; they are counted as far_future",
    )
    idle_advance: int | None = option(
        duration,
        help="when no row has come for this long, the watermark goes on with the clock; off if absent",
    )
    close_at_end: bool = option(boolean, default=True, help="the end of a finite source closes every open window")


STREAM_OPTIONS = declared(StreamSettings)


def stream_settings(stream: StreamDef) -> StreamSettings:
    """The engine's own options of a stream. The other options belong to its source and format."""
    names = {o.name for o in STREAM_OPTIONS}
    given = {k: v for k, v in stream.options.items() if k.lower() in names}
    return read_settings(StreamSettings, f"stream '{stream.name}'", given)
