"""The HTTP responses of the gateway: success, and each reason to refuse a request.

The response to a refused request has a JSON body, `{"code": ..., "message": ..., "advice": ...}`. The codes are listed
in docs/ingress.md."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason to refuse a request. `header` is an extra header line of the response."""

    status: HTTPStatus
    code: str
    message: str
    advice: str
    header: str = ""

    def answer(self, last: bool, bodiless: bool = False) -> bytes:
        """The bytes of the response. `last` announces that the connection closes. `bodiless` is for HEAD requests."""
        text = {"code": self.code, "message": self.message, "advice": self.advice}
        body = (json.dumps(text) + "\n").encode()
        lines = [
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            *([self.header] if self.header else []),
            *(["Connection: close"] if last else []),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode() + (b"" if bodiless else body)


NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"
NO_CONTENT_LAST = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

BAD_REQUEST = Refusal(
    HTTPStatus.BAD_REQUEST,
    "BAD_REQUEST",
    "this is not a valid HTTP/1.1 request",
    "Send POST /ingest/{stream} with HTTP/1.1, without TLS; end lines with CRLF; give one length for the body.",
)
BODY_DAMAGED = Refusal(
    HTTPStatus.BAD_REQUEST,
    "BODY_DAMAGED",
    "the body does not decompress",
    "Compress the whole body with the codec that Content-Encoding names, or omit Content-Encoding.",
)
UNAUTHORIZED = Refusal(
    status=HTTPStatus.UNAUTHORIZED,
    code="UNAUTHORIZED",
    message="the request lacks the token of the stream",
    advice="Send the header Authorization: Bearer TOKEN with the stream's option token.",
    header="WWW-Authenticate: Bearer",
)
UNKNOWN_STREAM = Refusal(
    HTTPStatus.NOT_FOUND,
    "UNKNOWN_STREAM",
    "no stream takes requests at this address and path",
    "Send POST /ingest/{stream}; DESCRIBE STREAM shows a stream's address.",
)
METHOD_NOT_ALLOWED = Refusal(
    status=HTTPStatus.METHOD_NOT_ALLOWED,
    code="METHOD_NOT_ALLOWED",
    message="only POST is allowed here",
    advice="Send the records as the body of a POST.",
    header="Allow: POST",
)
REQUEST_TIMEOUT = Refusal(
    HTTPStatus.REQUEST_TIMEOUT,
    "REQUEST_TIMEOUT",
    "the request did not arrive in time",
    "Send it again, faster or in smaller requests; the limit is the stream's option request_timeout.",
)
LENGTH_REQUIRED = Refusal(
    HTTPStatus.LENGTH_REQUIRED,
    "LENGTH_REQUIRED",
    "the request does not say how long its body is",
    "Send Content-Length or Transfer-Encoding: chunked.",
)
BODY_TOO_LARGE = Refusal(
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "BODY_TOO_LARGE",
    "the body is too large, compressed or decompressed",
    "Send fewer records in a request; the limit is the stream's option max_request_bytes.",
)
UNSUPPORTED_ENCODING = Refusal(
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    "UNSUPPORTED_ENCODING",
    "the Content-Encoding is unknown, or there are several",
    "Compress once, with gzip, zstd, lz4, snappy or bzip2, or not at all.",
)
EXPECTATION_FAILED = Refusal(
    HTTPStatus.EXPECTATION_FAILED,
    "EXPECTATION_FAILED",
    "the only supported expectation is 100-continue",
    "Omit the header Expect.",
)
OVERLOADED = Refusal(
    status=HTTPStatus.TOO_MANY_REQUESTS,
    code="OVERLOADED",
    message="there is no space for the body now",
    advice="Send it again after a second: pipelines are too slow, or the disk is full. DESCRIBE STREAM shows which.",
    header="Retry-After: 1",
)
HEADERS_TOO_LARGE = Refusal(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    "HEADERS_TOO_LARGE",
    "the headers or trailers exceed 16 KiB",
    "Send fewer headers.",
)
UNSUPPORTED_TRANSFER = Refusal(
    HTTPStatus.NOT_IMPLEMENTED,
    "UNSUPPORTED_TRANSFER",
    "the only supported transfer coding is chunked",
    "Send Transfer-Encoding: chunked or Content-Length; name the compression in Content-Encoding.",
)
TOO_MANY_CONNECTIONS = Refusal(
    status=HTTPStatus.SERVICE_UNAVAILABLE,
    code="TOO_MANY_CONNECTIONS",
    message="too many connections send to this stream",
    advice="Use fewer connections; the limit is the stream's option max_connections.",
    header="Retry-After: 1",
)
