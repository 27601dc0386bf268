"""Moves columns between blobs of rows and arrays. `headrace.bridge.rows` describes the form of a blob.

Blobs are Python `bytes`, passed by address, because turning each into an object that numba knows takes longer than
copying a thousand rows. `measure` checks that every blob has the length that its prefix implies; the other kernels rely
on that. Checked indexing (`headrace.formats.kernels.jit.CHECKED`) works on arrays only, so it has no effect here.
"""

# Numba wants plain comparisons and its own integers, so some lints and checks do not apply.
# mypy: disable-error-code="no-any-return,return-value,assignment,arg-type,no-untyped-call"
from __future__ import annotations

from typing import Any

import numpy as np

from headrace.base.plan_only import only_plans
from headrace.formats.kernels.jit import helper, inlined, kernel
from headrace.formats.kernels.simd import llvm_intrinsic, raw_get32

if not only_plans():
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils

PREFIX = 24  # bytes: magic and rows (4 each), layout ^ rows, which columns have a mask (8 each)
BYTES = -1  # the width of a column of strings
FINE = -1
# Instead of the usual magic: all rows are of one window, and each of the first two columns, its start and end, has one
# value. The layout is changed in the same way, so that a blob is never taken for one of the other form.
OF_ONE_WINDOW = int.from_bytes(b"HRT4", "little")
BOUNDS = 2


@llvm_intrinsic
def _word(typing: Any, address: Any) -> Any:
    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()), align=1)

    return types.int64(types.int64), code


@llvm_intrinsic
def _copy(typing: Any, to: Any, source: Any, size: Any) -> Any:
    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        to, source = (builder.inttoptr(a, byte) for a in args[:2])
        cgutils.raw_memcpy(builder, to, source, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), code


@llvm_intrinsic
def _fill(typing: Any, to: Any, byte: Any, size: Any) -> Any:
    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        to = builder.inttoptr(args[0], ir.IntType(8).as_pointer())
        cgutils.memset(builder, to, args[2], builder.trunc(args[1], ir.IntType(8)))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), code


@inlined
def padded(size: int) -> int:
    return (size + 7) & -8


@inlined
def rows_of(blob: int) -> int:
    return (_word(blob) >> 32) & 0xFFFFFFFF


@inlined
def of_one_window(blob: int) -> bool:
    return _word(blob) & 0xFFFFFFFF == OF_ONE_WINDOW


@inlined
def _known(blob: int, widths: Any, magic: int, layout: int) -> bool:
    """True if the prefix is that of rows with this layout."""
    if of_one_window(blob):
        bounded = len(widths) >= BOUNDS and widths[0] == 8 and widths[1] == 8 and _word(blob + 16) & 3 == 0
        return bounded and _word(blob + 8) == layout ^ rows_of(blob) ^ (OF_ONE_WINDOW << 32)
    return _word(blob) & 0xFFFFFFFF == magic and _word(blob + 8) == layout ^ rows_of(blob)


@helper
def body(widths: Any) -> int:
    """The offset of the first column: after the prefix and the sizes of the columns of strings."""
    strings = 0
    for width in widths:
        strings += width == BYTES
    return PREFIX + 8 * strings


@kernel
def measure(blobs: Any, sizes: Any, widths: Any, magic: int, layout: int, rows: Any, held: Any) -> tuple[int, int, int]:
    """Check the blobs and measure them.

    Returns the number of a blob that does not have this layout, or `FINE`; which columns have a mask in some blob; and
    the size of one blob with all rows. Fills `rows` with the rows of each blob, and `held` with the bytes of each
    column of strings over all blobs.
    """
    total, flags = 0, 0
    for i in range(len(blobs)):
        blob, size = blobs[i], sizes[i]
        if size < body(widths) or not _known(blob, widths, magic, layout):
            return i, 0, 0
        count, own, single = rows_of(blob), _word(blob + 16), BOUNDS if of_one_window(blob) else 0
        rows[i] = count
        total += count
        flags |= own
        at, string = body(widths), 0
        for c in range(len(widths)):
            at += padded(count) * (own >> c & 1)
            if widths[c] == BYTES:
                text = _word(blob + PREFIX + 8 * string)
                if text < 0 or text > size:
                    return i, 0, 0
                held[c] += text
                at += padded(4 * count) + padded(text)
                string += 1
            else:
                at += 8 if c < single else padded(widths[c] * count)
        if at != size:
            return i, 0, 0
    return FINE, flags, column_starts(widths, flags, total, held, np.empty((len(widths), 3), np.int64))


