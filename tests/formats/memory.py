"""Measures the memory that decoding files takes, in a separate process: `python -m tests.formats.memory DIRECTORY`.

Prints by how many megabytes the process grew at most while a task's decoder went through a file, after small files of
all kinds have loaded what is loaded once.
"""

from __future__ import annotations

import gzip
import resource
import sys
import threading
from functools import partial
from pathlib import Path

from headrace.model.definitions import PipelineDef, StreamDef
from headrace.model.plan_version import PlanVersion
from headrace.model.program import Expression, PipelineProgram, Ring0Program
from headrace.model.schema import STRING, Array, Field, Map, Schema, View, parse_type
from headrace.ring0.decode import Decoder
from headrace.ring0.pieces import pieces
from headrace.sources.extent import Extent
from headrace.sources.reading import FileRange, FileSplit

KINDS = ("STRING", "TIMESTAMP", "DOUBLE", "BIGINT", "BOOLEAN", "INT", "DECIMAL(12,3)", "DATE")
SCHEMA = Schema(tuple(Field(f"c{i}", parse_type(KINDS[i % len(KINDS)])) for i in range(20)))
# One item has a hundred fields, even if its text is `{}`.
_ITEM = parse_type("STRUCT<" + ", ".join(f"f{i}: {('BIGINT', 'STRING')[i % 2]}" for i in range(100)) + ">")
WIDE = Schema(tuple(Field(f"c{i}", kind) for i, kind in enumerate((Array(_ITEM), Map(STRING, _ITEM), _ITEM))))
_VALUES = ('"some text"', '"2026-01-01T00:00:00.125Z"', "17.25", "1234567890", "true", "42", "1.125", '"2026-01-01"')
_RECORD = "{" + ",".join(f'"c{i}":{_VALUES[i % len(_VALUES)]}' for i in range(20)) + "}\n"
_ROW = ",".join(_VALUES[i % len(_VALUES)].strip('"') for i in range(20)) + "\n"

# case -> (format, options, a record)
CASES: dict[str, tuple[str, dict[str, str], bytes]] = {
    "json": ("json", {}, _RECORD.encode()),
    "csv": ("csv", {}, _ROW.encode()),
    "gzip": ("json", {"codec": "gzip"}, _RECORD.encode()),
    "multiline": ("csv", {"multiline": "true"}, _ROW.encode()),
    "tiny": ("json", {}, b"{}\n"),
    "bad": ("json", {}, b"nonsense\n"),
    "bad values": ("json", {}, b'{"c3":"x"}\n'),
    "bad cells": ("csv", {}, b",".join([b"NA"] * 20) + b"\n"),
    "items": ("json", {}, b'{"c0":[' + b",".join([b"{}"] * 1000) + b"]}\n"),
    "bad items": ("json", {}, b'{"c0":[' + b",".join([b"1"] * 1000) + b"]}\n"),
    "members": ("json", {}, b'{"c1":{' + b",".join(b'"%x":{}' % i for i in range(1000)) + b"}}\n"),
    "fields": ("json", {}, b'{"c2":{}}\n'),
    "long": ("json", {}, b'{"c0":"' + b"x" * 3_000_000 + b'"}\n'),
}

SCHEMAS = dict.fromkeys(("items", "bad items", "members", "fields"), WIDE)
LARGE, TINY = 20 << 20, 5 << 20  # bytes; a chunk is 4 MiB


def write(case: str, path: Path, size: int) -> None:
    """A file of at least `size` bytes before compression."""
    _, options, record = CASES[case]
    block = record * max(1, 100_000 // len(record))
    pack = partial(gzip.compress, compresslevel=1) if "codec" in options else bytes
    with open(path, "wb") as out:
        for _ in range(-(-size // len(block))):
            out.write(pack(block))


def decode(case: str, path: Path) -> int:
    """Read and decode the whole file as one task does. Returns the number of records, good and bad."""
    fmt, options, _ = CASES[case]
    schema = SCHEMAS.get(case, SCHEMA)
    stream = StreamDef("s", schema, None, 0, "files", fmt, options)
    outputs = (Expression("c0", schema[0].type, "c0"),)
    program = PipelineProgram("s", View.all(), Ring0Program(None, outputs), None, schema)
    decoder = Decoder(PlanVersion(1, stream, (PipelineDef("p", 1, (), program, 1),)))
    whole, size = bool("codec" in options or decoder.format.in_order), path.stat().st_size
    with open(path, "rb") as file:
        extent = Extent.of(file.fileno(), str(path), 0, size, sealed=True, whole=whole, codec=options.get("codec", ""))
    records = 0
    for chunk in FileSplit((FileRange(extent, 0, size),)).read(decoder.format):
        for piece in pieces(decoder.format, chunk, decoder.cells):
            batch = decoder.decode(piece)
            records += batch.records
    return records


class Peak:
    """The peak memory of this process, in MB above the memory at the time this object was made."""

    def __init__(self) -> None:
        self._before = self._most = _resident()
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()

    def _watch(self) -> None:
        while not self._done.wait(0.001):
            self._most = max(self._most, _resident())

    def stop(self) -> float:
        """Stop measuring and return the result."""
        self._done.set()
        self._watcher.join()
        return (self._most - self._before) / 1e6


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> None:
    """Decode a file of every case, one after the other, and print a line `case: MB` for each."""
    place = Path(sys.argv[1])
    for case in CASES:
        write(case, place / "small", 20_000)
        decode(case, place / "small")
    for case, (_, _, record) in CASES.items():
        write(case, place / "large", TINY if len(record) < 100 or case in SCHEMAS else LARGE)
        peak = Peak()
        decode(case, place / "large")
        print(f"{case}: {peak.stop():.1f}", flush=True)


if __name__ == "__main__":
    main()
