"""The files of a state directory by role, and the ways to damage one.

A role is a path with its numbers and names of chance taken out, so that a new kind of file appears by itself.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path

FAULTS = ("flipped", "halved", "emptied", "removed")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{16,32}")
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Target:
    """A file, relative to the root of a template, and its role."""

    path: Path
    role: str

    @property
    def stream(self) -> str | None:
        """The stream that the file belongs to; None for a file of the whole hub."""
        parts = self.path.parts
        return parts[2] if parts[:2] == ("state", "streams") else None


def targets(root: Path) -> list[Target]:
    """Every file below `root`/state, and every file of a sink that no reader sees, oldest first within a role."""
    state = [p for p in (root / "state").rglob("*") if p.is_file()]
    sinks = [p for p in (root / "out").glob("*/_headrace/**/*") if p.is_file()]
    found = [Target(p.relative_to(root), _role(p.relative_to(root))) for p in [*state, *sinks]]
    return sorted(found, key=lambda t: (t.role, (root / t.path).stat().st_mtime_ns, t.path))


def some_of_each(found: list[Target], oldest: bool) -> list[Target]:
    """The newest file of each role, and the oldest."""
    by_role: dict[str, list[Target]] = {}
    for target in found:
        by_role.setdefault(target.role, []).append(target)
    return [t for group in by_role.values() for t in dict.fromkeys([group[-1], group[0] if oldest else group[-1]])]


def damage(path: Path, fault: str, rng: random.Random) -> None:
    """Damage one file. `flipped` inverts one bit somewhere."""
    data = path.read_bytes()
    if fault == "removed":
        path.unlink()
    elif fault == "flipped":
        at = rng.randrange(len(data)) if data else 0
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :] if data else b"\x01")
    else:
        path.write_bytes(data[: len(data) // 2] if fault == "halved" else b"")


def _role(path: Path) -> str:
    parts = list(path.parts)
    if parts[:2] == ["state", "streams"] or parts[0] == "out":
        parts[2 if parts[0] == "state" else 1] = "*"
    return _NUMBER.sub("N", _UUID.sub("U", "/".join(parts)))
