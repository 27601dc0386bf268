"""The first hour, without installing. `make first-hour` does all of it from a clean clone."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.first_hour.steps import FirstHour, golden

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_every_step_prints_what_it_printed_before_and_the_results_are_right(tmp_path: Path) -> None:
    hour = FirstHour(Path(sys.executable).parent, tmp_path, {**os.environ, "COLUMNS": "120", "TERM": "dumb"})
    hour.most()
    expected = golden()
    assert list(expected)[: len(hour.steps)] == list(hour.steps)
    for command, said in hour.steps.items():
        assert said == expected[command], command
