"""Decompresses request bodies in separate threads, because any client can send a body that takes seconds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from headrace.formats.codecs import CODECS, DecompressedTooLong, decompress
from headrace.ingress import refusals
from headrace.ingress.refusals import Refusal

ENCODINGS = {codec.encode(): codec for codec in CODECS} | {b"x-gzip": "gzip"}  # by Content-Encoding
# Not the default threads of the event loop: fsync uses those and must not wait.
DECOMPRESSORS = ThreadPoolExecutor(2, "headrace-decompress")
# Python handles the chunks of snappy's framing format, 8 microseconds each: 8 MiB of empty chunks took 16 seconds.
SMALLEST_CHUNK = 64  # bytes, on average


def unpack(body: bytearray, codec: str, most: int) -> bytes | Refusal:
    """The decompressed body, or the reason to refuse it. Never raises."""
    if codec == "snappy" and _crumbled(body):
        return refusals.BODY_DAMAGED
    try:
        return decompress(bytes(body), codec, "the body", most)
    except DecompressedTooLong:
        return refusals.BODY_TOO_LARGE
    except MemoryError:
        return refusals.OVERLOADED
    except Exception:  # DamagedStream, or a library that fails in its own way
        return refusals.BODY_DAMAGED


def _crumbled(body: bytearray) -> bool:
    """True if a body in snappy's framing format has very many tiny chunks, each of which costs Python time."""
    if body[:1] != b"\xff":
        return False  # one raw block
    at = 0
    for _ in range(1000 + len(body) // SMALLEST_CHUNK):
        at += 4 + int.from_bytes(body[at + 1 : at + 4], "little")
        if at >= len(body):
            return False
    return True
