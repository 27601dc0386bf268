"""Locates the fields of delimited text: 64 bytes at a time for the usual dialects, byte by byte for the others.

A field is (start, end) of its text, inside its quotes. The end of a quoted field with doubled quotes or escapes is
stored as ~end. An unquoted field that is a null token has start -1. A quote has a meaning only at the beginning of a
field.
"""

# Numba needs plain comparisons and its own integer types, so some lints and type checks do not apply.
# mypy: disable-error-code="no-any-return,return-value,assignment"
from __future__ import annotations

from typing import Any

import numpy as np

from headrace.formats.kernels.jit import helper, inlined, kernel
from headrace.formats.kernels.simd import (
    ONE,
    byte_at,
    find_byte,
    get8,
    get32,
    match64,
    popcount,
    put32,
    trailing_zeros,
    view,
    wide,
)  # fmt: skip
from headrace.formats.kernels.tokens import find_token, matches

# Verdicts on a record; formats.csv maps them to reasons.
OK, OPEN_QUOTE, BAD_QUOTE, FIELD_COUNT, TOO_LONG = 0, 1, 2, 3, 4
# Indexes in the `dialect` array.
DELIMITER, QUOTE, ESCAPE, COMMENT, CRLF, RAGGED, TRAILING, MULTILINE, LONGEST = 0, 1, 2, 3, 4, 5, 6, 7, 8
DIALECT = 9


@helper
def is_null(buf: Any, p: int, e: int, nulls: Any, bounds: Any, count: int) -> bool:
    """True if [p, e) is one of the null tokens."""
    for k in range(count):
        first = get32(bounds, k)
        if get32(bounds, k + 1) - first == e - p:
            i = 0
            while i < e - p and get8(buf, p + i) == get8(nulls, first + i):
                i += 1
            if i == e - p:
                return True
    return False


@helper
def quoted_end(buf: Any, p: int, n: int, quote: int, escape: int) -> int:
    """Twice the position of the quote that closes the field whose content begins at `p`, plus one if the content has
    escapes; -1 if no quote closes it before `n`."""
    undo = 0
    if escape < 0:
        while True:
            p = find_byte(buf, p, n, quote)
            if p >= n:
                return -1
            if p + 1 < n and get8(buf, p + 1) == quote:
                undo = 1
                p += 2
            else:
                return 2 * p + undo
    while p < n:
        c = get8(buf, p)
        if c == escape and p + 1 < n and (escape != quote or get8(buf, p + 1) == quote):
            undo = 1
            p += 2
        elif c == quote:
            if p + 1 < n and get8(buf, p + 1) == quote:
                undo = 1
                p += 2
            else:
                return 2 * p + undo
        else:
            p += 1
    return -1


@inlined
def put_field(starts: Any, ends: Any, place: int, p: int, e: int) -> None:
    put32(starts, place, p)
    put32(ends, place, e)


@helper
def count_verdict(found: int, expected: int, last_empty: bool, ragged: bool, trailing: bool) -> int:
    """True if a record with `found` fields is allowed where `expected` fields are declared."""
    if found == expected or ragged or (trailing and found == expected + 1 and last_empty):
        return OK
    return FIELD_COUNT


@inlined
def masks(buf: Any, block: int, n: int, delimiter: int, quote: int) -> tuple[Any, Any, Any]:
    """Masks of the 64 bytes from `block`: delimiters or newlines, newlines, quotes."""
    lines = match64(buf, block, n, 10)
    quotes = match64(buf, block, n, quote) if quote >= 0 else np.uint64(0)
    return match64(buf, block, n, delimiter) | lines, lines, quotes


@helper
def unwanted_runs(slots: Any) -> Any:
    """For each column, how many columns can be skipped from it to the next wanted one, or to the last."""
    width = len(slots)
    ahead = np.zeros(width + 1, np.int64)
    for column in range(width - 2, -1, -1):
        if slots[column] < 0:
            ahead[column] = ahead[column + 1] + 1
    return ahead


