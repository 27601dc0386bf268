"""A bounded run of the fuzzer, and one with bounds checks in the kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.formats import fuzz


def test_damaged_input_with_random_options_is_read_the_same_however_it_is_cut() -> None:
    outcome = fuzz.run(seed=11, seconds=60, cases=400)
    assert outcome.total > 50
    assert outcome.cases["compared"] > 10
    assert outcome.grown <= fuzz.MOST_MB


@pytest.mark.slow
def test_kernels_with_bounds_checks_read_nothing_outside_their_buffers() -> None:
    root = Path(__file__).parents[2]
    answer = subprocess.run(
        [sys.executable, "-m", "tests.formats.fuzz", "--seed", "12", "--cases", "150", "--seconds", "240"],
        cwd=root, capture_output=True, text=True, timeout=600,
        env={**os.environ, "HEADRACE_CHECKED_KERNELS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert answer.returncode == 0, answer.stdout + answer.stderr
