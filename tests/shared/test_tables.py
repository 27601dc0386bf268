"""Parquet and Arrow files as input, through a hub without Spark. The oracle is pyarrow's own reader."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headrace.errors import HeadraceError
from headrace.formats import parquet_files
from headrace.sources.files import Files
from tests.shared.mini import Crash, Mini
from tests.strategies import examples

DECLARED = (
    "n BIGINT, small INT, price DECIMAL(12,4), name STRING, raw BINARY, ok BOOLEAN, day DATE, at TIMESTAMP, "
    "local TIMESTAMP_NTZ, x DOUBLE, pos STRUCT<lat: DOUBLE, lon: DOUBLE, deep: STRUCT<k: BIGINT>>, tags ARRAY<STRING>, "
    "m MAP<STRING, INT>, absent STRING"
)
# The files have narrower types, another order, other cases of letters and a column that is not declared.
FIELDS: Any = [
    ("Name", pa.large_string()),
    ("n", pa.int32()),
    ("small", pa.int16()),
    ("price", pa.decimal128(9, 2)),
    ("extra", pa.int64()),
    ("raw", pa.binary()),
    ("ok", pa.bool_()),
    ("day", pa.date32()),
    ("at", pa.timestamp("ns", "UTC")),
    ("local", pa.timestamp("ms")),
    ("x", pa.float32()),
    ("pos", pa.struct([("lon", pa.float64()), ("lat", pa.float32()), ("deep", pa.struct([("K", pa.int32())]))])),
    ("tags", pa.list_(pa.string())),
    ("m", pa.map_(pa.string(), pa.int16())),
]
STORED = pa.schema(FIELDS)
NAMES = ("n", "small", "price", "name", "raw", "ok", "day", "at", "local", "x", "pos", "tags", "m", "absent")


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values)


TIMES = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))
ROWS = st.fixed_dictionaries(
    {
        "Name": maybe(st.text(max_size=5)),
        "n": maybe(st.integers(-(2**31), 2**31 - 1)),
        "small": maybe(st.integers(-(2**15), 2**15 - 1)),
        "price": maybe(st.integers(-(10**8), 10**8).map(lambda cents: Decimal(cents).scaleb(-2))),
        "extra": st.just(1),
        "raw": maybe(st.binary(max_size=4)),
        "ok": maybe(st.booleans()),
        "day": maybe(st.dates()),
        "at": maybe(TIMES.map(lambda t: t.replace(tzinfo=dt.UTC))),
        "local": maybe(TIMES.map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000))),
        "x": maybe(st.floats(width=32, allow_nan=False)),
        "pos": maybe(
            st.fixed_dictionaries(
                {
                    "lon": maybe(st.floats(allow_nan=False)),
                    "lat": maybe(st.floats(width=32, allow_nan=False)),
                    "deep": maybe(st.fixed_dictionaries({"K": maybe(st.integers(-5, 5))})),
                }
            )
        ),
        "tags": maybe(st.lists(maybe(st.text(max_size=3)), max_size=3)),
        "m": maybe(
            st.dictionaries(st.text(max_size=2), maybe(st.integers(-9, 9)), max_size=2).map(lambda d: [*d.items()])
        ),
    }
)


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mini]:
    (tmp_path / "in").mkdir()
    mini = Mini(tmp_path / "state", monkeypatch)
    mini.hub.sql("CREATE SINK out WITH (type = 'kept'); CREATE SINK lost WITH (type = 'kept')")
    yield mini
    mini.hub.close()


def declare(mini: Mini, columns: str, *options: str, form: str = "parquet") -> None:
    given = ", ".join([f"path = '{mini.directory.parent / 'in'}'", f"format = '{form}'", *options])
    mini.hub.sql(f"CREATE OR REPLACE STREAM s ({columns}) WITH (source = 'files', {given})")


def pipeline(mini: Mini, query: str, name: str = "p") -> int:
    mini.hub.sql(f"CREATE PIPELINE {name} INTO out AS {query}")
    return mini.hub.record(name).definition.instance


def write(path: Path, table: pa.Table, group: int, kind: str = "parquet") -> None:
    hidden = path.with_name(f".{path.name}")
    if kind == "parquet":
        pq.write_table(table, hidden, row_group_size=group)
    else:
        make = pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream
        with make(str(hidden), table.schema) as writer:
            writer.write_table(table, max_chunksize=group)
    hidden.rename(path)


def look(mini: Mini) -> None:
    if mini.query is not None and isinstance(source := mini.query.planner.source, Files):
        source._next_poll = source._next_full = 0.0
    mini.drain()


def status(mini: Mini) -> Any:
    return mini.hub.streams["s"].status()


def wanted(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows as declared: pyarrow's values, with fields in the declared order, and NULL for what the file lacks."""
    rows = []
    for row in table.to_pylist():
        pos = row["pos"]
        if pos is not None:
            deep = None if pos["deep"] is None else {"k": pos["deep"]["K"]}
            pos = {"lat": pos["lat"], "lon": pos["lon"], "deep": deep}
        found = {k.lower(): v for k, v in row.items()} | {"pos": pos, "absent": None}
        rows.append(tuple(found[name] for name in NAMES))
    return rows


