"""The states of a pipeline: only the transitions of the table are allowed, and reasons and times are kept."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from headrace.errors import IllegalTransition
from headrace.model.definitions import PipelineDef
from headrace.model.status import State, StateChange
from headrace.state.catalog import Catalog, PipelineRecord
from headrace.state.lifecycle import KEPT_CHANGES, TRANSITIONS, follow
from tests.ring0.tasks import stateless

PIPELINE: PipelineDef = stateless(3, 0)


@pytest.mark.parametrize(("before", "after"), list(product(TRANSITIONS, TRANSITIONS)))
def test_only_the_transitions_of_the_table_are_possible(before: State, after: State) -> None:
    record = PipelineRecord(PIPELINE, (StateChange(before, "so it was", 1.0),))
    if after in TRANSITIONS[before]:
        changed = record.to(after, "why", 2.0)
        assert changed.history == (*record.history, StateChange(after, "why", 2.0))
        assert changed.error == ("why" if after == "failed" else "")
    else:
        with pytest.raises(IllegalTransition) as caught:
            record.to(after, "why", 2.0)
        assert caught.value.params == {"before": before, "after": after}


def test_every_state_can_be_reached_and_left() -> None:
    reached = {after for allowed in TRANSITIONS.values() for after in allowed}
    assert reached == set(TRANSITIONS) - {"created"}
    assert all(TRANSITIONS.values())


def test_only_the_newest_changes_are_kept() -> None:
    history: tuple[StateChange, ...] = (StateChange("created", "", 0.0),)
    for i in range(40):
        history = follow(history, "starting" if i % 2 == 0 else "running", str(i), float(i))
    assert len(history) == KEPT_CHANGES and history[-1].reason == "39"


def test_marking_skips_pipelines_in_that_state() -> None:
    catalog = Catalog().with_pipeline(PipelineRecord(PIPELINE).to("starting", "first"))
    assert catalog.marked([3], "starting", "again") is catalog
    assert catalog.marked([4], "running", "not this one") is catalog
    assert catalog.marked([3], "running", "go").pipelines["p3"].history[-1].reason == "go"


def test_the_document_has_the_table_of_transitions() -> None:
    text = (Path(__file__).parents[2] / "docs" / "control.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z]+) \| ([a-z, ]+) \|$", text, re.MULTILINE)
    assert {before: tuple(after.split(", ")) for before, after in rows if before in TRANSITIONS} == TRANSITIONS
