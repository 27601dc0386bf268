"""A format as a contributor would add it: `key=value` pairs, one record per line. See docs/formats.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from headrace.formats import FORMATS
from headrace.formats.bad import BadRecord, BadRecords
from headrace.formats.columns import PLAIN, Syntax
from headrace.formats.format_kind import Decoded, FormatKind, Framed, Preamble
from headrace.formats.format_settings import FormatSettings
from headrace.formats.framing import frame_lines
from headrace.formats.index import FieldIndex, decode, view_of
from headrace.model.bad_reasons import REASONS
from headrace.model.schema import Field, Schema, parse_type

PAIR = re.compile(rb"(\w+)=(\S*)")


class KeyValue:
    """`level=3 message=hello`: the indexer is a regular expression, the parsers are those of all formats."""

    name, indexer, skips, delimiter, row_bytes, in_order = "kv", "tests.formats.test_example", True, b"\n", 0, ""
    max_record_bytes = 1 << 20
    has_header = False

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def preamble(self, head: bytes, first: bool, final: bool) -> Preamble:
        return Preamble(0)

    def frame(self, data: bytes | memoryview, final: bool) -> Framed:
        return frame_lines(data, final, self.delimiter)

    def index(self, data: bytes | memoryview, wanted: Sequence[int], origin: str, offset: int) -> FieldIndex:
        raw = bytes(data)
        names = {self.schema[c].name.encode(): slot for slot, c in enumerate(wanted)}
        lines = [(m.start(), m.end()) for m in re.finditer(rb"[^\n]+", raw)]
        bad = [BadRecord(origin, offset + a, "field_count", None, raw[a:b]) for a, b in lines if b"=" not in raw[a:b]]
        lines = [(a, b) for a, b in lines if b"=" in raw[a:b]]
        starts = np.full((len(wanted), len(lines)), -1, np.int32)
        ends = np.zeros_like(starts)
        for row, (a, b) in enumerate(lines):
            for pair in PAIR.finditer(raw, a, b):
                if pair[1] in names:
                    starts[names[pair[1]], row], ends[names[pair[1]], row] = pair.span(2)
        bounds = np.array(lines, np.int32).reshape(-1, 2)
        slots = {c: slot for slot, c in enumerate(wanted)}
        return FieldIndex(
            self.schema, view_of(data), len(lines), bounds[:, 0], bounds[:, 1], starts, ends, slots, Syntax(PLAIN),
            origin, offset, BadRecords.of(bad),
        )  # fmt: skip

    def decode(self, data: bytes | memoryview, wanted: Sequence[int], origin: str, offset: int) -> Decoded:
        return decode(self.index(data, wanted, origin, offset), wanted)


KV = FormatKind("kv", "key=value pairs", FormatSettings, lambda schema, settings: KeyValue(schema))


def test_a_new_format_is_an_indexer_and_a_choice_of_parsers() -> None:
    schema = Schema(
        (Field("level", parse_type("INT")), Field("at", parse_type("DATE")), Field("who", parse_type("STRING")))
    )
    data = b"level=3 at=2024-02-29 who=me\nnonsense\nwho=you level=x\n"
    decoded = KV.make(schema, {}).decode(data, [0, 1, 2], "o", 50)
    assert decoded.columns[0].to_pylist() == [3, None]
    assert decoded.columns[2].to_pylist() == ["me", "you"]
    assert [(b.reason, b.offset, b.column, b.row) for b in decoded.bad] == [
        ("field_count", 79, None, -1), ("bad_integer", 88, 0, 1),
    ]  # fmt: skip


def test_docs_list_every_format_and_every_option_of_it() -> None:
    text = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    for kind in FORMATS.values():
        section = re.search(rf"^## {kind.name}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        assert section is not None, kind.name
        listed = dict(re.findall(r"^\| `(\w+)` \|.*(?<!\\)\| (.*) \|$", section[1].replace("\\|", "\0"), re.MULTILINE))
        assert {name: text.replace("\0", "|") for name, text in listed.items()} == {
            o.name: o.help for o in kind.options
        }


def test_docs_list_every_reason() -> None:
    text = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    assert [r for r in REASONS if f"`{r}`" not in text] == []
