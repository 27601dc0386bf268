"""The reader of HTTP requests: however the bytes are cut, the same requests; and what it may hold and do at once."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ingress import requests
from headrace.ingress.requests import BodyStep, Refused, RequestReader

Read = tuple[bytes, int | None, bool, bytes]
CHUNKED = b"POST /ingest/s HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


def read(pieces: list[bytes]) -> list[Read | str]:
    """The requests in the bytes, and the code of the refusal that ends them."""
    reader = RequestReader()
    found: list[Read | str] = []
    head, body = None, bytearray()
    for piece in pieces:
        reader.feed(piece)
        try:
            while True:
                head = head or reader.head()
                if head is None:
                    break
                step = reader.body(body)
                if step is BodyStep.HUNGRY:
                    break
                if step is BodyStep.END:
                    found.append((head.target, head.length, head.keep_alive, bytes(body)))
                    head, body = None, bytearray()
        except Refused as refused:
            return [*found, refused.refusal.code]
    return found


SOME = (
    b"POST /a HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"
    b"\r\nPOST /b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nX: y\r\nZ: \r\n\r\n"
    b"GET /c HTTP/1.1\r\n\r\n"
    b"POST /d HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\n{}\n"
    b"POST /e HTTP/1.0\r\nContent-Length: 1\r\n\r\n1"
)
WANTED = [
    (b"/a", 5, True, b"hello"),
    (b"/b", -1, True, b"abc0123456789"),
    (b"/c", None, True, b""),
    (b"/d", 3, True, b"{}\n"),
    (b"/e", 1, False, b"1"),
]


@given(st.lists(st.integers(0, len(SOME)), max_size=12))
def test_requests_are_the_same_however_they_are_cut(places: list[int]) -> None:
    cuts = sorted({0, len(SOME), *places})
    assert read([SOME[a:b] for a, b in itertools.pairwise(cuts)]) == WANTED


def test_requests_come_byte_by_byte() -> None:
    assert read([SOME[i : i + 1] for i in range(len(SOME))]) == WANTED


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", "BAD_REQUEST"),
        (b"POST / HTTP/1.1\r\nContent-Length: 5, 5\r\n\r\n", "BAD_REQUEST"),
        (b"POST / HTTP/1.1\r\nContent-Length: +5\r\n\r\n", "BAD_REQUEST"),
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "BAD_REQUEST"),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "BAD_REQUEST"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "UNSUPPORTED_TRANSFER"),
        (b"POST / HTTP/1.1\r\nX: a\n\nPOST / HTTP/1.1\r\n\r\n", "BAD_REQUEST"),
        (b"POST / HTTP/1.1\r\nX: a\r\n b: c\r\n\r\n", "BAD_REQUEST"),
        (b"POST / HTTP/1.1\n\n", "BAD_REQUEST"),
        (b"\r\n\r\nPOST / HTTP/1.1\r\n\r\n", "BAD_REQUEST"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "BAD_REQUEST"),  # TLS, which is not waited for
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "BAD_REQUEST"),
        (b"POST / HTTP/1.1\r\nX: " + b"y" * 20_000, "HEADERS_TOO_LARGE"),
        (b"POST / HTTP/1.1\r\nX: " + b"y" * 20_000 + b"\r\n\r\n", "HEADERS_TOO_LARGE"),
        (CHUNKED + b"0\r\nX: " + b"y" * 20_000, "HEADERS_TOO_LARGE"),
        (CHUNKED + b"0\r\n" + b"X: y\r\n" * 5_000, "HEADERS_TOO_LARGE"),
        (CHUNKED + b"1;" + b"y" * 300, "BAD_REQUEST"),
        (CHUNKED + b"1_0\r\n", "BAD_REQUEST"),
        (CHUNKED + b"0x1\r\n", "BAD_REQUEST"),
        (CHUNKED + b"fffffffff\r\n", "BAD_REQUEST"),
        (CHUNKED + b"2\r\nabc\r\n", "BAD_REQUEST"),
        (CHUNKED + b"2\nab\n0\n\n", "BAD_REQUEST"),
    ],
)
def test_what_could_be_understood_in_two_ways_or_has_no_end_is_refused(text: bytes, code: str) -> None:
    assert read([text + b" " * 300])[-1] == code
    assert read([text[i : i + 7] for i in range(0, len(text), 7)] + [b" " * 300])[-1] == code


def test_a_call_reads_so_many_chunks_and_no_more() -> None:
    reader = RequestReader()
    count = 3 * requests.CHUNKS_PER_CALL + 10
    reader.feed(CHUNKED + b"2\r\nab\r\n" * count + b"0\r\n\r\n")
    assert reader.head() is not None
    body = bytearray()
    steps: list[BodyStep] = []
    while not steps or steps[-1] is BodyStep.BUSY:
        steps.append(reader.body(body))
        assert len(body) <= 2 * requests.CHUNKS_PER_CALL * len(steps)
    assert steps == [BodyStep.BUSY] * 3 + [BodyStep.END]
    assert body == b"ab" * count


def test_a_head_that_comes_in_small_pieces_is_searched_once() -> None:
    reader = RequestReader()
    head = b"POST / HTTP/1.1\r\nX: " + b"y" * 10_000
    for i in range(len(head)):
        reader.feed(head[i : i + 1])
        assert reader.head() is None
        assert reader._scanned == i + 1
