"""Kernels over URLs, which are read as Java's `java.net.URI` does."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote_plus

import pyarrow as pa

from headrace.exec.kernels.kernel import Kernel, KernelError, per_row

_PLAIN = "A-Za-z0-9\\-_.!~*'()"
# Other characters than those of ASCII are allowed, except controls and blanks.
_OTHER = "\u00a1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e\u2060-\u2fff\u3001-\ud7ff\ue000-\U0010ffff"
_ESCAPED = "%[0-9A-Fa-f]{2}"


def _all(extra: str) -> re.Pattern[str]:
    return re.compile(f"(?:[{_PLAIN}{_OTHER}{extra}]|{_ESCAPED})*")


_SCHEME = re.compile("[A-Za-z][A-Za-z0-9+.-]*")
_PATH, _QUERY = _all(":@&=+$,;/"), _all(";/?:@&=+$,\\[\\]")
_USER, _REGISTRY = _all(";:&=+$,"), _all("$,;:@&=+")
_SERVER = re.compile(r"(?:([^@]*)@)?(\[[^\]]*\]|[^:]*)(?::([0-9]*))?")
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_TOP = "[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = re.compile(f"(?:{_LABEL}\\.)*{_TOP}\\.?")
_V4 = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|0?[0-9]?[0-9])(?:\.|$)){4}(?<!\.)")


@dataclass(frozen=True, slots=True)
class _Url:
    protocol: str | None
    authority: str | None = None
    user: str | None = None
    host: str | None = None
    path: str | None = None
    query: str | None = None
    fragment: str | None = None


def _need(pattern: re.Pattern[str], text: str) -> str:
    if pattern.fullmatch(text) is None:
        raise ValueError(text)
    return text


@lru_cache(maxsize=1024)
def _read(text: str) -> _Url:
    """The parts of a URL. Raises ValueError."""
    rest, mark, fragment = text.partition("#")
    end = _need(_QUERY, fragment) if mark else None
    first = re.search("[/?:]", rest)
    protocol = None
    if first is not None and first[0] == ":":
        protocol = _need(_SCHEME, rest[: first.start()])
        rest = rest[first.end() :]
        if not rest.startswith("/"):
            if not rest:
                raise ValueError(text)
            _need(_QUERY, rest)
            return _Url(protocol, fragment=end)
    before, mark, asked = rest.partition("?")
    query = _need(_QUERY, asked) if mark else None
    authority = user = host = None
    if before.startswith("//"):
        authority, slash, tail = before[2:].partition("/")
        if not authority:
            if not slash and not mark and end is None:
                raise ValueError(text)
            authority = None
        else:
            user, host = _server(authority)
        before = slash + tail
    return _Url(protocol, authority, user, host, _need(_PATH, before), query, end)


def _server(authority: str) -> tuple[str | None, str | None]:
    """User and host; both None if the authority is a name of another kind."""
    found = _SERVER.fullmatch(authority)
    user, host = (None, "") if found is None else (found[1], found[2])
    good_user = user is None or _USER.fullmatch(user) is not None
    if host.startswith("["):
        if not good_user:
            raise ValueError(authority)
        ipaddress.IPv6Address(host[1:-1])
        return user, host
    port = "" if found is None else (found[3] or "").lstrip("0")
    small = len(port) < 10 or (len(port) == 10 and int(port) < 1 << 31)
    if found is not None and good_user and small and (_HOST.fullmatch(host) or _V4.fullmatch(host)):
        return user, host
    _need(_REGISTRY, authority)
    return None, None


def _part(text: str, part: str) -> str | None:
    url = _read(text)
    if part == "FILE":
        return None if url.path is None else url.path if url.query is None else f"{url.path}?{url.query}"
    name = {
        "HOST": "host", "PATH": "path", "QUERY": "query", "REF": "fragment", "PROTOCOL": "protocol",
        "AUTHORITY": "authority", "USERINFO": "user",
    }.get(part)  # fmt: skip
    found: str | None = None if name is None else getattr(url, name)
    return found


def _try_part(text: str, part: str) -> str | None:
    try:
        return _part(text, part)
    except ValueError:
        return None


def _parse(text: str, part: str) -> str | None:
    try:
        return _part(text, part)
    except ValueError:
        raise KernelError("INVALID_URL") from None


_BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")
_SIGNED_ESCAPE = re.compile("%[+]([0-9A-Fa-f])")  # Java reads a number with a sign here
_SURROGATE = re.compile("%ED%[AB][0-9A-F]%[89AB][0-9A-F]", re.IGNORECASE)  # for Java one bad character, not three


def _try_decode(text: str) -> str | None:
    text = _SIGNED_ESCAPE.sub(r"%0\1", text)
    if _BAD_ESCAPE.search(text):
        return None
    return unquote_plus(_SURROGATE.sub("%EF%BF%BD", text), errors="replace")


def _decode(text: str) -> str:
    found = _try_decode(text)
    if found is None:
        raise KernelError("CANNOT_DECODE_URL")
    return found


_V = "VARCHAR"
KERNELS: tuple[Kernel, ...] = (
    Kernel("hr_url_part", (_V, _V), _V, per_row(pa.string(), _parse), slow=True),
    Kernel("hr_url_try_part", (_V, _V), _V, per_row(pa.string(), _try_part), slow=True),
    Kernel("hr_url_decode", (_V,), _V, per_row(pa.string(), _decode), slow=True),
    Kernel("hr_url_try_decode", (_V,), _V, per_row(pa.string(), _try_decode), slow=True),
)
