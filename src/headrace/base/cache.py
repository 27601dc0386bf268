"""The user's cache directory: compiled kernels, and small launcher scripts for Spark's Python workers."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path


def cache_directory(env: Mapping[str, str] | None = None) -> Path:
    """The directory `headrace` below `$HEADRACE_CACHE_DIR`, `$XDG_CACHE_HOME` or `~/.cache`: the first that is
    writable. A private temporary directory when none is. `env` defaults to `os.environ`."""
    env = os.environ if env is None else env
    home = env.get("HOME") or os.path.expanduser("~")
    roots = (env.get("HEADRACE_CACHE_DIR"), env.get("XDG_CACHE_HOME"), os.path.join(home, ".cache"))
    for root in (r for r in roots if r and os.path.isabs(r)):
        found = Path(root) / "headrace"
        try:
            found.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(found, os.W_OK):
            return found
    return private_directory()


@cache
def private_directory() -> Path:
    """A directory below the temporary one that only this user can write. Cached code is executed, so others must not be
    able to change it."""
    shared = Path(tempfile.gettempdir()) / f"headrace-{os.getuid()}"
    try:
        shared.mkdir(mode=0o700, exist_ok=True)
        found = shared.lstat()
        ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and found.st_mode & 0o022 == 0
    except OSError:
        ours = False
    return shared if ours else Path(tempfile.mkdtemp(prefix="headrace-"))


def install_script(path: Path, content: str) -> None:
    """Make `path` an executable file with `content`. A rename puts it in place, so processes that start at the same
    time never see half a file."""
    if path.is_file() and path.read_text() == content and os.access(path, os.X_OK):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(content)
    os.chmod(temporary, 0o755)
    os.replace(temporary, path)
