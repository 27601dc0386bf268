"""A fan-in goes on only when every input has spoken, and names those that have not."""

from __future__ import annotations

import pytest

from headrace.control.alignment import require_all
from headrace.errors import MissingInput


def test_all_inputs_in_any_order_are_enough() -> None:
    require_all("lane 1/0", "task", range(3), [2, 0, 1])
    require_all("lane 1/0", "task", range(0), [])
    require_all("lane 1/0", "task", range(1), {0: "more than asked", 1: "is fine"})


def test_the_missing_inputs_are_named() -> None:
    with pytest.raises(MissingInput) as caught:
        require_all("lane 1/0", "task", range(4), {1: "a", 2: "b"})
    assert caught.value.params == {"where": "lane 1/0", "missing": [0, 3]}
    assert caught.value.fault.value == "ours"
