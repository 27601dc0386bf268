"""A client of a running hub, over its Unix socket or HTTP. It has the same methods as a hub in this process.

with headrace.connect("http://127.0.0.1:8642", token="...") as hub:
    hub.sql("CREATE PIPELINE ...")
    hub.pipelines["hot"].results()
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import pyarrow as pa

from headrace.errors import HubUnreachable, PipelineFailed, StreamFailed
from headrace.hub.objects import PySparkNames
from headrace.hub.results import Result
from headrace.model.status import (
    ALIVE,
    PipelineStatus,
    SinkTotals,
    StreamStatus,
    StreamTotals,
)
from headrace.service.decoding import decode_error, decode_result, decode_status
from headrace.service.server import SocketPath
from headrace.state.state_dir import SOCKET_NAME

ARROW = "application/vnd.apache.arrow.stream"
_T = TypeVar("_T")
# A statement may wait for an epoch. The first one may also wait until Spark has started.
_TIMEOUT = httpx.Timeout(600.0, connect=5.0)


class RemoteHub:
    """A hub that another process owns. Raises the same errors as a local hub. Several threads may use it.

    >>> with headrace.connect(".headrace/hub.sock") as client:
    ...     client.pipelines["hot"].status().rows_out
    37
    """

    def __init__(self, target: str | os.PathLike[str], token: str | None = None) -> None:
        """`target` is a URL or a state directory that a running hub owns. Raises HubUnreachable if no hub answers."""
        text = os.fspath(target)
        self._socket: SocketPath | None = None
        token = token or os.environ.get("HEADRACE_TOKEN")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if text.startswith(("http://", "https://")):
            self.address = text.rstrip("/")
            self._http = httpx.Client(base_url=self.address, headers=headers, timeout=_TIMEOUT, trust_env=False)
        else:
            self.address = str(Path(text) / SOCKET_NAME)
            self._socket = self._reach(Path(text))
            transport = httpx.HTTPTransport(uds=self._socket.path)
            self._http = httpx.Client(base_url="http://localhost", transport=transport, timeout=_TIMEOUT)
        try:
            self._request("GET", "/health")
        except BaseException:
            self.close()
            raise

    def _reach(self, directory: Path) -> SocketPath:
        """The socket of a state directory. Raises HubUnreachable unless a hub listens there."""
        try:
            found = SocketPath(directory)
        except OSError as problem:
            raise self._unreachable(str(problem.strerror or problem)) from None
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(found.path)
        except OSError as problem:
            found.close()
            raise self._unreachable(str(problem.strerror or problem)) from None
        return found

    def _unreachable(self, why: str) -> HubUnreachable:
        return HubUnreachable(
            f"no hub answers at {self.address}: {why}",
            advice="Start one with headrace serve or headrace run, and check the address.",
            address=self.address,
        )

    def sql(self, text: str) -> list[Result]:
        """Run a script: all of its statements take effect, or none. Returns one result per statement.

        >>> remote.sql("CREATE SINK spare WITH (type = 'noop'); DROP SINK spare")
        [created sink spare, dropped sink spare]
        """
        found = self._json("POST", "/api/v1/sql", json={"text": text}, params={"limit": 10_000, "arrow": "true"})
        return [decode_result(r) for r in found["results"]]

    def validate(self, text: str) -> int:
        """Plan a script without running it. Returns the number of statements. Raises the same errors as `sql`.

        >>> remote.validate("CREATE SINK spare WITH (type = 'noop'); DROP SINK spare")
        2
        """
        return int(self._json("POST", "/api/v1/validate", json={"text": text})["statements"])

    def explain(self, text: str, mode: str = "plain") -> str:
        """EXPLAIN a query or CREATE PIPELINE: its plan, and how adding it would change the stream.

        >>> print(remote.explain("SELECT device, hum FROM sensors WHERE hum > 60"))
        query
        reads: stream sensors (files, json), 2 of its 4 columns: device, hum
        ...
        """
        return str(self._json("POST", "/api/v1/explain", json={"text": text}, params={"mode": mode})["text"])

    @property
    def streams(self) -> dict[str, RemoteStream]:
        """The declared streams, by name.

        >>> remote.streams
        {'sensors': Stream(sensors)}
        """
        return {s["name"]: RemoteStream(self, s["name"]) for s in self._json("GET", "/api/v1/streams")}

    @property
    def pipelines(self) -> dict[str, RemotePipeline]:
        """The declared pipelines, by name.

        >>> remote.pipelines["hot"]
        Pipeline(hot)
        """
        return {p["name"]: RemotePipeline(self, p["name"]) for p in self._json("GET", "/api/v1/pipelines")}

    def savepoint(self, name: str, stream: str | None = None) -> Path:
        """Take a savepoint of one stream, or of all. Returns its path on the hub's machine.

        >>> remote.savepoint("from-a-client").name
        'from-a-client'
        """
        return Path(self._json("POST", "/api/v1/savepoints", json={"name": name, "stream": stream})["path"])

    def savepoints(self) -> list[Path]:
        """The savepoints in the hub's state directory, sorted by name, as paths on the hub's machine.

        >>> _ = remote.savepoint("tuesday")
        >>> "tuesday" in [path.name for path in remote.savepoints()]
        True
        """
        return [Path(s["path"]) for s in self._json("GET", "/api/v1/savepoints")]

    def _repr_html_(self) -> str:
        return "".join(result._repr_html_() for result in self.sql("SHOW STREAMS; SHOW PIPELINES"))

    def events(self, last: int | None = None) -> Iterator[dict[str, Any]]:
        """Samples of all statuses, one per second, without end.

        >>> sorted(next(remote.events()))
        ['at', 'id', 'pipelines', 'streams']
        """
        headers = {"Last-Event-ID": str(last)} if last is not None else {}
        with self._http.stream("GET", "/api/v1/events", headers=headers) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))

    def close(self) -> None:
        """Close the connection. The hub keeps running.

        >>> client = headrace.connect(".headrace/hub.sock")
        >>> client.close()
        """
        self._http.close()
        if self._socket is not None:
            self._socket.close()

    def __enter__(self) -> RemoteHub:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RemoteHub({self.address})"

    # --- requests ---------------------------------------------------------------------------------

    def _json(self, method: str, path: str, **arguments: Any) -> Any:
        return self._request(method, path, **arguments).json()

    def _table(self, path: str, parameters: dict[str, str]) -> pa.Table:
        answer = self._request("GET", path, params={"limit": 10_000, **parameters}, headers={"Accept": ARROW})
        return pa.ipc.open_stream(answer.content).read_all()

    def _request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **arguments)
        except (httpx.ConnectError, httpx.ConnectTimeout) as problem:
            raise self._unreachable(str(problem)) from None
        except httpx.TransportError as problem:
            raise HubUnreachable(
                f"the connection to the hub at {self.address} broke: {problem or type(problem).__name__}",
                advice="The statement may have taken effect. Check before you send it again.",
                address=self.address,
            ) from None
        if answer.status_code >= 400 and "problem+json" in answer.headers.get("content-type", ""):
            raise decode_error(answer.json())
        if answer.status_code >= 400:
            raise HubUnreachable(
                f"{self.address} answered {answer.status_code}; it may not be a headrace hub",
                advice="Check the address.",
                address=self.address,
            )
        return answer


class RemoteStream:
    """A stream of a remote hub.

    >>> remote.streams["sensors"].name
    'sensors'
    """

    def __init__(self, hub: RemoteHub, name: str) -> None:
        self._hub, self.name = hub, name
        self._path = f"/api/v1/streams/{quote(name, safe='')}"

    def status(self) -> StreamStatus:
        """State, counters and watermark of the stream.

        >>> remote.streams["sensors"].status().rows
        600
        """
        return decode_status(StreamStatus, self._hub._json("GET", self._path)["status"])

    def addresses(self) -> list[str]:
        """The addresses that a pushed stream listens on now.

        >>> remote.streams["sensors"].addresses()
        []
        """
        return list(self._hub._json("GET", self._path)["addresses"])

    def ingress(self) -> dict[str, Any]:
        """The gateway's counters of a pushed stream; empty for other streams, and while the stream does not run.

        >>> remote.streams["sensors"].ingress()
        {}
        """
        return dict(self._hub._json("GET", f"{self._path}/ingress"))

    def totals(self) -> StreamTotals:
        """Totals of epochs, phases and sinks since the hub was opened.

        >>> remote.streams["sensors"].totals().sinks["alarms"].rows
        37
        """
        found = self._hub._json("GET", self._path)["totals"]
        return StreamTotals(**found | {"sinks": {name: SinkTotals(**s) for name, s in found["sinks"].items()}})

    def sync(self, timeout: float = 60.0) -> int:
        """Wait until every row read before the call is in the sinks. Returns the epoch.

        >>> remote.streams["sensors"].sync() > 0
        True
        """
        return int(self._hub._json("POST", f"{self._path}/sync", params={"timeout": timeout})["epoch"])

    def flush(self, timeout: float = 60.0) -> int:
        """Wait until all data that the sinks and the gateway have received is durable. Returns the newest epoch.

        >>> remote.streams["sensors"].flush() >= 0
        True
        """
        return int(self._hub._json("POST", f"{self._path}/flush", params={"timeout": timeout})["epoch"])

    def ping(self) -> int:
        """Ask the committer for its newest epoch. Does not wait for rows.

        >>> remote.streams["sensors"].ping() >= 0
        True
        """
        return int(self._hub._json("POST", f"{self._path}/ping")["epoch"])

    def dead_letters(self) -> pa.Table:
        """The newest rejected records. The stream's `dead_letter_sink` must be a memory sink.

        >>> remote.streams["sensors"].dead_letters()
        Traceback (most recent call last):
        headrace.errors.UnknownSink: [UNKNOWN_SINK] the dead letters of stream sensors are in no memory sink ...
        """
        return self._hub._table(f"{self._path}/dead-letters", {})

    def _repr_html_(self) -> str:
        return self.status()._repr_html_()

    def __repr__(self) -> str:
        return f"Stream({self.name})"


class RemotePipeline(PySparkNames):
    """A pipeline of a remote hub.

    >>> remote.pipelines["hot"].name
    'hot'
    """

    def __init__(self, hub: RemoteHub, name: str) -> None:
        self._hub, self.name = hub, name
        self._path = f"/api/v1/pipelines/{quote(name, safe='')}"

    @property
    def sql(self) -> str:
        """The statement that created it.

        >>> print(remote.pipelines["warm"].sql)
        CREATE PIPELINE warm INTO kept AS SELECT device, temp FROM sensors WHERE temp > 25
        """
        return str(self._hub._json("GET", self._path)["sql"])

    def status(self) -> PipelineStatus:
        """Its state and counters.

        >>> remote.pipelines["by_minute"].status().groups
        4
        """
        return decode_status(PipelineStatus, self._hub._json("GET", self._path)["status"])

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the pipeline no longer runs. Returns False if it still runs after `timeout` seconds. Raises
        PipelineFailed, and StreamFailed if its stream is dead.

        >>> remote.pipelines["hot"].wait(timeout=0.1)
        False
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            status = self.status()
            if status.state == "failed":
                raise PipelineFailed(f"pipeline {self.name} failed: {status.error}", name=self.name)
            if status.state == "dead":
                raise StreamFailed(f"stream {status.stream} is dead: {status.error}", stream=status.stream)
            if status.state not in ALIVE:
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(0.2)

    def start(self) -> None:
        """Start the pipeline again.

        >>> remote.pipelines["hot"].stop()
        >>> remote.pipelines["hot"].start()
        """
        self._hub._request("POST", f"{self._path}/start")

    def stop(self, *, close_windows: bool = False, now: bool = False) -> None:
        """Stop the pipeline: see `headrace.hub.objects.Pipeline.stop`.

        >>> remote.pipelines["hot"].stop()
        >>> remote.pipelines["hot"].status().state
        'stopped'
        >>> remote.pipelines["hot"].start()
        """
        mode = "now" if now else "graceful"
        self._hub._request("POST", f"{self._path}/stop", params={"mode": mode, "close_windows": close_windows})

    def results(self, sink: str | None = None) -> pa.Table:
        """The newest rows of its memory sink as an Arrow table.

        >>> remote.pipelines["warm"].results().num_rows
        166
        """
        return self._hub._table(f"{self._path}/results", {"sink": sink} if sink else {})

    def _plan(self) -> str:
        return str(self._hub._json("GET", f"{self._path}/explain")["text"])

    def _repr_html_(self) -> str:
        return self.status()._repr_html_()

    def __repr__(self) -> str:
        return f"Pipeline({self.name})"
