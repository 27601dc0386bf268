"""The options of CREATE STREAM that belong to the engine, not to the source or the format."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.base.options import boolean, declared, duration, integer, option, read_settings, size, text
from headrace.model.definitions import StreamDef


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """The engine's settings of one stream. Durations are in microseconds, sizes in bytes."""

    max_epoch_bytes: int = option(
        size,
        default=512 * 1024 * 1024,
        help="the most that one epoch reads; smaller epochs commit sooner, larger ones cost less per byte",
    )
    max_epoch_time: int | None = option(
        duration,
        help="the longest that an epoch may take; one that takes longer is aborted and runs again, and a pipeline that "
        "delays it is stopped",
    )
    pipeline_time_budget: int | None = option(
        duration,
        help="average time per epoch, over all tasks, that a pipeline may use; one that uses more is stopped",
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
        help="an epoch starts when about this many rows wait; a message of partial results holds at most this many",
    )
    max_latency: int = option(
        duration,
        default=0,
        help="an epoch starts when rows have waited this long, however few; 0 starts one as soon as there is a row",
    )
    flush_on_watermark: bool = option(
        boolean,
        default=True,
        help="the epoch after one that closed windows does not wait for max_latency",
    )
    max_future: int = option(
        duration,
        default=24 * 3600 * 1_000_000,
        help="rows further than this ahead of the clock do not move the watermark; they are counted as far_future",
    )
    idle_advance: int | None = option(
        duration,
        help="when no row has arrived for this long, the watermark advances with the clock; off if absent",
    )
    close_at_end: bool = option(boolean, default=True, help="the end of a finite source closes every open window")


STREAM_OPTIONS = declared(StreamSettings)


def stream_settings(stream: StreamDef) -> StreamSettings:
    """The engine's settings of a stream. Its other options belong to the source and the format."""
    names = {o.name for o in STREAM_OPTIONS}
    given = {k: v for k, v in stream.options.items() if k.lower() in names}
    return read_settings(StreamSettings, f"stream '{stream.name}'", given)