@kernel
def scan_rows(
    data: Any, dialect: Any, nulls: Any, null_bounds: Any, slots: Any, starts: Any, ends: Any, begins: Any, stops: Any,
    bad: Any,
) -> tuple[int, int]:  # fmt: skip
    """Scan lines whose delimiter is one byte, without an escape character. Returns (rows, bad records).

    `slots[c]` is the slot of column c, -1 if it is not wanted. Row r is [begins[r], stops[r]). bad[k] is (begin, stop,
    verdict). Empty lines and comments are neither rows nor bad.
    """
    buf, n = view(data), len(data)
    delimiter, quote, comment = wide(dialect[DELIMITER]), wide(dialect[QUOTE]), wide(dialect[COMMENT])
    crlf, ragged, trailing = dialect[CRLF] != 0, dialect[RAGGED] != 0, dialect[TRAILING] != 0
    longest = wide(dialect[LONGEST])
    width, room = len(slots), starts.shape[1]
    first_places, last_places = view(starts), view(ends)
    tokens = len(null_bounds) - 1
    empty_is_null = is_null(buf, 0, 0, view(nulls), view(null_bounds), tokens)
    other_tokens = tokens > (1 if empty_is_null else 0)
    rows = 0
    wrong = 0
    begin = 0  # of the record
    field = 0  # of the field
    column = 0
    block = 0
    mask, lines, quotes = masks(buf, 0, n, delimiter, quote)  # of the block; `mask` loses the bits that were processed
    ahead = unwanted_runs(slots)
    while begin < n:
        run = ahead[column] if column < width and (column > 0 or comment < 0) else 0
        if run > 0:
            # Skip several unwanted fields at once: the delimiters before the next newline, if no quote is among them.
            ending = mask & lines
            before = mask & ~lines & ((ending & (~ending + ONE)) - ONE)
            count = min(popcount(before), run)
            if count > 0:
                for _ in range(count - 1):
                    before &= before - ONE
                last = before & (~before + ONE)
                behind = (ONE << np.uint64(field - block)) - ONE if field > block else np.uint64(0)
                if (quotes & (last - ONE) & ~behind) == 0:
                    mask &= ~(last | (last - ONE))
                    field = block + trailing_zeros(last) + 1
                    column += count
                    continue
        c = byte_at(buf, field, n)
        verdict = OK
        p = 0
        e = 0
        after = 0
        if c == quote and quote >= 0:
            line = find_byte(buf, field, n, 10)
            closed = quoted_end(buf, field + 1, line, quote, -1)
            p = field + 1
            if closed < 0:
                verdict = OPEN_QUOTE
                after = line
            else:
                e = closed >> 1
                after = e + 1
                if closed & 1 == 1:
                    e = ~e
                if crlf and byte_at(buf, after, n) == 13 and after + 1 == line:
                    after = line
                if after < line and get8(buf, after) != delimiter:
                    verdict = BAD_QUOTE
                    after = line
            block = after & ~63
            mask, lines, quotes = masks(buf, block, n, delimiter, quote)
            mask &= ~((ONE << np.uint64(after - block)) - ONE)
            if after < n:
                mask &= mask - ONE
        else:
            while mask == 0 and block + 64 < n:
                block += 64
                mask, lines, quotes = masks(buf, block, n, delimiter, quote)
            after = n
            if mask != 0:
                after = block + trailing_zeros(mask)
                mask &= mask - ONE
            p = field
            e = after
        ends_record = after >= n or get8(buf, after) == 10
        if ends_record and c != quote and crlf and e > p and get8(buf, e - 1) == 13:
            e -= 1
        if column == 0 and ends_record and verdict == OK and p == e and c != quote:
            begin = after + 1
            field = begin
            continue
        if verdict == OK and column < width:
            slot = wide(slots[column])
            if slot >= 0:
                if c != quote and (
                    (e == p and empty_is_null)
                    or (other_tokens and is_null(buf, p, e, view(nulls), view(null_bounds), tokens))
                ):
                    p = -1
                put_field(first_places, last_places, slot * room + rows, p, e)
        column += 1
        field = after + 1
        if comment >= 0 and column == 1 and c == comment:
            after = find_byte(buf, begin, n, 10)
            stop = after
            if stop > begin and crlf and get8(buf, stop - 1) == 13:
                stop -= 1
            if stop - begin <= longest:
                verdict = -1
            ends_record = True
        if not ends_record and verdict == OK:
            continue
        after = after if ends_record else find_byte(buf, after, n, 10)
        stop = after
        if stop > begin and crlf and get8(buf, stop - 1) == 13:
            stop -= 1
        if verdict == OK:
            verdict = count_verdict(column, width, e == p and c != quote, ragged, trailing)
        if stop - begin > longest:
            verdict = TOO_LONG
        if verdict == OK:
            if column < width:
                for missing in range(column, width):
                    if slots[missing] >= 0:
                        starts[slots[missing], rows] = -1
            begins[rows] = begin
            stops[rows] = stop
            rows += 1
        elif verdict > 0:
            bad[wrong, 0] = begin
            bad[wrong, 1] = stop
            bad[wrong, 2] = verdict
            wrong += 1
        if field != after + 1:
            block = after & ~63
            if block < n:
                mask, lines, quotes = masks(buf, block, n, delimiter, quote)
                mask &= ~((ONE << np.uint64(after - block)) - ONE)
                if after < n:
                    mask &= mask - ONE
        begin = after + 1
        field = begin
        column = 0
    return rows, wrong


