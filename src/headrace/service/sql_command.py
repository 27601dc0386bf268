"""`headrace sql` and `headrace status`: find the hub to ask, and run statements on it."""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.errors import HubUnreachable
from headrace.service.client import RemoteHub
from headrace.service.offline import OfflineHub
from headrace.service.printing import OutputFormat
from headrace.service.shell import Shell, interactive


def reach(server: str | None, state_dir: Path) -> RemoteHub | OfflineHub:
    """The hub at `server` if it is given, else the hub that owns `state_dir`, else the directory's files, read-only.
    Raises HubUnreachable if `server` does not answer, and MissingFile if `state_dir` is not a state directory."""
    if server is not None:
        return RemoteHub(server)
    try:
        return RemoteHub(state_dir)
    except HubUnreachable:
        return OfflineHub(state_dir)


def statements(text: str | None, server: str | None, state_dir: Path, how: OutputFormat) -> int:
    """Run `text`, or statements from a prompt or standard input. Returns the exit code: 2 if a statement failed."""
    target = reach(server, state_dir)
    if isinstance(target, OfflineHub):
        print(f"no hub runs on {state_dir}; this is the status of its last run", file=sys.stderr)
    if text is None and sys.stdin.isatty():
        interactive(target, how)
        return 0
    shell = Shell(target, how, terminal=sys.stdout.isatty())
    if text is None:
        shell.run(line.rstrip("\n") for line in sys.stdin)
    else:
        shell.execute(text)
    return 2 if shell.failures else 0
