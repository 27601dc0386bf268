"""Standard output with a slow or closed reader: printing never blocks, and lost texts are counted."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from headrace.base.printer import WAITING, Printer
from headrace.model.definitions import SinkDef
from headrace.model.schema import INT, Field, Schema
from headrace.sinks.console import ConsoleSettings, ConsoleSink, ConsoleTask
from headrace.sinks.sink_kind import SinkKey
from tests.e2e.support import until

Pipe = Callable[[], tuple[int, io.TextIOWrapper]]


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    """Call it to make standard output a pipe: the end to read from, and the other. (pytest sets its own just before the
    test.)"""
    made: list[io.TextIOWrapper] = []

    def make() -> tuple[int, io.TextIOWrapper]:
        reads, writes = os.pipe()
        made.append(io.TextIOWrapper(os.fdopen(writes, "wb"), encoding="utf-8"))
        monkeypatch.setattr(sys, "stdout", made[0])
        return reads, made[0]

    yield make
    for out in made:
        out.close()


def everything(reads: int) -> str:
    with os.fdopen(reads, "rb") as file:
        return file.read().decode()


def test_a_reader_that_reads_gets_everything_in_order(pipe: Pipe) -> None:
    reads, out = pipe()
    printer = Printer()
    for i in range(20):
        printer.print(f"{i}\n")
    printer.close()
    out.close()
    assert everything(reads).split() == [str(i) for i in range(20)]
    assert (printer.dropped, printer.gone) == (0, "")


def test_a_reader_that_does_not_read_blocks_nothing_and_sees_how_much_it_missed(
    pipe: Pipe,
) -> None:
    reads, _ = pipe()
    printer = Printer()
    for _ in range(WAITING + 40):  # the pipe holds one of these, and the queue some more
        printer.print("x" * 100_000 + "\n")
    assert 30 <= printer.dropped <= 40
    dropped, seen = printer.dropped, b""
    while seen.count(b"\n") < WAITING - 2:
        seen += os.read(reads, 1 << 20)
    printer.print("again\n")
    while b"again" not in seen:
        seen += os.read(reads, 1 << 20)
    assert sum(map(int, re.findall(rb"\((\d+) epochs are not shown", seen))) == dropped  # in one note, or several
    printer.close()
    os.close(reads)


def test_closing_waits_a_bounded_time_for_a_reader_that_does_not_read(pipe: Pipe) -> None:
    reads, _ = pipe()
    printer = Printer()
    printer.print("x" * 1_000_000)
    printer.close(0.05)
    assert printer._thread is not None
    printer._thread.join(10)
    assert not printer._thread.is_alive()
    os.close(reads)


def test_a_console_sink_continues_when_its_reader_is_gone_and_reports_it(pipe: Pipe) -> None:
    reads, _ = pipe()
    os.close(reads)
    definition = SinkDef("screen", "console", {})
    sink = ConsoleSink(definition, ConsoleSettings(), Schema((Field("n", INT),)))
    for epoch in range(3):
        key = SinkKey("checkpoint", 1, epoch)
        staged = ConsoleTask(definition, ConsoleSettings()).stage(pa.table({"n": pa.array([epoch], pa.int32())}), key)
        assert sink.commit(key, [staged]) == 1
        until(lambda: sink.note, "the reader is gone")
    assert re.findall(r"\d+", sink.note)[-1] == "2"
    sink.close()


def test_a_console_sink_of_a_process_without_standard_output_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)  # as Python has it after `headrace run app.sql >&-`
    definition = SinkDef("screen", "console", {})
    sink = ConsoleSink(definition, ConsoleSettings(), Schema((Field("n", INT),)))
    key = SinkKey("checkpoint", 1, 0)
    staged = ConsoleTask(definition, ConsoleSettings()).stage(pa.table({"n": pa.array([1], pa.int32())}), key)
    assert sink.commit(key, [staged]) == 1
    until(lambda: sink.note, "standard output is not there")
    sink.close()
