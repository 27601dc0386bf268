"""What a run shows: phases of the start, live view, plain lines, progress, and what else is in the state directory."""

from __future__ import annotations

import io
import logging
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from headrace.app.attending import attended
from headrace.app.check import check_script
from headrace.app.interrupts import Interrupts
from headrace.app.run import RunSettings, not_in_script, run_script
from headrace.app.view.displays import (
    LINE_SECONDS,
    LineDisplay,
    LiveDisplay,
    SilentDisplay,
    choose_display,
    phases_to,
)
from headrace.app.view.input_progress import InputProgress
from headrace.app.view.lines import closing_line
from headrace.base.logs import facts
from tests.app.test_closing import feed, script
from tests.app.test_view import FRESH, STREAM, pipeline
from tests.shared.mini import Mini


def test_lines_show_phases_at_once_and_the_status_only_when_it_changed() -> None:
    said: list[str] = []
    now = [0.0]
    shown = LineDisplay(said.append, clock=lambda: now[0])
    shown.phase("starting Spark on local[*]")
    assert said == ["starting Spark on local[*] ..."]
    shown.update([STREAM], [pipeline("hot")], "", None)
    assert len(said) == 1  # too early
    now[0] = LINE_SECONDS + 1
    shown.update([STREAM], [pipeline("hot")], "", InputProgress(75, 25, 3.0))
    assert said[1].startswith("sensors: ")
    assert said[-1] == "  75% of 100 B read, about 3 s left"
    before = len(said)
    now[0] = 3 * LINE_SECONDS
    shown.update([STREAM], [pipeline("hot")], "", None)
    assert len(said) == before  # no epoch since
    shown.update([replace(STREAM, epoch=18)], [], "", None)
    assert len(said) > before
    shown.update([replace(STREAM, epoch=18)], [], "", InputProgress(100, 0, None, ended=True))
    assert said[-1] == "  100% of 100 B read"  # at once, and once
    before = len(said)
    shown.update([replace(STREAM, epoch=18)], [], "", InputProgress(100, 0, None, ended=True))
    assert len(said) == before


def test_the_live_view_shows_phases_then_the_status_with_a_bar_and_keeps_the_last_picture() -> None:
    out = io.StringIO()
    shown = LiveDisplay(Console(file=out, force_terminal=True, width=100))
    with shown:
        shown.phase("starting Spark on local[*]")
        shown.tick()
        assert "starting Spark on local[*] ..." in out.getvalue()
        shown.say("pipeline cold failed")
        shown.update([STREAM], [pipeline("hot")], "Ctrl-C stops", InputProgress(750_000, 250_000, 12.0))
    text = out.getvalue()
    assert "pipeline cold failed" in text
    last = text[text.rindex("stream sensors") :]
    for fact in ("1.23M", "hot", "Ctrl-C stops", "75% of 1.0 MB read, about 12 s left"):
        assert fact in last


def test_a_live_view_that_ends_during_the_start_leaves_nothing_behind() -> None:
    out = io.StringIO()
    with LiveDisplay(Console(file=out, force_terminal=True, width=100)) as shown:
        shown.phase("starting Spark")
        shown.tick()
    assert out.getvalue().rstrip().endswith("\x1b[2K\x1b[?25h") or "\x1b[2K" in out.getvalue()[-30:]


def test_pipes_get_lines_json_and_quiet_get_neither_phases_nor_status(capsys: pytest.CaptureFixture[str]) -> None:
    options = {"quiet": False, "as_json": False, "prints_rows": False}
    assert type(choose_display(**options, say=print)) is LineDisplay
    for key in ("quiet", "as_json"):
        assert type(choose_display(**options | {key: True}, say=print)) is SilentDisplay


def test_a_terminal_gets_the_live_view_unless_rows_are_printed_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with choose_display(quiet=False, as_json=False, prints_rows=False, say=print) as shown:
        assert type(shown) is LiveDisplay
    assert type(choose_display(quiet=False, as_json=False, prints_rows=True, say=print)) is LineDisplay


