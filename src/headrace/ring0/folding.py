"""Folds a batch for all members of a pass with kernels: groups its rows, aggregates, and writes each member's groups in
the form in which Ring 1 gets and keeps them.

The result is that of `headrace.exec.families`, cut as `headrace.ring0.cuts` cuts it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.base.arrays import Ints
from headrace.bridge.buckets import mix64
from headrace.bridge.kernels import folds as k
from headrace.bridge.packs import PackEntry
from headrace.bridge.rows import MAGIC
from headrace.ring0.cuts import CutPiece, CutRule
from headrace.ring0.fold_columns import CannotFold, FoldColumns, KeyCodes, guard_of
from headrace.ring0.fold_program import FoldProgram

# Accumulators of as many members as fit into this many bytes are filled at once, and so many bytes of blobs written.
SLOT_BYTES = 32 * 1024 * 1024
# Beyond this, event times and the bounds of windows might not fit into 64 bits.
_FAR = 1 << 62


@dataclass(frozen=True, slots=True)
class FoldedShare:
    """What a member gets of a batch: its groups as entries for Ring 1, by bucket, and how many rows are late."""

    entries: list[tuple[int, PackEntry]]
    late: int


class FoldGroups:
    """The groups of a batch, numbered in the order in which they are sent: by bucket, and by window if `rule` says so
    (then every piece is of one window, and `windowed` is true). Groups of windows that are closed at `watermark` come
    last: the first `open` groups are sent, in `pieces`, which begin at `bounds`."""

    def __init__(
        self, columns: FoldColumns, members: Sequence[FoldProgram], rule: CutRule, watermark: int | None
    ) -> None:
        first, guard = members[0], guard_of(members)
        self.keys = [columns.codes(key, guard) for key in first.keys]
        marks = _marks(columns, first, self.keys)
        groups, firsts = _grouped(marks.marks, marks.size)
        self.times = np.zeros((2, len(firsts)), np.int64)
        closed = np.zeros(len(firsts), np.bool_)
        if first.window is not None:
            self.times[0] = marks.starts[firsts]
            self.times[1] = self.times[0] + first.window.size
            closed = closed if watermark is None else self.times[1] <= watermark
        codes = np.zeros((max(1, len(self.keys)), len(firsts)), np.int64)
        for i, key in enumerate(self.keys):
            codes[i] = key.codes[firsts]
        buckets = self._buckets(codes, rule)
        places, most = closed * rule.buckets + buckets, 2 * rule.buckets
        if rule.windowed:
            places, most = places * marks.windows + marks.numbers[firsts], most * marks.windows
            if most > _FAR:
                raise CannotFold("event times are too far apart")
        # Numpy sorts numbers of 16 bits by radix, in a tenth of the time.
        order = np.argsort(places.astype(np.uint16) if most <= 1 << 16 else places, kind="stable")
        self.codes, self.times, buckets = _ordered(codes, order), _ordered(self.times, order), buckets[order]
        ranks = np.full(len(firsts) + 1, k.NO_GROUP, np.int32)
        ranks[order] = np.arange(len(firsts))
        self.groups = ranks[groups]  # no group is -1, which is the last of `ranks`
        self.open = len(firsts) - int(closed.sum())
        self.windowed = rule.windowed and first.window is not None
        self.bounds, self.pieces = self._pieces(buckets[: self.open], rule.windowed)

    def _buckets(self, codes: Ints, rule: CutRule) -> Ints:
        if rule.buckets == 1 or not rule.hashed:
            return np.zeros(codes.shape[1], np.int64)
        if len(rule.hashed) == 1:
            (only,) = rule.hashed
            found: Ints = self.keys[only].buckets(rule.buckets)[codes[only]]
            return found
        hashed = np.zeros(codes.shape[1], np.uint64)
        with np.errstate(over="ignore"):
            for i in rule.hashed:
                hashed = mix64(hashed ^ self.keys[i].hashes()[codes[i]])
        return (hashed % np.uint64(rule.buckets)).astype(np.int64)

    def _pieces(self, buckets: Ints, windowed: bool) -> tuple[Ints, list[CutPiece]]:
        """Where the pieces begin, and what they are. The last bound is the end of the last piece."""
        if not self.open:
            return np.zeros(1, np.int64), []
        changes = np.zeros(self.open, np.bool_)
        changes[0] = True
        changes[1:] = buckets[1:] != buckets[:-1]
        if windowed:
            changes[1:] |= self.times[0, 1 : self.open] != self.times[0, : self.open - 1]
        firsts = np.flatnonzero(changes)
        times = self.times[:, firsts] if windowed else np.zeros((2, len(firsts)), np.int64)
        pieces = list(zip(buckets[firsts].tolist(), *times.tolist(), strict=True))
        return np.append(firsts, self.open).astype(np.int64), pieces


def _ordered(columns: Ints, order: npt.NDArray[np.intp]) -> Ints:
    return np.ascontiguousarray(columns[:, order])


class RowMarks(NamedTuple):
    """A number for each row, below `size`, that is equal for rows of one group, and negative for rows without an event
    time. `starts` and `numbers` are the start and the number of each row's window among `windows`."""

    marks: Ints
    size: int
    starts: Ints
    numbers: Ints
    windows: int


