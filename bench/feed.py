"""Input for the streaming benchmarks: NDJSON of twenty columns, written once and linked wherever it is read.

A row is about 350 bytes. Event time goes forward by `PER_SECOND` rows a second unless told otherwise, so a window of a
minute holds 60,000 rows. `value` is a whole number below 1,000, `user` one of `keys` and spread evenly.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import duckdb

PER_SECOND = 1000
START_SECONDS = 1_767_225_600  # 2026-01-01, since 1970
_FORMAT = "'%Y-%m-%dT%H:%M:%S.%gZ')"
COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("ts", "TIMESTAMP", "strftime(TIMESTAMP '2026-01-01' + to_microseconds(i * 1000000 // {per_second}), " + _FORMAT),
    ("user", "STRING", "'u' || (hash(i) % {keys})"),
    ("value", "BIGINT", "CAST(hash(i + 7) % 1000 AS BIGINT)"),
    ("region", "STRING", "'region-' || (i % 12)"),
    ("ok", "BOOLEAN", "i % 17 <> 0"),
    ("seq", "BIGINT", "i"),
    ("level", "INT", "CAST(i % 5 AS INT)"),
    ("agent", "STRING", "'Mozilla/5.0 (X11; Linux x86_64) build ' || (i % 321)"),
    *((f"x{n}", "DOUBLE", f"round((hash(i + {n}) % 1000000) / 1000.0, 3)") for n in range(12)),
)  # fmt: skip


def declaration(path: Path, **options: str) -> str:
    """CREATE STREAM s over the files in `path`."""
    columns = ", ".join(f"{name} {kind}" for name, kind, _ in COLUMNS)
    extra = "".join(f", {name} = '{value}'" for name, value in options.items())
    return (
        f"CREATE STREAM s ({columns}, WATERMARK FOR ts AS ts - INTERVAL 1 SECOND) "
        f"WITH (source = 'files', format = 'json', path = '{path}'{extra})"
    )


def write(directory: Path, files: int, rows: int, keys: int, per_second: int = PER_SECOND) -> list[Path]:
    """Write `files` files of `rows` rows each; event time goes on from file to file, `per_second` rows a second."""
    directory.mkdir()
    selected = ", ".join(f'{sql.format(keys=keys, per_second=per_second)} AS "{name}"' for name, _, sql in COLUMNS)
    paths = [directory / f"{number:04}.json" for number in range(files)]
    for number, path in enumerate(paths):
        source = f"(SELECT {selected} FROM range({number * rows}, {(number + 1) * rows}) t(i))"
        duckdb.sql(f"COPY {source} TO '{path}' (FORMAT json)")
    return paths


def give(directory: Path, files: Sequence[Path]) -> None:
    """Let `files` appear in `directory`, each whole."""
    for file in files:
        os.link(file, directory / file.name)
