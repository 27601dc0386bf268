"""The memory and console sinks: bounded, and once per epoch while the process lives."""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from rich.console import Console

from headrace.errors import EpochMismatch
from headrace.model.definitions import SinkDef
from headrace.model.schema import BIGINT, STRING, TIMESTAMP, Field, Schema
from headrace.sinks import SINKS, SinkKey, Staged
from headrace.sinks import memory as memory_sink
from headrace.sinks.console import CONSOLE, ConsoleSink, ConsoleTask
from headrace.sinks.in_process import unpack
from headrace.sinks.memory import MEMORY, MemorySink, MemoryTask

OUTPUT = Schema((Field("x", BIGINT),))


def rows(*numbers: int) -> pa.Table:
    return pa.table({"x": pa.array(numbers, pa.int64())})


def memory(**options: str) -> tuple[MemoryTask, MemorySink]:
    sink, settings = SinkDef("m", "memory", options), MEMORY.settings_of(options)
    return MemoryTask(sink, settings), MemorySink(sink, settings, OUTPUT)


def key(epoch: int, instance: int = 1, checkpoint: str = "c") -> SinkKey:
    return SinkKey(checkpoint, instance, epoch)


def test_memory_gives_rows_back_in_the_order_of_their_epochs() -> None:
    task, sink = memory()
    assert sink.commit(key(0), [task.stage(rows(1), key(0)), task.stage(rows(2, 3), key(0))]) == 3
    assert sink.commit(key(1), []) == 0
    assert sink.commit(key(2), [task.stage(rows(4), key(2))]) == 1
    assert sink.read().column("x").to_pylist() == [1, 2, 3, 4]


def test_memory_without_rows_has_the_schema() -> None:
    assert memory()[1].read().schema == OUTPUT.arrow


def test_memory_takes_a_repeated_epoch_once() -> None:
    task, sink = memory()
    for _ in range(2):
        assert sink.commit(key(0), [task.stage(rows(1, 2), key(0))]) == 2
    assert sink.read().num_rows == 2


def test_memory_takes_the_same_epoch_of_another_instance_or_checkpoint() -> None:
    task, sink = memory()
    for other in (key(0), key(0, instance=2), key(0, checkpoint="d")):
        sink.commit(other, [task.stage(rows(1), other)])
    assert sink.read().num_rows == 3


def test_memory_drops_the_oldest_rows() -> None:
    task, sink = memory(max_rows="3")
    sink.commit(key(0), [task.stage(rows(1, 2), key(0))])
    sink.commit(key(1), [task.stage(rows(3), key(1)), task.stage(rows(4), key(1))])
    assert sink.read().column("x").to_pylist() == [2, 3, 4]
    assert sink.commit(key(2), [task.stage(rows(*range(100)), key(2))]) == 100
    assert sink.read().column("x").to_pylist() == [97, 98, 99]


def test_memory_keeps_as_many_of_the_newest_rows_as_fit_into_its_bytes() -> None:
    task, sink = memory(max_bytes="80")  # ten rows, although each receipt takes hundreds of bytes
    for epoch in range(5):
        sink.commit(key(epoch), [task.stage(rows(3 * epoch, 3 * epoch + 1, 3 * epoch + 2), key(epoch))])
        newest = range(3 * epoch + 3)[-10:]
        assert sink.read().column("x").to_pylist() == list(newest)


def test_memory_keeps_as_many_bytes_after_rows_of_a_receipt_were_dropped() -> None:
    task, sink = memory(max_bytes="80", max_rows="8")
    for epoch in range(4):
        sink.commit(key(epoch), [task.stage(rows(*range(6 * epoch, 6 * epoch + 6)), key(epoch))])
        assert sink.read().column("x").to_pylist() == list(range(6 * epoch + 6)[-8:])


def test_memory_keeps_the_newest_row_however_large_it_is() -> None:
    task, sink = memory(max_bytes="4")
    for epoch in range(3):
        sink.commit(key(epoch), [task.stage(rows(epoch, epoch + 1), key(epoch))])
        assert sink.read().column("x").to_pylist() == [epoch + 1]


