"""Streams: what is declared (`catalog`), what is in force (`plans`), what happened (`progress`)."""

from typing import Any

from headrace.base.options import Option, boolean, check_options, duration, integer, size, text
from headrace.model.program import StreamDef

# Options of CREATE STREAM that belong to the engine rather than to the source or the format.
STREAM_OPTIONS = (
    Option(
        "max_epoch_bytes",
        size,
        default=512 * 1024 * 1024,
        help="how much one epoch reads at most; smaller epochs commit sooner, larger ones cost less per byte",
    ),
    Option(
        "max_epoch_time",
        duration,
        help="how long an epoch may take; one that takes longer is aborted and run again, and a pipeline that holds it "
        "up is stopped",
    ),
    Option(
        "pipeline_time_budget",
        duration,
        help="time per epoch, over all tasks, that a pipeline may take on average; one that takes more is stopped",
    ),
    Option(
        "pipeline_state_budget",
        size,
        help="state that a pipeline may keep; one that keeps more is stopped",
    ),
    Option(
        "dead_letter_sink",
        text,
        help="the sink that gets rejected records; needed with on_error = 'dead_letter', and only then",
    ),
    Option(
        "max_rows",
        integer(1, 1 << 31),
        default=65536,
        help="an epoch is cut when about this many rows wait; a message between the rings holds at most this many",
    ),
    Option(
        "max_latency",
        duration,
        default=0,
        help="an epoch is cut when rows have waited this long, however few; 0: as soon as there is any",
    ),
    Option(
        "flush_on_watermark",
        boolean,
        default=True,
        help="after an epoch that closed windows the next one does not wait for max_latency",
    ),
    Option(
        "max_future",
        duration,
        default=24 * 3600 * 1_000_000,
        help="rows further than this ahead of the clock do not move the watermark; they are counted as far_future",
    ),
    Option(
        "idle_advance",
        duration,
        help="when no row has come for this long, the watermark goes on with the clock; off if absent",
    ),
    Option("close_at_end", boolean, default=True, help="the end of a finite source closes every open window"),
)


def stream_values(stream: StreamDef) -> dict[str, Any]:
    """The values of the engine's own options; the stream's other options belong to its source and format."""
    declared = {o.name for o in STREAM_OPTIONS}
    given = {k: v for k, v in stream.options.items() if k.lower() in declared}
    return check_options(f"stream '{stream.name}'", STREAM_OPTIONS, given)
