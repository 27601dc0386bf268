"""Damaged input and random options against every format: `python -m tests.formats.fuzz --seconds 60 --seed 7`.

Each case is a stream's format with random options, and mutated records of it. It is decoded whole, in random buffers
and for random columns, and all must agree; where there is a pure-Python twin, also with its rows and verdicts. Anything
but a coded error is a finding. The cases run in a process of their own: if it dies, that is a finding, and the last
case is shown. Now and then a case is a megabyte, which must not need more memory than a task may have.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.formats import FORMATS
from headrace.formats.csv import Csv
from headrace.formats.format_kind import Format
from headrace.formats.framing import first_record
from headrace.formats.native import write_rows
from headrace.model.schema import Field, Schema, parse_type
from headrace.ring0.pieces import pieces
from headrace.ring0.record_cells import RecordCells
from headrace.sources.source_kind import RawChunk
from tests.formats import oracle
from tests.formats.memory import Peak
from tests.formats.test_json import same, verdicts

MOST_MB = 64.0  # that a task may need above the interpreter
TOO_LARGE = 3  # the exit code of a process that needed more
TYPES = ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BINARY", "DATE", "TIMESTAMP",
         "TIMESTAMP_NTZ", "DECIMAL(9,2)", "DECIMAL(38,6)")  # fmt: skip
NESTED = ("STRUCT<a: INT, b: STRING>", "ARRAY<DOUBLE>", "MAP<STRING, INT>", "MAP<INT, STRING>", "ARRAY<ARRAY<STRING>>")
TOKENS = [
    b"{", b"}", b"[", b"]", b'"', b":", b",", b"\\", b"\n", b"\r\n", b"\\u00e9", b"\\ud83d\\ude00", b"\\ud83d", b"\\u",
    b"true", b"false", b"null", b"-", b"+", b".", b"e", b"E5", b"0", b"00", b"9223372036854775807", b"1e308", b"1e-400",
    b"17.5", b"0.1", b"2024-02-29", b"2024-02-29T23:59:59.999999999Z", b"+18:00", b"aGk=", b"NaN", b"-Infinity",
    b"+INF",
    b"INF", b"c0", b'"c0":', b'"c1":', b" ", b"\t", b"\x00", b"\xff", b"\xc3\xa9", b"\xed\xa0\x80", b'""', b"||", b"#",
    b"NULL", b"'", b"x" * 40, b"1234567890123456789012", b"0" * 5000, b"9" * 5000, b"1e" + b"9" * 30, b"[" * 300,
]  # fmt: skip
SEEDS = {
    "json": [
        b'{"c0":1,"c1":"a","c2":2.5,"c3":null}\n{"c0":2,"c1":"b","c2":3.5,"c3":true}\n{"c0":3,"c1":"c","c2":4.5,"c3":false}\n',
        b'{"c0": "2024-01-01T00:00:00Z", "c1": [1, 2, {"a": "x"}], "c2": {"a": 1, "b": "y"}, "c3": "aGVsbG8="}\n' * 2,
        b'{"c0": NaN, "c1": {"1": 2}, "c2": -Infinity, "c3": "\\u0031"}\r\n\n{}\n',
    ],
    "csv": [
        b'1,a,2.5,true\n2,"b,b",3.5,false\n3,"c""c",,\n\n4,d,1e5,x\r\n',
        b"2024-01-01||NULL||'q||q'||7\n#no\n1||2||3||4||\n",
        b'# comment\nc0,c1,c2,c3,\n1,"2\n3",4,5,\nNA,NA,NA,NA\n',
    ],
    "text": [b"one\ntwo\r\n\nthree;;four;;\xff\n"],
}  # fmt: skip
OPTIONS: dict[str, dict[str, list[str]]] = {
    "json": {"allow_non_numeric_numbers": ["true", "false"]},
    "csv": {
        "delimiter": [",", "||", "\\t", ";"], "quote": ['"', "'", ""], "escape": ["", "\\", '"'], "comment": ["", "#"],
        "nulls_as": ["", "|NULL", "\\N"], "header": ["true", "false"], "multiline": ["true", "false"],
        "ragged": ["bad", "null"], "trailing_delimiter": ["true", "false"],
        "record_delimiter": ["\\n", "||", ";;", "\\r\\n"],
    },
    "text": {"record_delimiter": ["\\n", ";;", "\\r\\n"]},
    "length_prefixed": {"length_bytes": ["1", "2", "4", "8", "3"], "byte_order": ["big", "little"]},
    "native": {},
}  # fmt: skip
VALUES = {
    "timestamp_format": ["iso", "epoch_s", "epoch_ms", "epoch_us", "epoch_ns", "dd/MM/yyyy HH:mm", "yyyy'T'XXX", "Q"],
    "date_format": ["iso", "dd.MM.yyyy", "yyyyMMdd"], "utf8": ["reject", "replace"], "binary": ["base64", "hex", "raw"],
    "mode": ["PERMISSIVE", "dropmalformed", "FAILFAST"],
}  # fmt: skip
TWIN = {"delimiter", "quote", "escape", "comment", "nulls_as", "ragged", "trailing_delimiter", "on_error"}


@dataclass(frozen=True)
class Case:
    """A format as a user would name it, and bytes."""

    fmt: str
    schema: Schema
    options: dict[str, str]
    data: bytes

    def __str__(self) -> str:
        return f"{self.fmt} {self.options}\n{self.schema.ddl}\n{self.data!r}\n"


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


def make_case(randomly: random.Random) -> Case:
    """Any format, mostly with records of it."""
    fmt = randomly.choice(["json", "json", "csv", "csv", "csv", "ndjson", "text", "length_prefixed", "native"])
    base = "json" if fmt == "ndjson" else fmt
    choices = {
        **OPTIONS[base],
        **(VALUES if base in ("json", "csv") else {"utf8": VALUES["utf8"]} if base != "native" else {}),
    }
    options = {o: randomly.choice(choices[o]) for o in choices if randomly.random() < 0.25}
    if randomly.random() < 0.5:  # as often, what the twin knows
        options = {o: v for o, v in options.items() if o in TWIN}
    if randomly.random() < 0.2 and "mode" not in options:
        options["on_error"] = randomly.choice(["null", "skip", "fail"])
    if randomly.random() < 0.2:
        options["max_record_bytes"] = randomly.choice(["1", "20", "60", "1000"])
    kinds = [randomly.choice(TYPES + (NESTED if base == "json" else ())) for _ in range(4)]
    if base in ("text", "length_prefixed"):
        kinds = [randomly.choice(["STRING", "BINARY"])]
    schema = Schema(tuple(Field(f"c{i}", parse_type(t)) for i, t in enumerate(kinds)))
    data = _records(randomly, base, schema, options)
    for _ in range(randomly.randrange(3)):
        data = mutate(randomly, data)
    return Case(fmt, schema, options, data)


def _records(randomly: random.Random, base: str, schema: Schema, options: dict[str, str]) -> bytes:
    if base == "length_prefixed":
        width = int(options.get("length_bytes", "4"))
        return (b"\0" * (width - 1) + b"\5hello") * randomly.randrange(6)
    if base == "native":
        table = pa.table({f.name: pa.nulls(5, f.type.arrow) for f in schema})  # type: ignore[call-overload]
        return write_rows(schema, table)
    return randomly.choice(SEEDS[base if randomly.random() < 0.9 else randomly.choice(list(SEEDS))])


def rows_of(decoded: Any) -> list[list[Any]]:
    columns = [
        c.to_pylist(maps_as_pydicts="strict") if "map" in str(c.type) else c.to_pylist()
        for c in decoded.columns.values()
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def check(case: Case, randomly: random.Random) -> str:
    """Raise AssertionError if two ways to read the case differ. Returns the outcome: refused, read, or compared with
    the twin."""
    try:
        fmt = FORMATS[case.fmt].make(case.schema, case.options)
        data = case.data
        begin = first_record(fmt, lambda at, length: data[at : at + length], randomly.randrange(1, 99))
        assert begin == fmt.preamble(data, True, True).passed
    except HeadraceError:
        return "refused"
    data, every = case.data[begin:], range(len(case.schema))
    whole = fmt.decode(data, every, "o", 0)
    for column in whole.columns.values():
        column.validate(full=True)
        assert len(column) == whole.rows
    rows = rows_of(whole)
    if fmt.name in ("json", "csv", "text"):  # a frame that is too long is skipped by its reader, not by the format
        _check_cut(fmt, data, rows, verdicts(whole), randomly)
    else:
        _check_frames(fmt, data, whole, randomly)
    wanted = sorted(randomly.sample(every, randomly.randrange(len(every) + 1)))
    some = fmt.decode(data, wanted, "o", 0)
    assert some.rows == whole.rows
    assert verdicts(some) == {v for v in verdicts(whole) if v[2] is None or v[2] in wanted}
    assert all(same(some.columns[c].to_pylist(), whole.columns[c].to_pylist()) for c in wanted)
    if not case.options.keys() <= TWIN or fmt.name not in ("json", "csv"):
        return "read"
    twin, bad = (
        oracle.decode_csv(data, case.schema, fmt.dialect)
        if isinstance(fmt, Csv)
        else oracle.decode_json(data, case.schema)
    )
    assert verdicts(whole) == bad, (verdicts(whole), bad)
    assert same(rows, twin), (rows, twin)
    return "compared"


def _check_cut(fmt: Format, data: bytes, rows: list[Any], bad: Any, randomly: random.Random) -> None:
    """Raise unless buffers of any size give the same rows and verdicts."""
    cut: list[list[Any]] = []
    found: set[tuple[int, str, int | None]] = set()
    carry, at, seen = b"", 0, 0
    while seen < len(data):
        step = randomly.randrange(1, max(40, len(data) // 10))
        carry, seen = carry + data[seen : seen + step], seen + step
        done = fmt.frame(carry, seen >= len(data)).whole
        part = fmt.decode(carry[:done], range(len(fmt.schema)), "o", at)  # type: ignore[attr-defined]
        cut += rows_of(part)
        found |= verdicts(part)
        carry, at = carry[done:], at + done
    assert same(cut, rows), (cut, rows)
    assert found == bad, (found, bad)


def _check_frames(fmt: Format, data: bytes, whole: Any, randomly: random.Random) -> None:
    """Raise unless the whole frames give the same rows as all of the data."""
    begin = fmt.frame(data[: randomly.randrange(len(data) + 1)], False).whole
    parts = [fmt.decode(part, list(whole.columns), "o", 0) for part in (data[:begin], data[begin:])]
    assert sum(part.rows for part in parts) == whole.rows
    assert sum(len(part.bad) for part in parts) == len(whole.bad)


def check_large(case: Case) -> str:
    """Decode a megabyte of the case as a task does, and check that pieces of any size give the same records."""
    try:
        fmt = FORMATS[case.fmt].make(case.schema, case.options)
        data = case.data * ((1 << 20) // max(1, len(case.data)))
        begin = fmt.preamble(data, True, True).passed
    except HeadraceError:
        return "refused"
    records, cells = 0, RecordCells.of(field.type for field in case.schema)
    for piece in pieces(fmt, RawChunk("o", begin, memoryview(data)[begin:]), cells):
        found = fmt.decode(piece.data, range(len(case.schema)), piece.origin, piece.offset)
        records += found.rows + int((found.bad.rows < 0).sum()) + len(found.bad.extra)
    index = fmt.index(memoryview(data)[begin:], (), "o", begin)
    assert records == index.rows + int((index.bad.rows < 0).sum()) + len(index.bad.extra)
    return "large"


@dataclass(frozen=True)
class Outcome:
    """The result of a run: cases by outcome, and the largest growth of the process in MB."""

    cases: dict[str, int]
    grown: float

    @property
    def total(self) -> int:
        return sum(self.cases.values())

    def lines(self) -> list[str]:
        parts = ", ".join(f"{count} {name}" for name, count in sorted(self.cases.items()))
        verdict = "ok" if self.grown <= MOST_MB else "short"
        return [
            f"{self.total} cases: {parts}",
            "ok fuzz_formats_crashes_and_differences 0 (required at most 0)",
            f"{verdict} fuzz_formats_memory {self.grown:.1f} MB (required at most {MOST_MB:g} MB)",
        ]


def run(seed: int, seconds: float, cases: int, last: Path | None = None) -> Outcome:
    """Fuzz until the time or the cases run out. Writes each case to `last` before it runs."""
    sys.setrecursionlimit(20_000)  # the oracle parses nested JSON with several Python frames per level
    randomly = random.Random(seed)
    end = time.monotonic() + seconds
    counted: Counter[str] = Counter()
    grown = 0.0
    while counted.total() < cases and time.monotonic() < end:
        case, large = make_case(randomly), counted.total() % 50 == 49
        if last is not None:
            last.write_text(str(case))
        if not large:
            counted[check(case, randomly)] += 1
            continue
        check(case, randomly)  # what is loaded once is loaded here
        peak = Peak()
        try:
            counted[check_large(case)] += 1
        finally:
            grown = max(grown, peak.stop())
    return Outcome(dict(counted), grown)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--cases", type=int, default=1 << 40)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--inside", type=Path, help="fuzz in this process, and write each case to this file")
    options = parser.parse_args()
    if options.inside is not None:
        outcome = run(options.seed, options.seconds, options.cases, options.inside)
        print("\n".join(outcome.lines()))
        return 0 if outcome.grown <= MOST_MB else TOO_LARGE
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as place:
        last = Path(place) / "case"
        command = [sys.executable, "-m", "tests.formats.fuzz", "--inside", str(last), "--seed", str(options.seed)]
        command += ["--seconds", str(options.seconds), "--cases", str(options.cases)]
        ended = subprocess.run(command, check=False).returncode
        if ended not in (0, TOO_LARGE):
            print(f"the process ended with {ended}; the last case:\n{last.read_text()[:5000]}")
            print("short fuzz_formats_crashes_and_differences 1 (required at most 0)")
        return 1 if ended else 0


if __name__ == "__main__":
    sys.exit(main())
