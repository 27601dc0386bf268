"""The delta sink: exactly once whichever step dies, partitioned, and readable by deltalake, polars and DuckDB."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from headrace.errors import BadOption, SinkFailed, SinkMismatch, SinkRefused, TypeMismatch, UnknownColumn
from headrace.model.definitions import SinkDef
from headrace.model.schema import BIGINT, STRING, Field, Schema, parse_type
from headrace.sinks import SINKS, SinkKey
from tests.sinks.crashes import Crash, crashing_at

OUTPUT = Schema((Field("k", STRING), Field("n", BIGINT)))
Rows = Sequence[tuple[str | None, int]]


class Writer:
    def __init__(self, root: Path, instance: int = 1, output: Schema = OUTPUT, **options: str) -> None:
        self.root, self.instance, self.output = root, instance, output
        self.sink = SinkDef("out", "delta", {"path": str(root), **options})

    def key(self, epoch: int) -> SinkKey:
        return SinkKey("c", self.instance, epoch, "d")

    def driver(self) -> Any:
        return SINKS["delta"].driver(self.sink, self.output)

    def run(self, epoch: int, *parts: Rows) -> int:
        """A run of an epoch with one task for each part, in a process of its own."""
        staged = [self.stage(epoch, table(part)) for part in parts]
        done: int = self.driver().commit(self.key(epoch), staged)
        return done

    def stage(self, epoch: int, rows: pa.Table) -> Any:
        return SINKS["delta"].task(self.sink).stage(rows, self.key(epoch))

    def shown(self) -> list[tuple[Any, ...]]:
        if not DeltaTable.is_deltatable(str(self.root)):
            return []
        rows = DeltaTable(str(self.root)).to_pyarrow_table().select(["k", "n"]).to_pylist()
        return sorted((tuple(row.values()) for row in rows), key=repr)


def table(rows: Rows) -> pa.Table:
    return pa.table({"k": pa.array([k for k, _ in rows], pa.string()), "n": pa.array([n for _, n in rows], pa.int64())})


def test_epochs_are_appended_once_however_often_they_run(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    assert writer.run(0, [("a", 1)], [("b", 2), (None, 3)]) == 3
    assert writer.run(0, [("b", 2), (None, 3), ("a", 1)]) == 3
    assert writer.run(1, [("c", 4)]) == 1
    assert Writer(tmp_path, instance=2).run(0, [("d", 5)]) == 1
    assert writer.shown() == [("a", 1), ("b", 2), ("c", 4), ("d", 5), (None, 3)]


def test_a_death_at_any_step_of_a_commit_is_repaired_by_the_next_run(tmp_path: Path) -> None:
    before = set()
    for step in itertools.count(0, 3):
        writer = Writer(tmp_path / str(step), partition_by="k")
        writer.run(0, [("a", 1)])
        try:
            with crashing_at(step):
                writer.run(1, [("b", 2)], [("c", 3)])
        except Crash:
            before.add(len(writer.shown()))
            assert writer.run(1, [("c", 3), ("b", 2)]) == 2
            assert writer.shown() == [("a", 1), ("b", 2), ("c", 3)]
        else:
            break
    assert before == {1, 3}  # an epoch is visible as a whole, or not at all


def test_a_death_between_the_files_and_the_log_is_repaired(tmp_path: Path) -> None:
    writer = Writer(tmp_path)

    def die(name: str) -> None:
        raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.sinks.delta.fault_point", die)
        with pytest.raises(Crash):
            writer.run(0, [("a", 1)])
    assert writer.shown() == []
    writer.run(0, [("a", 999)])
    assert writer.shown() == [("a", 1)]


def test_two_hubs_that_commit_the_same_epoch_at_once_add_it_once(tmp_path: Path) -> None:
    Writer(tmp_path).run(0, [("a", 1)])
    writer = Writer(tmp_path)
    stale = writer.driver()
    old = DeltaTable(str(tmp_path))
    stale._table = lambda: old  # it has read the log before the other one commits
    staged = [writer.stage(1, table([("b", 2)]))]
    stale.promise(writer.key(1), staged)
    writer.driver().commit(writer.key(1), [])
    with pytest.raises(CommitFailedError):
        stale._commit_actions(old, writer.key(1), [stale._added(p.name) for p in tmp_path.glob("part-*-00000001-*")])
    assert writer.shown() == [("a", 1), ("b", 2)]


def test_many_pipelines_share_a_table(tmp_path: Path) -> None:
    Writer(tmp_path, instance=0).run(0, [("x", 0)])

    def write(instance: int) -> None:
        for epoch in range(3):
            for _ in range(20):  # as the retries of a sink do
                try:
                    Writer(tmp_path, instance).run(epoch, [(f"i{instance}", epoch)])
                    break
                except SinkFailed:
                    continue

    threads = [threading.Thread(target=write, args=(i,)) for i in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = [("x", 0), *((f"i{i}", e) for i in (1, 2, 3) for e in range(3))]
    assert Writer(tmp_path).shown() == sorted(wanted, key=repr)


def test_partitions_of_every_type_are_read_back_by_deltalake_polars_and_duckdb(tmp_path: Path) -> None:
    kinds = ("STRING", "INT", "DATE", "BOOLEAN", "TINYINT", "BIGINT")
    output = Schema(tuple(Field(f"c{i}", parse_type(kind)) for i, kind in enumerate(kinds)))
    rows = [
        ("a/b é:%=", -5, date(2024, 2, 29), True, 12, 1),
        ("plain", 7, date(1969, 12, 31), False, -1, 2),
        (None, None, None, None, None, 3),
    ]
    writer = Writer(tmp_path, output=output, partition_by="c0, c1, c2, c3, c4")
    arrays: list[Any] = [pa.array([row[i] for row in rows], f.type.arrow) for i, f in enumerate(output)]
    writer.driver().commit(writer.key(0), [writer.stage(0, pa.table(arrays, names=list(output.names)))])
    wanted = sorted(rows, key=lambda row: int(str(row[5])))
    found = DeltaTable(str(tmp_path)).to_pyarrow_table().select(list(output.names)).sort_by("c5")
    assert [tuple(row.values()) for row in found.to_pylist()] == wanted
    assert pl.read_delta(str(tmp_path)).select(output.names).sort("c5").rows() == wanted
    # DuckDB's own reader is an extension, which is not shipped with it.
    with duckdb.connect() as connection:
        connection.register("rows", DeltaTable(str(tmp_path)).to_pyarrow_dataset())
        assert connection.execute("SELECT c0, c1, c2, c3, c4, c5 FROM rows ORDER BY c5").fetchall() == wanted


def test_a_rewind_takes_the_files_of_later_epochs_out_and_the_epochs_can_run_again(tmp_path: Path) -> None:
    writer, other = Writer(tmp_path, partition_by="k"), Writer(tmp_path, instance=2, partition_by="k")
    for epoch in range(4):
        writer.run(epoch, [(f"e{epoch}", epoch)])
    other.run(9, [("other", 9)])
    driver = writer.driver()
    assert driver.ahead(writer.key(1)) > 0
    driver.rewind(writer.key(1))
    assert driver.ahead(writer.key(1)) == 0 and other.driver().ahead(other.key(9)) == 0
    assert writer.shown() == [("e0", 0), ("e1", 1), ("other", 9)]
    writer.run(2, [("again", 2)])
    assert writer.shown() == [("again", 2), ("e0", 0), ("e1", 1), ("other", 9)]


def test_a_rewind_refuses_rows_that_someone_has_compacted(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for epoch in range(4):
        writer.run(epoch, [(f"e{epoch}", epoch)])
    DeltaTable(str(tmp_path)).optimize.compact()
    with pytest.raises(SinkRefused):
        writer.driver().rewind(writer.key(1))
    assert len(writer.shown()) == 4


def test_a_table_that_lacks_a_column_is_named_and_the_epoch_waits_for_it(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"k": ["old"]}))
    writer = Writer(tmp_path)
    with pytest.raises(SinkMismatch) as caught:
        writer.run(0, [("a", 1)])
    assert caught.value.params["column"] == "n"
    assert writer.driver().committed(writer.key(0))  # it is owed, not lost
    DeltaTable(str(tmp_path)).alter.add_columns([_column_n()])
    assert writer.driver().commit(SinkKey("c", 1, 0), []) == 1
    assert writer.shown() == [("a", 1), ("old", None)]


def _column_n() -> Any:
    from deltalake import Field as DeltaField
    from deltalake.schema import PrimitiveType

    return DeltaField("n", PrimitiveType("long"))


def test_a_table_with_other_partitions_is_a_mismatch(tmp_path: Path) -> None:
    Writer(tmp_path, partition_by="k").run(0, [("a", 1)])
    with pytest.raises(SinkMismatch):
        Writer(tmp_path, instance=2).run(0, [("a", 1)])


@pytest.mark.parametrize("kind", ["delta", "parquet", "jsonl"])
def test_partitions_that_the_output_cannot_have_are_refused_when_a_pipeline_is_created(kind: str) -> None:
    output = Schema((*OUTPUT, Field("d", parse_type("DOUBLE"))))

    def check(columns: str, schema: Schema = output) -> None:
        SINKS[kind].require_output(SinkDef("s", kind, {"path": "/x", "partition_by": columns}), schema)

    check("k,n")
    with pytest.raises(UnknownColumn):
        check("k,nn")
    with pytest.raises(TypeMismatch):
        check("d")
    with pytest.raises(BadOption):
        check("k,n", OUTPUT)
