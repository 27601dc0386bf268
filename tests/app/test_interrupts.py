"""Signals go to whole processes, so these tests send them to child processes."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import signal, time
from headrace.app.interrupts import Interrupts
with Interrupts() as interrupts:
    {meddling}
    print("ready", flush=True)
    interrupts.asked.wait()
    print("asked", flush=True)
    time.sleep({drain})
print("clean", flush=True)
"""


def start(drain: float, meddling: str = "") -> subprocess.Popen[str]:
    program = PROGRAM.format(drain=drain, meddling=meddling)
    child = subprocess.Popen([sys.executable, "-c", program], stdout=-1, stderr=-1, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_for_a_clean_shutdown(number: signal.Signals) -> None:
    child = start(drain=0)
    child.send_signal(number)
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out) == (0, "asked\nclean\n")
    assert "Ctrl-C again" in err


def test_the_second_signal_exits_at_once() -> None:
    child = start(drain=60)
    assert child.stdout is not None
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "asked\n"
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=30)
    assert (child.returncode, out) == (130, "")


def test_install_replaces_a_handler_that_other_code_has_set() -> None:
    child = start(drain=0, meddling="signal.signal(signal.SIGINT, signal.SIG_DFL); interrupts.install()")
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=30)
    assert (child.returncode, out) == (0, "asked\nclean\n")
