"""The figures that are required of a run, from its results. A figure that has no valid measurement is short."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.peers.comparison import Comparison
from bench.peers.latency import Latency
from bench.report import Report

NO_SLOWER = 0.95  # of the speed before; the rounds of one run differ by more than 5 %
MEMORY_PER_PIPELINE = 0.3  # MB


def judge(report: Report, found: Comparison) -> None:
    """Add the figures of a workload."""
    name = found.workload
    if name == "a":
        _ratio(report, found, "a_n8_over_before", ("before", 8), ("headrace", 8), NO_SLOWER)
        _growth(report, found, 2.0)
    elif name == "b":
        for count in (8, 32):
            _ratio(report, found, f"b_n{count}_over_flink", ("flink", count), ("headrace", count), 5.0)
        _ratio(report, found, "b_n8_over_duckdb", ("duckdb", 8), ("headrace", 8), 0.3)
    elif name == "c":
        _ratio(report, found, "c_n32_over_flink", ("flink", 32), ("headrace", 32), 6.0)
        _ratio(report, found, "c_n32_over_spark", ("spark", 32), ("headrace", 32), 15.0)
        _growth(report, found, 4.0)
    wrong = len(found.problems)
    report.require(f"{name}_systems_without_a_valid_time", wrong, 0, "at most")


def judge_memory(report: Report, per_pipeline: float) -> None:
    """Add the figure of memory: the bytes of a further pipeline, without its state."""
    report.require("memory_mb_per_further_pipeline", per_pipeline / 1e6, MEMORY_PER_PIPELINE, "at most", " MB")


def judge_latency(report: Report, found: Sequence[Latency]) -> None:
    """Add the figures of workload (e)."""
    by = {(one.rate, one.count): one for one in found}
    busy, many, most = by.get((50_000, 32)), by.get((5_000, 300)), by.get((50_000, 300))
    for kind in ("row", "window"):
        p50 = getattr(busy, f"{kind}_p50", None)
        p99 = getattr(busy, f"{kind}_p99", None)
        _limit(report, f"e_n32_50000_{kind}_p50", p50, 1.0, " s")
        _limit(report, f"e_n32_50000_{kind}_p99", p99, 2.0, " s")
        _limit(report, f"e_n300_5000_{kind}_p50", getattr(many, f"{kind}_p50", None), 2.0, " s")
    # "Does not grow": the second half is at most half as long again as the first, and all rows came out.
    grown = most.lag_second / max(most.lag_first, 0.1) if most is not None and most.complete else None
    _limit(report, "e_n300_50000_lag_second_half_over_first", grown, 1.5, "x")


def _ratio(
    report: Report, found: Comparison, name: str, slow: tuple[str, int], fast: tuple[str, int], bound: float
) -> None:
    numerator, denominator = found.seconds(*slow), found.seconds(*fast)
    value = numerator / denominator if numerator is not None and denominator is not None else 0.0
    report.require(name, value, bound, "at least", "x")


def _growth(report: Report, found: Comparison, bound: float) -> None:
    many, one = found.seconds("headrace", 32), found.seconds("headrace", 1)
    value = many / one if many is not None and one is not None else math.inf
    report.require(f"{found.workload}_n32_over_n1", value, bound, "at most", "x")


def _limit(report: Report, name: str, value: float | None, bound: float, unit: str) -> None:
    report.require(name, math.inf if value is None else value, bound, "at most", unit)
