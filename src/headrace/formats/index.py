"""The field index of text formats: where each wanted field of each record is, and how to parse it.

The indexer of a format fills a `FieldIndex`. Its `parse` passes columns of fields to `headrace.formats.columns`.
Nothing is copied: the index points into the buffer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from headrace.formats.bad import NOTHING_BAD, TOO_LONG_KEPT, BadRecords
from headrace.formats.columns import ByteArray, Fields, Parsed, Places, Syntax, at, parse_column
from headrace.formats.format_kind import Decoded, Located
from headrace.formats.kernels.numbers import NULL, REASON_BASE
from headrace.formats.kernels.texts import gather
from headrace.formats.nested import parse_paths
from headrace.model.bad_reasons import STRUCTURE_REASONS
from headrace.model.schema import DataType, Schema, Struct

FEW_ROWS = 512  # with fewer, columns of one type are parsed together
TOGETHER = 64  # columns whose bad values are collected at once


class Reindex(Protocol):
    """Indexes whole records again, for other columns."""

    def __call__(self, data: bytes | memoryview, wanted: Sequence[int]) -> FieldIndex: ...


@dataclass(frozen=True, slots=True)
class FieldIndex:
    """The records of one buffer; see `headrace.formats.format_kind.Indexed`.

    Row r is bytes [begins[r], stops[r]) of `data`, without its delimiter. The field of the wanted column c is
    [starts[s, r], ends[s, r]) with s = slots[c]; `syntax` says how it is spelled. `again` locates other columns when
    they are parsed. It reads only the selected records, copied together with `joint` between them, so it costs almost
    nothing after a filter that keeps few rows. With `blank`, bad records are rows, too. Then records are not copied
    together, because a bad record may change how the records after it are read.
    """

    schema: Schema
    data: ByteArray
    rows: int
    begins: Places
    stops: Places
    starts: npt.NDArray[np.int32]
    ends: npt.NDArray[np.int32]
    slots: Mapping[int, int]
    syntax: Syntax
    origin: str
    offset: int
    bad: BadRecords = NOTHING_BAD
    again: Reindex | None = None
    joint: bytes = b"\n"
    blank: bool = False

    @property
    def records(self) -> Located:
        return Located(self.data, self.begins[: self.rows], self.stops[: self.rows])

    def parse(self, columns: Sequence[int], selection: npt.NDArray[np.int64] | None = None) -> Decoded:
        parsed: dict[int, Any] = {}
        bad: list[tuple[int, ByteArray]] = []
        wanted = self._all_fields(columns, selection)
        for kind, group in _groups(self.schema, columns, wanted):
            fields = [wanted[i] for i in group]
            found = parse_column(fields[0] if len(group) == 1 else _joined(fields), kind)
            size = len(fields[0])
            for k, i in enumerate(group):
                parsed[columns[i]] = found.array if len(group) == 1 else found.array.slice(k * size, size)
                if found.odd:
                    bad.append((columns[i], found.status[k * size : (k + 1) * size]))
        parsed = {c: parsed[c] for c in columns}
        cells = bad_cells(
            found=bad,
            data=self.data,
            begins=self.begins,
            stops=self.stops,
            origin=self.origin,
            offset=self.offset,
            selection=selection,
        )
        return Decoded(self.rows if selection is None else len(selection), parsed, cells)

    def parse_fields(
        self, column: int, paths: Sequence[tuple[str, ...]], selection: npt.NDArray[np.int64] | None = None
    ) -> list[Parsed]:
        """Parse some fields of a STRUCT column, of all rows or of those in `selection`."""
        kind = self.schema[column].type
        assert isinstance(kind, Struct)
        (fields,) = self._all_fields([column], selection)
        return parse_paths(fields, kind, paths)

    def _all_fields(self, columns: Sequence[int], selection: npt.NDArray[np.int64] | None) -> list[Fields]:
        late = self._locate([c for c in columns if c not in self.slots], selection)
        found = []
        for column in columns:
            if column in late:
                found.append(late[column])
            else:
                fields = self.fields(column)
                found.append(fields if selection is None else at(fields, selection))
        return found

    def _locate(self, columns: list[int], selection: npt.NDArray[np.int64] | None) -> dict[int, Fields]:
        """Locate the fields of columns that `index` was not asked for, in the selected rows."""
        if not columns:
            return {}
        assert self.again is not None
        if selection is not None and not self.blank and len(selection) * 2 < self.rows:
            few = self.again(self._gathered(selection), columns)
            return {c: few.fields(c) for c in columns}
        every = self.again(self.data.data, columns)
        found = {c: every.fields(c) for c in columns}
        return found if selection is None else {c: at(f, selection) for c, f in found.items()}

    def _gathered(self, selection: npt.NDArray[np.int64]) -> memoryview:
        """Copy the selected records into one buffer."""
        glue = np.frombuffer(self.joint, np.uint8)
        size = int((self.stops[selection] - self.begins[selection]).sum()) + len(glue) * len(selection)
        out = np.empty(size + 8, np.uint8)
        gather(self.data, self.begins, self.stops, np.asarray(selection, np.int64), glue, out)
        return out.data[:size]

    def fields(self, column: int) -> Fields:
        """The fields of one located column, for all rows."""
        slot = self.slots[column]
        return Fields(self.data, self.starts[slot, : self.rows], self.ends[slot, : self.rows], self.syntax)


def bad_cells(
    found: Sequence[tuple[int, ByteArray]],
    data: ByteArray,
    begins: npt.NDArray[Any],
    stops: npt.NDArray[Any],
    origin: str,
    offset: int,
    selection: npt.NDArray[np.int64] | None,
) -> BadRecords:
    """Collect the bad values of columns, each given as (column, status of its cells). Row r is bytes
    [begins[r], stops[r]) of `data`. The cells are those of all rows, or of the rows in `selection`."""
    rows, columns, codes = [], [], []
    for k in range(0, len(found), TOGETHER):  # several columns at a time: fewer calls, and bounded memory
        numbers = np.array([column for column, _ in found[k : k + TOGETHER]], np.int32)
        status = np.stack([cells for _, cells in found[k : k + TOGETHER]])
        which, places = np.nonzero(status > NULL)
        rows.append((places if selection is None else selection[places]).astype(np.int32))
        columns.append(numbers[which])
        codes.append(status[which, places] + np.uint8(len(STRUCTURE_REASONS) - REASON_BASE))
    if not any(map(len, rows)):
        return NOTHING_BAD
    where = np.concatenate(rows)
    return BadRecords(
        data=data,
        origin=origin,
        offset=offset,
        begins=begins[where],
        stops=stops[where],
        rows=where,
        columns=np.concatenate(columns),
        codes=np.concatenate(codes),
    )


@dataclass(slots=True)
class Scanned:
    """The output of a scanner: `rows` records of `data` with their fields, as in `FieldIndex`, and bad records as
    (begin, stop, verdict)."""

    data: ByteArray
    origin: str
    offset: int
    rows: int
    begins: Places
    stops: Places
    starts: npt.NDArray[np.int32]
    ends: npt.NDArray[np.int32]
    wrong: npt.NDArray[np.int32]
    blank: bool = False

    def keep_bad(self, but: int) -> npt.NDArray[np.int32]:
        """Insert each bad record as a row without fields, in the order of the buffer, except those with the verdict
        `but`. Returns the row of each bad record, or -1."""
        lost = np.flatnonzero(self.wrong[:, 2] != but)
        places = np.concatenate([self.begins[: self.rows], self.wrong[lost, 0]])
        order = np.argsort(places)
        row_of = np.empty(len(order), np.int32)
        row_of[order] = np.arange(len(order), dtype=np.int32)
        found = np.full(len(self.wrong), -1, np.int32)
        found[lost] = row_of[self.rows :]
        none = np.full((len(self.starts), len(lost)), -1, np.int32)
        self.begins = places[order]
        self.stops = np.concatenate([self.stops[: self.rows], self.wrong[lost, 1]])[order]
        self.starts = np.concatenate([self.starts[:, : self.rows], none], axis=1)[:, order]
        self.ends = np.concatenate([self.ends[:, : self.rows], none], axis=1)[:, order]
        self.rows = len(order)
        return found

    def take_bad(self, reasons: Mapping[int, str], longest: int, permissive: bool) -> BadRecords:
        """Collect the bad records. `reasons` maps verdicts to reasons. With `permissive`, bad records become rows
        without fields, except those with more than `longest` bytes."""
        rows = None
        if permissive and len(self.wrong):
            too_long = next(verdict for verdict, reason in reasons.items() if reason == "record_too_long")
            rows, self.blank = self.keep_bad(too_long), True
        return bad_structure(
            self.data, self.origin, self.offset, self.wrong, reasons=reasons, longest=longest, rows=rows
        )

    def indexed(
        self,
        *,
        schema: Schema,
        wanted: Sequence[int],
        syntax: Syntax,
        bad: BadRecords,
        again: Reindex,
        joint: bytes,
    ) -> FieldIndex:
        """The index of what was scanned. Call `take_bad` before."""
        return FieldIndex(
            schema=schema,
            data=self.data,
            rows=self.rows,
            begins=self.begins,
            stops=self.stops,
            starts=self.starts,
            ends=self.ends,
            slots={column: slot for slot, column in enumerate(wanted)},
            syntax=syntax,
            origin=self.origin,
            offset=self.offset,
            bad=bad,
            again=again,
            joint=joint,
            blank=self.blank,
        )


def bad_structure(
    data: ByteArray,
    origin: str,
    offset: int,
    wrong: npt.NDArray[np.int32],
    reasons: Mapping[int, str],
    longest: int,
    rows: npt.NDArray[np.int32] | None = None,
) -> BadRecords:
    """Collect the bad records that a scanner reports as (begin, stop, verdict). Only the beginning of a record with
    more than `longest` bytes is kept. `rows` are the rows of the records, if they have any."""
    if not len(wrong):
        return NOTHING_BAD
    begins, stops, verdicts = wrong[:, 0], wrong[:, 1], wrong[:, 2]
    codes = np.zeros(max(reasons) + 1, np.uint8)
    for verdict, reason in reasons.items():
        codes[verdict] = STRUCTURE_REASONS.index(reason)
    none = np.full(len(wrong), -1, np.int32)
    kept = np.where(stops - begins > longest, begins + min(longest, TOO_LONG_KEPT), stops)
    return BadRecords(
        data=data,
        origin=origin,
        offset=offset,
        begins=begins,
        stops=kept,
        rows=none if rows is None else rows,
        columns=none,
        codes=codes[verdicts],
    )


def _groups(schema: Schema, columns: Sequence[int], fields: list[Fields]) -> list[tuple[DataType, list[int]]]:
    """Group columns (by index in `columns`) that are parsed with one call: columns of one type with few rows in one
    buffer, because for them the calls cost more than the work."""
    groups: dict[tuple[DataType, int], list[int]] = {}
    for i, c in enumerate(columns):
        together = len(fields[i]) <= FEW_ROWS
        groups.setdefault((schema[c].type, id(fields[i].data) if together else -i), []).append(i)
    return [(kind, group) for (kind, _), group in groups.items()]


def _joined(fields: list[Fields]) -> Fields:
    """Concatenate the fields of several columns."""
    starts = np.concatenate([f.starts for f in fields])
    return Fields(fields[0].data, starts, np.concatenate([f.ends for f in fields]), fields[0].syntax)


def decode(index: FieldIndex, wanted: Sequence[int]) -> Decoded:
    """Parse all rows of the wanted columns, and report bad structure and bad values."""
    parsed = index.parse(wanted)
    return Decoded(parsed.rows, parsed.columns, index.bad.plus(parsed.bad))


def view_of(data: bytes | memoryview) -> ByteArray:
    """View a buffer as the array that kernels take, without a copy. Always read-only, so that the kernels are compiled
    for one kind of array."""
    view = np.frombuffer(data, np.uint8)
    view.flags.writeable = False
    return view
