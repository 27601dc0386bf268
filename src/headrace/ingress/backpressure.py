"""Decides what happens to a batch of bytes when the reader of a bounded buffer is too slow.

`Backpressure` counts bytes and never holds any. The owner of the buffer (`headrace.ingress.stream_ingress`) asks before
each batch, does what the answer says, and reports what the reader has taken:

    pressure = Backpressure(Limits("spill", max_bytes=64 << 20, max_spill_bytes=1 << 30))
    if not pressure.open: ...              # one attribute: may the source be read at all?
    match pressure.offer(8192):            # TAKE, SPILL, DROP or PAUSE
        ...
    pressure.release(8192)                 # the reader is done with the oldest 8192 bytes

**Guarantees**, for every order of calls:

- A batch that is neither dropped nor paused is in the buffer or in the spill, once, in order. While the spill holds
  anything, every new batch goes to the spill too, so no batch overtakes another.
- The source keeps a paused batch and offers it again. So the reader misses exactly the batches that were dropped.
- The buffer holds at most `max_bytes`, and the spill at most `max_spill_bytes`. There are two exceptions, so that the
  stream never gets stuck: an empty buffer takes a batch of any size, and a control message always has room.

One caller at a time: an owner with several threads locks.

docs/design/2026-11-16-ingress.md says why each strategy exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

Strategy = Literal["pause", "drop", "spill"]
PressureState = Literal["open", "paused", "dropping", "spilling"]

# A paused source resumes when a quarter of the buffer is free. If it resumed at the first free byte, it would stop and
# start again for every batch.
RESUME_AT = 0.75


class Admission(Enum):
    """What to do with a batch."""

    TAKE = "take"  # put it into the buffer
    SPILL = "spill"  # append it to the spill on disk
    DROP = "drop"  # discard it and count the loss
    PAUSE = "pause"  # keep it at the source, stop reading, and offer it again when `open`


@dataclass(frozen=True, slots=True)
class Limits:
    """A strategy and its limits. When the spill is full, new batches are dropped."""

    strategy: Strategy
    max_bytes: int
    max_spill_bytes: int = 0

    def __post_init__(self) -> None:
        if self.max_bytes < 1 or self.max_spill_bytes < 0:
            raise ValueError("max_bytes must be at least 1, and max_spill_bytes at least 0")
        if self.max_spill_bytes and self.strategy != "spill":
            raise ValueError(f"the strategy {self.strategy} has no spill")

    @property
    def total(self) -> int:
        """Bytes that the buffer and the spill hold together."""
        return self.max_bytes + self.max_spill_bytes


class Backpressure:
    """The decisions for one buffer; see the module. `size` is what the buffer holds already when it is reopened."""

    __slots__ = ("_buffered", "_dropping", "_spill", "limits", "open", "pauses")

    def __init__(self, limits: Limits, size: int = 0) -> None:
        self.limits = limits
        # False from a PAUSE until there is room again. A plain attribute, because sources read it for every batch.
        self.open = True
        self.pauses = 0  # how often the source was paused
        self._spill = max(0, size - limits.max_bytes) if limits.strategy == "spill" else 0
        self._buffered = size - self._spill
        self._dropping = False

    def offer(self, size: int, control: bool = False) -> Admission:
        """Decide about one batch. A `control` message is never dropped or paused: it follows the batch before it.
        After a PAUSE, every batch is paused until `open`, so none overtakes the first."""
        limits = self.limits
        if not self.open and not control:
            return Admission.PAUSE
        # An empty batch needs no room. It must not go to the spill: the spill is known by its bytes, so a later batch
        # could overtake an empty one there.
        if self._spill == 0 and (self._buffered == 0 or size == 0 or self._buffered + size <= limits.max_bytes):
            admission = Admission.TAKE
        elif limits.strategy == "spill" and (control or self._spill + size <= limits.max_spill_bytes):
            admission = Admission.SPILL
        elif control:
            admission = Admission.TAKE
        elif limits.strategy != "pause":
            admission = Admission.DROP
        else:
            self.open = False
            self.pauses += 1
            return Admission.PAUSE
        self._count(admission, size)
        return admission

    def _count(self, admission: Admission, size: int) -> None:
        self._dropping = admission is Admission.DROP
        if admission is Admission.TAKE:
            self._buffered += size
        elif admission is Admission.SPILL:
            self._spill += size

    def release(self, size: int) -> None:
        """The reader is done with the oldest `size` bytes. The buffer holds older bytes than the spill, so they leave
        the buffer first."""
        if size > self.held:
            raise ValueError(f"cannot release {size} bytes: only {self.held} are held")
        own = min(size, self._buffered)
        self._buffered -= own
        self._spill -= size - own
        self._reopen()

    def _reopen(self) -> None:
        self._dropping = False
        if not self.open:  # only the strategy pause closes
            self.open = self._buffered <= self.limits.max_bytes * RESUME_AT

    @property
    def held(self) -> int:
        """Bytes in the buffer and in the spill."""
        return self._buffered + self._spill

    @property
    def spilled(self) -> int:
        """Bytes in the spill."""
        return self._spill

    @property
    def state(self) -> PressureState:
        """What happens to new batches now."""
        if not self.open:
            return "paused"
        return "dropping" if self._dropping else "spilling" if self._spill else "open"
