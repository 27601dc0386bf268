"""The harness of bench-peers without the other systems: queries, reference, figures, tables, pictures."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path

import duckdb
import pytest

from bench import feed
from bench.peers import figures, flame, tables
from bench.peers.comparison import FULL, QUICK, Comparison
from bench.peers.contender import Timed
from bench.peers.environments import SYSTEMS, CannotInstall, System, environment, sources
from bench.peers.events import events
from bench.peers.latency import Latency, closing_file, percentile
from bench.peers.reference import Reference
from bench.peers.run_duckdb import DuckDB
from bench.peers.workloads import WORKLOADS, different
from bench.report import Report
from headrace.sql import parse_script
from scripts import plots


def test_32_different_queries_have_eight_key_sets_eight_windows_and_ten_columns() -> None:
    queries = [different(number) for number in range(32)]
    windowed = [query.family for query in queries if query.family is not None]
    assert len({family.keys for family in windowed}) == 8
    assert len({family.seconds for family in windowed}) == 8
    needed = {name for query in queries for name in query.needs}
    assert len(needed & {"value", "seq", *(f"x{n}" for n in range(8))}) == 10
    assert len(windowed) == 28
    assert len({query.spark for query in queries}) == 32


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_query_is_sql_that_headrace_reads(name: str) -> None:
    for query in WORKLOADS[name].first(32):
        parse_script(f"CREATE PIPELINE p INTO out AS {query.spark}")


def test_the_generator_of_events_gives_the_same_rows_for_the_same_seed() -> None:
    found = events(1000, 500)
    assert found.equals(events(1000, 500))
    assert not found.equals(events(1000, 500, seed=2))
    kinds = found.column("event_type").to_pylist()
    assert [kinds.count(kind) for kind in (0, 1, 2)] == [10, 30, 460]
    auctions = found.column("auction").to_pylist()
    assert [value is None for value in auctions] == [kind != 2 for kind in kinds]


@pytest.fixture(params=["a", "c"])
def checked(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Reference, Path]:
    """The reference of 16 queries over 3,000 rows, and the outputs of the single pass."""
    workload = WORKLOADS[request.param]
    files = feed.write(tmp_path / "data", 2, 1_500, 50)
    system = DuckDB()
    system.check(workload, 16, files, tmp_path / "out")
    system.close()
    return Reference(workload, 16, files), tmp_path / "out"


def test_the_single_pass_agrees_with_the_reference(checked: tuple[Reference, Path]) -> None:
    reference, out = checked
    assert reference.rows() > 0
    assert reference.differences(out, 16, closed_only=False) == []


@pytest.mark.parametrize("damage", ["a missing row", "a wrong cell", "a repeated row", "no output"])
def test_the_reference_finds(damage: str, checked: tuple[Reference, Path]) -> None:
    reference, out = checked
    path = out / "0" / "rows.parquet"
    with duckdb.connect() as database:
        database.execute(f"CREATE TABLE r AS FROM '{path}'")
        if damage == "a missing row":
            database.execute("DELETE FROM r WHERE rowid = 0")
        elif damage == "a wrong cell":
            database.execute("UPDATE r SET n = n + 1 WHERE rowid = 1")
        elif damage == "a repeated row":
            database.execute("INSERT INTO r FROM r LIMIT 1")
        path.unlink()
        if damage != "no output":
            database.execute(f"COPY r TO '{path}'")
    found = reference.differences(out, 16, closed_only=False)
    assert len(found) == 1 and found[0].startswith("p0: ")


def test_a_system_that_leaves_open_windows_out_is_right_only_if_it_may(checked: tuple[Reference, Path]) -> None:
    reference, out = checked
    assert reference.differences(out, 16, closed_only=True) != []


def compared(workload: str, **seconds: dict[int, float]) -> Comparison:
    runs = {system: {n: [Timed(s, s, 1)] for n, s in by.items()} for system, by in seconds.items()}
    return Comparison(workload, 1_000, 1_000, runs)


def judged(found: Comparison) -> dict[str, bool]:
    report = Report()
    figures.judge(report, found)
    return {figure.name: figure.ok for figure in report.figures}


def test_figures_compare_the_medians_of_the_systems() -> None:
    found = judged(compared("b", headrace={8: 1.0, 32: 1.0}, flink={8: 5.1, 32: 4.9}, duckdb={8: 0.31}))
    assert found == {
        "b_n8_over_flink": True,
        "b_n32_over_flink": False,
        "b_n8_over_duckdb": True,
        "b_systems_without_a_valid_time": True,
    }


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_a_figure_without_a_valid_time_is_short(name: str) -> None:
    nothing = compared(name)
    nothing.problems["flink"] = "cannot be installed"
    assert not any(judged(nothing).values())


def test_a_latency_that_was_not_measured_is_short() -> None:
    report = Report()
    figures.judge_latency(report, [])
    assert report.figures and not any(figure.ok for figure in report.figures)


def test_growing_lag_is_short() -> None:
    def ok(first: float, second: float, complete: bool) -> bool:
        report = Report()
        figures.judge_latency(report, [Latency(50_000, 300, 1, 1, 1, 1, first, second, complete)])
        return next(figure.ok for figure in report.figures if "lag" in figure.name)

    assert ok(2.0, 2.5, True)
    assert not ok(2.0, 4.0, True)
    assert not ok(2.0, 2.0, False)


def test_a_percentile_counts_rows_not_epochs() -> None:
    assert percentile([(1.0, 98), (2.0, 1), (9.0, 1)], 0.5) == 1.0
    assert percentile([(9.0, 1), (1.0, 98), (2.0, 1)], 0.99) == 2.0
    assert percentile([(9.0, 2), (1.0, 98)], 0.99) == 9.0


def test_a_window_arrives_with_the_file_that_lets_it_close(tmp_path: Path) -> None:
    """Rate 1,000, 100 rows a file: window [3 s, 4 s) closes with the row at 5 s, the first of file 50."""
    start_ms = (feed.START_SECONDS + 3) * 1000
    assert closing_file(start_ms, 1_000, 100) == 50
    files = feed.write(tmp_path / "data", 51, 100, 10, per_second=1_000)
    newest = [json.loads(path.read_text().splitlines()[-1])["ts"] for path in files[49:]]
    assert newest[0] < "2026-01-01T00:00:05" <= newest[1]


def test_results_survive_json_and_become_tables() -> None:
    found = compared("a", headrace={1: 0.5, 8: 1.0}, flink={8: 2.0})
    found.runs["headrace"][8] += [Timed(2.0, 3.0, 2_000_000), Timed(4.0, 3.0, 1_000_000)]
    found.problems["flink"] = "differs"
    again = Comparison.of(json.loads(json.dumps(found.plain())))
    assert again == found
    assert list(tables.rates(again)) == [
        "| rows/s | headrace | flink | spark | duckdb |",
        "|---|---|---|---|---|",
        "| N = 1 | 2,000 |  |  |  |",
        "| N = 8 | 500 (250-1,000) |  |  |  |",
    ]
    assert list(tables.costs(again))[-1] == "| N = 8 | 3.0, 2 |  |  |  |"


def test_stored_results_take_the_place_of_older_ones_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(tables, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(plots, "plots", dict)
    monkeypatch.setattr("sys.argv", ["tables", "--write"])
    part = {"quick": True, "date": "a day", "load": [1.2, 2.6], "cores": 2, "figures": ["ok x 1"]}
    (tmp_path / "page.md").write_text(f"above\n{tables.BEGIN}\nold\n{tables.END}\nbelow\n")
    tables.keep("a", part | {"result": compared("a", headrace={1: 0.5}).plain()})
    seen = asdict(Latency(5_000, 8, 0.5, 1.0, None, None, 0.1, 0.2, True))
    tables.keep("e", part | {"result": [seen]})
    tables.main()
    page = (tmp_path / "page.md").read_text()
    assert page.startswith("above\n") and page.endswith("\nbelow\n") and "old" not in page
    assert "| N = 1 | 2,000 |" in page and "| 5,000 | 8 | 0.50 | 1.00 |  |  | 0.10 | 0.20 |" in page
    assert "QUICK=1, a day, load 1 to 3 on 2 cores." in page


def test_cpu_is_shown_as_a_multiple_of_ours() -> None:
    found = compared("a", headrace={8: 2.0}, flink={8: 9.0}, spark={8: 1.0, 32: 5.0}, duckdb={8: 1.0})
    found.problems["duckdb"] = "differs"
    assert found.cpu_ratios() == {"flink N=8": 4.5, "spark N=8": 0.5}


def test_every_count_has_headrace_and_every_system_is_known() -> None:
    for effort in (FULL, QUICK):
        assert set(effort.counts) == set(WORKLOADS)
        for by in effort.counts.values():
            assert set(by) <= set(SYSTEMS)
            assert {n for counts in by.values() for n in counts} == set(by["headrace"])


def test_a_package_that_does_not_exist_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.peers.environments.CACHE", tmp_path)
    monkeypatch.setattr("bench.peers.environments.ROOT", tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(CannotInstall, match="nothing-like-this"):
        environment("x", ("nothing-like-this==0.0.1",))
    with pytest.raises(CannotInstall):
        sources(System("old", "module", revision="no-such-revision"))


RAW = (
    "process 1:java;run (/x/site-packages/pyspark/worker.py:9);parse (/x/src/headrace/formats/json.py:3) 6\n"
    "run (/x/site-packages/pyspark/worker.py:9);close (/x/src/headrace/ring1/lane.py:7) 3\n"
    "main (/usr/lib/python3.11/threading.py:1) 1\n"
    "main (/x/site-packages/pyspark/daemon.py:5);manager (/x/site-packages/pyspark/daemon.py:9) 50\n"
    "serve (/x/y/bench/peers/worker.py:5);wait_for (/x/y/bench/peers/run_headrace.py:9) 50\n"
)


def test_a_flame_graph_names_costs_and_hides_the_machines_directories() -> None:
    stacks = flame.parse(RAW)
    assert stacks[0] == (["run (pyspark/worker.py)", "parse (headrace/formats/json.py)"], 6)
    assert flame.costs(stacks)[:2] == [("decoding JSON", 0.6), ("Ring 1: state and closing windows", 0.3)]
    assert flame.hottest(stacks, "decoding JSON") == "parse (headrace/formats/json.py)"
    picture = flame.draw(stacks, "a title")
    assert "run (pyspark/worker.py): 90.0%" in picture and "/x/" not in picture
    assert picture.count("<rect") == 1 + 1 + 2 + 2  # background, root, two roots of stacks, two leaves


def test_the_loop_that_sends_messages_does_not_count_for_what_it_calls() -> None:
    inside = ["read_partition (headrace/spark/epochs.py)", "batches (headrace/bridge/messages.py)"]
    inside.append("run (headrace/ring0/task.py)")
    leaves = {
        "shares_of (headrace/ring0/folding.py)": "Ring 0: aggregating and encoding by kernels",
        "run (headrace/exec/duck.py)": "Ring 0: passes in DuckDB",
        "packs (headrace/bridge/packs.py)": "Ring 0: cutting and sending partial results",
        "_line (headrace/ring0/task.py)": "Ring 0: the rest",
        "decode (headrace/formats/json.py)": "decoding JSON",
    }
    for leaf, name in leaves.items():
        assert flame.costs([([*inside, leaf], 1)]) == [(name, 1.0)]


def test_nothing_is_infinite_in_a_figure_that_was_measured() -> None:
    report = Report()
    figures.judge(report, compared("a", headrace={1: 1.0, 8: 1.0, 32: 1.5}, before={8: 1.0}))
    assert all(math.isfinite(figure.value) and figure.ok for figure in report.figures)
