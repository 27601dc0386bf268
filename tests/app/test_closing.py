"""What a run prints about lost rows, and about scripts whose definitions differ from the declared ones."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from headrace.app.check import check_script
from headrace.app.cli import app
from headrace.app.run import RunSettings, run_script
from headrace.app.view.displays import LiveDisplay
from headrace.app.view.lines import pipelines_line, status_lines, stream_line
from headrace.errors import AlreadyExists, InUse
from headrace.hub.redeclaring import lost_with
from headrace.hub.results import Result
from headrace.model.definitions import StreamDef
from headrace.model.schema import BIGINT, Field, Schema
from headrace.model.status import PipelineStatus, StreamStatus, stream_warning
from headrace.service.decoding import decode_result as from_json
from headrace.service.models import statement_result, status_json
from headrace.service.printing import OutputFormat, printed
from headrace.sql.bind.column_names import ColumnNames
from headrace.sql.parse.syntax import Apply
from headrace.stream.intake import Intake
from tests.e2e.support import put
from tests.shared.mini import Mini

COLUMNS = "n BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 1 SECOND"


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mini]:
    """Runs queries in this process, also those of `headrace run`."""
    (tmp_path / "in").mkdir()
    mini = Mini(tmp_path / "other", monkeypatch)
    yield mini
    mini.hub.close()


def script(place: Path, columns: str = COLUMNS, select: str = "n, ts", **options: str) -> str:
    given = {"source": "files", "format": "json", "path": str(place / "in")} | options
    listed = ", ".join(f"{k} = '{v}'" for k, v in given.items())
    return (
        f"CREATE STREAM s ({columns}) WITH ({listed});"
        f"CREATE SINK out WITH (type = 'kept'); CREATE PIPELINE p INTO out AS SELECT {select} FROM s"
    )


def feed(place: Path, count: int, at: str = "16.11.2026 12:00") -> None:
    put(place / "in" / "0.json", [json.dumps({"n": i, "ts": at}) for i in range(count)])


def run(place: Path, text: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The last lines of a run, on standard error."""
    capsys.readouterr()
    assert run_script(text, RunSettings(place / "state", until_end=True)) == 0
    return capsys.readouterr().err.splitlines()


def warnings_in(lines: list[str]) -> list[str]:
    return [line for line in lines if "warning" in line.lower()]


def test_a_timestamp_format_that_fits_no_row_is_reported_with_a_warning(
    tmp_path: Path, mini: Mini, capsys: pytest.CaptureFixture[str]
) -> None:
    feed(tmp_path, 1000)
    lines = run(tmp_path, script(tmp_path), capsys)
    assert "stream s 1.0k rows in, 1,000 rejected, bad values: bad_timestamp 1,000" in lines
    assert "p (finished) 0 rows out" in lines
    (warning,) = warnings_in(lines)
    assert warning.startswith("WARNING: stream s rejected 1,000 of 1,000 rows (bad values: bad_timestamp 1,000): ")
    assert warning.endswith("on_error = 'dead_letter' keeps such records so that you can inspect them")


