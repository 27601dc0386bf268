"""Sends signals through the control channel, which overtakes the rows."""

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
    """Emit a signal and call `act` with it. The future completes with the `epoch` at that moment, or fails with the
    error of `act`. An instant is delivered in the caller's thread, a barrier in a thread of its own."""
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
