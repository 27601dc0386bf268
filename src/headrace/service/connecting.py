"""`headrace.connect`: opens a hub in this process, or a client of a hub in another process."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, overload

from headrace.hub.hub import Hub, open_hub
from headrace.model.spark_options import SparkOptions
from headrace.service.server import HubServer
from headrace.state.state_dir import SOCKET_NAME
from headrace.stream.runtime import START_LIMIT_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.service.client import RemoteHub


@overload
def connect(
    state_dir: str | os.PathLike[str] = ".headrace",
    spark: SparkSession | None = None,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    packages: Sequence[str] = (),
    ui: bool = False,
    verbose: bool = False,
    buckets: int | None = None,
    start_timeout: float = START_LIMIT_SECONDS,
    time_zone: str | None = None,
) -> Hub: ...


@overload
def connect(state_dir: str | os.PathLike[str], *, token: str | None) -> RemoteHub: ...


def connect(
    state_dir: str | os.PathLike[str] = ".headrace",
    spark: SparkSession | None = None,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    packages: Sequence[str] = (),
    ui: bool = False,
    verbose: bool = False,
    buckets: int | None = None,
    start_timeout: float = START_LIMIT_SECONDS,
    time_zone: str | None = None,
    token: str | None = None,
) -> Hub | RemoteHub:
    """Open a hub on `state_dir`. Pipelines that were running when it was last closed continue.

    The hub listens on the Unix socket `hub.sock` in the directory, for `headrace sql`, `headrace status` and other
    clients of the same user.

    If `state_dir` is the URL of a running hub (`http://127.0.0.1:8642`) or the path of a hub's socket, this returns a
    client with the same methods. `token` is for clients only; its default is the environment variable HEADRACE_TOKEN.

    `spark` is an existing session. Without it, the first pipeline that runs starts a session on `master` (default
    `local[*]`) with the settings `conf` and the Maven `packages`; `ui` starts Spark's web page, and `verbose` shows
    Spark's log on standard error.

    `buckets` is the number of buckets that hold the groups of a new pipeline (default: the cores of this machine, at
    most 8). A pipeline keeps its number. `start_timeout` is how many seconds `sql` waits until a pipeline's first epoch
    is planned. `time_zone` is the session time zone of all pipelines (default: that of the pipelines in `state_dir`,
    else that of `spark`, else UTC).

    >>> with headrace.connect("state") as own:
    ...     sorted(own.streams)
    []

    A hub that runs in another process:

    >>> with headrace.connect(".headrace/hub.sock") as client:
    ...     sorted(client.pipelines)
    ['by_minute', 'hot', 'warm']
    """
    target = os.fspath(state_dir)
    if target.startswith(("http://", "https://")) or Path(target).name == SOCKET_NAME:
        from headrace.service.client import RemoteHub

        return RemoteHub(target.removesuffix(f"/{SOCKET_NAME}"), token)
    hub = open_hub(
        state_dir,
        spark,
        options=SparkOptions(master=master, conf=dict(conf or {}), packages=tuple(packages), ui=ui, verbose=verbose),
        buckets=buckets,
        start_timeout=start_timeout,
        time_zone=time_zone,
    )
    try:
        hub.on_close(HubServer(hub, hub.directory).close)
    except BaseException:
        hub.close()
        raise
    return hub
