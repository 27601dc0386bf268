"""Sends signals through the control channel, past the rows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from headrace.control.acks import Ack, Acks
from headrace.control.log import SignalLog
from headrace.control.signals import Instant, Signal, SignalKind


def send_control(
    log: SignalLog, acks: Acks, kind: SignalKind, act: Callable[[Signal], None], epoch: Callable[[], int]
) -> Future[Ack]:
    """Let `act` do what the signal says, and tell when it has, with the `epoch` of then, or why it could not. It does
    so at once for an instant, in a thread of its own for a barrier."""
    signal = log.emit_control(kind)
    ack = acks.expect(signal)

    def deliver() -> None:
        try:
            act(signal)
        except Exception as problem:
            acks.refused(signal, problem)
        else:
            acks.seen(signal, epoch())

    if isinstance(signal, Instant):
        deliver()
    else:
        threading.Thread(target=deliver, name="headrace-control", daemon=True).start()
    return ack
