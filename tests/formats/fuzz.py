"""Mutated records against the pure-Python twins: `python -m tests.formats.fuzz --seconds 60 --seed 7`.

Every case is decoded whole and cut into buffers, and must give the same rows and verdicts as the twin. The last case is
written to a file before it runs, so that even a crash leaves it behind.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.formats import FORMATS
from headrace.formats.base import Format
from headrace.formats.csv import Csv, Dialect
from headrace.formats.json import JsonLines
from headrace.formats.native import write_rows
from headrace.formats.values import Rules
from headrace.schema import Field, Schema, parse_type
from tests.formats import oracle
from tests.formats.test_json import same, verdicts

TYPES = ("BOOLEAN", "TINYINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BINARY", "DATE", "TIMESTAMP",
         "TIMESTAMP_NTZ", "DECIMAL(9,2)", "DECIMAL(38,6)")  # fmt: skip
NESTED = ("STRUCT<a: INT, b: STRING>", "ARRAY<DOUBLE>", "MAP<STRING, INT>", "ARRAY<ARRAY<STRING>>")
TOKENS = [
    b"{", b"}", b"[", b"]", b'"', b":", b",", b"\\", b"\n", b"\r\n", b"\\u00e9", b"\\ud83d\\ude00", b"\\u", b"true",
    b"false", b"null", b"-", b"+", b".", b"e", b"E5", b"0", b"00", b"9223372036854775807", b"1e308", b"1e-400", b"17.5",
    b"0.1", b"2024-02-29", b"2024-02-29T23:59:59.999999999Z", b"+18:00", b"aGk=", b"NaN", b"c0", b'"c0":', b'"c1":',
    b" ", b"\t", b"\x00", b"\xff", b"\xc3\xa9", b"\xed\xa0\x80", b'""', b"||", b"#", b"NULL", b"'", b"x" * 40,
    b"1234567890123456789012",
]  # fmt: skip
SEEDS = [
    b'{"c0":1,"c1":"a","c2":2.5,"c3":null}\n{"c0":2,"c1":"b","c2":3.5,"c3":true}\n{"c0":3,"c1":"c","c2":4.5,"c3":false}\n',
    b'{"c0": "2024-01-01T00:00:00Z", "c1": [1, 2, {"a": "x"}], "c2": {"a": 1, "b": "y"}, "c3": "aGVsbG8="}\n' * 2,
    b'1,a,2.5,true\n2,"b,b",3.5,false\n3,"c""c",,\n\n4,d,1e5,x\r\n',
    b"2024-01-01||NULL||'q||q'||7\n#no\n1||2||3||4||\n",
]


def mutate(randomly: random.Random, data: bytes) -> bytes:
    """A few insertions, deletions, copies and flips."""
    out = bytearray(data)
    for _ in range(randomly.randrange(1, 8)):
        at = randomly.randrange(len(out) + 1)
        kind = randomly.randrange(5)
        if kind == 0:
            out[at:at] = randomly.choice(TOKENS)
        elif kind == 1:
            del out[at : at + randomly.randrange(1, 12)]
        elif kind == 2 and at < len(out):
            out[at] = randomly.randrange(256)
        elif kind == 3:
            begin = randomly.randrange(len(out) + 1)
            out[at:at] = out[begin : begin + randomly.randrange(1, 60)]
        elif kind == 4:
            out[at : at + 1] = randomly.choice(TOKENS)
    return bytes(out)


def case(randomly: random.Random) -> tuple[Schema, Format, bytes, Dialect | None]:
    data = randomly.choice(SEEDS)
    for _ in range(randomly.randrange(1, 3)):
        data = mutate(randomly, data)
    if data.lstrip()[:1] in (b"{", b"[") or randomly.random() < 0.3:
        kinds = [randomly.choice(TYPES + NESTED) for _ in range(4)]
        schema = Schema(tuple(Field(f"c{i}", parse_type(t)) for i, t in enumerate(kinds)))
        return schema, JsonLines(schema, 1 << 20, Rules()), data, None
    kinds = [randomly.choice(TYPES) for _ in range(4)]
    schema = Schema(tuple(Field(f"c{i}", parse_type(t)) for i, t in enumerate(kinds)))
    dialect = Dialect(
        delimiter=randomly.choice([b",", b"||"]), quote=randomly.choice([b'"', b"'", b""]),
        escape=randomly.choice([b"", b"", b"\\"]), comment=randomly.choice([b"", b"#"]),
        nulls=randomly.choice([(b"",), (b"", b"NULL")]), ragged=randomly.random() < 0.3,
        trailing=randomly.random() < 0.3,
    )  # fmt: skip
    return schema, Csv(schema, dialect, 1 << 20, Rules()), data, dialect


def framed_case(randomly: random.Random) -> tuple[Schema, Format, bytes]:
    """A format without delimiters, and damaged rows of it."""
    kinds = [randomly.choice(TYPES) for _ in range(4)]
    if randomly.random() < 0.5:
        schema = Schema((Field("c0", parse_type("STRING")),))
        width = randomly.choice(["1", "2", "4", "8"])
        record = b"\0" * (int(width) - 1) + b"\5hello"
        data = record * randomly.randrange(6)
        fmt = FORMATS["length_prefixed"].make(schema, {"length_bytes": width, "max_record_bytes": "100"})
    else:
        schema = Schema(tuple(Field(f"c{i}", parse_type(t)) for i, t in enumerate(kinds)))
        fmt = FORMATS["native"].make(schema, {"max_record_bytes": "1000"})
        table = pa.table({f.name: pa.nulls(5, f.type.arrow) for f in schema})  # type: ignore[call-overload]
        data = write_rows(schema, table)
    for _ in range(randomly.randrange(3)):
        data = mutate(randomly, data)
    return schema, fmt, data


def check_framed(schema: Schema, fmt: Format, data: bytes, randomly: random.Random) -> None:
    """Raise unless damaged rows give verdicts and whole columns, and the same again from any whole rows of them."""
    columns = range(len(schema))
    whole = fmt.decode(data, columns, "o", 0)
    for column in whole.columns.values():
        column.validate(full=True)
        assert len(column) == whole.rows
    begin = fmt.frame(data[: randomly.randrange(len(data) + 1)], False).whole
    parts = [fmt.decode(part, columns, "o", 0) for part in (data[:begin], data[begin:])]
    assert sum(part.rows for part in parts) == whole.rows
    assert sum(len(part.bad) for part in parts) == len(whole.bad)


def rows_of(decoded: Any) -> list[list[Any]]:
    columns = [
        c.to_pylist(maps_as_pydicts="strict") if "map" in str(c.type) else c.to_pylist()
        for c in decoded.columns.values()
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def check(schema: Schema, fmt: Format, data: bytes, dialect: Dialect | None, randomly: random.Random) -> None:
    """Raise AssertionError unless whole and cut decoding agree with the twin."""
    rows, bad = oracle.decode_json(data, schema) if dialect is None else oracle.decode_csv(data, schema, dialect)
    whole = fmt.decode(data, range(len(schema)), "o", 0)
    assert verdicts(whole) == bad, (verdicts(whole), bad)
    assert same(rows_of(whole), rows), (rows_of(whole), rows)
    for column in whole.columns.values():
        column.validate(full=True)
    cut: list[list[Any]] = []
    found: set[tuple[int, str, int | None]] = set()
    carry, at, seen = b"", 0, 0
    while seen < len(data):
        step = randomly.randrange(1, 40)
        carry, seen = carry + data[seen : seen + step], seen + step
        done = fmt.frame(carry, seen >= len(data)).whole
        part = fmt.decode(carry[:done], range(len(schema)), "o", at)
        cut += rows_of(part)
        found |= verdicts(part)
        carry, at = carry[done:], at + done
    assert same(cut, rows)
    assert found == bad


def run(seed: int, seconds: float, cases: int) -> int:
    """Fuzz until time or cases run out; the number of cases."""
    randomly = random.Random(seed)
    last = Path(tempfile.gettempdir()) / f"headrace-fuzz-{seed}.txt"
    end = time.monotonic() + seconds
    done = 0
    while done < cases and time.monotonic() < end:
        schema, fmt, data, dialect = case(randomly)
        last.write_text(f"{schema.ddl}\n{dialect}\n{data!r}\n")
        check(schema, fmt, data, dialect, randomly)
        schema, fmt, data = framed_case(randomly)
        last.write_text(f"{schema.ddl}\n{fmt.name}\n{data!r}\n")
        check_framed(schema, fmt, data, randomly)
        done += 1
    last.unlink(missing_ok=True)
    return done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--cases", type=int, default=1 << 40)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    print(f"{run(options.seed, options.seconds, options.cases)} cases, no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
