"""Kernels over bytes and texts, row by row: base 32, keyed digests, similarity."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.exec.kernels.kernel import Kernel, KernelError, per_row

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_BASE32 = {c: i for letters in (_ALPHABET, _ALPHABET.lower()) for i, c in enumerate(letters)}
# Digests of hmac, by their names in Spark.
DIGESTS: dict[str, Callable[..., Any]] = {
    "SHA-224": hashlib.sha224, "SHA-256": hashlib.sha256, "SHA-384": hashlib.sha384, "SHA-512": hashlib.sha512,
    "SHA-1": hashlib.sha1, "MD5": hashlib.md5,
}  # fmt: skip
_MOST_PREFIX = 4


def _to_base32(data: bytes) -> str:
    return base64.b32encode(data).decode()


def _from_base32(text: str) -> bytes:
    """The text ends at the first =. Other characters outside the alphabet are skipped, and so are bits that fill no
    byte."""
    digits = [_BASE32[c] for c in text.partition("=")[0] if c in _BASE32]
    value = 0
    for digit in digits:
        value = value << 5 | digit
    bits = len(digits) * 5
    if len(digits) % 8 == 1:  # of one digit too many, the upper bits and those before them are a byte
        return (value >> 5).to_bytes(bits // 8, "big") + bytes([value >> 2 & 0xFF])
    return (value >> bits % 8).to_bytes(bits // 8, "big")


def _hmac(key: bytes, message: bytes, algorithm: str) -> bytes:
    digest = DIGESTS.get(algorithm.upper())
    if digest is None:
        raise KernelError("INVALID_PARAMETER_VALUE.HMAC_ALGORITHM")
    if not key:
        raise KernelError("INVALID_PARAMETER_VALUE.HMAC_CRYPTO_ERROR")
    return hmac.new(key, message, digest).digest()


def _units(text: str) -> str:
    """Java's characters: those beyond U+FFFF are two."""
    if text.isascii() or max(text) <= "\uffff":
        return text
    data = text.encode("utf-16-be")
    return "".join(chr(data[i] << 8 | data[i + 1]) for i in range(0, len(data), 2))


def _similarity(left: str, right: str) -> float:
    """Jaro-Winkler: a common beginning of up to four characters counts more."""
    if left == right:
        return 1.0
    left, right = _units(left), _units(right)
    reach = max(0, max(len(left), len(right)) // 2 - 1)
    free = [True] * len(right)
    matched, places = [], []
    for i, char in enumerate(left):
        for j in range(max(0, i - reach), min(len(right), i + reach + 1)):
            if free[j] and right[j] == char:
                free[j] = False
                matched.append(char)
                places.append(j)
                break
    if not matched:
        return 0.0
    moved = sum(a != right[j] for a, j in zip(matched, sorted(places), strict=True)) / 2
    count = float(len(matched))
    jaro = (count / len(left) + count / len(right) + (count - moved) / count) / 3.0
    prefix = 0
    for a, b in zip(left[:_MOST_PREFIX], right, strict=False):
        if a != b:
            break
        prefix += 1
    return jaro + prefix * 0.1 * (1.0 - jaro)


_V, _B = "VARCHAR", "BLOB"
KERNELS: tuple[Kernel, ...] = (
    Kernel("hr_to_base32", (_B,), _V, per_row(pa.string(), _to_base32), slow=True),
    Kernel("hr_from_base32", (_V,), _B, per_row(pa.binary(), _from_base32), slow=True),
    Kernel("hr_hmac", (_B, _B, _V), _B, per_row(pa.binary(), _hmac), slow=True),
    Kernel("hr_jaro_winkler", (_V, _V), "DOUBLE", per_row(pa.float64(), _similarity), slow=True),
)
