"""SIMD: unaligned 8-byte words and comparisons of 32 or 64 bytes at a time, as LLVM vectors.

The raw forms (`_word`, `_match64`, `raw_get32`, ...) check no bounds. The other forms never read beyond `n`.
"""

# Numba needs plain comparisons and its own integer types, so some lints and type checks do not apply.
# mypy: disable-error-code="no-any-return,return-value,assignment"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.base.plan_only import declared, only_plans
from headrace.formats.kernels.jit import CHECKED, helper, inlined

if not only_plans():
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    _I64, _I32, _I8 = ir.IntType(64), ir.IntType(32), ir.IntType(8)

ONE = np.uint64(1)
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
HIGH = np.uint64(0x8080808080808080)
ZEROS = np.uint64(0x3030303030303030)
OVER9 = np.uint64(0x7676767676767676)


def _pointer(builder: Any, args: Any, kind: Any, scale: int = 1) -> Any:
    """A pointer to `kind`: the address args[0] plus args[1] elements."""
    place = args[1] if scale == 1 else builder.mul(args[1], ir.Constant(_I64, scale))
    return builder.inttoptr(builder.add(args[0], place), kind.as_pointer())


def _splat(builder: Any, byte: Any, width: int) -> Any:
    kind = ir.VectorType(_I8, width)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), byte, ir.Constant(_I32, 0))
    spread = ir.Constant(ir.VectorType(_I32, width), [0] * width)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), spread)


def llvm_intrinsic(function: Callable[..., Any]) -> Any:
    """A Numba intrinsic; only a declaration in processes that never run kernels."""
    return declared(function) if only_plans() else intrinsic(function)


@llvm_intrinsic
def _get8(typing: Any, base: Any, position: Any) -> Any:
    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.zext(builder.load(_pointer(builder, args, _I8)), _I64)

    return types.int64(types.int64, types.int64), code


@llvm_intrinsic
def raw_get32(typing: Any, base: Any, position: Any) -> Any:
    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.sext(builder.load(_pointer(builder, args, _I32, 4)), _I64)

    return types.int64(types.int64, types.int64), code


@llvm_intrinsic
def _put8(typing: Any, base: Any, position: Any, value: Any) -> Any:
    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(builder.trunc(args[2], _I8), _pointer(builder, args, _I8))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), code


@llvm_intrinsic
def _put32(typing: Any, base: Any, position: Any, value: Any) -> Any:
    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(builder.trunc(args[2], _I32), _pointer(builder, args, _I32, 4))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), code


@llvm_intrinsic
def _word(typing: Any, base: Any, position: Any) -> Any:
    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(_pointer(builder, args, _I64), align=1)

    return types.uint64(types.int64, types.int64), code


@llvm_intrinsic
def _store(typing: Any, base: Any, position: Any, word: Any) -> Any:
    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[2], _pointer(builder, args, _I64), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.uint64), code


@llvm_intrinsic
def _match64(typing: Any, base: Any, position: Any, byte: Any) -> Any:
    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        block = builder.load(_pointer(builder, args, ir.VectorType(_I8, 64)), align=1)
        return builder.bitcast(builder.icmp_unsigned("==", block, _splat(builder, args[2], 64)), _I64)

    return types.uint64(types.int64, types.int64, types.uint8), code


@llvm_intrinsic
def _string_stops(typing: Any, base: Any, position: Any) -> Any:
    """Which of 32 bytes end or interrupt a JSON string: quote, backslash, control characters."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.VectorType(_I8, 32)
        block = builder.load(_pointer(builder, args, kind), align=1)
        found = builder.icmp_unsigned("==", block, ir.Constant(kind, [34] * 32))
        found = builder.or_(found, builder.icmp_unsigned("==", block, ir.Constant(kind, [92] * 32)))
        found = builder.or_(found, builder.icmp_unsigned("<", block, ir.Constant(kind, [32] * 32)))
        return builder.zext(builder.bitcast(found, _I32), _I64)

    return types.uint64(types.int64, types.int64), code


@llvm_intrinsic
def trailing_zeros(typing: Any, word: Any) -> Any:
    """The index of the lowest set bit of a uint64, as int64; 64 for zero."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), code


@llvm_intrinsic
def leading_zeros(typing: Any, word: Any) -> Any:
    """How many zero bits a uint64 begins with, as int64; 64 for zero."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), code


@llvm_intrinsic
def popcount(typing: Any, word: Any) -> Any:
    """How many bits of a uint64 are set, as int64."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.uint64), code


@llvm_intrinsic
def high_product(typing: Any, a: Any, b: Any) -> Any:
    """The upper 64 bits of the 128-bit product of two uint64."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), _I64)

    return types.uint64(types.uint64, types.uint64), code


@llvm_intrinsic
def as_double(typing: Any, bits: Any) -> Any:
    """The double whose IEEE bits are these."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.uint64), code


if CHECKED:

    @inlined
    def view(array: Any) -> Any:
        """The form of an array that the functions below take: here the array itself, flat."""
        return array.reshape(array.size)

    @inlined
    def get8(base: Any, p: int) -> int:
        """The byte at `p`."""
        assert p >= 0
        return np.int64(base[p])

    @inlined
    def get32(base: Any, i: int) -> int:
        """The int32 at `i`."""
        assert i >= 0
        return np.int64(base[i])

    @inlined
    def put8(base: Any, p: int, value: int) -> None:
        """Set the byte at `p`."""
        assert p >= 0
        base[p] = value

    @inlined
    def put32(base: Any, i: int, value: int) -> None:
        """Set the int32 at `i`."""
        assert i >= 0
        base[i] = value

    @inlined
    def get64(base: Any, i: int) -> Any:
        """The uint64 at `i`."""
        assert i >= 0
        return base[i]

    @inlined
    def put64(base: Any, i: int, value: Any) -> None:
        """Set the uint64 at `i`."""
        assert i >= 0
        base[i] = value