def _marks(columns: FoldColumns, program: FoldProgram, keys: Sequence[KeyCodes]) -> RowMarks:
    size = windows = 1
    marks = starts = numbers = np.zeros(columns.rows, np.int64)
    valid = None
    if program.window is not None and columns.rows:
        times = columns.times()
        if times.bounds is None:
            return RowMarks(np.full(columns.rows, -1, np.int64), 1, starts=starts, numbers=numbers, windows=1)
        low, high = times.bounds
        if low < -_FAR or high > _FAR:
            raise CannotFold("an event time is too far away")
        valid = times.valid
        numbers, starts, windows = columns.windowed(program.window, times, low, high)
        marks, size = numbers, windows
    for key in keys:
        count = max(1, key.count)
        size *= count
        if size > _FAR:
            raise CannotFold("there are too many combinations of keys")
        marks = marks * count + key.codes
    if valid is not None:
        marks = np.where(valid, marks, -1)
    return RowMarks(marks, size, starts=starts, numbers=numbers, windows=windows)


def _grouped(marks: Ints, size: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The number of each row's group, and the first row of each group."""
    rows = len(marks)
    groups, firsts = np.empty(rows, np.int32), np.empty(rows, np.int32)
    if size <= 4 * rows + 1024:
        count = k.group_direct(marks, np.full(size, k.NO_GROUP, np.int32), groups, firsts)
    else:
        table = np.full(1 << (2 * rows - 1).bit_length(), k.NO_GROUP, np.int32)
        count = k.group_hashed(marks, table, groups, firsts)
    return groups, firsts[:count]


class _ShareWriter:
    """Computes and writes the shares of some members over the same groups."""

    def __init__(self, columns: FoldColumns, groups: FoldGroups, members: Sequence[FoldProgram]) -> None:
        self.columns, self.groups, self.members = columns, groups, members
        self._keys()
        ops: list[tuple[int, int, int, int]] = []
        spans: list[tuple[int, int, int]] = []
        described: list[list[int]] = []
        shares: list[tuple[int, int]] = []
        presence: list[int] = []
        slots = 0
        for member in members:
            began, first = len(ops), len(described)
            presence.append(slots)
            described += self._common(member)
            for number, step in enumerate(member.steps):
                value, mask = columns.place(member, step)
                width = int(member.widths[len(member.widths) - len(member.steps) + number])
                described.append([k.SLOT, slots, width, len(ops) if mask >= 0 and step.kind != k.COUNT else -1, 0, 0])
                ops.append((step.kind, value, mask, slots))
                slots += step.slots
            spans.append((columns.flag(member), began, len(ops)))
            shares.append((first, len(described)))
        self.presence, self.shares = np.array(presence, np.int64), np.array(shares, np.int64)
        self.described = np.array(described, np.int64)
        count = groups.times.shape[1]
        self.slots, self.seen = np.zeros((slots, count), np.int64), np.zeros((len(ops), count), np.uint8)
        k.accumulate(
            groups.groups,
            columns.flags,
            columns.ints,
            columns.doubles,
            columns.masks,
            np.array(spans, np.int64),
            np.array(ops, np.int64),
            self.slots,
            self.seen,
        )

    def _keys(self) -> None:
        """The keys of all groups, as the kernels read them."""
        groups, count = self.groups, self.groups.times.shape[1]
        number = max(1, len(groups.keys))
        self.fixed, self.lengths = np.zeros((number, count), np.int64), np.zeros((number, count), np.int64)
        self.valid = np.ones((number, count), np.uint8)
        self.texts: list[tuple[int, int]] = []  # the first offset of each key, and how many texts it has
        offsets, data, held, listed = [np.zeros(0, np.int64)], [np.zeros(0, np.uint8)], 0, 0
        for i, (key, declared) in enumerate(zip(groups.keys, self.members[0].keys, strict=True)):
            codes = groups.codes[i]
            if key.nullable:
                self.valid[i] = codes < key.known
            self.texts.append((listed, key.known))
            if declared.text:
                found, lengths, texts = key.texts()
                self.lengths[i] = lengths[codes]
                offsets.append(found + held)
                data.append(texts)
                listed, held = listed + len(found), held + len(texts)
            else:
                self.fixed[i] = key.numbers()[codes]
        self.offsets, self.data = np.concatenate(offsets), np.concatenate(data)

    def _common(self, member: FoldProgram) -> list[list[int]]:
        """The columns of windows and keys."""
        found = [[k.WINDOW_START, 0, 8, -1, 0, 0], [k.WINDOW_END, 0, 8, -1, 0, 0]] if member.window is not None else []
        for i, (key, declared) in enumerate(zip(self.groups.keys, member.keys, strict=True)):
            kind = k.TEXT_KEY if declared.text else k.FIXED_KEY
            width = int(member.widths[len(found)])
            found.append([kind, i, width, i if key.nullable else -1, *self.texts[i]])
        return found

    def shares_of(self, lanes: Sequence[int]) -> Iterator[FoldedShare]:
        """The share of each member, whose lane is in `lanes`."""
        groups, count = self.groups, len(self.members)
        counts, sizes = np.zeros((2, count, len(groups.pieces)), np.int64)
        k.measure_shares(
            groups.bounds,
            groups.windowed,
            self.presence,
            self.slots,
            self.described,
            self.shares,
            self.lengths,
            counts,
            sizes,
        )
        late = self.slots[self.presence, groups.open :].sum(axis=1).tolist()
        totals = sizes.sum(axis=1).tolist()
        rows, lengths = counts.tolist(), sizes.tolist()
        digests = np.array([m.digest for m in self.members], np.int64)
        first = 0
        while first < count:
            end, size = first + 1, totals[first]
            while end < count and size + totals[end] <= SLOT_BYTES:
                size += totals[end]
                end += 1
            out = np.zeros(size, np.uint8)
            k.write_shares(
                out,
                first,
                end,
                groups.bounds,
                groups.windowed,
                self.presence,
                self.slots,
                self.described,
                self.shares,
                digests,
                MAGIC,
                groups.times,
                groups.codes,
                self.valid,
                self.fixed,
                self.offsets,
                self.data,
                self.seen,
                sizes,
            )
            whole, at = out.data, 0
            for m in range(first, end):
                entries = []
                for (bucket, start, until), n, length in zip(groups.pieces, rows[m], lengths[m], strict=True):
                    if n:
                        entries.append(
                            (
                                bucket,
                                PackEntry(lanes[m], start, end=until, rows=n, payload=bytes(whole[at : at + length])),
                            )
                        )
                        at += length
                yield FoldedShare(entries, late[m])
            first = end


def fold(
    columns: FoldColumns, members: Sequence[FoldProgram], lanes: Sequence[int], rule: CutRule, watermark: int | None
) -> list[FoldedShare]:
    """The shares of the members of one pass, which all are cut by `rule`. Raises CannotFold."""
    groups = FoldGroups(columns, members, rule, watermark)
    slots = [sum(step.slots for step in member.steps) for member in members]
    most = max(1, SLOT_BYTES // (8 * max(1, groups.times.shape[1])))
    found: list[FoldedShare] = []
    first = 0
    while first < len(members):
        end, held = first + 1, slots[first]
        while end < len(members) and held + slots[end] <= most:
            held += slots[end]
            end += 1
        found += _ShareWriter(columns, groups, members[first:end]).shares_of(lanes[first:end])
        first = end
    return found
