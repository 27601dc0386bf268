"""The oracle of the soaks detects lost and duplicate rows."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.soak.damage import damage, some_of_each, targets
from tests.soak.ledger import Difference, Presence, once, same


@st.composite
def stays(draw: st.DrawFn) -> tuple[Presence, list[int], list[int], int]:
    """A pipeline that came and went: its ledger, the rows it saw, those of them that it must have seen, and all."""
    total = draw(st.integers(20, 200))
    count = draw(st.integers(1, 4))
    moments = sorted(draw(st.lists(st.integers(0, total), min_size=count, max_size=count)))
    presence, seen, must, last = Presence(), list[int](), list[int](), 0
    for number, moment in enumerate(moments):
        low, high = draw(st.integers(last, moment)), draw(st.integers(moment, total))
        high = min([high, *moments[number + 1 : number + 2]])
        presence.change(number % 2 == 0, low, high)
        end = moments[number + 1] if number + 1 < count else total
        if number % 2 == 0:
            seen += range(moment, end)
            must += range(high, end) if number + 1 == count else []
        last = high
    return presence, seen, must, total


@given(stays())
def test_what_a_pipeline_saw_between_its_bounds_is_right(stay: tuple[Presence, list[int], list[int], int]) -> None:
    presence, seen, _, total = stay
    presence.check("p", seen, total)


@given(stays(), st.randoms())
def test_a_row_that_is_doubled_lost_or_from_before_is_a_difference(
    stay: tuple[Presence, list[int], list[int], int], rng: random.Random
) -> None:
    presence, seen, must, total = stay
    if seen:
        with pytest.raises(Difference):
            presence.check("p", [*seen, rng.choice(seen)], total)
    if must:
        lost = rng.choice(must)
        with pytest.raises(Difference):
            presence.check("p", [i for i in seen if i != lost], total)
    before = range(presence.changes[0][1])
    if before:
        with pytest.raises(Difference):
            presence.check("p", [*seen, rng.choice(before)], total)


def test_a_hole_between_two_bounds_is_a_difference() -> None:
    presence = Presence()
    presence.change(True, 0, 50)
    presence.check("p", range(20, 100), 100)
    with pytest.raises(Difference):
        presence.check("p", [*range(20, 30), *range(40, 100)], 100)


def test_rows_are_there_once_or_may_be_missing_or_are_from_nowhere() -> None:
    once("s", [1, 2, 3], [1, 2], [3, 4])
    for found in ([1, 1, 2], [1], [1, 2, 5]):
        with pytest.raises(Difference):
            once("s", found, [1, 2], [3, 4])
    same("s", [1, 1, 2], [2, 1, 1])
    with pytest.raises(Difference):
        same("s", [1, 2], [1, 1, 2])


def test_every_kind_of_file_has_a_role_and_every_fault_changes_the_file(tmp_path: Path) -> None:
    names = ("state/catalog.json", "state/streams/s/plans/00000001.json", "state/streams/s/plans/00000002.json",
             "state/streams/s/plans/00000003.json", "out/a/_headrace/manifests/0123456789abcdef-1-2.json",
             "out/a/part-1.jsonl")  # fmt: skip
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('{"a": 1}')
    found = targets(tmp_path)
    assert {t.role for t in found} == {
        "state/catalog.json",
        "state/streams/*/plans/N.json",
        "out/*/_headrace/manifests/U-N-N.json",
    }
    assert {t.stream for t in found} == {None, "s"}
    assert [len(some_of_each(found, oldest)) for oldest in (True, False)] == [4, 3]
    for fault, size in (("flipped", 8), ("halved", 4), ("emptied", 0)):
        file = tmp_path / "state" / fault
        file.write_text('{"a": 1}')
        damage(file, fault, random.Random(1))
        assert file.stat().st_size == size and file.read_bytes() != b'{"a": 1}'
    damage(file, "removed", random.Random(1))
    assert not file.exists()
