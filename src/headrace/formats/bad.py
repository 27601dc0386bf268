"""Bad records and bad values, as a format reports them.

A bad value is stored as a few numbers (row, column, reason, position of its record), because a wide row may have a
thousand of them. The bytes of a record are copied only when a `BadRecord` is made: for a dead letter or an error.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.model.bad_reasons import REASONS

TOO_LONG_KEPT = 1024  # bytes kept of a record that is too long

Numbers = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record, or one of its cells, that does not fit the schema.

    `offset` is the record's first byte in `origin`. `raw` is the record without its delimiter, or its beginning if it
    is too long. `column` is None for bad structure. `row` is the row of the decoded columns in which the cell, or the
    whole row, is NULL; -1 if the record has no row.
    """

    origin: str
    offset: int
    reason: str
    column: int | None
    raw: bytes
    row: int = -1

    @property
    def place(self) -> tuple[int, int]:
        """Sort key: the order of bad records in their origin."""
        return self.offset, -1 if self.column is None else self.column


def too_long(origin: str, offset: int, raw: bytes, limit: int) -> BadRecord:
    """The bad record for one with more than `limit` bytes. `raw` is at least its first `limit` bytes."""
    return BadRecord(
        origin=origin, offset=offset, reason="record_too_long", column=None, raw=bytes(raw[: min(limit, TOO_LONG_KEPT)])
    )


def bad_frame(origin: str, offset: int, raw: bytes) -> BadRecord:
    """The bad record for bytes whose length or offset points outside the record or the file."""
    return BadRecord(origin=origin, offset=offset, reason="bad_frame", column=None, raw=raw)


def _no_numbers() -> Numbers:
    return np.empty(0, np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class BadRecords:
    """The bad records and values of one buffer, at a few bytes each. Iterating yields a `BadRecord` for each.

    Entry k has the reason REASONS[codes[k]] and the column columns[k] (-1 for bad structure). Its record is bytes
    [begins[k], stops[k]) of `data`, which begins at byte `offset` of `origin`. `extra` are records that are not in the
    buffer; iteration yields them first. With `numbers`, the origin counts messages, not bytes: they are the positions
    of the messages in `data`, in ascending order, and the offset of each.
    """

    data: npt.NDArray[np.uint8] = field(default_factory=_no_numbers)
    origin: str = ""
    offset: int = 0
    begins: Numbers = field(default_factory=_no_numbers)
    stops: Numbers = field(default_factory=_no_numbers)
    rows: Numbers = field(default_factory=_no_numbers)
    columns: Numbers = field(default_factory=_no_numbers)
    codes: Numbers = field(default_factory=_no_numbers)
    extra: tuple[BadRecord, ...] = ()
    numbers: tuple[Numbers, Numbers] | None = None

    @staticmethod
    def of(records: Iterable[BadRecord]) -> BadRecords:
        """From single records that are not in a buffer, or too few to need compact storage."""
        return BadRecords(extra=tuple(records))

    def __len__(self) -> int:
        return len(self.extra) + len(self.rows)

    def __iter__(self) -> Iterator[BadRecord]:
        yield from self.extra
        begin, stop, raw = -1, -1, b""
        for k in range(len(self.rows)):
            if self.begins[k] != begin or self.stops[k] != stop:  # one copy for all bad values of a record
                begin, stop = int(self.begins[k]), int(self.stops[k])
                raw = self.data[begin:stop].tobytes()
            column = int(self.columns[k])
            reason = REASONS[self.codes[k]]
            yield BadRecord(
                origin=self.origin,
                offset=self._offset_of(begin),
                reason=reason,
                column=None if column < 0 else column,
                raw=raw,
                row=int(self.rows[k]),
            )

    def _offset_of(self, begin: int) -> int:
        if self.numbers is None:
            return self.offset + begin
        begins, offsets = self.numbers
        return int(offsets[np.searchsorted(begins, begin, side="right") - 1])

    def pick(self, which: Numbers) -> BadRecords:
        """The entries at some indexes or under a mask, without `extra`."""
        if which.dtype == bool and which.all():  # the usual case: all or nothing is bad
            return replace(self, extra=()) if self.extra else self
        return replace(
            self, begins=self.begins[which], stops=self.stops[which], rows=self.rows[which],
            columns=self.columns[which], codes=self.codes[which], extra=(),
        )  # fmt: skip

    def plus(self, other: BadRecords) -> BadRecords:
        """These, then those of `other`, which belongs to the same buffer."""
        if not len(self) or not len(other):
            return other if len(other) else self
        if not len(self.rows) or not len(other.rows):
            return replace(self if len(self.rows) else other, extra=(*self.extra, *other.extra))
        assert self.data is other.data
        return replace(
            self,
            begins=np.concatenate([self.begins, other.begins]),
            stops=np.concatenate([self.stops, other.stops]),
            rows=np.concatenate([self.rows, other.rows]),
            columns=np.concatenate([self.columns, other.columns]),
            codes=np.concatenate([self.codes, other.codes]),
            extra=(*self.extra, *other.extra),
        )

    def renumbered(self, kept: npt.NDArray[np.int64]) -> BadRecords:
        """The entries of the rows `kept` (ascending), with the rows renumbered to their index in `kept`."""
        if not len(kept):
            return self.pick(np.empty(0, np.int64))
        at = np.minimum(np.searchsorted(kept, self.rows), len(kept) - 1)
        still = kept[at] == self.rows
        return replace(self.pick(still), rows=at[still].astype(np.int32))

    def in_order(self) -> Iterator[BadRecord]:
        """All entries in the order of the origin: by record, then by column."""
        order = np.lexsort((self.columns, self.begins))
        return _merged(iter(sorted(self.extra, key=lambda b: b.place)), iter(self.pick(order)))

    def first(self) -> BadRecord | None:
        """The first entry in the order of the origin."""
        found = list(self.extra)
        if len(self.rows):
            tied = np.flatnonzero(self.begins == self.begins.min())
            found += self.pick(tied[[np.argmin(self.columns[tied])]])
        return min(found, key=lambda b: b.place, default=None)

    def counts(self) -> dict[str, int]:
        """The number of entries for each reason."""
        found = Counter(record.reason for record in self.extra)
        if len(self.codes):
            found.update({reason: int(np.count_nonzero(self.codes == k)) for k, reason in enumerate(REASONS)})
        return {reason: count for reason, count in found.items() if count}


def merged(one: BadRecords, other: BadRecords) -> Iterator[BadRecord]:
    """The entries of both, in the order of the origin."""
    return _merged(one.in_order(), other.in_order())


def _merged(one: Iterator[BadRecord], other: Iterator[BadRecord]) -> Iterator[BadRecord]:
    return heapq.merge(one, other, key=lambda b: b.place)


NOTHING_BAD = BadRecords()