def test_memory_decodes_only_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    task, sink = memory(max_rows="4")
    decoded: list[bytes] = []

    def noted(data: bytes) -> pa.Table:
        decoded.append(data)
        return unpack(data)

    monkeypatch.setattr(memory_sink, "unpack", noted)
    for epoch in range(10):
        sink.commit(key(epoch), [task.stage(rows(epoch, -epoch, 0), key(epoch))])
    assert not decoded
    assert sink.read().column("x").to_pylist() == [0, 9, -9, 0]
    assert len(decoded) == 2


def test_a_task_sends_no_more_than_the_sink_can_hold() -> None:
    small, large = (memory(max_rows="5")[0].stage(rows(*range(n)), key(0)) for n in (5, 100_000))
    assert (small.rows, large.rows) == (5, 100_000)
    assert len(large.data) == len(small.data)


def printed(staged: list[pa.Table], output: Schema = OUTPUT, times: int = 1, **options: str) -> str:
    sink, settings = SinkDef("c", "console", options), CONSOLE.settings_of(options)
    out = io.StringIO()
    driver = ConsoleSink(sink, settings, output, Console(file=out, width=120))
    for _ in range(times):
        receipts: list[Staged] = [ConsoleTask(sink, settings).stage(table, key(7)) for table in staged]
        assert driver.commit(key(7), receipts) == sum(table.num_rows for table in staged)
    return out.getvalue()


def test_console_prints_the_first_rows_and_counts_the_rest() -> None:
    text = printed([rows(101, 102), rows(103, 104, 105)], max_rows="3")
    assert "epoch 7" in text
    assert all(str(n) in text for n in (101, 102, 103))
    assert "104" not in text
    assert re.findall(r"\b\d+\b", text.splitlines()[-1]) == ["2"]


def test_console_prints_nothing_for_an_epoch_without_rows() -> None:
    assert printed([]) == ""


def test_console_prints_a_repeated_epoch_once() -> None:
    assert printed([rows(101)], times=2).count("101") == 1


def test_console_shows_values_as_they_are_even_if_they_look_like_markup() -> None:
    output = Schema((Field("[b]", STRING), Field("at", TIMESTAMP), Field("n", BIGINT)))
    table = pa.Table.from_pylist(
        [{"[b]": "[red]x[/red]", "at": datetime(2024, 1, 1, tzinfo=UTC), "n": None}], schema=output.arrow
    )
    text = printed([table], output)
    assert "[b]" in text
    assert "[red]x[/red]" in text
    assert "2024-01-01T00:00:00.000Z" in text  # as in the files of the jsonl sink
    assert "NULL" in text


@pytest.mark.parametrize("name", sorted(SINKS))
def test_every_kind_says_what_it_is_and_what_it_guarantees(name: str) -> None:
    kind = SINKS[name]
    assert (kind.name, bool(kind.help), bool(kind.guarantee)) == (name, True, True)
    assert all(option.help for option in kind.all_options)


@pytest.mark.parametrize("kind", ["memory", "console"])
def test_an_epoch_with_other_input_under_a_number_that_was_committed_is_refused(kind: str) -> None:
    sink = SinkDef("m", kind, {})
    task, driver = SINKS[kind].task(sink), SINKS[kind].driver(sink, OUTPUT)

    def commit(epoch: int, digest: str) -> int:
        given = SinkKey("c", 1, epoch, digest)
        driver.verify(given)
        return driver.commit(given, [task.stage(rows(epoch), given)])

    assert [commit(0, "a"), commit(1, "b"), commit(1, "b")] == [1, 1, 1]
    for epoch, digest in ((1, "c"), (0, "a")):
        with pytest.raises(EpochMismatch):
            driver.verify(SinkKey("c", 1, epoch, digest))
        with pytest.raises(EpochMismatch):
            commit(epoch, digest)
    assert commit(2, "c") == 1
    driver.close()  # a console prints in a thread of its own, which must not write into the next test
