"""Tokens and passwords, kept apart from catalog and plans: those only name them.

A secret's name is `secret:` and a keyed digest of its value. So equal values have equal names, which lets a script that
is run again be compared with what is declared; and a name, which every task gets with its plan, tells nothing about the
value to those who do not have the key. Values and key are in `secrets.json`, which only the owner can read.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import zlib
from collections.abc import Iterable
from pathlib import Path

from headrace.durable import write_atomic
from headrace.errors import StateDamaged

FILE = "secrets.json"
_NAME = re.compile(r"secret:[0-9a-f]{32}")


class Vault:
    """The secrets of one hub, in memory. `unsaved` says that a value was added since they were read or written."""

    def __init__(self, key: str = "", values: dict[str, str] | None = None) -> None:
        self._key = key or secrets.token_hex(32)
        self._values = dict(values or {})
        self.unsaved = False

    def copy(self) -> Vault:
        """A vault with the same secrets. What it learns stays there."""
        return Vault(self._key, self._values)

    def seal(self, value: str) -> str:
        """The name of a value, which the vault knows from now on."""
        digest = hmac.new(self._key.encode(), value.encode(), hashlib.sha256).hexdigest()[:32]
        self.learn(f"secret:{digest}", value)
        return f"secret:{digest}"

    def learn(self, name: str, value: str) -> None:
        """Give a name its value, also one whose value was lost."""
        self.unsaved = self.unsaved or name not in self._values
        self._values.setdefault(name, value)

    def knows(self, name: str) -> bool:
        """Whether the value of a name is here."""
        return name in self._values

    def reveal(self, name: str) -> str:
        """The value of a name. Raises StateDamaged when it was lost."""
        if name not in self._values:
            raise StateDamaged(
                f"{FILE} has lost a token of the stream",
                advice="Put the file back from a backup, or run the script again that creates the stream.",
                path=FILE,
            )
        return self._values[name]

    def write(self, directory: Path, names: Iterable[str]) -> None:
        """Store the values of these names, durably, and forget the others."""
        kept = {name: self._values[name] for name in names if name in self._values}
        path = directory / FILE
        facts: dict[str, object] = {"key": self._key, "values": kept}
        text = json.dumps(facts | {"crc": _crc(facts)}, sort_keys=True).encode()
        if (kept or path.exists()) and not (path.exists() and path.read_bytes() == text):
            write_atomic(path, text)
        if path.exists():
            path.chmod(0o600)
        self.unsaved = False


def _crc(facts: dict[str, object]) -> int:
    return zlib.crc32(json.dumps(facts, sort_keys=True).encode())


def names_in(text: str) -> set[str]:
    """The names of secrets that a stored text has."""
    return set(_NAME.findall(text))


def read_vault(directory: Path) -> Vault:
    """The secrets that are stored in a directory; none when there is no file."""
    path = directory / FILE
    try:
        facts = json.loads(path.read_bytes())
        crc = facts.pop("crc", None)  # earlier versions wrote none
        if crc is not None and crc != _crc(facts):
            raise ValueError("it does not have the checksum that it was written with")
        return Vault(str(facts["key"]), {str(name): str(value) for name, value in facts["values"].items()})
    except FileNotFoundError:
        return Vault()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise StateDamaged(
            f"{path} cannot be read: {problem}",
            advice="Put it back from a backup. Or remove it, and run the scripts again that create streams with a "
            "token: the others need nothing from it.",
            path=str(path),
        ) from problem
