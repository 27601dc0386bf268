"""A short run of `make fuzz-http`."""

from __future__ import annotations

from tests.ingress import fuzz


def test_hostile_requests_lose_double_and_invent_nothing_and_leave_nothing_open() -> None:
    report = fuzz.run(seed=12, seconds=60, cases=60)
    timings = {"slowest_answer_to_a_good_client_s"}  # a figure for `make fuzz-http`, not for a test
    assert [f.line() for f in report.figures if not f.ok and f.name not in timings] == []
    assert report.facts["connections"] == 60
