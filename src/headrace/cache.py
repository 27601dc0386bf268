"""The user's cache directory: compiled kernels, and small scripts that programs of others are started through."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def cache_roots(env: Mapping[str, str] | None = None) -> list[Path]:
    """Where a cache may lie, the first choice first: `headrace` in `$HEADRACE_CACHE_DIR`, `$XDG_CACHE_HOME` or
    `~/.cache`. `env` is `os.environ` unless given. Empty where none of them is an absolute path."""
    env = os.environ if env is None else env
    home = env.get("HOME", "")
    roots = (env.get("HEADRACE_CACHE_DIR"), env.get("XDG_CACHE_HOME"), home and os.path.join(home, ".cache"))
    return [Path(root) / "headrace" for root in roots if root and os.path.isabs(root)]


def cache_directory(env: Mapping[str, str] | None = None) -> Path:
    """The first of `cache_roots`, else a private temporary directory."""
    return next(iter(cache_roots(env)), None) or private_directory()


def private_directory() -> Path:
    """A directory under the temporary one that is ours alone: what is cached is run, so nobody else may write there."""
    shared = Path(tempfile.gettempdir()) / f"headrace-{os.getuid()}"
    try:
        shared.mkdir(mode=0o700, exist_ok=True)
        found = shared.stat()
        ours = found.st_uid == os.getuid() and found.st_mode & 0o022 == 0
    except OSError:
        ours = False
    return shared if ours else Path(tempfile.mkdtemp(prefix="headrace-"))


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
