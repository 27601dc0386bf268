"""The first start on a machine: compiles the kernels while Spark starts, and says so."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.base.logs import facts
from headrace.formats import warm

# Compiling takes half a minute of a quiet core. Without the result, tasks compile what they need.
_LIMIT_SECONDS = 300.0
_log = logging.getLogger(__name__)


@contextmanager
def kernels_compiled(master: str | None) -> Iterator[None]:
    """Compile the kernels in another process during this context, unless this machine has them compiled. A cluster's
    workers compile their own."""
    if not (master or "local").startswith("local") or warm.compiled():
        yield
        return
    began = time.monotonic()
    _log.info("compiling the kernels for this machine: about half a minute, only now", extra=facts("phase"))
    command = [sys.executable, "-m", "headrace.ring0.ready_kernels"]
    nowhere = subprocess.DEVNULL
    child = subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)
    try:
        yield
        if child.poll() is None:
            _log.info("Spark runs; still compiling the kernels", extra=facts("phase"))
            child.wait(_LIMIT_SECONDS)
        _log.info("compiled the kernels in %.0f s", time.monotonic() - began, extra=facts("phase"))
    except subprocess.TimeoutExpired:
        _log.warning("compiling the kernels takes long; the first epochs compile what they need")
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
