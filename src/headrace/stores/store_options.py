"""Where an object store is and who may use it: the URL of a path, and the options of sources and sinks that take one.

    s3://bucket/path  s3a://bucket/path                        Amazon S3 and servers that speak its protocol
    gs://bucket/path                                           Google Cloud Storage
    abfs://container@account.dfs.core.windows.net/path         Azure (also abfss)
    hdfs://host:port/path                                      HDFS, where libhdfs is installed

Without options the libraries look for credentials in the usual places: environment, profile, instance metadata.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from headrace.base.options import option, text
from headrace.errors import BadOption, MissingOption

S3 = ("s3", "s3a")
GCS = ("gs",)
AZURE = ("abfs", "abfss")
HDFS = ("hdfs",)
_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://", re.IGNORECASE)
# The options that each kind of store reads.
_USES = {
    **dict.fromkeys(S3, ("endpoint", "region", "access_key", "secret_key", "session_token")),
    **dict.fromkeys(GCS, ("endpoint",)),
    **dict.fromkeys(AZURE, ("endpoint", "secret_key")),
    **dict.fromkeys(HDFS, ()),
}
OPTIONS = ("endpoint", "region", "access_key", "secret_key", "session_token")


def endpoint_option() -> Any:
    """Declares the option `endpoint`."""
    return option(
        text, help="of a path on an object store: the address of its server, such as http://host:9000 (default: the "
        "cloud's own)",
    )  # fmt: skip


def region_option() -> Any:
    """Declares the option `region`."""
    return option(text, help="of a path on s3://: the region of the bucket (default: from the environment)")


def access_key_option() -> Any:
    """Declares the option `access_key`."""
    return option(
        text, secret=True, help="of a path on s3://: the access key id; stored apart, never shown (default: from the "
        "environment)",
    )  # fmt: skip


def secret_key_option() -> Any:
    """Declares the option `secret_key`."""
    return option(
        text, secret=True, help="the secret of access_key, or on abfs:// the account key; stored apart, never shown"
    )


def session_token_option() -> Any:
    """Declares the option `session_token`."""
    return option(text, secret=True, help="of temporary credentials on s3://; stored apart, never shown")


class StoreSettings(Protocol):
    """Settings of a source or sink with a path that may be on an object store."""

    @property
    def path(self) -> str: ...
    @property
    def endpoint(self) -> str | None: ...
    @property
    def region(self) -> str | None: ...
    @property
    def access_key(self) -> str | None: ...
    @property
    def secret_key(self) -> str | None: ...
    @property
    def session_token(self) -> str | None: ...


def is_remote(path: str) -> bool:
    """True if a path is the URL of a store, and not a path of the machine's own file systems."""
    return _URL.match(path) is not None


def absolute(path: str) -> str:
    """A local path made absolute; a URL as it is, without a slash at its end."""
    return path.rstrip("/") if is_remote(path) else os.path.abspath(path)


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """A path on a store and how to reach it. It can be pickled, and holds the credentials: never print it."""

    url: str
    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    session_token: str | None = None

    @staticmethod
    def of(settings: StoreSettings) -> StoreAccess:
        return StoreAccess(
            absolute(settings.path),
            settings.endpoint,
            region=settings.region,
            access_key=settings.access_key,
            secret_key=settings.secret_key,
            session_token=settings.session_token,
        )

    def __repr__(self) -> str:
        return f"StoreAccess({self.url!r})"

    @property
    def scheme(self) -> str:
        return urlsplit(self.url).scheme.lower()

    @property
    def bucket(self) -> str:
        """The bucket, or Azure's container. Empty on HDFS."""
        parts = urlsplit(self.url)
        if self.scheme in AZURE:
            return parts.netloc.partition("@")[0]
        return "" if self.scheme in HDFS else parts.netloc

    @property
    def account(self) -> str:
        """Azure's storage account."""
        return urlsplit(self.url).netloc.partition("@")[2].partition(".")[0]

    @property
    def root(self) -> str:
        """The path as pyarrow's file system names it."""
        path = self.url.split("://", 1)[1].partition("/")[2]
        if self.scheme in HDFS:
            return f"/{path}"
        return f"{self.bucket}/{path}".rstrip("/")

    @property
    def address(self) -> str | None:
        """The server, from the option or the environment that the AWS tools use."""
        if self.endpoint or self.scheme not in S3:
            return self.endpoint
        return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def check_access(settings: StoreSettings) -> None:
    """Raise a coded error if path and options do not fit each other. Does no I/O."""
    given = [name for name in OPTIONS if getattr(settings, name)]
    if not is_remote(settings.path):
        if given:
            raise _unused(given[0], "a local path")
        return
    access = StoreAccess.of(settings)
    if access.scheme not in _USES:
        raise BadOption(
            f"there is no store for {access.scheme}://",
            advice=f"Write a local path, or a URL that begins with {', '.join(f'{s}://' for s in sorted(_USES))}.",
            option="path",
        )
    netloc = urlsplit(access.url).netloc
    if access.scheme not in AZURE and "@" in netloc:
        raise BadOption(
            "the path has credentials in it",
            advice="Remove the part before the @, and write the options access_key and secret_key: they are stored "
            "apart and never shown.",
            option="path",
        )
    if not netloc or (access.scheme in AZURE and not (access.bucket and access.account)):
        raise BadOption(
            f"the path {access.url} names no bucket",
            advice="Write s3://bucket/path, gs://bucket/path, abfs://container@account.dfs.core.windows.net/path or "
            "hdfs://host:port/path.",
            option="path",
        )
    if wrong := [name for name in given if name not in _USES[access.scheme]]:
        raise _unused(wrong[0], f"a path on {access.scheme}://")
    if access.scheme in S3 and bool(access.access_key) != bool(access.secret_key):
        lacking = "secret_key" if access.access_key else "access_key"
        raise MissingOption(
            f"a path on s3:// needs the option '{lacking}' too",
            advice="Write both access_key and secret_key, or neither: the credentials then come from the environment.",
            option=lacking,
        )


def _unused(name: str, where: str) -> BadOption:
    return BadOption(f"{name} has no effect with {where}", advice=f"Remove {name}, or correct the path.", option=name)


def require_local(path: str, name: str) -> None:
    """Raise BadOption if an option that must name a local directory names a store."""
    if is_remote(path):
        raise BadOption(
            f"{name} cannot be on a store: {path}",
            advice="Name a directory of a local or mounted file system that all machines see.",
            option=name,
        )