@helper
def column_starts(widths: Any, flags: int, rows: int, held: Any, starts: Any) -> int:
    """Fills `starts` with the offsets of the mask, the lengths and the values of each column. Returns the blob's
    size."""
    at = body(widths)
    for c in range(len(widths)):
        starts[c, 0] = at
        at += padded(rows) * (flags >> c & 1)
        starts[c, 1] = at
        if widths[c] == BYTES:
            at += padded(4 * rows)
        starts[c, 2] = at
        at += padded(held[c] if widths[c] == BYTES else widths[c] * rows)
    return at


@kernel
def join(blobs: Any, widths: Any, magic: int, layout: int, rows: Any, held: Any, flags: int, out: Any) -> None:
    """Join blobs into one of the usual form, with the results of `measure`. Does not write the padding between
    columns."""
    total = rows.sum()
    starts = np.empty((len(widths), 3), np.int64)
    column_starts(widths, flags, total, held, starts)
    base = np.int64(out.ctypes.data)
    starts += base
    words = out.view(np.int64)
    words[0], words[1], words[2] = magic | total << 32, layout ^ total, flags
    string = PREFIX >> 3
    for c in range(len(widths)):
        if widths[c] == BYTES:
            words[string] = held[c]
            string += 1
    for i in range(len(blobs)):
        blob, count = blobs[i], rows[i]
        own, single = _word(blob + 16), BOUNDS if of_one_window(blob) else 0
        at, string = blob + body(widths), 0
        for c in range(len(widths)):
            if flags >> c & 1:
                if own >> c & 1:
                    _copy(starts[c, 0], at, count)
                    at += padded(count)
                else:
                    _fill(starts[c, 0], 1, count)
                starts[c, 0] += count
            size = widths[c] * count
            if c < single:
                first = (starts[c, 2] - base) >> 3
                words[first : first + count] = _word(at)
                starts[c, 2] += size
                at += 8
                continue
            if widths[c] == BYTES:
                size = _word(blob + PREFIX + 8 * string)
                _copy(starts[c, 1], at, 4 * count)
                starts[c, 1] += 4 * count
                at += padded(4 * count)
                string += 1
            _copy(starts[c, 2], at, size)
            starts[c, 2] += size
            at += padded(size)


@kernel
def run_sizes(cuts: Any, widths: Any, offsets: Any, masks: Any, sizes: Any) -> None:
    """The size of the blob of each run of rows: rows cuts[i] to cuts[i + 1]."""
    for i in range(len(cuts) - 1):
        first, count = cuts[i], cuts[i + 1] - cuts[i]
        size = body(widths)
        for c in range(len(widths)):
            if masks[c] != 0:
                size += padded(count)
            if widths[c] == BYTES:
                size += padded(4 * count) + padded(raw_get32(offsets[c], first + count) - raw_get32(offsets[c], first))
            else:
                size += padded(widths[c] * count)
        sizes[i] = size


@kernel
def scatter(
    out: Any, cuts: Any, sizes: Any, widths: Any, data: Any, offsets: Any, masks: Any, magic: int, layout: int
) -> None:
    """Write the blobs of all runs one after the other, into zeroed memory. `data`, `offsets` and `masks` are addresses
    in the columns' buffers, 0 if a column has no such buffer."""
    flags = 0
    for c in range(len(widths)):
        if masks[c] != 0:
            flags |= 1 << c
    words, texts = out.view(np.int64), out.view(np.int32)
    base, begin = np.int64(out.ctypes.data), 0
    for i in range(len(cuts) - 1):
        row, count = cuts[i], cuts[i + 1] - cuts[i]
        words[begin >> 3] = magic | count << 32
        words[(begin >> 3) + 1] = layout ^ count
        words[(begin >> 3) + 2] = flags
        at, string = begin + body(widths), 0
        for c in range(len(widths)):
            if masks[c] != 0:
                _copy(base + at, masks[c] + row, count)
                at += padded(count)
            if widths[c] == BYTES:
                start, end = raw_get32(offsets[c], row), raw_get32(offsets[c], row + count)
                for k in range(count):
                    texts[(at >> 2) + k] = raw_get32(offsets[c], row + k + 1) - raw_get32(offsets[c], row + k)
                at += padded(4 * count)
                _copy(base + at, data[c] + start, end - start)
                at += padded(end - start)
                words[(begin + PREFIX >> 3) + string] = end - start
                string += 1
            else:
                _copy(base + at, data[c] + widths[c] * row, widths[c] * count)
                at += padded(widths[c] * count)
        begin += sizes[i]