@settings(
    max_examples=examples(6),
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(
    files=st.lists(st.lists(ROWS, max_size=12), min_size=1, max_size=3),
    group=st.integers(1, 6),
    kind=st.sampled_from(["parquet", "arrow", "arrow stream"]),
    epoch=st.sampled_from([300, 2000, 1_000_000]),
    crash=st.sampled_from(["", "tasks", "committed"]),
)
def test_every_cut_and_every_crash_gives_the_rows_of_pyarrow(
    files: Any, group: int, kind: str, epoch: int, crash: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("tables")
    (root / "in").mkdir()
    tables = [pa.Table.from_pylist(rows, STORED) for rows in files]
    for number, table in enumerate(tables):
        write(root / "in" / f"{number}.bin", table, group, kind)
    with pytest.MonkeyPatch.context() as patch:
        mini = Mini(root / "state", patch)
        patch.setattr("headrace.sources.files.SMALLEST_SPLIT", 100)
        mini.hub.sql("CREATE SINK out WITH (type = 'kept')")
        declare(mini, DECLARED, f"max_epoch_bytes = '{epoch}'", form=kind.split()[0])
        mini.checkpoint.crash = crash
        try:
            mini.hub.sql(
                f"CREATE PIPELINE p INTO out AS SELECT {', '.join(NAMES)} FROM s;"
                "CREATE PIPELINE q INTO out AS SELECT n, pos.deep.k FROM s WHERE n > 0"
            )
        except Crash:
            mini.crash()
        whole, part = (mini.hub.record(name).definition.instance for name in "pq")
        try:
            mini.drain()
        except Crash:
            mini.crash()
        mini.drain()
        rows = [row for table in tables for row in wanted(table)]
        assert sorted(mini.output(whole), key=repr) == sorted(rows, key=repr)
        few = [
            (r[0], None if r[10] is None or r[10]["deep"] is None else r[10]["deep"]["k"])
            for r in rows
            if (r[0] or 0) > 0
        ]
        assert sorted(mini.output(part), key=repr) == sorted(few, key=repr)
        assert status(mini).rows == len(rows)
        mini.hub.close()


def test_only_needed_leaves_are_read_and_the_others_only_if_a_row_passes(
    mini: Mini, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[list[int]] = []
    really = parquet_files.RowGroup._rows

    def noted(group: Any, leaves: list[int]) -> pa.Table:
        read.append(leaves)
        return really(group, leaves)

    monkeypatch.setattr(parquet_files.RowGroup, "_rows", noted)
    rows: list[Any] = [{"n": i, "pos": {"lon": 1.0, "lat": 2.0, "deep": {"K": i}}, "Name": "x"} for i in range(100)]
    write(mini.directory.parent / "in" / "a.parquet", pa.Table.from_pylist(rows, STORED), 50)
    declare(mini, DECLARED)
    counted = pipeline(mini, "SELECT count(*) AS c FROM s EMIT CHANGES")
    mini.drain()
    assert not read and mini.output(counted)[-1] == (100,)
    assert "each row group by one task" in mini.hub.sql("EXPLAIN SELECT n FROM s")[0].render()
    mini.hub.sql("DROP PIPELINE p")
    picked = pipeline(mini, "SELECT name, pos.deep.k FROM s WHERE n = 160")
    write(mini.directory.parent / "in" / "b.parquet", pa.Table.from_pylist(rows, STORED), 50)
    look(mini)
    assert read == [[1], [1]]  # the filter's column of both row groups, and nothing more: no row passes
    rows = [row | {"n": row["n"] + 100} for row in rows]
    write(mini.directory.parent / "in" / "c.parquet", pa.Table.from_pylist(rows, STORED), 50)
    look(mini)
    assert read[2:] == [[1], [1], [0], [13]] and mini.output(picked) == [("x", 60)]


def test_a_file_that_does_not_fit_or_is_damaged_is_one_bad_file(mini: Mini) -> None:
    home = mini.directory.parent / "in"
    wrong = {
        "1": pa.table({"n": ["text"]}),
        "2": pa.table({"other": [1]}),
        "3": pa.table([pa.array([1]), pa.array([2])], names=["N", "N"]),
    }
    wrong |= {"4": pa.table({"n": pa.array([1], pa.uint64())}), "5": pa.table({"at": pa.array([1], pa.date32())})}
    for name, table in wrong.items():
        write(home / f"{name}.parquet", table, 10)
    (home / "6.parquet").write_bytes(b"PAR1 this is no table")
    write(home / "7.parquet", pa.table({"N": [7, 8]}), 1)
    declare(mini, "n BIGINT, at TIMESTAMP", "on_bad_file = 'skip'")
    found = pipeline(mini, "SELECT n FROM s")
    mini.drain()
    assert mini.output(found) == [(7,), (8,)]
    codes = {Path(path).stem: why.split("]")[0][1:] for path, why in status(mini).bad_files.items()}
    assert codes == dict.fromkeys("12345", "SCHEMA_MISMATCH") | {"6": "DAMAGED_STREAM"}
    # A page that is damaged shows only when a task reads it: the epoch runs again without the file.
    write(home / "8.parquet", pa.table({"n": list(range(1000))}), 500)
    content = bytearray((home / "8.parquet").read_bytes())
    content[4:80] = bytes(76)
    (home / "9.parquet").write_bytes(content)
    (home / "8.parquet").unlink()
    write(home / "a.parquet", pa.table({"n": [9]}), 1)
    look(mini)
    assert mini.output(found) == [(7,), (8,), (9,)]
    assert status(mini).bad_files[str(home / "9.parquet")].startswith("[DAMAGED_STREAM]")
    with pytest.raises(HeadraceError) as problem:
        declare(mini, "n BIGINT", "tail = 'true'")
    assert problem.value.code == "BAD_OPTION"


def test_bad_values_are_counted_and_metadata_is_that_of_the_file(mini: Mini) -> None:
    home = mini.directory.parent / "in"
    at = pa.array([0, 2**62, 5], pa.timestamp("ms", "UTC"))
    text = pa.Array.from_buffers(
        pa.string(), 3, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0"), pa.py_buffer(b"a\xffc")]
    )
    write(home / "a.arrow", pa.table({"at": at, "t": text, "n": [1, 2, 3]}), 2, "arrow")
    declare(
        mini, "n BIGINT, t STRING, at TIMESTAMP, row BIGINT METADATA FROM 'position', name STRING METADATA",
        "on_error = 'dead_letter'", "dead_letter_sink = 'lost'", form="arrow",
    )  # fmt: skip
    mini.hub.sql(
        "CREATE PIPELINE n INTO out AS SELECT n, row, name FROM s; CREATE PIPELINE t INTO out AS SELECT t, n FROM s;"
        "CREATE PIPELINE r INTO out AS SELECT at, row FROM s"
    )
    n, t, times = (mini.hub.record(name).definition.instance for name in "ntr")
    mini.drain()
    assert mini.output(n) == [(1, 0, "a.arrow"), (2, 1, "a.arrow"), (3, 2, "a.arrow")]
    assert mini.output(t) == [("a", 1), ("c", 3)]
    epoch = dt.datetime.fromtimestamp(0, dt.UTC)
    assert mini.output(times) == [(epoch, 0), (epoch + dt.timedelta(milliseconds=5), 2)]
    assert status(mini).bad == {"bad_utf8": 1, "out_of_range": 1}
    letters = [
        row for key, rows in mini.checkpoint.kept.items() if key.instance < 0 or key.instance == 0 for row in rows
    ]
    assert {(row[2], row[3], row[4]) for row in letters if len(row) == 7} == {
        (1, "t", "bad_utf8"),
        (1, "at", "out_of_range"),
    }
