"""Tokens and passwords. They are stored apart from catalog and plans, which contain only their names.

The name of a secret is `secret:` and a keyed digest of its value. Equal values have equal names, so a script that runs
again can be compared with the catalog. Every task gets the name with its plan, and without the key the name reveals
nothing about the value. Values and key are in `secrets.json`, which only the owner can read.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import zlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from headrace.base.durable import write_atomic
from headrace.errors import StateDamaged
from headrace.model.definitions import StreamDef
from headrace.sources import SOURCES

FILE = "secrets.json"
_NAME = re.compile(r"secret:[0-9a-f]{32}")


class Vault:
    """The secrets of one hub, in memory. `unsaved` is true if a value was added since the last read or write."""

    def __init__(self, key: str = "", values: dict[str, str] | None = None) -> None:
        self._key = key or secrets.token_hex(32)
        self._values = dict(values or {})
        self.unsaved = False

    def copy(self) -> Vault:
        """An independent vault with the same secrets."""
        return Vault(self._key, self._values)

    def seal(self, value: str) -> str:
        """Add a value to the vault. Returns its name."""
        digest = hmac.new(self._key.encode(), value.encode(), hashlib.sha256).hexdigest()[:32]
        self.learn(f"secret:{digest}", value)
        return f"secret:{digest}"

    def learn(self, name: str, value: str) -> None:
        """Add a value under a given name, for example one whose value was lost."""
        self.unsaved = self.unsaved or name not in self._values
        self._values.setdefault(name, value)

    def knows(self, name: str) -> bool:
        """True if the vault has the value of a name."""
        return name in self._values

    def reveal(self, name: str) -> str:
        """The value of a name. Raises StateDamaged if it was lost."""
        if name not in self._values:
            raise StateDamaged(
                f"{FILE} lacks a token or password",
                advice="Restore the file from a backup, or run the script that creates the stream or sink again.",
                path=FILE,
            )
        return self._values[name]

    def write(self, directory: Path, names: Iterable[str]) -> None:
        """Store the values of these names durably. Drops all others from the file."""
        kept = {name: self._values[name] for name in names if name in self._values}
        path = directory / FILE
        facts: dict[str, object] = {"key": self._key, "values": kept}
        text = json.dumps(facts | {"crc": _crc(facts)}, sort_keys=True).encode()
        if (kept or path.exists()) and not (path.exists() and path.read_bytes() == text):
            write_atomic(path, text)
        if path.exists():
            path.chmod(0o600)
        self.unsaved = False


def secrets_of(stream: StreamDef) -> set[str]:
    """The options of a stream that hold a secret, in the stream's own spelling."""
    declared = SOURCES[stream.source].options
    return {name for name, value in stream.options.items() if value and any(o.hides(name) for o in declared)}


def unseal_stream(stream: StreamDef, vault: Vault) -> StreamDef:
    """`stream` with the values of its secrets, for the process that uses them. Raises StateDamaged if one was lost."""
    secret = secrets_of(stream)
    if not secret:
        return stream
    options = {name: vault.reveal(value) if name in secret else value for name, value in stream.options.items()}
    return replace(stream, options=options)


def _crc(facts: dict[str, object]) -> int:
    return zlib.crc32(json.dumps(facts, sort_keys=True).encode())


def names_in(text: str) -> set[str]:
    """The names of secrets in a stored text."""
    return set(_NAME.findall(text))


def read_vault(directory: Path) -> Vault:
    """The secrets that are stored in a directory. An empty vault if there is no file."""
    path = directory / FILE
    try:
        facts = json.loads(path.read_bytes())
        crc = facts.pop("crc", None)  # earlier versions wrote none
        if crc is not None and crc != _crc(facts):
            raise ValueError("it does not match its checksum")
        return Vault(str(facts["key"]), {str(name): str(value) for name, value in facts["values"].items()})
    except FileNotFoundError:
        return Vault()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise StateDamaged(
            f"{path} cannot be read: {problem}",
            advice="Restore it from a backup. Or delete it, and run the scripts that create streams with a token "
            "again: other streams do not need it.",
            path=str(path),
        ) from problem
