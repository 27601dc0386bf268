"""The bytes before the first record of a CSV file: comments and header of any length, in files cut anywhere."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from headrace.errors import HeaderMismatch
from headrace.formats import FORMATS
from headrace.formats.framing import first_record
from headrace.model.definitions import StreamDef
from headrace.model.schema import Field, Schema, parse_type
from headrace.sources import SOURCES

SCHEMA = Schema((Field("a", parse_type("INT")), Field("b", parse_type("STRING"))))
COMMENT = b"# " + b"x" * 97 + b"\n"
ROWS = 120_000


def read(path: Path, state: Path, tasks: int, **options: str) -> tuple[int, list[object], dict[str, int]]:
    """(tasks that read the directory, the values of the column a, bad records)."""
    given = {"path": str(path), "header": "true", "comment": "#", **options}
    stream = StreamDef("s", SCHEMA, None, 0, "files", "csv", given)
    source = SOURCES["files"].make(stream, state, lambda: 0.0)
    fmt = FORMATS["csv"].make(SCHEMA, given)
    splits = source.splits(source.initial(), source.latest(source.initial(), None), tasks)
    found: list[object] = []
    bad: dict[str, int] = {}
    for split in splits:
        for chunk in split.read(fmt):
            decoded = fmt.decode(chunk.data, [0, 1], chunk.origin, chunk.offset)
            found += decoded.columns[0].to_pylist()
            bad |= decoded.bad.counts()
    return len(splits), found, bad


@pytest.mark.parametrize("comments", [0, 700, 60_000])  # none, 70 kB: more than is read at first, 6 MB: than a chunk
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_comments_of_any_length_may_stand_before_a_header(tmp_path: Path, comments: int, codec: str) -> None:
    (tmp_path / "in").mkdir()
    data = COMMENT * comments + b"a,b,\n" + b"".join(b"%d,some text or other,\n" % i for i in range(ROWS))
    (tmp_path / "in" / "f.csv").write_bytes(gzip.compress(data, 1) if codec == "gzip" else data)
    tasks, found, bad = read(tmp_path / "in", tmp_path / "state", 4, trailing_delimiter="true", codec=codec)
    assert tasks == (4 if codec == "none" else 1)
    assert found == list(range(ROWS))
    assert bad == {}


def test_a_line_before_the_header_that_never_ends_is_rejected_and_not_kept_in_memory() -> None:
    fmt = FORMATS["csv"].make(SCHEMA, {"header": "true", "comment": "#", "max_record_bytes": "1MB"})
    asked: list[int] = []

    def endless(at: int, length: int) -> bytes:
        asked.append(length)
        return b"#" * length

    with pytest.raises(HeaderMismatch):
        first_record(fmt, endless, 4096)
    assert max(asked) <= 2 << 20


@pytest.mark.parametrize("window", [1, 2, 5, 64])
def test_the_header_is_found_whatever_is_read_at_once(window: int) -> None:
    fmt = FORMATS["csv"].make(SCHEMA, {"header": "true", "comment": "#"})
    for data in (b"\xef\xbb\xbf#c\r\n\r\na,b\r\n1,x\r\n", b"#c\n#d\na,b", b"#c\n", b"", b"a,b\n"):
        whole = fmt.preamble(data, True, True).passed

        def part(at: int, length: int, data: bytes = data) -> bytes:
            return data[at : at + length]

        assert first_record(fmt, part, window) == whole
