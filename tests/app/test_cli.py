"""The command line without Spark: help, versions, checks, plans and errors."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.app.check import check_script
from headrace.app.cli import app
from headrace.errors import ScriptErrors

STREAM = """
CREATE STREAM s (id BIGINT, ts TIMESTAMP, temp DOUBLE, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)
WITH (source = 'generator', format = 'json', rows = '100');
"""
SINK = "CREATE SINK out WITH (type = 'memory');\n"
GOOD = STREAM + SINK + "CREATE PIPELINE hot INTO out AS SELECT id FROM s WHERE temp > 20;\n"


@dataclass(frozen=True)
class Answer:
    """The result of a command that runs in this process. Starting Python for each would take most of the time."""

    returncode: int
    stdout: str
    stderr: str


def headrace(*arguments: str, script: str | None = None, cwd: Path | None = None) -> Answer:
    with contextlib.chdir(cwd or Path.cwd()):
        result = CliRunner().invoke(app, list(arguments), input=script)
    return Answer(result.exit_code, result.stdout, result.stderr)


def code_of(answer: Answer) -> str:
    """The error code that a refused command printed. The error must be its only output, on standard error."""
    assert answer.returncode == 2, answer.stderr
    assert answer.stdout == ""
    assert "Traceback" not in answer.stderr
    return answer.stderr.partition("[")[2].partition("]")[0]


@pytest.mark.parametrize("command", [[], ["run"], ["check"], ["explain"], ["demo"], ["version"]], ids=" ".join)
def test_every_command_has_help_and_commands_have_examples(command: list[str]) -> None:
    answer = headrace(*command, "--help")
    assert answer.returncode == 0
    assert "Usage:" in answer.stdout
    assert not command or "Example" in answer.stdout


def test_version_lists_headrace_and_its_main_dependencies() -> None:
    answer = headrace("version")
    assert answer.returncode == 0
    assert [line.split()[0] for line in answer.stdout.splitlines()][:3] == ["headrace", "python", "pyspark"]


def test_a_correct_script_passes_the_check_and_creates_no_files(tmp_path: Path) -> None:
    (tmp_path / "app.sql").write_text(GOOD)
    command = [sys.executable, "-m", "headrace.app.cli", "check", "app.sql"]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr
    assert "3 statements, 1 pipelines" in answer.stdout
    assert [p.name for p in tmp_path.iterdir()] == ["app.sql"]


def test_a_time_zone_that_does_not_exist_is_refused_before_anything_starts(tmp_path: Path) -> None:
    for zone in ("Mars/Base", "europe/berlin", "+05:00"):
        answer = headrace("run", "-", "--check", "--time-zone", zone, script=GOOD, cwd=tmp_path)
        assert code_of(answer) == "BAD_OPTION"
    assert headrace("run", "-", "--check", "--time-zone", "Europe/Berlin", script=GOOD, cwd=tmp_path).returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_checking_and_explaining_import_no_spark_and_nothing_else_that_takes_long(tmp_path: Path) -> None:
    (tmp_path / "app.sql").write_text(GOOD.replace(" WHERE temp > 20", ""))
    program = """
import sys
from headrace.app.entry import main
for command in ("check", "explain"):
    sys.argv = ["headrace", command, "app.sql"]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, ended.code
    slow = {"pyspark", "numba", "pandas", "_duckdb", "pyarrow._compute", "pyarrow._parquet", "rich.console",
            "fastapi", "uvicorn", "httpx", "prompt_toolkit"}
    if command == "check":
        slow |= {"typer", "pydantic"}
    assert not slow & set(sys.modules), slow & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=60)


ABSENT = GOOD.replace("'generator'", "'files', path = '/does/not/exist'").replace(", rows = '100'", "")


def test_a_script_is_checked_without_its_data_unless_strict(tmp_path: Path) -> None:
    answer = headrace("check", "-", script=ABSENT)
    assert answer.returncode == 0
    assert "warning: there is no /does/not/exist (line 3)" in answer.stderr
    assert code_of(headrace("check", "-", "--strict", script=ABSENT)) == "MISSING_FILE"
    assert headrace("explain", "-", script=ABSENT).returncode == 0
    assert code_of(headrace("check", "-", script=ABSENT.replace("temp > 20", "tmp > 20"))) == "UNKNOWN_COLUMN"


