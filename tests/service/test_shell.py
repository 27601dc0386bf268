"""`headrace sql`: statements, commands of the prompt, completion, formats, and a directory that no process owns."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit import PromptSession
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.console import Console

from headrace.app.top import watch
from headrace.base.text_tables import cell
from headrace.errors import HubNotRunning, MissingFile, UnknownStream
from headrace.hub.results import Result
from headrace.service.completion import Words
from headrace.service.offline import OfflineHub
from headrace.service.printing import OutputFormat, printed
from headrace.service.shell import Shell, typed
from headrace.service.sql_command import statements
from headrace.sql import statement_ends
from tests.e2e.support import put
from tests.shared.mini import Mini


class Recorded:
    """Records the statements it gets, and answers with a table of names."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def sql(self, text: str) -> list[Result]:
        self.asked.append(text)
        if text.startswith("DROP"):
            raise UnknownStream("there is no stream x", name="x")
        return [Result(table=pa.table({"name": ["sensors"], "n": [1]}))]


def test_statements_span_lines_and_end_with_a_semicolon() -> None:
    target = Recorded()
    Shell(target, out=lambda text: None).run(["SELECT 1", "  FROM s; SHOW", "STREAMS", ";", "SHOW SINKS"])
    assert [t.split() for t in target.asked] == [
        ["SELECT", "1", "FROM", "s;"],
        ["SHOW", "STREAMS", ";"],
        ["SHOW", "SINKS"],
    ]


def test_a_failed_statement_is_shown_and_the_next_one_runs(capsys: pytest.CaptureFixture[str]) -> None:
    target = Recorded()
    shell = Shell(target, out=lambda text: None)
    shell.run(["DROP STREAM x;", "SHOW SINKS;"])
    assert shell.failures == 1
    assert len(target.asked) == 2
    assert "UNKNOWN_STREAM" in capsys.readouterr().err


def test_commands_of_the_prompt_become_statements_and_q_quits() -> None:
    target, out = Recorded(), list[str]()
    Shell(target, out=out.append).run(
        [r"\d", r"\d sensors", r"\p", r"\e SELECT 1 FROM s;", r"\x", r"\?", r"\q", "SHOW SINKS;"]
    )
    assert target.asked == [
        "SHOW STREAMS; SHOW VIEWS; SHOW SINKS; SHOW PIPELINES",
        "DESCRIBE sensors",
        "SHOW PIPELINES",
        "EXPLAIN SELECT 1 FROM s",
    ]
    assert any(r"\q" in text for text in out)


def test_the_prompt_yields_whole_statements_and_ctrl_c_discards_an_unfinished_one() -> None:
    words = Words(Recorded())
    with create_pipe_input() as keys:
        session: PromptSession[str] = PromptSession(input=keys, output=DummyOutput())
        keys.send_text("DROP STREAM\r\x03SHOW SINKS; SHOW\r")  # Ctrl-C on the second line
        lines = typed(session, words)
        assert next(lines) == "SHOW SINKS;"
        assert words.earlier == "SHOW\n"
        keys.send_text("STREAMS;\r\\q\r\x04")
        assert list(lines) == ["SHOW\nSTREAMS;", r"\q"]


@given(st.lists(st.sampled_from(["a", ";", "';'", '";"', "`;`", "-- ;\n", "/* ; */", " ", "'", "\n"]), max_size=12))
def test_a_semicolon_in_a_text_or_a_comment_ends_no_statement(pieces: list[str]) -> None:
    text = "".join(pieces)
    end = statement_ends(text)
    if "'" not in pieces:  # no quote stays open
        expected, position = 0, 0
        for piece in pieces:
            position += len(piece)
            expected = position if piece == ";" else expected
        assert end == expected
    else:
        assert end == 0 or text[end - 1] == ";"


def test_results_are_printed_as_tables_json_and_csv() -> None:
    results = [Result(text="done"), Result(table=pa.table({"a": [1, None], "b": ["x,y", "z"]}))]
    assert json.loads(printed(results, "json")) == [
        {"text": "done"},
        {"rows": [{"a": 1, "b": "x,y"}, {"a": None, "b": "z"}]},
    ]
    assert printed(results, "csv") == 'done\na,b\n1,"x,y"\n,z'
    assert printed(results, "table").startswith("done\na")
    drawn = printed(results, "table", terminal=True)
    assert "\x1b[" in drawn  # colours
    assert "x,y" in drawn


def test_a_directory_that_no_process_owns_is_read_and_not_changed_and_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    mini = Mini(tmp_path / "state", monkeypatch)
    mini.hub.sql(
        f"CREATE STREAM s (a BIGINT) WITH (source = 'files', format = 'json', path = '{tmp_path / 'in'}');"
        "CREATE SINK out WITH (type = 'memory'); CREATE PIPELINE p INTO out AS SELECT a FROM s"
    )
    put(tmp_path / "in" / "0.json", ['{"a": 1}', '{"a": 2}'])
    mini.drain()
    mini.hub.close()
    hub = OfflineHub(tmp_path / "state")
    (shown,) = hub.sql("SHOW PIPELINES")
    assert shown.table is not None
    resumes = "stopped, runs again with the next hub"
    (row,) = shown.table.select(["name", "state", "rows_out"]).to_pylist()
    assert row == {"name": "p", "state": resumes, "rows_out": 2}
    assert hub.runtime("s").status().rows == 2
    assert hub.sql("EXPLAIN PIPELINE p")[0].text
    with pytest.raises(HubNotRunning):
        hub.sql("STOP PIPELINE p")
    assert statements("SHOW STREAMS", None, tmp_path / "state", "json") == 0
    assert json.loads(capsys.readouterr().out)[0]["rows"][0]["state"] == "stopped"
    assert statements("SHOW PIPELINES", None, tmp_path / "state", "table") == 0
    assert resumes in capsys.readouterr().out
    said = io.StringIO()
    watch(None, tmp_path / "state", Console(file=said))
    assert "last run" in said.getvalue()
    assert "2 rows" in said.getvalue()
    assert resumes in said.getvalue()
    with pytest.raises(MissingFile):
        OfflineHub(tmp_path / "in")


@pytest.mark.parametrize(("how", "terminal"), [("table", True), ("table", False), ("csv", False), ("json", False)])
def test_the_warnings_of_a_table_are_shown_in_every_format(
    how: OutputFormat, terminal: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    class Warned(Recorded):
        def sql(self, text: str) -> list[Result]:
            return [Result(table=pa.table({"n": [1]}), warnings=("only from now on",))]

    Shell(Warned(), how, terminal=terminal).execute("SELECT count(*) AS n FROM s")
    shown = capsys.readouterr()
    assert "only from now on" in (shown.err if how == "csv" else shown.out)
    assert how != "csv" or shown.out == "n\n1\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_times_inside_windows_and_lists_are_spelled_as_in_json(terminal: bool) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    kind = pa.timestamp("us", tz="UTC")
    window = pa.array([{"start": noon}], pa.struct([("start", kind)]))
    table = pa.table({"window": window, "times": pa.array([[noon]], pa.list_(kind))})
    shown = re.sub(r"\s", "", printed([Result(table=table)], "table", terminal=terminal))
    assert "{'start':'2026-01-01T12:00:00.000Z'}" in shown
    assert shown.count("2026-01-01T12:00:00.000Z") == 2
    assert cell({"start": noon}).plain == "{'start': '2026-01-01T12:00:00.000Z'}"
