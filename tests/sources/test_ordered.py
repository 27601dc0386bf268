"""Files that one task reads in order: compressed, multiline, without delimiters."""

from __future__ import annotations

import bz2
import gzip
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import BadOption, DamagedStream
from headrace.formats import FORMATS
from headrace.formats.codecs import codec_of, decompress
from headrace.formats.format_kind import Format
from headrace.formats.kernels.checksum import crc32c
from headrace.model.definitions import StreamDef
from headrace.model.schema import BINARY, Field, Schema
from headrace.sources import check_stream
from headrace.sources.extent import Extent
from headrace.sources.reading import OrderedReader
from tests.sources.test_files import SCHEMA, make, rows, write


def arrow(codec: str) -> Callable[[bytes], bytes]:
    def compress(data: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as out:  # type: ignore[arg-type]
            out.write(data)
        return sink.getvalue().to_pybytes()

    return compress


def snappy(data: bytes) -> bytes:
    out = b"\xff\x06\x00\x00sNaPpY" + b"\xfe\x02\x00\x00ab"
    for at in range(0, len(data), 1000):
        part = data[at : at + 1000]
        crc = crc32c(np.frombuffer(part, np.uint8))
        masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
        packed = pa.Codec("snappy").compress(part, asbytes=True)
        kind, body = (b"\x00", packed) if at % 2000 else (b"\x01", part)
        body = masked.to_bytes(4, "little") + body
        out += kind + len(body).to_bytes(3, "little") + body
    return out


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress, ".bz2": bz2.compress, ".zst": arrow("zstd"), ".lz4": arrow("lz4"), ".sz": snappy,
}  # fmt: skip


def stream(path: Path, fmt: str = "json", **options: str) -> StreamDef:
    return StreamDef("s", SCHEMA, None, 0, "files", fmt, {"path": str(path), **options})


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_files_are_read_beside_plain_ones(tmp_path: Path, suffix: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write(tmp_path / "plain", 0, 5000)
    content = (tmp_path / "plain").read_bytes()
    packed = COMPRESS[suffix](content[:20_000]) + COMPRESS[suffix](content[20_000:])
    (data / f"a.json{suffix}").write_bytes(packed)
    write(data / "b.json", 5000, 9000)
    source = make(stream(data), tmp_path / "state")
    end = source.latest(source.initial(), 10)
    while (following := source.latest(end, 10_000)) != end:
        assert len(source.splits(end, following, 3)) <= 3
        end = following
    found = rows(source, source.initial(), end, 4)
    assert sorted(r[0] for r in found if isinstance(r[0], int)) == list(range(9000))


# Arrow writes zstd and lz4 frames without a checksum of their content, so a flipped bit may go unseen there.
DAMAGES = [*((suffix, "cut") for suffix in COMPRESS), (".gz", "flip"), (".bz2", "flip"), (".sz", "flip")]


@pytest.mark.parametrize(("suffix", "how"), DAMAGES)
def test_a_damaged_file_is_named_with_the_place(tmp_path: Path, suffix: str, how: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write(tmp_path / "plain", 0, 5000)
    packed = bytearray(COMPRESS[suffix]((tmp_path / "plain").read_bytes()))
    if how == "cut":
        del packed[len(packed) // 2 :]
    else:
        packed[len(packed) // 2] ^= 0x55
        packed[len(packed) // 2 + 7] ^= 0xAA
    path = data / f"a{suffix}"
    path.write_bytes(packed)
    source = make(stream(data), tmp_path / "state")
    end = source.latest(source.initial(), None)
    with pytest.raises(DamagedStream) as caught:
        rows(source, source.initial(), end)
    assert caught.value.params["origin"] == str(path)


def test_buffers_are_decompressed_too() -> None:
    for suffix, compress in COMPRESS.items():
        assert decompress(compress(b"hello" * 1000), codec_of("x" + suffix)) == b"hello" * 1000
    raw = pa.Codec("snappy").compress(b"hello", asbytes=True)
    assert decompress(raw, "snappy") == b"hello"
    with pytest.raises(DamagedStream):
        decompress(b"nonsense", "gzip")
    with pytest.raises(DamagedStream):
        decompress(b"\xff\xff\xff\xff\xff\xff", "snappy")


def test_a_quoted_newline_is_read_by_one_task(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "f.csv").write_bytes(b"a,b\n" + b"".join(b'%d,"x\n%d"\n' % (i, i) for i in range(50_000)))
    source = make(stream(data, "csv", multiline="true", header="true"), tmp_path / "state")
    end = source.latest(source.initial(), 1000)
    assert source.exhausted(end)
    assert len(source.splits(source.initial(), end, 4)) == 1
    found = rows(source, source.initial(), end, 4)
    assert found == [(i, f"x\n{i}") for i in range(50_000)]


def test_tail_needs_files_that_can_be_cut(tmp_path: Path) -> None:
    for options in ({"multiline": "true"}, {"codec": "gzip"}):
        with pytest.raises(BadOption):
            check_stream(stream(tmp_path, "csv", tail="true", **options))


def ordered(path: Path, fmt: Format, chunk: int) -> list[object]:
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        extent = Extent.of(fd, str(path), 0, size, sealed=True, whole=True)
        found: list[object] = []
        for part in OrderedReader(fd, extent, fmt, chunk).chunks():
            decoded = fmt.decode(part.data, [0], part.origin, part.offset)
            found += decoded.columns[0].to_pylist()
            found += sorted((b.offset, b.reason) for b in (*decoded.bad, *part.bad))
        return found
    finally:
        os.close(fd)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 90), max_size=12), st.integers(1, 60), st.booleans())
def test_every_chunk_size_gives_the_same_records(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], chunk: int, lines: bool
) -> None:
    path = tmp_path_factory.mktemp("ordered") / "f"
    values = [bytes([65 + i]) * size for i, size in enumerate(sizes)]
    name = "text" if lines else "length_prefixed"
    fmt = FORMATS[name].make(Schema((Field("v", BINARY),)), {"max_record_bytes": "50"})
    content = b"".join(v + b"\n" if lines else len(v).to_bytes(4, "big") + v for v in values)
    path.write_bytes(content)
    offsets = [0]
    for v in values:
        offsets.append(offsets[-1] + len(v) + (1 if lines else 4))
    expected: list[object] = [v for v in values if len(v) <= 50]
    expected += [(o, "record_too_long") for o, v in zip(offsets, values, strict=False) if len(v) > 50]
    assert sorted(ordered(path, fmt, chunk), key=repr) == sorted(expected, key=repr)