else:

    @inlined
    def view(array: Any) -> Any:
        """The form of an array that the functions below take: its address. With arrays, every call would pay for atomic
        reference counts."""
        return array.ctypes.data

    get8, get32, put8, put32 = _get8, raw_get32, _put8, _put32

    @inlined
    def get64(base: Any, i: int) -> Any:
        """The uint64 at `i`."""
        return _word(base, 8 * i)

    @inlined
    def put64(base: Any, i: int, value: Any) -> None:
        """Set the uint64 at `i`."""
        _store(base, 8 * i, value)


@inlined
def wide(value: Any) -> int:
    """Widen an integer to int64, so that kernels are compiled for one width."""
    return np.int64(value)


@inlined
def byte_at(buf: Any, p: int, n: int) -> int:
    """The byte at `p`. At and after the end it is a newline, because the end of the data ends a record."""
    if p < n:
        return get8(buf, p)
    return 10


@helper
def _slow_word(buf: Any, p: int, n: int) -> Any:
    word = np.uint64(0)
    for i in range(min(8, n - p)):
        word |= np.uint64(get8(buf, p + i)) << np.uint64(8 * i)
    return word


@helper
def _slow_match(buf: Any, p: int, n: int, byte: int) -> Any:
    found = np.uint64(0)
    for i in range(min(64, n - p)):
        if get8(buf, p + i) == byte:
            found |= ONE << np.uint64(i)
    return found


@helper
def _slow_stop(buf: Any, p: int, n: int) -> int:
    while p < n:
        c = get8(buf, p)
        if c == 34 or c == 92 or c < 32:
            return p
        p += 1
    return n


if CHECKED:
    word_at = _slow_word

    @inlined
    def match64(buf: Any, p: int, n: int, byte: int) -> Any:
        """A mask of the 64 bytes from `p`: a set bit for each that equals `byte`, none after the end."""
        return _slow_match(buf, p, n, byte)

    @inlined
    def string_stop(buf: Any, p: int, n: int) -> int:
        """The first quote, backslash or control character from `p` on; `n` if there is none."""
        return _slow_stop(buf, p, n)

    @inlined
    def copy_bytes(source: Any, p: int, n: int, target: Any, q: int, room: int, length: int) -> None:
        """Copy `length` bytes."""
        for k in range(length):
            put8(target, q + k, get8(source, p + k))

else:

    @inlined
    def word_at(buf: Any, p: int, n: int) -> Any:
        """Eight bytes from `p`, little-endian; zeros after the end."""
        if p + 8 <= n:
            return _word(buf, p)
        return _slow_word(buf, p, n)

    @inlined
    def match64(buf: Any, p: int, n: int, byte: int) -> Any:
        """A mask of the 64 bytes from `p`: a set bit for each that equals `byte`, none after the end."""
        if p + 64 <= n:
            return _match64(buf, p, np.uint8(byte))
        return _slow_match(buf, p, n, byte)

    @inlined
    def string_stop(buf: Any, p: int, n: int) -> int:
        """The first quote, backslash or control character from `p` on; `n` if there is none."""
        while p + 32 <= n:
            found = _string_stops(buf, p)
            if found != 0:
                return p + trailing_zeros(found)
            p += 32
        return _slow_stop(buf, p, n)

    @inlined
    def copy_bytes(source: Any, p: int, n: int, target: Any, q: int, room: int, length: int) -> None:
        """Copy `length` bytes, as whole words while both sides have room for them (`n` and `room` are their sizes). May
        overwrite up to seven bytes of the target after them."""
        k = 0
        while k < length and p + k + 8 <= n and q + k + 8 <= room:
            _store(target, q + k, _word(source, p + k))
            k += 8
        while k < length:
            put8(target, q + k, get8(source, p + k))
            k += 1


@helper
def find_byte(buf: Any, p: int, n: int, byte: int) -> int:
    """The first position of `byte` from `p` on; `n` if there is none."""
    while p < n:
        found = match64(buf, p, n, byte)
        if found != 0:
            return p + trailing_zeros(found)
        p += 64
    return n


@helper
def count_byte(buf: Any, n: int, byte: int) -> int:
    """How often `byte` occurs."""
    total = 0
    for p in range(0, n, 64):
        total += popcount(match64(buf, p, n, byte))
    return total


@inlined
def digit_run(word: Any) -> int:
    """How many bytes at the beginning of a word are decimal digits."""
    x = word ^ ZEROS
    return trailing_zeros(((x + OVER9) | x) & HIGH) >> 3


@inlined
def same_bytes(buf: Any, p: int, q: int, length: int, n: int) -> bool:
    """True if the `length` bytes at `p` and at `q` are equal. Both ranges are within `n`."""
    k = 0
    while k + 8 <= length:
        if word_at(buf, p + k, n) != word_at(buf, q + k, n):
            return False
        k += 8
    if k < length:
        mask = (ONE << np.uint64(8 * (length - k))) - ONE
        return ((word_at(buf, p + k, n) ^ word_at(buf, q + k, n)) & mask) == 0
    return True
