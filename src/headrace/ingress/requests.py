"""Parses HTTP/1.1 requests with bounded memory and time. No I/O.

llhttp (httptools) parses only complete heads of at most 16 KiB. Given parts, it would keep an endless header or trailer
and copy it for every part; it also discards the body of a request that offers an upgrade. This module finds the end of
a body itself, strictly: by one Content-Length, or by chunks. It refuses everything that two parsers could understand
differently (request smuggling). It ignores an offered upgrade, as RFC 9110 (7.8) allows."""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

import httptools

from headrace.ingress import refusals
from headrace.ingress.refusals import Refusal

MAX_HEAD_BYTES = 16 << 10
MAX_TRAILER_BYTES = 16 << 10
MAX_CHUNK_LINE = 256
# Chunks that one call of `body` reads: about a millisecond of work for chunks of one or two bytes.
CHUNKS_PER_CALL = 1000
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,8})(?:[ \t]*;[^\r\n]{0,240})?\r\n")
_CHUNKED = -1
_WANTED = frozenset((b"authorization", b"content-encoding", b"content-length", b"expect", b"transfer-encoding"))


class Refused(Exception):
    """The bytes are not valid requests, and the connection cannot continue."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.code)
        self.refusal = refusal


class RequestHead(NamedTuple):
    """The parts of a request's head that the gateway needs. `length` is the length of the body: None if the head does
    not say, -1 for chunks. Encodings (other than identity) and expectations are in lower case."""

    method: bytes
    target: bytes
    length: int | None
    authorization: list[bytes]
    encodings: list[bytes]
    expectations: list[bytes]
    keep_alive: bool


class BodyStep(Enum):
    """Where `body` stopped."""

    HUNGRY = "more bytes must come"
    BUSY = "enough for one call; call again"
    END = "the body is complete"


class _HeaderFields:
    """The headers of one head that matter here, by lower-case name. llhttp calls the `on_` methods."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: dict[bytes, list[bytes]] = {}
        self.keep_alive = self.complete = False
        self.parser = httptools.HttpRequestParser(self)

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        lowered = name.lower()
        if lowered in _WANTED:
            self.headers.setdefault(lowered, []).append(value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        self.complete = True
        self.keep_alive = self.parser.should_keep_alive()

    def all(self, name: bytes) -> list[bytes]:
        return self.headers.get(name, [])

    def listed(self, name: bytes) -> list[bytes]:
        """The members of a list header, in lower case."""
        if name not in self.headers:
            return []
        return [part.strip(b" \t").lower() for part in b",".join(self.headers[name]).split(b",")]


class RequestReader:
    """Reads the requests of one connection: `feed` it bytes, call `head` until it returns one, then `body` until its
    end. Holds at most one head and the bytes of the last `feed`. Do not use it after Refused."""

    def __init__(self) -> None:
        self._data: bytes = b""
        self._at = 0
        self._scanned = 0  # no head ends before this
        self._skipped = False  # an empty line before the request
        self._left = 0  # missing bytes of the body or of the chunk
        self._chunked = self._ended_chunk = False
        self._trailer: int | None = None  # bytes of trailers so far
        self._in_body = False
        self.moved = 0  # bytes of this body so far

    @property
    def begun(self) -> bool:
        """True if part of a request has arrived."""
        return self._in_body or self._at < len(self._data)

    def feed(self, data: bytes) -> None:
        """More bytes of the connection."""
        rest = len(self._data) - self._at
        if rest:
            self._data = self._data[self._at :] + data
            self._scanned = max(0, self._scanned - self._at)
        else:
            self._data, self._scanned = data, 0
        self._at = 0

    # --- heads ------------------------------------------------------------------------------------

    def head(self) -> RequestHead | None:
        """The head of the next request, or None until it is complete. Raises Refused."""
        data = self._data
        if not self._skipped and data.startswith(b"\r\n", self._at):  # RFC 9112, 2.2: one empty line is ignored
            self._at += 2
            self._skipped = True
        at = self._at
        end = data.find(b"\r\n\r\n", max(at, self._scanned - 3))
        if end < 0:
            self._scanned = len(data)
            self._doubt(at)
            return None
        if end + 4 - at > MAX_HEAD_BYTES:
            raise Refused(refusals.HEADERS_TOO_LARGE)
        text = data[at : end + 4]
        self._at, self._skipped = end + 4, False
        return self._begin(_parse(text))

    def _doubt(self, at: int) -> None:
        """Refuse bytes that cannot become a head, instead of waiting for its end."""
        data = self._data
        if len(data) - at > MAX_HEAD_BYTES:
            raise Refused(refusals.HEADERS_TOO_LARGE)
        newline = data.find(b"\n", at)
        alone = newline >= 0 and (newline == at or data[newline - 1] != 13)
        if alone or (len(data) > at and not (65 <= data[at] <= 90) and data[at:] != b"\r"):
            raise Refused(refusals.BAD_REQUEST)

    def _begin(self, fields: _HeaderFields) -> RequestHead:
        """Find out where the body ends."""
        transfer, lengths = fields.listed(b"transfer-encoding"), fields.all(b"content-length")
        modern = fields.parser.get_http_version() == "1.1"
        length: int | None = None
        if transfer:
            if lengths or not modern:
                raise Refused(refusals.BAD_REQUEST)
            if transfer != [b"chunked"]:
                raise Refused(refusals.UNSUPPORTED_TRANSFER)
            length = _CHUNKED
        elif lengths:
            if len(lengths) > 1 or not lengths[0].isdigit() or len(lengths[0]) > 18:
                raise Refused(refusals.BAD_REQUEST)
            length = int(lengths[0])
        self._in_body = True
        self._chunked, self._ended_chunk, self._trailer = length == _CHUNKED, False, None
        self._left, self.moved = max(0, length or 0), 0
        return RequestHead(
            method=fields.parser.get_method(),
            target=fields.url,
            length=length,
            authorization=fields.all(b"authorization"),
            encodings=[name for name in fields.listed(b"content-encoding") if name != b"identity"],
            expectations=fields.listed(b"expect") if modern else [],
            keep_alive=fields.keep_alive,
        )

    # --- bodies -----------------------------------------------------------------------------------

    def body(self, into: bytearray | None) -> BodyStep:
        """Move the bytes of the body that have arrived to `into`, or discard them if that is None. Raises Refused."""
        if self._chunked:
            step = self._chunks(into)
        else:
            self._move(into)
            step = BodyStep.HUNGRY if self._left else BodyStep.END
        if step is BodyStep.END:
            self._in_body = False
        return step

    def _move(self, into: bytearray | None) -> None:
        count = min(self._left, len(self._data) - self._at)
        if into is not None and count:
            into += memoryview(self._data)[self._at : self._at + count]
        self._at += count
        self._left -= count
        self.moved += count

    def _chunks(self, into: bytearray | None) -> BodyStep:
        for _ in range(CHUNKS_PER_CALL):
            if self._trailer is not None:
                return self._trailers()
            if self._left:
                self._move(into)
                if self._left:
                    return BodyStep.HUNGRY
                self._ended_chunk = True
            if self._ended_chunk:
                if len(self._data) - self._at < 2:
                    return BodyStep.HUNGRY
                if not self._data.startswith(b"\r\n", self._at):
                    raise Refused(refusals.BAD_REQUEST)
                self._at += 2
                self._ended_chunk = False
            size = _CHUNK_LINE.match(self._data, self._at)
            if size is None:
                if self._line(MAX_CHUNK_LINE, refusals.BAD_REQUEST) is not None:
                    raise Refused(refusals.BAD_REQUEST)
                return BodyStep.HUNGRY
            self._at = size.end()
            self._left = int(size[1], 16)
            if not self._left:
                self._trailer = 0
        return BodyStep.BUSY

    def _trailers(self) -> BodyStep:
        """Skip the trailers, which have no meaning here."""
        for _ in range(CHUNKS_PER_CALL):
            assert self._trailer is not None
            line = self._line(MAX_TRAILER_BYTES - self._trailer, refusals.HEADERS_TOO_LARGE)
            if line is None:
                return BodyStep.HUNGRY
            if not line:
                return BodyStep.END
            self._trailer += len(line) + 2
        return BodyStep.BUSY

    def _line(self, most: int, refusal: Refusal) -> bytes | None:
        """A line without its CRLF, or None until it is complete."""
        end = self._data.find(b"\r\n", self._at, self._at + most + 2)
        if end < 0:
            if len(self._data) - self._at > most + 1:
                raise Refused(refusal)
            return None
        line = self._data[self._at : end]
        self._at = end + 2
        return line


def _parse(text: bytes) -> _HeaderFields:
    """The fields of a complete head. Raises Refused."""
    fields = _HeaderFields()
    # llhttp accepts some single CRs and LFs as line ends. It could then see another end of the head than this module.
    if not text.count(b"\r") == text.count(b"\n") == text.count(b"\r\n"):
        raise Refused(refusals.BAD_REQUEST)
    try:
        fields.parser.feed_data(text)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError:
        raise Refused(refusals.BAD_REQUEST) from None
    if not fields.complete:
        raise Refused(refusals.BAD_REQUEST)
    return fields
