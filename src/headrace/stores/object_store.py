"""A directory of an object store: list, read, put, copy and delete whole objects, with coded errors.

A put and a copy of an object are atomic: a reader sees the old object, the new one or none, never a part. No operation
here depends on a rename. HDFS has no server-side copy and has an atomic rename, so `copy` is a move there.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import (
    HeadraceError,
    MissingPackage,
    StoreDenied,
    StoreFailed,
    StoreUnreachable,
    UnknownBucket,
)
from headrace.stores.store_options import AZURE, GCS, HDFS, S3, StoreAccess

PIECE = 16 << 20  # bytes that are sent or read at once
CONNECT_SECONDS, ANSWER_SECONDS, ATTEMPTS = 5.0, 30.0, 3
_COLOUR = re.compile(r"\x1b\[\d*m")  # delta-rs writes its errors in colour
_UNREACHABLE = re.compile(
    r"NETWORK_CONNECTION|REQUEST_TIMEOUT|SLOW_DOWN|SERVICE_UNAVAILABLE|THROTTLING|Could not connect|Couldn't connect|"
    r"Could ?n.t resolve|timed out|Connection refused|Connection reset|error sending request"
)
_DENIED = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|INVALID_SIGNATURE|EXPIRED_TOKEN|INVALID_CLIENT_TOKEN"
    r"|MISSING_AUTHENTICATION_TOKEN|UNRECOGNIZED_CLIENT|OPT_IN_REQUIRED|HTTP status code 40[13]|PERMISSION_DENIED|"
    r"UNAUTHENTICATED|AuthenticationFailed|AuthorizationFailure|Permission denied|40[13] (?:Forbidden|Unauthorized)"
)
_NO_BUCKET = re.compile(r"NO_SUCH_BUCKET|bucket does not exist|ContainerNotFound|NoSuchBucket")
_NO_OBJECT = re.compile(r"NO_SUCH_KEY|RESOURCE_NOT_FOUND|Path does not exist|BlobNotFound|NoSuchKey")


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object: its name below the store's directory, its size, and when it was put (nanoseconds since 1970)."""

    name: str
    size: int
    mtime_ns: int


def coded_store_error(problem: Exception, access: StoreAccess, what: str) -> HeadraceError | FileNotFoundError:
    """The coded error for an error of pyarrow or delta-rs; FileNotFoundError if an object is missing."""
    said = " ".join(_COLOUR.sub("", str(problem)).split())
    message = f"cannot {what} at {access.url}: {said[:400]}"
    known: dict[str, Any] = {"url": access.url}
    if _NO_BUCKET.search(said):
        return UnknownBucket(message, advice="Create the bucket, or correct its name.", **known)
    if isinstance(problem, FileNotFoundError) or _NO_OBJECT.search(said):
        return FileNotFoundError(2, message)
    if _DENIED.search(said):
        return StoreDenied(
            message,
            advice="Check access_key, secret_key and session_token, or the credentials in the environment, and what "
            "they are allowed to do there: list, read, write and delete objects.",
            **known,
        )
    if _UNREACHABLE.search(said):
        return StoreUnreachable(
            message,
            advice="Check endpoint, region and the network. A running stream tries again by itself.",
            **known,
        )
    return StoreFailed(message, advice="A running stream tries again by itself.", **known)