def test_a_check_names_the_pipelines_that_only_spark_can_check(tmp_path: Path) -> None:
    script = GOOD + "CREATE PIPELINE known INTO out AS SELECT sentences('a b') AS w, temp FROM s;\n"
    answer = headrace("check", "-", script=script)
    assert answer.returncode == 0, answer.stderr
    assert "only Spark" in answer.stdout and ": known." in answer.stdout
    assert "only Spark" not in headrace("check", "-", script=GOOD).stdout
    assert json.loads(headrace("check", "-", "--json", script=script).stdout)["unchecked"] == ["known"]


def test_a_check_warns_of_texts_that_are_cast_although_nobody_wrote_it(tmp_path: Path) -> None:
    stream = STREAM.replace("temp DOUBLE", "k STRING, list ARRAY<STRING>") + SINK

    def warnings(query: str) -> list[tuple[str, str]]:
        answer = headrace("check", "-", script=f"{stream}CREATE PIPELINE p INTO out AS {query}")
        assert answer.returncode == 0, answer.stderr
        return re.findall(r"^warning: pipeline p: (.*) is a STRING and is cast to (\w+)", answer.stderr, re.MULTILINE)

    assert warnings("SELECT k + 1 AS a, k + 2 AS b FROM s WHERE k > 3") == [("k", "BIGINT")]
    assert warnings("SELECT list[0] * 2.5D AS a FROM s WHERE k = true") == [("list[0]", "DOUBLE"), ("k", "BOOLEAN")]
    assert warnings("SELECT sum(k) AS a FROM s") == [("k", "DOUBLE")]
    assert warnings("SELECT w * 2 AS a FROM (SELECT concat(k, '1') AS w FROM s)") == [("w", "BIGINT")]
    assert warnings("SELECT TRY_CAST(k AS BIGINT) + 1 AS a, int(k) AS b, concat(k, 1) AS c FROM s WHERE k > 'x'") == []
    assert warnings("SELECT decode(k, 'UTF-8') AS a, try_add(k, 1) AS b FROM s") == []
    assert warnings("SELECT max(k + 1) AS a, reflect('java.lang.Math', 'abs', max(id)) AS b FROM s WHERE k > 2") == []


def test_a_byte_order_mark_is_no_part_of_a_script(tmp_path: Path) -> None:
    (tmp_path / "app.sql").write_text(GOOD, encoding="utf-8-sig")
    assert headrace("check", str(tmp_path / "app.sql")).returncode == 0
    assert headrace("check", "-", script="\ufeff" + GOOD).returncode == 0
    assert headrace("fmt", str(tmp_path / "app.sql")).returncode == 0
    assert (tmp_path / "app.sql").read_bytes().startswith(b"CREATE STREAM")


@pytest.mark.parametrize(
    "query", ["INSERT INTO t SELECT id FROM s", "CREATE TABLE t AS SELECT id FROM s", "SHOW TABLES",
              "WITH x AS (SELECT id FROM s) INSERT INTO t SELECT id FROM x"]
)  # fmt: skip
def test_a_pipeline_that_writes_by_itself_is_refused_by_the_check_too(query: str) -> None:
    assert code_of(headrace("check", "-", script=STREAM + SINK + f"CREATE PIPELINE p INTO out AS {query}")) == (
        "SYNTAX_ERROR"
    )


def test_two_fields_of_a_struct_are_one_column_in_the_first_lines_of_a_plan() -> None:
    script = STREAM.replace("temp DOUBLE", "temp STRUCT<now: DOUBLE, day: STRUCT<low: INT, high: INT>>") + SINK
    query = "CREATE PIPELINE p INTO out AS SELECT temp.now, temp.day.low, temp.day.high FROM s"
    answer = headrace("explain", "-", script=script + query)
    assert "1 of its 3 columns: temp.now, temp.day.low, temp.day.high" in answer.stdout


def test_editors_get_findings_with_ranges_as_json() -> None:
    broken = ABSENT.replace("temp > 20", "tmp > 20")
    answer = headrace("check", "-", "--json", script=broken)
    assert answer.returncode == 2
    found = json.loads(answer.stdout)
    assert not found["ok"]
    (error,) = found["errors"]
    assert error["code"] == "UNKNOWN_COLUMN"
    at = error["at"]
    line = broken.splitlines()[at["line"] - 1]
    assert (at["statement"], at["line"]) == (3, at["end_line"])
    assert line[at["column"] - 1 : at["end_column"] - 1] == "tmp"
    fine = json.loads(headrace("check", "-", "--json", script=ABSENT).stdout)
    assert (fine["ok"], fine["statements"], fine["pipelines"]) == (True, 3, ["hot"])
    assert [w["code"] for w in fine["warnings"]] == ["MISSING_FILE"]
    strict = json.loads(headrace("check", "-", "--json", "--strict", script=ABSENT).stdout)
    assert [e["code"] for e in strict["errors"]] == ["MISSING_FILE"]
    missing = json.loads(headrace("check", "no.sql", "--json").stdout)
    assert [e["code"] for e in missing["errors"]] == ["MISSING_FILE"]


