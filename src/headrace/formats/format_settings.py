"""Settings that several formats share, as one chain of classes: each adds options to the one before.

FormatSettings         every format
`- RecordSettings      formats of records, whose length has a limit
   `- Utf8Settings     formats that decode text
      `- TextSettings  formats that spell values of every type as text, and that Spark reads, too
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.base.options import choice, option, size
from headrace.errors import BadOption
from headrace.formats.patterns import compile_pattern
from headrace.formats.values import Rules

# What a bad record does. `permissive` is `null`, and records with bad structure or a bad event time are rows, too.
Policy = Literal["null", "skip", "fail", "dead_letter", "permissive"]
_POLICY_OF_MODE: dict[str, Policy] = {"permissive": "permissive", "dropmalformed": "skip", "failfast": "fail"}
EPOCHS = ("epoch_s", "epoch_ms", "epoch_us", "epoch_ns")


def time_format(value: str) -> str:
    """`iso`, an epoch unit, or a pattern."""
    if value.lower() in ("iso", *EPOCHS):
        return value.lower()
    compile_pattern(value)
    return value


def date_format(value: str) -> str:
    """`iso` or a pattern."""
    if value.lower() == "iso":
        return "iso"
    compile_pattern(value)
    return value


@dataclass(frozen=True, slots=True)
class FormatSettings:
    """Options of every format."""

    on_error: Literal["null", "skip", "fail", "dead_letter"] | None = option(
        choice("null", "skip", "fail", "dead_letter"),
        help="what a bad value does: null nulls the cell, skip drops the row, fail stops the pipeline that reads it, "
        "dead_letter drops the row and writes the record to dead_letter_sink",
    )

    @property
    def policy(self) -> Policy:
        """What a bad record does."""
        return self.on_error or "null"


@dataclass(frozen=True, slots=True)
class RecordSettings(FormatSettings):
    """Options of every format of records."""

    max_record_bytes: int = option(size, default=4 << 20, help="a longer record is bad (record_too_long)")


@dataclass(frozen=True, slots=True)
class Utf8Settings(RecordSettings):
    """Options of every format that decodes text."""

    utf8: Literal["reject", "replace"] = option(
        choice("reject", "replace"),
        default="reject",
        help="what happens to a string that is not UTF-8: reject makes it a bad value, replace puts U+FFFD for the bad "
        "bytes",
    )

    @property
    def rules(self) -> Rules:
        """How to parse values. A BINARY column gets the bytes of the record."""
        return Rules(utf8=self.utf8, binary="raw")


@dataclass(frozen=True, slots=True)
class TextSettings(Utf8Settings):
    """Options of the formats that spell values of every type as text."""

    timestamp_format: str = option(
        time_format,
        default="iso",
        help="iso, epoch_s, epoch_ms, epoch_us, epoch_ns or a pattern such as dd/MM/yyyy HH:mm:ss",
    )
    date_format: str = option(date_format, default="iso", help="iso or a pattern such as dd.MM.yyyy")
    binary: Literal["base64", "hex", "raw"] = option(
        choice("base64", "hex", "raw"), default="base64", help="how BINARY columns are written"
    )
    mode: Literal["permissive", "dropmalformed", "failfast"] | None = option(
        choice("permissive", "dropmalformed", "failfast"),
        help="Spark's name for on_error: PERMISSIVE makes every record a row, with NULL for what is bad; DROPMALFORMED "
        "is skip, FAILFAST is fail",
    )

    def __post_init__(self) -> None:
        if self.mode is not None and self.on_error is not None:
            raise BadOption(
                "mode and on_error both say what a bad record does",
                advice="Give one of them: PERMISSIVE, DROPMALFORMED and FAILFAST are modes; null, skip, fail and "
                "dead_letter are for on_error.",
                option="mode",
                value=self.mode,
            )

    @property
    def permissive(self) -> bool:
        """True if every record becomes a row."""
        return self.policy == "permissive"

    @property
    def policy(self) -> Policy:
        """What a bad record does: `on_error`, or its equivalent in `mode`."""
        return _POLICY_OF_MODE[self.mode] if self.mode else self.on_error or "null"

    @property
    def rules(self) -> Rules:
        """How to parse values."""
        stamp = self.timestamp_format
        return Rules(
            epoch=stamp if stamp in EPOCHS else None,
            stamp=compile_pattern(stamp) if stamp not in ("iso", *EPOCHS) else None,
            date=compile_pattern(self.date_format) if self.date_format != "iso" else None,
            utf8=self.utf8,
            binary=self.binary,
        )