@helper
def record_end(buf: Any, p: int, n: int, dialect: Any, fields: Any, flen: int, ends: Any, elen: int) -> int:
    """The end of the record at `p`: the position of its delimiter. With `multiline` a quoted field may contain
    delimiters.

    If a quote is never closed, this is the first delimiter, as if there were no quotes: the next record begins there.
    """
    first = find_token(buf, p, n, ends, elen)
    if get32(dialect, MULTILINE) == 0:
        return first
    quote, escape = get32(dialect, QUOTE), get32(dialect, ESCAPE)
    limit = min(n, p + get32(dialect, LONGEST) + elen + 1)  # the result must not depend on the bytes after this record
    at = p
    while True:
        if quote >= 0 and at < limit and get8(buf, at) == quote:
            closed = quoted_end(buf, at + 1, limit, quote, escape)
            if closed < 0:
                return first
            at = (closed >> 1) + 1
        while at < limit and not matches(buf, at, n, fields, flen) and not matches(buf, at, n, ends, elen):
            at += 1
        if at >= limit:
            return n if limit == n else first
        if matches(buf, at, n, ends, elen):
            return at
        at += flen


@kernel
def scan_any(
    data: Any, dialect: Any, delimiter: Any, ending: Any, nulls: Any, null_bounds: Any, slots: Any, starts: Any,
    ends: Any, begins: Any, stops: Any, bad: Any,
) -> tuple[int, int]:  # fmt: skip
    """Like `scan_rows`, for every dialect: delimiters of several bytes, an escape character, quoted newlines."""
    buf, n = view(data), len(data)
    quote, escape, comment = wide(dialect[QUOTE]), wide(dialect[ESCAPE]), wide(dialect[COMMENT])
    crlf, ragged, trailing = dialect[CRLF] != 0, dialect[RAGGED] != 0, dialect[TRAILING] != 0
    width, room = len(slots), starts.shape[1]
    flen, elen, tokens = len(delimiter), len(ending), len(null_bounds) - 1
    rows = 0
    wrong = 0
    begin = 0
    while begin < n:
        after = record_end(buf, begin, n, view(dialect), view(delimiter), flen, view(ending), elen)
        stop = after
        if crlf and stop > begin and get8(buf, stop - 1) == 13:
            stop -= 1
        verdict = OK
        column = 0
        if stop - begin > dialect[LONGEST]:
            verdict = TOO_LONG
        elif stop == begin or (comment >= 0 and get8(buf, begin) == comment):
            begin = after + elen
            continue
        at = begin
        last_empty = False
        while verdict == OK:
            p = at
            quoted = quote >= 0 and at < stop and get8(buf, at) == quote
            if quoted:
                p = at + 1
                closed = quoted_end(buf, p, stop, quote, escape)
                if closed < 0:
                    verdict = OPEN_QUOTE
                    break
                e = closed >> 1
                at = e + 1
                if closed & 1 == 1:
                    e = ~e
                if at < stop and not matches(buf, at, stop, view(delimiter), flen):
                    verdict = BAD_QUOTE
                    break
            else:
                at = find_token(buf, at, stop, view(delimiter), flen)
                e = at
            last_empty = e == p and not quoted
            if column < width and slots[column] >= 0:
                if not quoted and is_null(buf, p, e, view(nulls), view(null_bounds), tokens):
                    p = -1
                put_field(view(starts), view(ends), wide(slots[column]) * room + rows, p, e)
            column += 1
            if at >= stop:
                break
            at += flen
        if verdict == OK:
            verdict = count_verdict(column, width, last_empty, ragged, trailing)
        if verdict == OK:
            for missing in range(column, width):
                if slots[missing] >= 0:
                    starts[slots[missing], rows] = -1
            begins[rows] = begin
            stops[rows] = stop
            rows += 1
        else:
            bad[wrong, 0] = begin
            bad[wrong, 1] = stop
            bad[wrong, 2] = verdict
            wrong += 1
        begin = after + elen
    return rows, wrong


@helper
def open_at(buf: Any, p: int, stop: int, quote: int, escape: int, delimiter: Any, flen: int) -> bool:
    """True if the record [p, stop) has a quoted field that is never closed."""
    at = p
    while at < stop:
        if quote >= 0 and get8(buf, at) == quote:
            closed = quoted_end(buf, at + 1, stop, quote, escape)
            if closed < 0:
                return True
            at = (closed >> 1) + 1
        while at < stop and not matches(buf, at, stop, delimiter, flen):
            at += 1
        at += flen
    return False


@kernel
def frame_quoted(data: Any, final: bool, dialect: Any, delimiter: Any, ending: Any) -> int:
    """How many bytes of `data` are whole records, if quoted fields may contain delimiters.

    Without `final`, later data may close a quote that is still open, unless the record is too long.
    """
    buf, n = view(data), len(data)
    quote, escape, longest = wide(dialect[QUOTE]), wide(dialect[ESCAPE]), wide(dialect[LONGEST])
    flen, elen = len(delimiter), len(ending)
    begin = 0
    while begin < n:
        after = record_end(buf, begin, n, view(dialect), view(delimiter), flen, view(ending), elen)
        if not final:
            if after >= n:
                break
            undecided = begin + longest + elen + 1 > n
            if undecided and open_at(buf, begin, after, quote, escape, view(delimiter), flen):
                break
        begin = min(n, after + elen)
    return begin