def test_a_warning_is_printed_once_in_a_run_and_names_the_dead_letter_sink_that_is_set(
    tmp_path: Path, mini: Mini, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several epochs, with a status line after each."""
    monkeypatch.setattr("headrace.app.view.displays.LINE_SECONDS", 0.0)
    monkeypatch.setattr("headrace.app.run.LIVE_SECONDS", 0.0)
    for number in range(4):
        put(tmp_path / "in" / f"{number}.json", ['{"n": 1, "ts": "2026-11-16T12:00:00Z"}', "{"] * 50)
    kept = {"on_error": "dead_letter", "dead_letter_sink": "bad", "max_epoch_bytes": "3000"}
    text = "CREATE SINK bad WITH (type = 'jsonl', path = '" + str(tmp_path / "bad") + "');"
    lines = run(tmp_path, text + script(tmp_path, **kept), capsys)
    (warning,) = warnings_in(lines)
    assert warning.startswith("WARNING: stream s rejected ")
    assert warning.endswith("; sink bad has the records")
    assert [line for line in lines if line.startswith("s: ")]  # status lines were printed too


@pytest.mark.parametrize(
    ("policy", "said"), [("null", "100 rows out, 100 with bad values"), ("skip", "0 rows out, 100 rejected")]
)
def test_a_format_that_fits_no_value_of_another_column_is_reported_with_a_warning(
    tmp_path: Path, mini: Mini, capsys: pytest.CaptureFixture[str], policy: str, said: str
) -> None:
    feed(tmp_path, 100)
    lines = run(tmp_path, script(tmp_path, "n BIGINT, ts TIMESTAMP", on_error=policy), capsys)
    assert "stream s 100 rows in, bad values: bad_timestamp 100" in lines
    assert f"p (finished) {said}" in lines
    (warning,) = warnings_in(lines)
    assert warning.startswith("WARNING: pipeline p found bad values in 100 of 100 rows")


def test_a_run_that_lost_nothing_prints_no_losses(
    tmp_path: Path, mini: Mini, capsys: pytest.CaptureFixture[str]
) -> None:
    feed(tmp_path, 10, "2026-11-16T12:00:00Z")
    lines = run(tmp_path, script(tmp_path), capsys)
    assert lines[-2:] == ["stream s 10 rows in", "p (finished) 10 rows out"]


def test_the_last_picture_has_all_input_read_the_rate_and_the_columns_of_the_run(
    tmp_path: Path, mini: Mini, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a terminal. Nothing of it may be what a stream that has stopped does now: nothing."""
    out = io.StringIO()
    live = LiveDisplay(Console(file=out, force_terminal=True, width=100))
    monkeypatch.setattr("headrace.app.run.choose_display", lambda **_: live)
    feed(tmp_path, 100, "2026-11-16T12:00:00Z")
    text = script(tmp_path, "n BIGINT, unread INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 1 SECOND")
    assert run_script(text, RunSettings(tmp_path / "state", until_end=True)) == 0
    last = re.sub(r"\x1b\[[\d;]*m", "", out.getvalue())
    last = last[last.rindex("stream s (stopped)") :]
    assert "columns decoded 2 of 3: n, ts" in last
    assert not re.search(r"rows/s 0\b", last) and "rows/s" in last
    assert "100% of " in last and "Ctrl-C" not in last


def test_the_cast_that_a_warning_names_keeps_the_pipeline_running(
    tmp_path: Path, mini: Mini, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "in" / "0.json", ['{"n": 1, "k": "2"}', '{"n": 2, "k": "two"}'])
    implicit = script(tmp_path, "n BIGINT, k STRING", "k + 1 AS a")
    (warning,) = check_script(implicit).warnings
    assert "TRY_CAST(k AS BIGINT)" in warning
    named = implicit.replace("k + 1", "TRY_CAST(k AS BIGINT) + 1")
    assert run_script(named, RunSettings(tmp_path / "state", until_end=True)) == 0
    said = capsys.readouterr()
    assert "p (finished) 2 rows out" in said.err and "warning" not in said.out


def test_a_skipped_file_is_named_at_the_end(tmp_path: Path, mini: Mini, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path / "in" / "0.csv", ["n,ts", "1,2026-11-16T12:00:00Z"])
    bad = put(tmp_path / "in" / "1.csv", ["other", "2"])
    lines = run(tmp_path, script(tmp_path, format="csv", header="true", on_bad_file="skip"), capsys)
    assert "stream s 1 rows in, 1 files left out" in lines
    (warning,) = warnings_in(lines)
    assert warning.startswith(f"WARNING: stream s left out {bad}: [HEADER_MISMATCH]")


def test_every_record_counts_as_a_row_however_it_is_rejected(tmp_path: Path, mini: Mini) -> None:
    good, untimed = '{"n": 1, "ts": "2026-11-16T12:00:00Z"}', '{"n": 2, "ts": "noon"}'
    put(tmp_path / "in" / "0.json", [good, untimed, "{", "[]", good, "x" * 2000])
    mini.hub.sql(script(tmp_path, max_record_bytes="1000"))
    mini.drain()
    status = mini.hub.streams["s"].status()
    assert (status.rows, status.rejected) == (6, 4)
    assert sum(status.bad.values()) == 4
    assert mini.hub.pipelines["p"].status().rows_in == 6
    assert "4 rejected" in stream_line(status)
    assert [w for w in status.warnings if "rejected 4 of 6 rows" in w]
    described = mini.hub.sql("DESCRIBE STREAM s")[0].render()
    assert "rejected 4 of 6 rows" in described
    shown = mini.hub.sql("SHOW STREAMS")[0].table
    assert shown is not None
    assert shown.column("rejected").to_pylist() == [4]


def test_a_warning_says_what_each_number_counts(tmp_path: Path, mini: Mini, capsys: pytest.CaptureFixture[str]) -> None:
    untimed, wrong = '{"n": 1, "m": "x", "ts": "noon"}', '{"n": 1, "m": "x", "ts": "2026-11-16T12:00:00Z"}'
    put(tmp_path / "in" / "0.json", [untimed] * 6 + ["{"] + [wrong] * 3)
    columns = "n BIGINT, m INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 1 SECOND"
    warning = warnings_in(run(tmp_path, script(tmp_path, columns, "n, m, ts"), capsys))[0]
    counted = "bad records: bad_json 1; bad values: bad_integer 3, bad_timestamp 6"
    assert f"rejected 7 of 10 rows ({counted}; values also in other rows)" in warning


def test_several_bad_values_of_a_row_are_not_said_to_be_in_other_rows() -> None:
    bad = {"bad_integer": 6, "bad_timestamp": 6}
    warning = stream_warning("s", rows=10, rejected=0, nulled=6, bad=bad)
    assert "has NULLs for 6 of 10 rows (bad values: bad_integer 6, bad_timestamp 6): " in warning
    assert "values also in other rows" in stream_warning("s", rows=10, rejected=6, nulled=0, bad=bad)


def test_a_run_warns_only_if_more_than_a_tenth_of_the_rows_are_rejected(
    tmp_path: Path, mini: Mini, caplog: pytest.LogCaptureFixture
) -> None:
    good = '{"n": 1, "ts": "2026-11-16T12:00:00Z"}'
    mini.hub.sql(script(tmp_path))
    put(tmp_path / "in" / "0.json", [good] * 18 + ["{"] * 2)
    with caplog.at_level(logging.INFO, "headrace"):
        mini.drain()
        assert mini.hub.streams["s"].status().warnings == []
        assert [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING] == []
        assert [r for r in caplog.records if r.getMessage().endswith("20 rows; 2 rejected so far")]
        put(tmp_path / "in" / "1.json", ["{"])
        mini.drain()
        put(tmp_path / "in" / "2.json", ["{"])
        mini.drain()
    assert len([r for r in caplog.records if r.levelno == logging.WARNING]) == 1
    assert len(mini.hub.streams["s"].status().warnings) == 1


def test_a_run_warns_if_the_event_time_is_misspelt(
    tmp_path: Path, mini: Mini, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "in" / "0.json", [json.dumps({"n": i, "time": "2026-11-16T12:00:00Z"}) for i in range(20)])
    lines = run(tmp_path, script(tmp_path), capsys)
    assert "stream s 20 rows in, bad rows: null_event_time 20" in lines
    (warning,) = warnings_in(lines)
    assert warning.startswith("WARNING: stream s has 20 of 20 rows without an event time")


def test_broken_records_that_are_rows_are_not_called_rejected(
    tmp_path: Path, mini: Mini, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "in" / "0.json", ['{"n": 1, "ts": "2026-11-16T12:00:00Z"}', "{", '{"n": 2, "ts": "noon"}'])
    lines = run(tmp_path, script(tmp_path, mode="PERMISSIVE"), capsys)
    assert "stream s 3 rows in, 2 broken and NULL, bad records: bad_json 1; bad values: bad_timestamp 1" in lines
    assert "p (finished) 3 rows out" in lines
    (warning,) = warnings_in(lines)
    assert warning.startswith("WARNING: stream s has NULLs for 2 of 3 rows")


def test_each_change_from_good_to_bad_rows_logs_a_warning(
    tmp_path: Path, mini: Mini, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.stream.epoch_log.RECENT", 10)
    mini.hub.sql(script(tmp_path))
    good = '{"n": 1, "ts": "2026-11-16T12:00:00Z"}'
    for number, lines in enumerate(([good] * 500, ["{"] * 5, ["{"] * 5, ["{"] * 10, [good] * 10, ["{"] * 10)):
        put(tmp_path / "in" / f"{number}.json", lines)
        mini.drain()
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert warnings == ["stream s found 10 of its newest 10 rows bad: has the input changed?"] * 2


def test_show_lists_losses_and_warns_in_every_output_format(tmp_path: Path, mini: Mini) -> None:
    feed(tmp_path, 10)
    mini.hub.sql(script(tmp_path, "n BIGINT, ts TIMESTAMP", on_error="skip"))
    mini.drain()
    streams, pipelines = mini.hub.sql("SHOW STREAMS; SHOW PIPELINES")
    assert streams.table is not None and pipelines.table is not None
    assert streams.table.column("dropped").to_pylist() == [0]
    assert [pipelines.table.column(c).to_pylist() for c in ("rejected", "late", "missed")] == [[10], [0], [0]]
    warning = "pipeline p found bad values in 10 of 10 rows, which are rejected"
    assert pipelines.warnings[0].startswith(warning)
    far = from_json(statement_result(pipelines, 10, arrow=True).model_dump())
    for result in (pipelines, far):
        assert warning in result.render() and warning in result._repr_html_()
        assert warning in printed([result], "json")
    status = mini.hub.pipelines["p"].status()
    assert "10 rejected" in status_lines([], [status])[0] and warning in status_lines([], [status])[1]
    assert warning in str(status_json(status)["warnings"])


def test_lines_show_losses_only_if_there_are_any() -> None:
    stream = StreamStatus("s", True, 3, 1, ["n"], 5, {}, 100, 100, {}, None, 0, None, 0.0, 0.0)
    assert stream_line(stream).endswith("watermark none yet")
    lossy = replace(stream, rejected=5, dropped=1234, skipped_files=2)
    assert stream_line(lossy).endswith(", 5 rejected, 1,234 dropped, 2 files left out")
    pipeline = PipelineStatus("p", "s", "running", 1, 7, 3, 2, 0, None, 40, [], "", rejected=2)
    assert pipelines_line([pipeline]) == "p 7 rows out, 3 late, 2 rejected, 40 missed"


# --- declaring again ------------------------------------------------------------------------------


def test_if_not_exists_with_another_definition_warns_that_it_has_no_effect(tmp_path: Path, mini: Mini) -> None:
    mini.hub.sql(script(tmp_path))
    again = script(tmp_path).replace("CREATE STREAM", "CREATE STREAM IF NOT EXISTS")
    again = again.replace("CREATE SINK", "CREATE SINK IF NOT EXISTS").replace("PIPELINE", "PIPELINE IF NOT EXISTS")
    for result in mini.hub.sql(again):
        assert result.text.endswith("is as declared")
        assert result.warnings == ()
    other = (
        again.replace("n BIGINT", "n INT").replace("SELECT n, ts", "SELECT n + 1 AS m").replace("'kept'", "'memory'")
    )
    for result in mini.hub.sql(other):
        assert "as declared" not in result.render()
        assert len(result.warnings) == 1
    unplannable = mini.hub.sql("CREATE PIPELINE IF NOT EXISTS p INTO out AS SELECT missing FROM s")[0]
    assert len(unplannable.warnings) == 1
    assert mini.hub.pipelines["p"].sql.endswith("SELECT n, ts FROM s")


def test_a_pipeline_that_another_version_planned_is_not_replaced_without_a_word(
    tmp_path: Path, mini: Mini, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its columns may have had other names."""
    text = script(tmp_path, select="n + 1, ts")
    mini.hub.sql(text)
    mini.hub.sql(text)  # as declared
    monkeypatch.setattr(ColumnNames, "of", lambda self, node: "other" if isinstance(node, Apply) else node.parts[-1])
    with pytest.raises(AlreadyExists) as refused:
        mini.hub.sql(text)
    assert "text is the same" in refused.value.advice and "CREATE OR REPLACE PIPELINE" in refused.value.advice
    with pytest.raises(AlreadyExists) as refused:
        mini.hub.sql(text.replace("n + 1", "n + 2"))
    assert "text is the same" not in refused.value.advice
    kept = mini.hub.sql(text.replace("CREATE PIPELINE", "CREATE PIPELINE IF NOT EXISTS"))[-1]
    assert len(kept.warnings) == 1 and mini.hub.record("p").definition.program.output.names[0] == "(n + 1)"


def test_replacing_a_stream_warns_that_rows_are_read_again(tmp_path: Path, mini: Mini) -> None:
    mini.hub.sql(script(tmp_path))
    changed = script(tmp_path, "n INT").split(";")[0]
    with pytest.raises(AlreadyExists) as exists:
        mini.hub.sql(changed)
    with pytest.raises(InUse) as used:
        mini.hub.sql(changed.replace("CREATE", "CREATE OR REPLACE"))
    for problem in (exists.value, used.value):
        assert "a second time" in problem.advice
    mini.hub.sql("DROP PIPELINE p")
    replaced = mini.hub.sql(changed.replace("CREATE", "CREATE OR REPLACE"))[0]
    dropped = mini.hub.sql("DROP STREAM s")[0]
    for result in (replaced, dropped):
        assert "a second time" in result.warnings[0]
        assert "warning:" in result.render()


def test_the_option_for_bad_files_can_be_changed_with_pipelines_and_without_reading_again(
    tmp_path: Path, mini: Mini
) -> None:
    feed(tmp_path, 3, "2026-11-16T12:00:00Z")
    mini.hub.sql(script(tmp_path))
    mini.drain()
    changed = script(tmp_path, on_bad_file="skip").split(";")[0]
    with pytest.raises(AlreadyExists) as exists:
        mini.hub.sql(changed)
    assert "CREATE OR REPLACE STREAM" in exists.value.advice
    assert lost_with(mini.hub.catalog.streams["s"]) not in exists.value.advice
    result = mini.hub.sql(changed.replace("CREATE", "CREATE OR REPLACE"))[0]
    assert result.warnings == ()
    mini.drain()
    assert mini.hub.streams["s"].status().rows == 3
    assert "option on_bad_file" in mini.hub.sql("DESCRIBE STREAM s")[0].render()


def test_check_and_run_check_print_the_warnings(tmp_path: Path, mini: Mini) -> None:
    mini.hub.sql(script(tmp_path))
    file = tmp_path / "app.sql"
    file.write_text("CREATE PIPELINE IF NOT EXISTS p INTO out AS SELECT n FROM s")
    answer = CliRunner().invoke(app, ["run", str(file), "--check", "--state-dir", str(tmp_path / "other")])
    assert answer.exit_code == 0, answer.output
    assert "warning: " in answer.stderr
    assert "SHOW CREATE PIPELINE p" in answer.stderr


def test_the_count_of_dropped_records_is_known_while_the_gateway_runs_and_after_it(tmp_path: Path) -> None:
    class Gateway:
        def __init__(self) -> None:
            self.counted = {"tcp": {"dropped_records": 3}, "http": {"dropped_records": 4}}
            self.open = True

        def metrics(self, name: str) -> dict[str, Any] | None:
            if not self.open:
                return None
            return {"classes": self.counted}

        def addresses(self, name: str) -> list[str]:
            return []

        def close(self, name: str) -> None:
            self.open = False

    gateway: Any = Gateway()
    schema = Schema((Field("n", BIGINT),))
    stream = StreamDef("s", schema, None, 0, "tcp", "json", {"listen": "127.0.0.1:0"})
    intake = Intake(gateway, stream, tmp_path)
    assert intake.dropped() == 7
    gateway.counted = {"tcp": {"dropped_records": 9}}
    (tmp_path / "source").mkdir()
    assert intake.dropped() == 9
    gateway.counted = {"tcp": {"dropped_records": 12}}
    intake.close()
    assert not gateway.open
    assert intake.dropped() == 12
    assert Intake(gateway, stream, tmp_path).dropped() == 12  # of the next hub, before the stream runs


def test_warnings_reach_clients_of_the_service_and_scripts_that_read_its_output() -> None:
    result = Result("pipeline p exists and was left as it is", warnings=("it is declared differently",))
    assert from_json(statement_result(result, 10).model_dump()) == result
    formats: tuple[OutputFormat, ...] = ("table", "csv", "json")
    for how in formats:
        assert "it is declared differently" in printed([result], how)