class ObjectStore:
    """One directory of a store. Names are relative to it. Threads may share it; it is not pickled."""

    def __init__(self, access: StoreAccess) -> None:
        self.access = access
        self._root = access.root

    def __reduce__(self) -> Any:
        return ObjectStore, (self.access,)

    @property
    def files(self) -> Any:
        """pyarrow's file system, one per process and server."""
        return _file_system(self.access)

    def path(self, name: str) -> str:
        """A name as pyarrow's file system has it."""
        return f"{self._root}/{name}" if name else self._root

    def url(self, name: str) -> str:
        """A name as a user writes it."""
        return f"{self.access.url}/{name}" if name else self.access.url

    def name_of(self, url: str) -> str:
        """The name of an object with this URL; empty if it is the store's own."""
        return url[len(self.access.url) + 1 :]

    @contextmanager
    def asking(self, what: str) -> Iterator[None]:
        """Turn errors of the library into coded ones. `what` completes "cannot ..."."""
        try:
            yield
        except (OSError, pa.ArrowException, ValueError) as problem:
            raise coded_store_error(problem, self.access, what) from problem

    def check(self) -> None:
        """Raise a coded error unless the directory can be listed. An empty one need not exist."""
        self._infos("", recursive=False)

    def objects(self, directory: str = "", recursive: bool = True) -> list[ObjectInfo]:
        """The objects below a directory; none if it does not exist."""
        return [self._info(info) for info in self._infos(directory, recursive) if info.is_file]

    def entries(self, directory: str) -> list[str]:
        """The names of the objects and directories in a directory, relative to the store's."""
        return [self._name(info.path) for info in self._infos(directory, recursive=False)]

    def _infos(self, directory: str, recursive: bool) -> Any:
        from pyarrow.fs import FileSelector

        try:
            with self.asking("list objects"):  # with allow_not_found a missing bucket would be an empty one
                return self.files.get_file_info(FileSelector(self.path(directory), recursive=recursive))
        except FileNotFoundError:
            return []

    def info(self, name: str) -> ObjectInfo | None:
        """What is known about an object; None if there is none."""
        with self.asking("look up an object"):
            found = self.files.get_file_info(self.path(name))
        return self._info(found) if found.is_file else None

    def _info(self, info: Any) -> ObjectInfo:
        return ObjectInfo(self._name(info.path), int(info.size or 0), int(info.mtime_ns or 0))

    def _name(self, path: str) -> str:
        return path[len(self._root) + 1 :]

    def open(self, name: str) -> Any:
        """An object as a file that pyarrow reads at random places. Raises FileNotFoundError."""
        with self.asking("read an object"):
            return self.files.open_input_file(self.path(name))

    def read(self, name: str) -> bytes:
        """The bytes of an object. Raises FileNotFoundError."""
        with self.asking("read an object"), self.files.open_input_file(self.path(name)) as file:
            return bytes(file.read())

    def put(self, name: str, data: Any) -> None:
        """Write a whole object. It is durable when this returns."""
        with self.asking("write an object"):
            path = self.path(name)
            if self.access.scheme not in HDFS:
                self._write(path, data)
                return
            directory, _, last = path.rpartition("/")  # HDFS shows a file while it is written
            self.files.create_dir(directory)
            hidden = f"{directory}/.{last}.{uuid.uuid4().hex}"
            self._write(hidden, data)
            self._rename(hidden, path)

    def put_file(self, name: str, file: Path) -> None:
        """Write a whole object with the content of a local file, in pieces. If this fails, a part of the object may be
        left: the name is one that nobody reads."""
        with self.asking("write an object"), open(file, "rb") as content:
            if self.access.scheme in HDFS:
                self.files.create_dir(self.path(name).rpartition("/")[0])
            with self.files.open_output_stream(self.path(name), compression=None) as out:
                while piece := content.read(PIECE):
                    out.write(piece)

    def fetch(self, name: str, file: Path) -> None:
        """Write the content of an object to a local file, in pieces. Raises FileNotFoundError."""
        with self.asking("read an object"):
            content = self.files.open_input_stream(self.path(name), compression=None)
        with content, open(file, "wb") as out:  # a full local disk is not an error of the store
            while piece := self._piece(content):
                out.write(piece)

    def _piece(self, content: Any) -> bytes:
        with self.asking("read an object"):
            return bytes(content.read(PIECE))

    def _write(self, path: str, data: Any) -> None:
        # Without `compression` the library would compress what is called .gz.
        with self.files.open_output_stream(path, compression=None) as out:
            out.write(data)

    def _rename(self, path: str, to: str) -> None:
        """HDFS does not rename over a file. If this ends after the deletion, the caller's next try finds `path`."""
        if not self.files.get_file_info(path).is_file:
            raise FileNotFoundError(path)
        if self.files.get_file_info(to).is_file:
            self.files.delete_file(to)
        self.files.move(path, to)

    def copy(self, name: str, to: str) -> None:
        """Copy an object on the server, over one that is there. Raises FileNotFoundError."""
        with self.asking("copy an object"):
            if self.access.scheme in HDFS:
                self.files.create_dir(self.path(to).rpartition("/")[0])
                self._rename(self.path(name), self.path(to))
            else:
                self.files.copy_file(self.path(name), self.path(to))

    def delete(self, name: str) -> None:
        """Delete an object, if it is there."""
        try:
            with self.asking("delete an object"):
                self.files.delete_file(self.path(name))
        except FileNotFoundError:
            pass

    def delete_directory(self, directory: str) -> None:
        """Delete all objects below a directory."""
        with self.asking("delete objects"):
            self.files.delete_dir(self.path(directory))


@lru_cache(maxsize=64)
def _file_system(access: StoreAccess) -> Any:
    """A client. Kept for the life of the process, because it has the connections. Made in the process that uses it."""
    from pyarrow import fs

    try:
        return _made(fs, access)
    except ImportError as problem:
        raise MissingPackage(
            f"this pyarrow has no support for {access.scheme}://: {problem}",
            advice="Install a pyarrow wheel that has it.",
            package="pyarrow",
        ) from None
    except (OSError, pa.ArrowException, ValueError) as problem:
        made = coded_store_error(problem, access, "connect")
        raise made if isinstance(made, HeadraceError) else StoreFailed(str(made), url=access.url) from problem


def _made(fs: Any, access: StoreAccess) -> Any:
    address = access.address
    scheme, _, host = address.rpartition("://") if address else ("", "", "")
    host = host.rstrip("/")
    if access.scheme in S3:
        options: dict[str, Any] = {
            "connect_timeout": CONNECT_SECONDS,
            "request_timeout": ANSWER_SECONDS,
            "retry_strategy": fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
            "allow_delayed_open": True,  # an object of some megabytes is one request
        }
        if access.access_key:
            options |= {"access_key": access.access_key, "secret_key": access.secret_key}
            options |= {"session_token": access.session_token} if access.session_token else {}
        if host:
            options |= {"endpoint_override": host, "scheme": scheme or "https"}
        if access.region:
            options["region"] = access.region
        return fs.S3FileSystem(**options)
    if access.scheme in GCS:
        options = {"endpoint_override": host, "scheme": scheme or "https", "anonymous": True} if host else {}
        return fs.GcsFileSystem(**options)
    if access.scheme in AZURE:
        options = {"account_name": access.account}
        options |= {"account_key": access.secret_key} if access.secret_key else {}
        if host:
            options |= {"blob_storage_authority": host, "dfs_storage_authority": host}
            options |= {"blob_storage_scheme": scheme or "https", "dfs_storage_scheme": scheme or "https"}
        return fs.AzureFileSystem(**options)
    server = access.url.split("://", 1)[1].partition("/")[0]
    host, _, port = server.partition(":")
    return fs.HadoopFileSystem(host, int(port or 8020))
