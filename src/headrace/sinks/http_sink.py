"""The http sink: posts rows to a web address, as JSON.

Tasks make the JSON and stage it. The driver sends requests of several rows each, one request at a time. Every request
has the header `Idempotency-Key`, made of the epoch and the number of the request: a receiver that remembers it gets
every row once.

Unit of commit: the epoch. Guarantee: at least once.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from headrace.base.options import boolean, choice, duration, integer, option, prefixed, text
from headrace.errors import BadOption, SinkRefused, SinkUnavailable
from headrace.model.definitions import SinkDef
from headrace.model.schema import Schema
from headrace.sinks.file_sink import FileTask
from headrace.sinks.message_rows import RowMessages
from headrace.sinks.sink_kind import SinkKey, SinkKind
from headrace.sinks.staged_sink import StagedRows, StagedSettings, StagedSink, check_staging, staged_task

if TYPE_CHECKING:
    import httpx

GUARANTEE = "at least once: a request may be sent again, with the same Idempotency-Key"
ATTEMPTS, FIRST_WAIT, LONGEST_WAIT = 5, 0.2, 5.0  # of one request, in seconds; then the sink's own retries begin
REQUEST_BYTES = 4 << 20  # a request ends with the row that reaches this size
_LATER = (408, 425, 429)  # a 4xx that asks for another attempt


def _url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise ValueError("an address such as https://host/path, without a user")
    return value


@dataclass(frozen=True, slots=True)
class HttpSinkSettings(StagedSettings):
    """The options of `type = 'http'`."""

    url: str = option(_url, required=True, help="the address to post to, with http or https")
    body: Literal["lines", "array"] = option(
        choice("lines", "array"),
        default="lines",
        help="lines (default): one JSON object per line (application/x-ndjson); array: a JSON array of objects",
    )
    max_rows: int = option(integer(1, 1_000_000), default=1000, help="rows of one request at most (default 1000)")
    timeout: int = option(duration, default=30 * 10**6, help="how long one request may take (default 30s)")
    token: str | None = option(text, secret=True, help="sent as Authorization: Bearer TOKEN; stored apart, never shown")
    header: dict[str, str] = prefixed(  # noqa: RUF009
        help="further headers, such as header.x-source = 'plant'", hidden=r"auth|token|secret|password|cookie|key"
    )
    ignore_nulls: bool = option(boolean, default=True, help="leave out fields that are NULL (default true)")

    @property
    def rows(self) -> RowMessages:
        return RowMessages("json", self.ignore_nulls)


class HttpTarget:
    """The address that one pipeline's use of a sink posts to."""

    def __init__(self, sink: str, settings: HttpSinkSettings) -> None:
        self._sink, self._settings = sink, settings
        self._client: httpx.Client | None = None
        self._done: tuple[SinkKey | None, int] = (None, 0)  # requests of this epoch that were answered

    def deliver(self, key: SinkKey, rows: StagedRows, count: int) -> None:
        if rows.gone is not None:  # they are deleted when they are delivered
            return
        if self._done[0] != key:
            self._done = (key, 0)
        writer = hashlib.sha256(f"{key.checkpoint}\0{self._sink}".encode()).hexdigest()[:16]
        for number, body in enumerate(self._bodies(rows)):
            if number >= self._done[1]:
                self._post(body, f"{writer}-{key.instance}-{key.epoch}-{number}")
                self._done = (key, number + 1)

    def _bodies(self, rows: StagedRows) -> Iterator[bytes]:
        """The bodies of the requests of an epoch: the same at every attempt."""
        waiting: list[bytes] = []
        size = 0
        for batch in rows.batches():
            values: list[Any] = batch.column("value").to_pylist()
            for value in values:
                waiting.append(value)
                size += len(value)
                if len(waiting) >= self._settings.max_rows or size >= REQUEST_BYTES:
                    yield self._body(waiting)
                    waiting, size = [], 0
        if waiting:
            yield self._body(waiting)

    def _body(self, values: list[bytes]) -> bytes:
        if self._settings.body == "array":
            return b"[" + b",\n".join(values) + b"]\n"
        return b"\n".join(values) + b"\n"

    def _post(self, body: bytes, key: str) -> None:
        """Send a request until it is answered with success. Raises SinkRefused, or SinkUnavailable after the last
        attempt."""
        import httpx  # takes 0.1 s to import, which scripts without this sink save

        wait, problem = FIRST_WAIT, ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(wait)
                wait = min(LONGEST_WAIT, 2 * wait)
            try:
                answer = self._connected().post(
                    self._settings.url, content=body, headers={"Idempotency-Key": key, **self._headers}
                )
            except httpx.TransportError as failure:
                self.close()
                problem = str(failure) or type(failure).__name__
                continue
            if answer.is_success:
                return
            problem = f"the server answers {answer.status_code} {answer.reason_phrase}"
            if answer.status_code < 500 and answer.status_code not in _LATER:
                raise SinkRefused(
                    f"sink {self._sink} cannot post to {self._settings.url}: {problem}: {answer.text[:200]}",
                    advice="Correct the address, the token or the rows, and start the pipeline again: the sink sends "
                    "the refused epoch first.",
                    sink=self._sink,
                    status=answer.status_code,
                )
        raise SinkUnavailable(
            f"sink {self._sink} cannot post to {self._settings.url}: {problem}",
            advice="The stream continues by itself when the server answers, and nothing is lost. STOP PIPELINE ... NOW "
            "or DROP PIPELINE lets the other pipelines continue without it.",
            sink=self._sink,
        )

    @property
    def _headers(self) -> dict[str, str]:
        kind = "application/json" if self._settings.body == "array" else "application/x-ndjson"
        token = {"Authorization": f"Bearer {self._settings.token}"} if self._settings.token else {}
        return {"Content-Type": kind, **token, **self._settings.header}

    def _connected(self) -> httpx.Client:
        import httpx

        if self._client is None:
            self._client = httpx.Client(timeout=self._settings.timeout / 1e6, trust_env=False)
        return self._client

    def ahead(self, key: SinkKey) -> int:
        return 0  # the receiver does not report it

    def rewind(self, key: SinkKey) -> None:
        """Nothing: requests cannot be taken back, and at least once allows them to come again."""

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def _check(settings: HttpSinkSettings) -> None:
    import httpx

    check_staging(settings)
    try:
        httpx.Headers(settings.header).raw  # noqa: B018
        "\n".join([*settings.header, *settings.header.values(), settings.token or ""]).encode("ascii")
    except (UnicodeError, ValueError) as problem:
        raise BadOption(
            f"a header of sink 'http' cannot be sent: {problem}", advice="Use ASCII.", option="header"
        ) from None


def _task(sink: SinkDef, settings: HttpSinkSettings) -> FileTask:
    return staged_task(sink.name, settings, settings.rows.prepared)


def _driver(sink: SinkDef, settings: HttpSinkSettings, output: Schema) -> StagedSink:
    return StagedSink(Path(settings.staging), sink.name, GUARANTEE, HttpTarget(sink.name, settings))


HTTP_SINK = SinkKind(
    name="http",
    help="posts rows to a web address",
    guarantee=GUARANTEE,
    settings=HttpSinkSettings,
    make_task=_task,
    make_driver=_driver,
    check_settings=_check,
    paths=("staging",),
)
