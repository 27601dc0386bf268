"""A bounded buffer's accounting and decisions: what to do with a batch when the reader is behind (DESIGN section 5).

The class holds numbers, never rows. Whoever owns the buffer (the journal of the gateway, a lane of a dedicated
pipeline) asks it before each batch, does what it says, and tells it what the reader took:

    pressure = Backpressure(Limits("spill", max_bytes=64 << 20, max_spill_bytes=1 << 30))
    if not pressure.open: ...                      # one attribute: may a source be polled at all?
    match pressure.offer(rows=100, size=8192):     # TAKE, SPILL, DROP or PAUSE
        ...
    pressure.release(rows=100, size=8192)          # the reader is done with the oldest 100

**What holds**, whatever is called in whatever order:

- Everything that was offered and neither dropped nor refused is in the buffer or in the spill, once, in order: while
  anything is spilled, what comes next is spilled behind it, and never overtakes it.
- `offered == taken + spilled + dropped` in rows and in bytes; a refused batch (PAUSE) is not counted as offered: the
  source still has it and offers it again. So what is missing at the reader is exactly `dropped`.
- The buffer holds at most `max_bytes` and the spill at most `max_spill_bytes`, with two exceptions that keep things
  going: a batch larger than the limit is taken when nothing else is held, and a control message always has room.

One caller at a time; the owner locks if it has threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

Strategy = Literal["pause", "drop", "spill"]
PressureState = Literal["open", "paused", "dropping", "spilling"]

# A paused source goes on when a quarter of the buffer is free: going on at the first free byte would stop and start it
# for every batch.
RESUME_AT = 0.75


class Admission(Enum):
    """What to do with a batch."""

    TAKE = "take"  # into the buffer
    SPILL = "spill"  # to the disk, behind what is there
    DROP = "drop"  # it is gone, and counted
    PAUSE = "pause"  # not taken: keep it, stop reading the source, offer it again when `open`


@dataclass(frozen=True, slots=True)
class Limits:
    """A strategy with its bounds. A full spill drops the newest."""

    strategy: Strategy
    max_bytes: int
    max_spill_bytes: int = 0

    def __post_init__(self) -> None:
        if self.max_bytes < 1 or self.max_spill_bytes < 0:
            raise ValueError("a buffer holds at least one byte, and a spill none or more")
        if self.max_spill_bytes and self.strategy != "spill":
            raise ValueError(f"the strategy {self.strategy} has no spill")


@dataclass(frozen=True, slots=True)
class Pressure:
    """A moment of a buffer, for status, metrics and EXPLAIN. The first five are now, the others since the start."""

    state: PressureState
    rows: int
    bytes: int
    spill_bytes: int
    limit_bytes: int
    offered_rows: int
    taken_rows: int
    spilled_rows: int
    dropped_rows: int
    dropped_bytes: int
    pauses: int


class Backpressure:
    """See the module. `rows` and `size` are what a buffer already holds when it is opened again."""

    __slots__ = (
        "_buffered", "_dropped", "_dropped_bytes", "_dropping", "_offered", "_pauses", "_rows", "_spill", "_spilled",
        "_taken", "limits", "open",
    )  # fmt: skip

    def __init__(self, limits: Limits, rows: int = 0, size: int = 0) -> None:
        self.limits = limits
        self.open = True  # false from a PAUSE until there is room again; a plain attribute, because sources poll it
        self._rows = rows
        self._spill = max(0, size - limits.max_bytes) if limits.strategy == "spill" else 0
        self._buffered = size - self._spill
        self._dropping = False
        self._offered = self._taken = self._spilled = self._dropped = self._dropped_bytes = self._pauses = 0

    def offer(self, rows: int, size: int, control: bool = False) -> Admission:
        """Decide about one batch. A `control` message is never dropped and never refused: it goes where the rows before
        it went. After a PAUSE every batch is refused until `open`, so none overtakes the one that was."""
        limits = self.limits
        if not self.open and not control:
            return Admission.PAUSE
        # What has no bytes needs no room; in a spill, which is known by its bytes, it could be overtaken.
        if self._spill == 0 and (self._buffered == 0 or size == 0 or self._buffered + size <= limits.max_bytes):
            verdict = Admission.TAKE
        elif limits.strategy == "spill" and (control or self._spill + size <= limits.max_spill_bytes):
            verdict = Admission.SPILL
        elif control:
            verdict = Admission.TAKE
        elif limits.strategy != "pause":
            verdict = Admission.DROP
        else:
            self.open = False
            self._pauses += 1
            return Admission.PAUSE
        self._count(verdict, rows, size)
        return verdict

    def _count(self, verdict: Admission, rows: int, size: int) -> None:
        self._offered += rows
        self._dropping = verdict is Admission.DROP
        if verdict is Admission.DROP:
            self._dropped += rows
            self._dropped_bytes += size
            return
        self._rows += rows
        if verdict is Admission.TAKE:
            self._taken += rows
            self._buffered += size
        else:
            self._spilled += rows
            self._spill += size

    def release(self, rows: int, size: int) -> None:
        """The reader is done with the oldest rows: from the buffer first, which holds the oldest, then from the
        spill, which is read in place."""
        if rows > self._rows or size > self.held:
            raise ValueError(f"{rows} rows of {size} bytes are more than the {self._rows} of {self.held} that are held")
        self._rows -= rows
        own = min(size, self._buffered)
        self._buffered -= own
        self._spill -= size - own
        self._reopen()

    def _reopen(self) -> None:
        """After room was made: a paused source may go on, and what was dropped is over."""
        self._dropping = False
        if not self.open:  # only the strategy pause closes
            self.open = self._buffered <= self.limits.max_bytes * RESUME_AT

    @property
    def held(self) -> int:
        """Bytes in the buffer and in the spill."""
        return self._buffered + self._spill

    @property
    def state(self) -> PressureState:
        """What the buffer does now, in a word."""
        if not self.open:
            return "paused"
        return "dropping" if self._dropping else "spilling" if self._spill else "open"

    def now(self) -> Pressure:
        """The numbers as they stand."""
        return Pressure(
            state=self.state,
            rows=self._rows,
            bytes=self._buffered,
            spill_bytes=self._spill,
            limit_bytes=self.limits.max_bytes + self.limits.max_spill_bytes,
            offered_rows=self._offered,
            taken_rows=self._taken,
            spilled_rows=self._spilled,
            dropped_rows=self._dropped,
            dropped_bytes=self._dropped_bytes,
            pauses=self._pauses,
        )
