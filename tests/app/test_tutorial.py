"""docs/tutorial.md: its commands run in order and print what it shows, on a hub without Spark.

Lines of a `console` block that begin with `$` are commands. `...` stands for lines that the page leaves out. Numbers in
what commands of the live part print may differ.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headrace
from headrace.app.cli import app
from headrace.app.init import SCRIPT, write_example
from headrace.hub.hub import Hub
from headrace.sql import parse_script
from tests.code import ROOT
from tests.e2e.support import until
from tests.shared.running import RunningQueries

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every command, with the lines that it prints."""
    for block in blocks("console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = part.rstrip("\n").split("\n")
            yield command, lines


def matches(shown: list[str], printed: list[str]) -> bool:
    """Whether the page shows what was printed: the words, with numbers taken out, of every line."""
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else re.escape(plain(line)) + r"\n" for line in shown)
    return re.fullmatch(pattern, "".join(plain(line) + "\n" for line in printed)) is not None


def plain(line: str) -> str:
    line = line.replace(" is starting: declared", " is running: declared")  # whichever it is at that moment
    line = re.sub(r"\d{4}-\d\d-\d\d.\d\d:\d\d:\d\d\S*", "TIME", line)
    return " ".join(re.sub(r"(?<![\w.])\d[\d.,]*k?\b", "", line).split())


class Reader:
    """Follows the tutorial: `hub` is the one that the second terminal runs."""

    def __init__(self) -> None:
        self.hub: Hub | None = None

    def run(self, command: str) -> list[str]:
        words = shlex.split(command)
        if words[0] == "cd":
            os.chdir(words[1])
            return []
        if words == ["headrace", "run", "app.sql"]:
            self.start()
            return []
        if words[0] == "headrace":
            answer = CliRunner().invoke(app, words[1:], env={"COLUMNS": "200"})
            # `status` flushes its notes on standard error first, which only a real terminal shows.
            return (answer.stderr + answer.stdout if words[1] == "status" else answer.output).splitlines()
        if words[0] == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(Path(words[1]).read_text(), words[1], "exec"), {})
            return out.getvalue().splitlines()
        return subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout.splitlines()

    def start(self) -> None:
        """The two other terminals: the script runs, and files arrive."""
        self.hub = headrace.connect(".headrace")
        self.hub.sql(Path("app.sql").read_text())
        self.feed()

    def feed(self) -> None:
        rows = self.rows()
        with pytest.raises(InterruptedError):
            exec(compile(blocks("python")[0].replace("time.sleep(1)", "raise InterruptedError"), "feed.py", "exec"), {})
        until(lambda: self.rows() == rows + 100, "the new file is read")

    def rows(self) -> int:
        assert self.hub is not None
        return self.hub.streams["sensors"].status().rows


# The commands leave their sockets to the end of their process.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_tutorial_works_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    queries = RunningQueries()  # for all hubs, because it keeps what Spark has on disk
    monkeypatch.setattr("headrace.hub.hub.SparkLauncher", lambda *_: queries)
    reader = Reader()
    try:
        for command, shown in commands():
            if command == "python look.py":
                reader.feed()  # the new pipeline gets rows
                Path("look.py").write_text(blocks("python")[1])
            if reader.hub is not None and "no hub runs" in "".join(shown):
                reader.hub.close()
            printed = reader.run(command)
            assert matches(shown, printed), "\n".join([command, *printed])
    finally:
        if reader.hub is not None:
            reader.hub.close()


def test_the_pipelines_on_the_page_are_those_of_the_example() -> None:
    [shown] = blocks("sql")
    assert [s.sql for s in parse_script(shown)] == [s.sql for s in parse_script(SCRIPT)][-2:]


README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_python_of_the_readme_runs_as_it_stands_and_a_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    queries = RunningQueries()
    monkeypatch.setattr("headrace.hub.hub.SparkLauncher", lambda *_: queries)
    [snippet] = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    for _ in range(2):
        exec(compile(snippet.replace("sleep(3)", "sleep(1)"), "README.md", "exec"), {})
        rows, *table, damp = capsys.readouterr().out.splitlines()
        assert re.fullmatch(r"\d{3,} \['device', 'temp'\]", rows)
        assert re.fullmatch(r"\[\d{2,} rows x 2 columns\]", table[-1])
        assert re.fullmatch(r"\d{2,} \['device', 'temp', 'hum'\]", damp)


def test_an_empty_memory_sink_says_that_its_rows_went_with_their_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a script that is run a second time, when all files are read. And what was stopped stays so, with a word."""
    script, _ = write_example(tmp_path / "first")
    queries = RunningQueries()
    monkey = pytest.MonkeyPatch()
    monkey.chdir(tmp_path / "first")
    kept = "CREATE SINK kept WITH (type = 'memory'); CREATE PIPELINE warm INTO kept AS SELECT temp FROM sensors"
    try:
        for rows in (600, 0):
            with Hub(tmp_path / "state", queries) as hub:
                answer = hub.sql(script.read_text() + kept)[-1]
                hub.streams["sensors"].sync()
                caplog.clear()
                assert hub.pipelines["warm"].results().num_rows == rows
                said = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
                assert len(said) == (not rows) and all("its 600 rows went with the process" in text for text in said)
                assert answer.warnings == ()
                hub.sql("STOP PIPELINE warm")
                (again,) = hub.sql(kept.split("; ")[1])
                assert again.warnings == ("pipeline warm is stopped; START PIPELINE warm runs it",)
                hub.sql("START PIPELINE warm")
    finally:
        monkey.undo()
