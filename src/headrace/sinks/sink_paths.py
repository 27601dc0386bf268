"""The places of a file sink: its options, the names of its files, and what an error of the file system means."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace.base.options import option, text
from headrace.errors import (
    SinkFailed,
    SinkUnavailable,
    StoreDenied,
    StoreFailed,
    StoreUnreachable,
    UnknownBucket,
    UnwritablePath,
)
from headrace.model.schema import Schema
from headrace.sinks.outputs import FileOutput
from headrace.sinks.partitions import check_partitions, column_names
from headrace.sinks.sink_kind import SinkKey, SinkSettings
from headrace.stores.object_store import ObjectStore
from headrace.stores.store_options import (
    StoreAccess,
    access_key_option,
    check_access,
    endpoint_option,
    is_remote,
    region_option,
    secret_key_option,
    session_token_option,
)

# A full disk, or a network file system that does not answer: errors that may go away by themselves. Wrong permissions,
# or a path that is not a directory, do not: a person must correct them, and the other pipelines do not wait for that.
PASSING = {errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN}


# Errors of object stores. While the sink runs they may go away: credentials are renewed, a policy takes effect.
STORE_ERRORS = (StoreDenied, StoreFailed, StoreUnreachable, UnknownBucket)

STORE_SECRETS = ("access_key", "secret_key", "session_token")
STAGING = "_headrace/staging"
MANIFESTS = "_headrace/manifests"


@dataclass(frozen=True, slots=True)
class SinkPaths:
    """The names of one sink's files, relative to its directory."""

    output: FileOutput
    sink: str

    def shown(self, name: str) -> str:
        """A name as errors show it."""
        return f"{self.output.shown}/{name}"

    def writer(self, key: SinkKey) -> str:
        """Sixteen hexadecimal digits for (checkpoint, sink), which are safe in a file name."""
        return hashlib.sha256(f"{key.checkpoint}\0{self.sink}".encode()).hexdigest()[:16]

    def tag(self, key: SinkKey) -> str:
        """The name of an epoch's staging directory and manifest."""
        return f"{self.writer(key)}-{key.instance}-{key.epoch}"

    def manifest(self, key: SinkKey) -> str:
        return f"{MANIFESTS}/{self.tag(key)}.json"

    def promise(self, key: SinkKey) -> str:
        return f"{MANIFESTS}/{self.tag(key)}.promise"

    def final(self, key: SinkKey, k: int, extension: str) -> str:
        """The visible name of the epoch's `k`th file."""
        return f"part-{self.writer(key)}-{key.instance}-{key.epoch:08}-{k}.{extension}"


@dataclass(frozen=True, slots=True)
class FileSinkSettings(SinkSettings):
    """Options of every sink that writes files."""

    path: str = option(
        text, required=True, help="the directory, or s3://bucket/prefix, to write to; it is created when needed"
    )
    partition_by: tuple[str, ...] = option(
        column_names, default=(), help="columns, separated by commas: each combination of values gets a directory"
    )
    endpoint: str | None = endpoint_option()
    region: str | None = region_option()
    access_key: str | None = access_key_option()
    secret_key: str | None = secret_key_option()
    session_token: str | None = session_token_option()


def check_path(settings: FileSinkSettings) -> None:
    """Raise a coded error unless the sink's directory or object store can be used. Changes nothing."""
    check_access(settings)
    if is_remote(settings.path):
        ObjectStore(StoreAccess.of(settings)).check()
    else:
        check_directory(settings.path)


def check_file_output(sink: str, settings: FileSinkSettings, output: Schema) -> None:
    """Raise a coded error if rows of `output` cannot be written with these options."""
    check_partitions(sink, settings.partition_by, output)


def check_directory(name: str) -> None:
    """Raise UnwritablePath unless `name` is, or can become, a directory that this process may write to. Changes
    nothing."""
    path = Path(os.path.abspath(name))
    try:
        nearest = next(p for p in (path, *path.parents) if p.exists())
    except OSError as problem:  # such as a name that is too long
        raise UnwritablePath(
            f"{path} cannot be looked up: {problem.strerror}", advice="Name another path.", path=str(path)
        ) from None
    if not nearest.is_dir():
        raise UnwritablePath(
            f"{nearest} is not a directory", advice="Name a directory; it is created when needed.", path=str(path)
        )
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise UnwritablePath(
            f"{nearest} cannot be written to", advice="Allow writing there, or name another path.", path=str(path)
        )


@contextmanager
def writing(paths: SinkPaths) -> Iterator[None]:
    """Turn an error of the file system or object store into a coded error that names the sink."""
    try:
        yield
    except STORE_ERRORS as problem:
        raise SinkUnavailable(
            f"sink {paths.sink} cannot be written to: {problem.message}",
            advice=f"{problem.advice} The stream then continues by itself, and nothing is lost. STOP PIPELINE ... NOW "
            "or DROP PIPELINE lets the other pipelines continue without it.",
            sink=paths.sink,
            path=paths.output.shown,
        ) from problem
    except OSError as problem:
        said = f"sink {paths.sink} cannot write to {paths.output.shown}: {problem.strerror or problem}"
        if problem.errno in PASSING:
            raise SinkUnavailable(
                said,
                advice="Free disk space there, or restore the file system. The stream then continues by itself, and "
                "nothing is lost. STOP PIPELINE ... NOW or DROP PIPELINE lets the other pipelines continue without it.",
                sink=paths.sink,
                path=paths.output.shown,
            ) from problem
        raise SinkFailed(
            said,
            advice="Check that the directory is writable and has free space, then start the pipeline again. It starts "
            "with the rows that arrive from then on.",
            sink=paths.sink,
            path=paths.output.shown,
        ) from problem
