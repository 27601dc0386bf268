"""Log lines: text and JSON, facts beside the message, a file that outlives the process."""

from __future__ import annotations

import json
import logging
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import logs
from headrace.logs import FILE, code_of, facts, keep_previous, last_lines, logging_to
from tests.e2e.support import put
from tests.shared.mini import Mini

log = logging.getLogger("headrace.example")


def lines(directory: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (directory / FILE).read_text().splitlines()]


def test_json_lines_have_the_facts_of_a_record_and_those_before_the_hub_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with logging_to("json", logging.WARNING, timed=True) as found:
        log.info("early", extra=facts("opened", stream="s"))
        found.keep(tmp_path)
        log.error("pipeline p failed", extra=facts("pipeline_failed", "TYPE_MISMATCH", pipeline="p"))
        try:
            raise ValueError("oops")
        except ValueError:
            log.exception("a defect")
    log.error("after the end")
    kept = lines(tmp_path)
    assert [(r["level"], r["message"]) for r in kept] == [
        ("info", "early"),
        ("error", "pipeline p failed"),
        ("error", "a defect"),
    ]
    assert kept[1] | {"code": "TYPE_MISMATCH", "pipeline": "p", "event": "pipeline_failed"} == kept[1]
    assert "ValueError: oops" in str(kept[2]["trace"])
    shown = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [r["message"] for r in shown][:2] == ["pipeline p failed", "a defect"]  # no info lines were asked for
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_text_lines_name_the_code_and_leave_out_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_to("text", logging.INFO, timed=False, told=frozenset({"pipeline_failed"})):
        log.info("one", extra=facts("request_failed", "NO_SUCH_ADDRESS"))
        log.error("two", extra=facts("pipeline_failed"))
    assert capsys.readouterr().err == "INFO: one [NO_SUCH_ADDRESS]\n"


def test_the_file_is_cut_into_parts_and_read_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "FILE_BYTES", 500)
    with logging_to("text", logging.CRITICAL, timed=True) as found:
        found.keep(tmp_path)
        for i in range(40):
            log.info("line %d", i)
    assert len(list(tmp_path.glob(f"{FILE}*"))) > 2
    assert [line.split()[-1] for line in last_lines(tmp_path, 30)] == [str(i) for i in range(10, 40)]
    assert last_lines(tmp_path, 0) == []


def test_an_epoch_is_one_info_line_with_its_phases_and_a_failure_has_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    mini = Mini(tmp_path / "state", monkeypatch)
    with logging_to("json", logging.CRITICAL, timed=True) as found:
        found.keep(mini.directory)
        mini.hub.sql(
            f"CREATE STREAM s (a BIGINT) WITH (source = 'files', format = 'json', path = '{tmp_path / 'in'}');"
            "CREATE SINK out WITH (type = 'memory'); CREATE PIPELINE p INTO out AS SELECT a FROM s;"
            "CREATE PIPELINE bad INTO out AS SELECT 1 / (a - a) AS x FROM s"
        )
        put(tmp_path / "in" / "0.json", ['{"a": 1}', '{"a": 2}'])
        mini.drain()
        mini.hub.close()
    written = lines(mini.directory)
    epochs = [r for r in written if r["event"] == "epoch"]
    assert [r["epoch"] for r in epochs] == list(range(len(epochs)))
    assert [r["rows"] for r in epochs if r["rows"]] == [2]
    phases = epochs[0]["phases"]
    assert isinstance(phases, dict) and set(phases) == {"planning", "reading", "ring0", "state", "sinks"}
    (failed,) = [r for r in written if r["event"] == "pipeline_failed"]
    assert (failed["stream"], failed["pipeline"]) == ("s", "bad")
    assert failed["code"] == code_of(mini_error(failed))


def mini_error(record: dict[str, object]) -> str:
    return str(record["message"]).split(" failed: ", 1)[1]


def test_logs_prints_the_newest_lines_and_where_the_files_are(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("one\ntwo\nthree\n")
    (tmp_path / "spark.log").write_text("x")
    command = [sys.executable, "-m", "headrace.cli", "logs", "-n", "2", "--state-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "two\nthree\n"
    assert "spark.log" in done.stderr
    command[-1] = str(tmp_path / "none")
    assert subprocess.run(command, capture_output=True, text=True, timeout=60).returncode == 2


def test_a_log_of_the_run_before_is_kept(tmp_path: Path) -> None:
    (tmp_path / "spark.log").write_text("it crashed")
    keep_previous(tmp_path / "spark.log")
    assert (tmp_path / "spark.log.1").read_text() == "it crashed"
    assert not (tmp_path / "spark.log").exists()
