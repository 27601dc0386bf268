"""The sinks in which a call hangs. Nobody may use such a sink before the call returns: nothing can interrupt it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TypeVar

from headrace.errors import SinkFailed

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Hang:
    """A call that hangs in `sink` of an instance. If it is part of a commit that was given up (`whole`), all sinks of
    the instance are taken: the commit ends before it uses the next one, but may just be about to."""

    instance: int
    sink: str
    whole: bool
    since: float


class HangingSinks:
    """Which sinks of a stream hang. Any thread may call.

    A call is held under a token of its own, so that a sink is free again only when every call in it has returned. Then
    the same object is used again. So one thread at a time uses a sink, as its protocol demands.
    """

    def __init__(self) -> None:
        self._held: dict[object, Hang] = {}

    def hold(self, token: object, instance: int, sink: str, whole: bool) -> None:
        """From now on a call hangs in a sink."""
        self._held[token] = Hang(instance, sink, whole, time.monotonic())

    def release(self, token: object) -> None:
        """The call has returned."""
        self._held.pop(token, None)

    @property
    def instances(self) -> set[int]:
        """The instances that have such a sink."""
        return {hang.instance for hang in list(self._held.values())}

    def sinks(self, instance: int, seconds: float = 0.0) -> set[str]:
        """The sinks of an instance in which a call has hung for so many seconds or longer."""
        began = time.monotonic() - seconds
        return {hang.sink for hang in self._of(instance) if hang.whole or hang.since <= began}

    def given_up(self, instance: int) -> bool:
        """True if a commit was given up that hangs in a sink of the instance."""
        return any(hang.whole for hang in self._of(instance))

    def takes(self, instance: int, sink: str) -> bool:
        """True if nobody else may use the sink."""
        return any(hang.whole or hang.sink == sink for hang in self._of(instance))

    def _of(self, instance: int) -> list[Hang]:
        return [hang for hang in list(self._held.values()) if hang.instance == instance]

    def limited(self, instance: int, sink: str, step: Callable[[], T], seconds: float) -> T:
        """The result of `step`, a call of a sink. Raises SinkFailed if it takes longer than so many seconds. It goes on
        in a thread of its own then, and the sink hangs until it returns."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                result = step()
            except BaseException as problem:
                self.release(done)
                done.set_exception(problem)
            else:
                self.release(done)
                done.set_result(result)

        self.hold(done, instance, sink, whole=False)
        try:
            threading.Thread(target=run, name=f"headrace-sink-{sink}", daemon=True).start()
        except BaseException:
            self.release(done)
            raise
        wait([done], seconds)
        if not done.done():
            raise SinkFailed(
                f"sink {sink} has not answered for {seconds:g} s",
                advice="Nothing is lost. It is asked again when it has answered.",
                sink=sink,
            )
        return done.result()
