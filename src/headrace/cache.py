"""The user's cache directory, where small scripts are kept that programs of others are started through."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def cache_directory(env: Mapping[str, str] | None = None) -> Path:
    """`$XDG_CACHE_HOME/headrace`, by default `~/.cache/headrace`; `env` is `os.environ` unless given."""
    env = os.environ if env is None else env
    base = env.get("XDG_CACHE_HOME") or Path(env.get("HOME") or tempfile.gettempdir()) / ".cache"
    return Path(base) / "headrace"


def install_script(path: Path, content: str) -> None:
    """Make `path` an executable file with `content`. It is put in place by a rename: processes that start together all
    see a whole file."""
    if path.is_file() and path.read_text() == content and os.access(path, os.X_OK):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(content)
    os.chmod(temporary, 0o755)
    os.replace(temporary, path)