def test_fmt_formats_in_place_and_reports_what_is_not_formatted(tmp_path: Path) -> None:
    script = tmp_path / "app.sql"
    script.write_text(GOOD.lower())
    assert headrace("fmt", "--check", str(script)).returncode == 1
    assert script.read_text() == GOOD.lower()
    assert headrace("fmt", str(script)).returncode == 0
    assert "CREATE PIPELINE hot INTO out AS\n  SELECT id\n  FROM s" in script.read_text()
    again = headrace("fmt", str(script))
    assert (again.returncode, again.stdout) == (0, "")
    assert headrace("fmt", "--check", str(script)).returncode == 0
    assert headrace("fmt", "-", script="show  streams").stdout == "SHOW STREAMS\n"
    assert code_of(headrace("fmt", "-", script="shw streams")) == "SYNTAX_ERROR"


def test_standard_input_can_be_the_script() -> None:
    assert headrace("check", "-", script=GOOD).returncode == 0


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (STREAM + SINK + "CREATE PIPELIN p INTO out AS SELECT 1", "SYNTAX_ERROR"),
        (GOOD.replace("FROM s", "FROM nothing"), "UNKNOWN_STREAM"),
        (GOOD.replace("INTO out", "INTO nowhere"), "UNKNOWN_SINK"),
        (GOOD.replace("temp > 20", "tmp > 20"), "UNKNOWN_COLUMN"),
        (GOOD.replace("rows = '100'", "rowz = '100'"), "UNKNOWN_OPTION"),
        (GOOD.replace("rows = '100'", "rows = 'many'"), "BAD_OPTION"),
        (GOOD.replace("BIGINT", "BIGINTEGER"), "UNKNOWN_TYPE"),
        (GOOD.replace("'json'", "'jason'"), "UNKNOWN_FORMAT"),
        (GOOD.replace("'generator'", "'genie'"), "UNKNOWN_SOURCE"),
        (GOOD.replace("'memory'", "'memo'"), "UNKNOWN_SINK_KIND"),
        (GOOD.replace("type = 'memory'", "type = 'parquet'"), "MISSING_OPTION"),
        (
            GOOD.replace("'generator'", "'files', path = '/does/not/exist'").replace(", rows = '100'", ""),
            "MISSING_FILE",
        ),
        (GOOD.replace("'memory'", "'parquet', path = 'app.sql/below'"), "UNWRITABLE_PATH"),
        (
            GOOD.replace("temp > 20", "tmp > 20") + SINK.replace("out", "b").replace("'memory'", "'memo'"),
            "SCRIPT_ERRORS",
        ),
    ],
    ids=lambda value: value if value.isupper() else "",
)
@pytest.mark.parametrize("command", [["check", "--strict"], ["run"], ["run", "--check"]], ids=" ".join)
def test_a_mistake_is_a_coded_error_with_exit_code_2(
    tmp_path: Path, command: list[str], script: str, code: str
) -> None:
    (tmp_path / "app.sql").write_text(script)
    assert code_of(headrace(*command, "app.sql", cwd=tmp_path)) == code
    assert [p.name for p in tmp_path.iterdir()] == ["app.sql"]


def test_an_error_in_the_third_statement_names_and_underlines_its_position(tmp_path: Path) -> None:
    (tmp_path / "app.sql").write_text(
        STREAM + SINK + "CREATE PIPELINE p INTO out AS\n  SELECT id FROM s WHERE tmp > 1;\n"
    )
    answer = headrace("check", "app.sql", cwd=tmp_path)
    lines = answer.stderr.splitlines()
    assert any("statement 3, line 6, column 26" in line for line in lines)
    caret = next(i for i, line in enumerate(lines) if "^^^" in line)
    assert lines[caret - 1].index("tmp") == lines[caret].index("^^^")


