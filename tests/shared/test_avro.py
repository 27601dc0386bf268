"""Avro files through a hub without Spark, and Avro messages through a task's decoder. The oracle is fastavro itself."""

from __future__ import annotations

import datetime as dt
import io
import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pytest

from headrace.errors import BadOption
from headrace.formats import FORMATS
from headrace.formats.packing import MessageFormat
from headrace.model.definitions import StreamDef
from headrace.model.schema import NESTED, Field, Schema, nested_fields, parse_type
from headrace.ring0.located import RecordLayout
from headrace.sources.source_kind import RawChunk
from tests.shared.mini import Crash, Mini

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Row",
    "namespace": "t",
    "fields": [
        {"name": "skipped", "type": {"type": "array", "items": "string"}},
        {"name": "ID", "type": "int"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["a", "b"]}},
        {
            "name": "pos",
            "type": ["null", {"type": "record", "name": "Pos", "fields": [
                {"name": "lat", "type": "double"}, {"name": "kind", "type": "Kind"}]}],
        },
        {"name": "m", "type": {"type": "map", "values": "long"}},
        {"name": "either", "type": ["string", "int"]},
    ],
}  # fmt: skip
DECLARED = (
    "id BIGINT, name STRING, price DECIMAL(12,4), at TIMESTAMP, pos STRUCT<lat: DOUBLE, kind: STRING>, "
    "m MAP<STRING, BIGINT>, kind STRING, absent INT"
)
MESSAGE = Schema(
    tuple(
        Field(name, parse_type(kind))
        for name, kind in (("id", "BIGINT"), ("name", "STRING"), ("pos", "STRUCT<lat: DOUBLE, kind: STRING>"))
    )
)
NAMES = ("id", "name", "price", "at", "pos", "m", "kind", "absent")


def row(n: int) -> dict[str, Any]:
    chance = random.Random(n)
    return {
        "skipped": ["x"] * chance.randrange(4),
        "ID": n,
        "name": chance.choice([None, f"näme {n}"]),
        "price": Decimal(chance.randrange(-(10**6), 10**6)).scaleb(-2),
        "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=n * 7919),
        "kind": chance.choice("ab"),
        "pos": chance.choice([None, {"lat": n / 4, "kind": "b"}]),
        "m": {f"k{i}": i for i in range(chance.randrange(3))},
        "either": chance.choice(["text", 5]),
    }


def wanted(record: dict[str, Any]) -> tuple[Any, ...]:
    found = record | {"id": record["ID"], "m": [*record["m"].items()], "absent": None}
    return tuple(found[name] for name in NAMES)


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_files_give_the_rows_that_were_written_and_a_cut_one_is_left_out(
    codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "in"
    home.mkdir()
    for number in range(3):
        with open(home / f"{number}.avro", "wb") as out:
            rows = [row(number * 100 + n) for n in range(100)]
            fastavro.writer(out, fastavro.parse_schema(AVRO), rows, codec=codec, sync_interval=300)
    (home / "2.avro").write_bytes((home / "2.avro").read_bytes()[:-40])
    (home / "3.avro").write_bytes(b"no avro")
    monkeypatch.setattr("headrace.formats.avro.RUN", 1000)
    monkeypatch.setattr("headrace.sources.files.SMALLEST_SPLIT", 500)
    mini = Mini(tmp_path / "state", monkeypatch)
    mini.hub.sql(
        f"CREATE SINK out WITH (type = 'kept'); CREATE STREAM s ({DECLARED}, row BIGINT METADATA FROM 'position') "
        f"WITH (source = 'files', format = 'avro', path = '{home}', max_epoch_bytes = '2000', on_bad_file = 'skip')"
    )
    mini.checkpoint.crash = "tasks"
    try:
        mini.hub.sql(
            f"CREATE PIPELINE p INTO out AS SELECT {', '.join(NAMES)}, row FROM s;"
            "CREATE PIPELINE q INTO out AS SELECT pos.lat FROM s WHERE id % 10 = 3 AND id < 200"
        )
    except Crash:
        mini.crash()
    mini.drain()
    everything, few = (mini.output(mini.hub.record(name).definition.instance) for name in "pq")
    rows = [row(n) for n in range(200)]
    # Epochs before the one that met the cut have read blocks of the third file.
    assert sorted(r for r in everything if r[0] < 200) == [(*wanted(r), n % 100) for n, r in enumerate(rows)]
    lats = [(None if r["pos"] is None else r["pos"]["lat"],) for r in rows if r["ID"] % 10 == 3]
    assert sorted(few, key=repr) == sorted(lats, key=repr)
    bad = mini.hub.streams["s"].status().bad_files
    assert {Path(path).name: why[:16] for path, why in bad.items()} == dict.fromkeys(
        ("2.avro", "3.avro"), "[DAMAGED_STREAM]"
    )
    mini.hub.close()


def encoded(record: dict[str, Any], schema: Any = None) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema or AVRO), record)
    return out.getvalue()