def test_phases_come_from_the_log_of_the_hub() -> None:
    said: list[str] = []
    with phases_to(LineDisplay(said.append)):
        logging.getLogger("headrace.hub.launcher").info("starting Spark", extra=facts("phase"))
        logging.getLogger("headrace.stream").info("epoch 7", extra=facts("epoch"))
    logging.getLogger("headrace.hub.launcher").info("starting Spark", extra=facts("phase"))
    assert said == ["starting Spark ..."]


def test_progress_counts_all_streams_and_the_slowest_decides_the_time() -> None:
    one = replace(FRESH, bytes=10_000_000, lag_bytes=30_000_000, mb_per_s=10.0)
    other = replace(FRESH, bytes=10_000_000, lag_bytes=10_000_000, mb_per_s=1.0)
    both = InputProgress.of([one, other])
    assert both.share == pytest.approx(1 / 3)
    assert both.seconds_left == 10.0
    assert InputProgress.of([one, replace(other, mb_per_s=0.0)]).seconds_left is None
    assert InputProgress.of([replace(one, lag_bytes=1 << 40)]).seconds_left is None  # a source without an end
    assert not InputProgress.of([FRESH]).known
    done = InputProgress.of([replace(one, lag_bytes=0, running=False)])
    assert done.ended
    assert done.words() == "100% of 10.0 MB read"


def test_the_last_epoch_is_not_done_before_it_is_committed() -> None:
    assert InputProgress.of([replace(FRESH, bytes=99, lag_bytes=0)]).words().startswith("99% of")


def test_work_in_another_thread_lets_ctrl_c_be_seen_at_once() -> None:
    seen: list[float] = []
    release = threading.Event()
    with Interrupts() as interrupts:
        interrupts.prints = False

        def tick() -> None:
            if interrupts.asked.is_set():
                seen.append(time.monotonic())
                release.set()

        def work() -> str:
            sent.append(time.monotonic())
            signal.raise_signal(signal.SIGINT)
            assert release.wait(30)
            return "done"

        sent: list[float] = []
        assert attended(work, tick, 0.01) == "done"
    assert seen


def test_an_error_of_the_work_reaches_the_caller() -> None:
    def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        attended(work)


def test_every_count_that_is_not_zero_is_in_the_closing_line() -> None:
    line = closing_line(replace(STREAM, rejected=3, dead_letters=2, far_future=1, dropped=4, skipped_files=5, nulled=6))
    for words in (
        "3 rejected",
        "2 in the dead letter sink",
        "1 too far in the future",
        "4 dropped",
        "5 files left out",
    ):
        assert words in line
    assert "dead letter" not in closing_line(STREAM)


def test_a_run_mentions_what_its_script_does_not_declare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    mini = Mini(tmp_path / "other", monkeypatch)
    feed(tmp_path, 10, at="2026-11-16T12:00:00Z")
    settings = RunSettings(tmp_path / "state", until_end=True)
    assert run_script(script(tmp_path), settings) == 0
    capsys.readouterr()
    other = (
        script(tmp_path)
        .replace("PIPELINE p", "PIPELINE q")
        .replace("SINK out", "SINK more")
        .replace("INTO out", "INTO more")
    )
    assert run_script(other, settings) == 0
    lines = capsys.readouterr().err.splitlines()
    assert "pipeline p is running: declared earlier, not by this script" in lines
    assert "sink out is declared earlier, not by this script" in lines
    assert run_script(other, replace(settings, quiet=True)) == 0
    quiet = capsys.readouterr()
    assert quiet.out == ""
    assert not [line for line in quiet.err.splitlines() if "not by this script" in line]
    assert "stream s" in quiet.err  # the totals stay
    mini.hub.close()


def test_nothing_is_mentioned_when_the_script_declares_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    mini = Mini(tmp_path / "state", monkeypatch)
    text = script(tmp_path)
    mini.hub.sql(text)
    assert not_in_script(mini.hub.catalog, check_script(text)) == []
    mini.hub.close()
