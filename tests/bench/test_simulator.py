"""The simulator of bench.scale against brute force, and the cost model against costs that are known."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import feed
from bench.peers.comparison import Comparison
from bench.peers.contender import Timed
from bench.peers.workloads import WORKLOADS
from bench.report import Report
from bench.scale.calibration import load_of
from bench.scale.model import DEPENDS, PARTS, CostModel, Load, Observation, distinct, fit, nonnegative
from bench.scale.predictions import check_peers, epochs_of
from bench.scale.scenarios import Demand, fewest, phases, settle
from bench.scale.simulator import Cluster, bucket_shares, makespan, slowed, spread, stable_period, zipf

DURATIONS = st.lists(st.integers(0, 9), max_size=8)


def step_by_step(durations: list[int], slots: int, launch: int) -> int:
    """The same rule, second by second: the driver hands a task out every `launch` seconds, to the first free core."""
    if not durations:
        return 0
    running: list[int] = []  # seconds left of each busy core
    waiting, ended, clock = list(enumerate(durations)), 0, 0
    while waiting or running:
        while waiting and len(running) < slots and clock >= (waiting[0][0] + 1) * launch:
            task = waiting.pop(0)[1]
            if task:
                running.append(task)
            ended = max(ended, clock)
        clock += 1
        running = [left - 1 for left in running]
        if 0 in running:
            ended = clock
        running = [left for left in running if left]
    return ended


@given(DURATIONS, st.integers(1, 4), st.integers(0, 3))
def test_the_makespan_is_that_of_a_schedule_run_second_by_second(durations: list[int], slots: int, launch: int) -> None:
    assert makespan(durations, slots, launch) == step_by_step(durations, slots, launch)


@given(DURATIONS, st.integers(1, 4))
def test_no_schedule_beats_the_bounds_of_its_work(durations: list[int], slots: int) -> None:
    found = makespan(durations, slots)
    assert found >= max(durations, default=0)
    assert found >= sum(durations) / slots
    assert found <= sum(durations)


def test_stragglers_are_a_share_of_the_tasks_and_the_same_for_the_same_seed() -> None:
    found = slowed([1.0] * 10_000, 0.1, 3.0, seed=5)
    assert found == slowed([1.0] * 10_000, 0.1, 3.0, seed=5)
    assert 800 < sum(one == 3.0 for one in found) < 1200
    assert set(found) == {1.0, 3.0}


@given(st.integers(1, 200), st.integers(1, 16), st.sampled_from([0.0, 0.8, 1.5]))
def test_buckets_have_the_rows_of_the_keys_in_them(keys: int, buckets: int, exponent: float) -> None:
    shares = zipf(keys, exponent)
    assert sum(shares) == pytest.approx(1.0)
    found = bucket_shares(shares, buckets, lambda key: spread(key, buckets))
    expected = [sum(share for key, share in enumerate(shares) if spread(key, buckets) == b) for b in range(buckets)]
    assert found == pytest.approx(expected)
    assert all(0 <= spread(key, buckets) < buckets for key in range(keys))


def test_a_hot_key_makes_its_bucket_the_largest() -> None:
    shares = bucket_shares(zipf(10_000, 1.2), 16, lambda key: spread(key, 16))
    assert max(shares) == shares[spread(0, 16)] > 3 / 16
    even = bucket_shares(zipf(10_000, 0.0), 16, lambda key: spread(key, 16))
    assert max(even) < 1.2 / 16


@pytest.mark.parametrize(("fixed", "rate"), [(0.5, 0.2), (2.0, 0.9), (0.3, 0.0)])
def test_the_stable_period_is_the_first_that_the_work_keeps_up_with(fixed: float, rate: float) -> None:
    """Work of `fixed + rate * period`: it keeps up from fixed / (1 - rate) on."""
    found = stable_period(lambda seconds: fixed + rate * seconds)
    assert found == pytest.approx(fixed / (1 - rate), rel=0.02)


def test_work_that_grows_faster_than_its_input_has_no_stable_period() -> None:
    assert stable_period(lambda seconds: 0.1 + 1.01 * seconds) is None


def brute_force_nonnegative(matrix: np.ndarray, target: np.ndarray) -> float:
    """The least error over all subsets of coefficients, with those that come out negative left out."""
    best = float(target @ target)
    for size in range(1, matrix.shape[1] + 1):
        for chosen in itertools.combinations(range(matrix.shape[1]), size):
            solved = np.linalg.lstsq(matrix[:, chosen], target, rcond=None)[0]
            if (solved >= 0).all():
                best = min(best, float(np.sum((matrix[:, chosen] @ solved - target) ** 2)))
    return best


@given(st.integers(0, 10_000))
def test_the_fit_is_as_good_as_the_best_of_all_subsets(seed: int) -> None:
    random = np.random.default_rng(seed)
    matrix, target = random.random((8, 4)), random.normal(size=8)
    found = np.array(nonnegative(matrix, target))
    assert (found >= 0).all()
    error = float(np.sum((matrix @ found - target) ** 2))
    assert error == pytest.approx(brute_force_nonnegative(matrix, target), abs=1e-9)


def test_known_costs_are_found_again() -> None:
    random = np.random.default_rng(1)
    true = CostModel({part: {name: random.uniform(1e-6, 1e-3) for name in names} for part, names in DEPENDS.items()})
    loads = [
        Load(
            rows=float(random.integers(1, 50)),
            megabytes=float(random.integers(1, 50)),
            columns=int(random.integers(1, 50)),
            tasks=int(random.integers(1, 50)),
            pipelines=int(random.integers(2, 50)),
            families=int(random.integers(1, 50)),
            stateless=1,
            doubles=int(random.integers(0, 9)),
            partials=float(random.integers(1, 50)),
            merged=float(random.integers(1, 50)),
            closed=float(random.integers(1, 50)),
        )
        for _ in range(60)
    ]
    seen = [Observation("", load, {part: true.part(part, load) for part in PARTS}) for load in loads]
    model = fit(seen)
    for load in loads:
        assert model.total(load) == pytest.approx(true.total(load), rel=1e-6)


@given(st.integers(1, 300), st.integers(1, 60))
def test_the_number_of_groups_is_near_the_one_that_is_drawn(rows: int, cells: int) -> None:
    drawn = np.random.default_rng(rows * 1000 + cells).integers(0, cells, (200, rows))
    mean = float(np.mean([len(set(one)) for one in drawn]))
    assert distinct(rows, cells) == pytest.approx(mean, rel=0.1, abs=0.6)


def test_the_counts_of_an_epoch_are_those_of_its_rows() -> None:
    """Groups of workload (b), counted in rows that are really spread over its keys."""
    workload = WORKLOADS["b"]
    epoch, width = range(30_000, 90_000), 40 * feed.PER_SECOND
    users = np.random.default_rng(3).integers(0, workload.keys, len(epoch))
    load = load_of(workload, workload.first(1), epoch, 2, 20.0)
    groups = sum(
        len({(n // width, users[n - epoch.start]) for n in rows})
        for rows in (range(30_000, 60_000), range(60_000, 90_000))
    )
    assert load.partials == pytest.approx(groups, rel=0.03)
    assert (load.pipelines, load.families, load.stateless, load.columns) == (1, 1, 0, 3)
    assert load.merged == load.partials  # no window is in one task as a whole


def test_only_rows_of_windows_that_are_not_in_one_task_as_a_whole_are_merged() -> None:
    workload = WORKLOADS["b"]  # windows of 40,000 rows
    query = workload.first(1)
    whole, open_still = (load_of(workload, query, range(30_000, end), 1, 20.0) for end in (121_001, 121_000))
    edges = distinct(10_000, workload.keys) + distinct(1_001, workload.keys)
    assert whole.merged == pytest.approx(edges)
    assert whole.partials == pytest.approx(edges + 2 * distinct(40_000, workload.keys))
    assert open_still.merged == pytest.approx(edges + distinct(40_000, workload.keys), rel=0.01)


@pytest.mark.parametrize("rows", [200_000, 800_000, 1_600_000, 2_000_000])
def test_the_epochs_of_a_run_have_every_row_once(rows: int) -> None:
    found = epochs_of(rows)
    assert [n for epoch in found for n in (epoch.start, epoch.stop)][1:-1:2] == [e.start for e in found[1:]]
    assert sum(map(len, found)) == rows and max(map(len, found)) <= 1_600_000
    assert len(found) == -(-rows // 1_600_000)


def test_runs_on_spark_are_predicted_from_those_with_one_and_with_16_pipelines() -> None:
    """CPU that is the model's, and Spark's per epoch and in the first round, is predicted without an error."""
    rows, kept = 800_000, {}
    for name in ("a", "b", "c"):
        runs: dict[int, list[Timed]] = {}
        for count in (1, 2, 8, 16, 32):
            load = load_of(WORKLOADS[name], WORKLOADS[name].first(count), range(100_000, 900_000), 2, 250.0)
            spent = COSTS.total(load) + 0.7
            rounds = 1 if count in (2, 16) else 3
            runs[count] = [Timed(1.0, spent + 0.3 * (number == 0), 1) for number in range(rounds)]
        kept[name] = {"result": Comparison(name, rows, 250_000_000, {"headrace": runs}).plain()}
    report = Report()
    check_peers(report, COSTS, kept, lambda text: None)
    assert len(report.figures) == 2 * 3 + 5
    assert all(figure.value == pytest.approx(0.0, abs=1e-6) for figure in report.figures)


COSTS = CostModel(
    {
        "plan": {"epoch": 0.003, "pipeline": 4e-5},
        "tasks": {"task": 0.005, "MB": 0.001, "value": 1e-7, "partial row": 2e-7},
        "state": {"epoch": 0.001, "closed row": 4e-7},
        "commit": {"epoch": 0.002, "pipeline": 1e-4, "task": 1e-4},
    },
    bridge_bytes=50.0,
    state_bytes=50.0,
)


def test_the_fewest_executors_are_found_as_by_trying_all() -> None:
    demand, cluster = Demand(600.0, 32, keys=20_000), Cluster(1)
    found = fewest(COSTS, demand, 2.0, cluster, most=16)
    tried = [n for n in range(1, 17) if settle(COSTS, demand, replace(cluster, executors=n), 2.0) is not None]
    assert found is not None and tried and found.executors == tried[0]


def test_the_drivers_phases_do_not_grow_with_rows_and_those_of_tasks_do() -> None:
    cluster = Cluster(4)
    few, many = (phases(COSTS, Demand(rate, 32), cluster, 1.0) for rate in (10.0, 1000.0))
    assert many.driver == pytest.approx(few.driver)
    assert many.ring0 > 2 * few.ring0
