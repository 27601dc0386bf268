"""What `headrace sql` and `status` talk to: a server, the owner of a state directory, or the directory itself."""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.errors import HubUnreachable
from headrace.service.client import RemoteHub
from headrace.service.offline import OfflineHub
from headrace.service.printing import Format
from headrace.service.shell import Shell, interactive


def reach(server: str | None, state_dir: Path) -> RemoteHub | OfflineHub:
    """The hub at `server`; else the owner of `state_dir`; else the directory, read only. Raises HubUnreachable for a
    server that does not answer, MissingFile for a directory that is none."""
    if server is not None:
        return RemoteHub(server)
    try:
        return RemoteHub(state_dir)
    except HubUnreachable:
        return OfflineHub(state_dir)


def statements(text: str | None, server: str | None, state_dir: Path, how: Format) -> int:
    """Run `text`, or a prompt without it. Returns the exit code: 0, or 2 when a statement failed."""
    target = reach(server, state_dir)
    if isinstance(target, OfflineHub):
        print(f"no process runs the hub in {state_dir}: what follows is from its last run", file=sys.stderr)
    if text is None and sys.stdin.isatty():
        interactive(target, how)
        return 0
    shell = Shell(target, how, terminal=sys.stdout.isatty())
    if text is None:
        shell.run(line.rstrip("\n") for line in sys.stdin)
    else:
        shell.execute(text)
    return 2 if shell.failures else 0
