"""Finds, counts and splits at delimiters of one or more bytes."""

# Numba needs plain comparisons and its own integer types, so some lints and type checks do not apply.
# ruff: noqa: SIM110
# mypy: disable-error-code="no-any-return,return-value,assignment"
from __future__ import annotations

from typing import Any

from headrace.formats.kernels.jit import helper, kernel
from headrace.formats.kernels.simd import find_byte, get8, view


@helper
def matches(buf: Any, p: int, n: int, token: Any, length: int) -> bool:
    """True if the bytes at `p` are `token`."""
    if p + length > n:
        return False
    for k in range(length):
        if get8(buf, p + k) != get8(token, k):
            return False
    return True


@helper
def find_token(buf: Any, p: int, n: int, token: Any, length: int) -> int:
    """The first position of `token` from `p` on; `n` if there is none."""
    first = get8(token, 0)
    while p < n:
        p = find_byte(buf, p, n, first)
        if p < n:
            if matches(buf, p, n, token, length):
                return p
            p += 1
    return n


@kernel
def count_tokens(data: Any, token: Any) -> int:
    """How often `token` occurs without overlaps."""
    buf, n = view(data), len(data)
    total = 0
    p = 0
    while True:
        p = find_token(buf, p, n, view(token), len(token))
        if p >= n:
            return total
        total += 1
        p += len(token)


@kernel
def split_tokens(data: Any, token: Any, crlf: bool, begins: Any, stops: Any) -> int:
    """Split `data` at every `token`: record r is [begins[r], stops[r]). The empty rest after the last token is not a
    record.
    """
    buf, n = view(data), len(data)
    rows = 0
    at = 0
    while at < n:
        found = find_token(buf, at, n, view(token), len(token))
        begins[rows] = at
        stops[rows] = found - 1 if crlf and found > at and get8(buf, found - 1) == 13 else found
        rows += 1
        at = found + len(token)
    return rows