def decoded(options: dict[str, str], messages: list[bytes], columns: list[int], selection: Any = None) -> Any:
    """Columns and bad records of messages, as a task gets them."""
    schema = MESSAGE
    stream = StreamDef("s", schema, None, 0, "kafka", "avro", options)
    fmt = FORMATS["avro"].make(schema, options)
    assert isinstance(fmt, MessageFormat)
    packed = fmt.pack(messages, lambda: np.arange(100, 100 + len(messages)))
    chunk = RawChunk("topic", 0, packed.data, packed=packed)
    found = RecordLayout(stream).index(FORMATS["avro"].make(schema, options), chunk, columns[:1])
    parsed = found.parse(columns, selection)
    return {c: a.to_pylist() for c, a in parsed.columns.items()}, [(b.offset, b.reason) for b in found.bad]


def test_messages_are_decoded_by_their_framing_and_bad_ones_have_a_reason(tmp_path: Path) -> None:
    rows = [row(n) for n in range(4)]
    plain = [encoded(r) for r in rows]
    text = json.dumps(AVRO)
    lat = NESTED + next(k for k, f in enumerate(nested_fields(MESSAGE)) if f.path == ("lat",))
    lats = [None if r["pos"] is None else r["pos"]["lat"] for r in rows]
    names = [r["name"] for r in rows]

    found, bad = decoded({"schema": text}, [plain[0], plain[1][:-1], b"", plain[2] + b"x", *plain[1:]], [0, 1, lat])
    assert found == {0: [0, 1, 2, 3], 1: names, lat: lats}
    assert bad == [(101, "bad_avro"), (102, "bad_avro"), (103, "bad_avro")]
    late, _ = decoded({"schema": text}, plain, [0, 1], np.array([1, 3]))
    assert late == {0: [1, 3], 1: [names[1], names[3]]}

    (tmp_path / "7.avsc").write_text(text)
    newer = {
        "type": "record",
        "name": "Row",
        "fields": [{"name": "name", "type": "string"}, {"name": "id", "type": "long"}],
    }
    (tmp_path / "300.avsc").write_text(json.dumps(newer))
    (tmp_path / "5.avsc").write_text(json.dumps(dict(newer, fields=[{"name": "id", "type": "string"}])))
    framed = [b"\0" + (7).to_bytes(4, "big") + m for m in plain]
    framed.insert(1, b"\0" + (300).to_bytes(4, "big") + encoded({"name": "new", "id": 2**40}, newer))
    framed += [b"\0" + (8).to_bytes(4, "big") + plain[0], b"\1" + framed[0][1:], b"\0\0", b"\0\0\0\0\5" + b"\2a"]
    options = {"schema_file": str(tmp_path / "{id}.avsc"), "framing": "registry"}
    found, bad = decoded(options, framed, [0, 1, 2])
    assert found[0] == [0, 2**40, 1, 2, 3] and found[1] == [names[0], "new", *names[1:]]
    assert found[2] == [rows[0]["pos"], None, *(r["pos"] for r in rows[1:])]
    assert bad == [(105, "unknown_schema"), (106, "bad_avro"), (107, "bad_avro"), (108, "unknown_schema")]
    found, bad = decoded({"schema": text, "framing": "registry", "schema_id": "7"}, framed[:3], [0])
    assert found == {0: [0, 1]} and bad == [(101, "unknown_schema")]

    mark = bytes.fromhex(fastavro.schema.fingerprint(fastavro.schema.to_parsing_canonical_form(AVRO), "CRC-64-AVRO"))
    single = [b"\xc3\x01" + mark + m for m in plain[:2]] + [b"\xc3\x01" + bytes(8) + plain[0], plain[0]]
    found, bad = decoded({"schema_file": str(tmp_path / "7.avsc"), "framing": "single_object"}, single, [0])
    assert found == {0: [0, 1]} and bad == [(102, "unknown_schema"), (103, "bad_avro")]

    schema = Schema((Field("either", parse_type("STRING")),))
    for wrong in (
        {"schema": text},  # a union of two types is no STRING
        {"schema": "{"},
        {"schema": '"int"'},
        {"schema_file": str(tmp_path / "none")},
        {"framing": "registry"},
        {"schema": text, "framing": "registry"},
        {"schema": text, "schema_id": "1"},
        {"schema": text, "schema_file": str(tmp_path / "7.avsc")},
        {"schema_file": str(tmp_path / "{id}.avsc")},
    ):
        with pytest.raises(BadOption):
            FORMATS["avro"].make(schema, wrong)
