"""Streams: what is declared (`catalog`), what is in force (`plans`), what happened (`progress`)."""

from headrace.options import Option, size

# Options of CREATE STREAM that belong to the engine rather than to the source or the format.
STREAM_OPTIONS = (
    Option(
        "max_epoch_bytes",
        size,
        default=256 * 1024 * 1024,
        help="how much one epoch reads at most; smaller epochs commit sooner, larger ones cost less per byte",
    ),
)
