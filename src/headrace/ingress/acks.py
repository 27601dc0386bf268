"""Acknowledgements of one stream that wait until the bytes they cover are safe.

An acknowledgement is settled when its bytes are written: it then covers exactly the bytes received so far, and not
those that arrive while the disk is syncing. It is sent when the bytes are safe: at once, or with fsync = 'always' after
the next sync. One sync covers everything that was written before it began. No I/O, and no threads.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable

Send = Callable[[], None]
Settle = Callable[[], Send]


class PendingAcks:
    """The acknowledgements in the order in which they were asked for, which is the order in which they are sent."""

    def __init__(self) -> None:
        self._asked: list[Settle] = []
        self._written: list[Send] = []

    @property
    def asked(self) -> bool:
        """True if a client waits for bytes that are not written."""
        return bool(self._asked)

    @property
    def unsafe(self) -> bool:
        """True if a client waits for bytes that are written and not known to be safe."""
        return bool(self._written)

    def ask(self, settle: Settle) -> None:
        """Call `settle` when everything received so far is written, and its result when that is safe."""
        self._asked.append(settle)

    def written(self) -> None:
        """Everything received so far is written."""
        asked, self._asked = self._asked, []
        self._written += [settle() for settle in asked]

    def take(self) -> list[Send]:
        """The acknowledgements of written bytes. The caller sends them or puts them back."""
        taken, self._written = self._written, []
        return taken

    def put_back(self, taken: list[Send]) -> None:
        """Their bytes are not safe yet."""
        self._written = taken + self._written


def send(acks: list[Send]) -> None:
    """Send acknowledgements. A failure of one connection does not affect the others."""
    for one in acks:
        try:
            one()
        except Exception:
            traceback.print_exc()