def test_errors_that_only_follow_from_another_are_not_reported(tmp_path: Path) -> None:
    elsewhere = "".join(
        f"CREATE PIPELINE {host} INTO out WITH (host = '{host}') AS SELECT id FROM s;\n"
        for host in ("epoch", "dedicated")
    )
    (tmp_path / "app.sql").write_text(GOOD.replace("'generator'", "'genie'") + elsewhere)
    answer = headrace("check", "app.sql", cwd=tmp_path)
    assert "UNKNOWN_STREAM" not in answer.stderr


def test_a_syntax_error_does_not_hide_the_mistakes_of_other_statements() -> None:
    wrong_sink = "CREATE SINK other WITH (type 'memory');"
    pipelines = "CREATE PIPELINE p INTO out AS SELECT tmp FROM s; CREATE PIPELINE q INTO other AS SELECT id FROM s;"
    with pytest.raises(ScriptErrors) as caught:
        check_script(STREAM + SINK + wrong_sink + pipelines)
    assert [error.code for error in caught.value.errors] == ["SYNTAX_ERROR", "UNKNOWN_COLUMN"]


@pytest.mark.parametrize("command", ["run", "check", "explain"])
def test_a_script_that_is_missing_or_not_text_is_a_coded_error(tmp_path: Path, command: str) -> None:
    assert code_of(headrace(command, str(tmp_path / "none.sql"))) == "MISSING_FILE"
    (tmp_path / "bad.sql").write_bytes(b"\xff\xfe\xff")
    assert code_of(headrace(command, str(tmp_path / "bad.sql"))) == "UNREADABLE_FILE"
    assert code_of(headrace(command, str(tmp_path))) == "UNREADABLE_FILE"


def test_verbose_adds_the_stack_trace(tmp_path: Path) -> None:
    answer = headrace("check", "--verbose", str(tmp_path / "none.sql"))
    assert answer.returncode == 2
    assert "Traceback" in answer.stderr
    assert "[MISSING_FILE]" in answer.stderr


def test_explain_shows_every_plan_or_the_plan_of_one_pipeline(tmp_path: Path) -> None:
    (tmp_path / "app.sql").write_text(GOOD + "CREATE PIPELINE cold INTO out AS SELECT id FROM s WHERE temp < 0;\n")
    both = headrace("explain", "app.sql", cwd=tmp_path)
    assert both.returncode == 0, both.stderr
    assert "hot" in both.stdout
    assert "cold" in both.stdout
    one = headrace("explain", "app.sql", "--pipeline", "HOT", cwd=tmp_path)
    assert one.stdout in both.stdout
    assert "cold" not in one.stdout
    assert code_of(headrace("explain", "app.sql", "--pipeline", "hott", cwd=tmp_path)) == "UNKNOWN_PIPELINE"


def test_explain_as_json_is_one_document(tmp_path: Path) -> None:
    (tmp_path / "app.sql").write_text(GOOD)
    answer = headrace("explain", "app.sql", "--json", cwd=tmp_path)
    assert len(json.loads(answer.stdout)) == 1


def test_init_writes_a_script_that_is_right_and_formatted_and_overwrites_nothing(tmp_path: Path) -> None:
    answer = headrace("init", "my", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert "next: cd my && headrace run app.sql --until-end" in answer.stdout
    assert headrace("check", "app.sql", "--strict", cwd=tmp_path / "my").returncode == 0
    assert headrace("fmt", "--check", "app.sql", cwd=tmp_path / "my").returncode == 0
    rows = [line for path in (tmp_path / "my" / "data").iterdir() for line in path.read_text().splitlines()]
    assert len(rows) == 600
    (tmp_path / "my" / "app.sql").write_text("mine")
    assert code_of(headrace("init", "my", cwd=tmp_path)) == "ALREADY_EXISTS"
    assert (tmp_path / "my" / "app.sql").read_text() == "mine"


def test_doctor_says_what_is_wrong_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = headrace("doctor", "--state-dir", str(tmp_path / "state"), "--port", str(port))
    assert answer.returncode == 0, answer.stdout
    assert f"warning port: {port} is taken" in answer.stdout
    assert "ok      java: " in answer.stdout
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "no-python"))
    broken = headrace("doctor", "--port", "0")
    assert broken.returncode == 1
    assert "problem workers: " in broken.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_state_directory_that_is_a_file_is_reported_with_its_path(tmp_path: Path) -> None:
    script, file = tmp_path / "app.sql", tmp_path / "state"
    script.write_text("SHOW STREAMS")
    file.write_text("")
    answer = headrace("run", str(script), "--state-dir", str(file))
    assert answer.returncode == 2
    assert f"[UNWRITABLE_PATH] the state directory {file} cannot be used: it is a file" in answer.stderr
