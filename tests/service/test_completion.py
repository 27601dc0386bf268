"""Completion at the prompt of `headrace sql`: keywords, declared names, columns and fields of structs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from headrace.errors import HubUnreachable
from headrace.hub.results import Result
from headrace.service.completion import Words
from tests.shared.mini import Mini

STREAM = """
CREATE STREAM sensors (device STRING, temp DOUBLE, place STRUCT<lat: DOUBLE, lon: DOUBLE, of: STRUCT<town: STRING>>,
`the time` STRING) WITH (source = 'files', format = 'json', path = '/tmp')
"""
OTHER = "CREATE STREAM orders (dear BIGINT, price DOUBLE) WITH (source = 'files', format = 'json', path = '/tmp')"


class Declared:
    """A hub with two streams and a sink. Counts the times that it is asked for names."""

    asked = 0

    def sql(self, text: str) -> list[Result]:
        if text.startswith("SHOW CREATE"):
            return [Result(STREAM if "sensors" in statement else OTHER) for statement in text.split(";")]
        if text.startswith("DESCRIBE VIEW warm"):
            facts = {"fact": ["name", "column 0", "column 1"], "value": ["warm", "the day DATE", "at STRUCT<x: INT>"]}
            return [Result(table=pa.table(facts))]
        self.asked += 1
        names = (["sensors", "orders"], ["warm"], ["dev_null"], ["hot"])
        return [Result(table=pa.table({"name": found})) for found in names]


def completed(words: Words, text: str, after: str = "") -> list[str]:
    found = words.get_completions(Document(text + after, len(text)), CompleteEvent())
    return [c.text for c in found]


@pytest.mark.parametrize(
    ("text", "after", "wanted"),
    [
        ("sho", "", ["SHOW"]),
        ("SELECT device FROM sen", "", ["sensors"]),
        ("SELECT de", "", ["device", "dear", "dev_null", "DESCRIBE"]),  # no stream is named: columns of all
        ("SELECT de", " FROM sensors", ["device", "dev_null", "DESCRIBE"]),
        ("SELECT ", " FROM orders", ["dear", "price"]),
        ("SELECT dear, ", " FROM orders", ["dear", "price"]),
        ("SELECT temp FROM sensors WHERE de", "", ["device", "dev_null", "DESCRIBE"]),
        ("SELECT count(*) FROM sensors GROUP BY te", "", ["temp"]),
        ("SELECT count(*) FROM sensors GROUP BY device HAVING max(te", "", ["temp"]),
        ("CREATE PIPELINE p INTO de", "", ["dev_null", "device", "dear", "DESCRIBE"]),
        ("CREATE PIPELINE p INTO ", "", ["sensors", "orders", "warm", "dev_null", "hot"]),
        ("SELECT ", " FROM warm", ["`the day`", "at"]),
        ("SELECT w.at.", " FROM warm w", ["x"]),
        ("SELECT th", " FROM sensors", ["`the time`"]),
        ("SELECT place.", " FROM sensors", ["lat", "lon", "of"]),
        ("SELECT place.l", " FROM sensors", ["lat", "lon"]),
        ("SELECT sensors.place.of.", " FROM sensors", ["town"]),
        ("SELECT r.te", " FROM sensors AS r", ["temp"]),
        ("SELECT device.", " FROM sensors", []),
        ("SELECT 1 FROM sensors; SELECT de", " FROM orders", ["dear", "dev_null", "DESCRIBE"]),
        ("", "", []),
    ],
)
def test_a_word_is_completed_as_its_place_in_the_statement_asks(text: str, after: str, wanted: list[str]) -> None:
    assert completed(Words(Declared()), text, after) == wanted


def test_earlier_lines_of_the_statement_count() -> None:
    words = Words(Declared())
    words.earlier = "SELECT dear FROM orders\nWHERE dear > 1 AND\n"
    assert completed(words, "pr") == ["price"]


def test_declarations_are_fetched_every_few_seconds() -> None:
    target, now = Declared(), [0.0]
    words = Words(target, lambda: now[0])
    completed(words, "x")
    completed(words, "y")
    assert target.asked == 1
    now[0] = 10.0
    completed(words, "x")
    assert target.asked == 2


def test_keywords_are_completed_while_the_hub_does_not_answer() -> None:
    class Gone:
        def sql(self, text: str) -> list[Result]:
            raise HubUnreachable("gone")

    assert completed(Words(Gone()), "SELECT gr") == ["GRACEFUL", "GROUP"]


def test_a_hub_without_streams_completes_keywords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = Mini(tmp_path / "state", monkeypatch)
    assert completed(Words(empty.hub), "SELECT gr") == ["GRACEFUL", "GROUP"]
    empty.hub.close()


def test_columns_come_from_the_declarations_of_a_hub(mini: Mini) -> None:
    mini.hub.sql("CREATE PIPELINE p INTO out AS SELECT a FROM s")
    assert completed(Words(mini.hub), "SELECT ", " FROM s") == ["a", "b", "c", "d"]
